/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that ranks leave, each its own, and whose they are. */
#include "runtime/base/error.h"
#include "runtime/context/context.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int weft__rank_file(const struct weft_context *context, const char *directory, const char *what,
                    unsigned *number, char *path, size_t size)
{
    const struct weft__transport *transport = context->engine.transport;
    for (;;) {
        int length = snprintf(path, size, "%s/weft-%s.%d-of-%d.%ld.%u.json", directory, what,
                              transport->rank, transport->size, (long)getpid(), *number);
        if (length < 0 || (size_t)length >= size)
            return weft__error(WEFT_ERR_IO, "%.64s...: %s", directory, strerror(ENAMETOOLONG));
        int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file >= 0) {
            close(file);
            ++*number;
            return WEFT_OK;
        }
        if (errno != EEXIST)
            return weft__error(WEFT_ERR_IO, "%s: %s", path, strerror(errno));
        ++*number;
    }
}

void weft__origin(const struct weft__transport *transport, char group[WEFT__ORIGIN_BYTES],
                  char clock[WEFT__ORIGIN_BYTES])
{
    group[0] = '\0';
    if (transport->group != 0)
        snprintf(group, WEFT__ORIGIN_BYTES, "%s %016llx", transport->about->name,
                 (unsigned long long)transport->group);
    clock[0] = '\0';
    if (transport->ops->now)
        return; /* virtual: all ranks share it */
    /* Ranks that run on one kernel share its monotonic clock. */
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file) {
        if (!fgets(clock, WEFT__ORIGIN_BYTES, file))
            clock[0] = '\0';
        fclose(file);
    }
    clock[strcspn(clock, "\n")] = '\0';
    if (clock[0] == '\0')
        gethostname(clock, WEFT__ORIGIN_BYTES - 1);
    clock[WEFT__ORIGIN_BYTES - 1] = '\0';
}
