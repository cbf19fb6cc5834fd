/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that ranks leave, each its own, and whose they are. */
#include "runtime/base/error.h"
#include "runtime/context/context.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char unfinished[] = ".unfinished";

void weft__rank_file_part(const char *path, char part[WEFT__PATH_BYTES])
{
    snprintf(part, WEFT__PATH_BYTES, "%s%s", path, unfinished);
}

int weft__rank_file_end(const char *path, int status)
{
    char part[WEFT__PATH_BYTES];
    weft__rank_file_part(path, part);
    if (status != WEFT_OK)
        unlink(part);
    else if (rename(part, path) != 0)
        status = weft__error(WEFT_ERR_IO, "%s: %s", path, strerror(errno));
    return status;
}

/* Other contexts of the process look for a number, too. One that has it has the unfinished file, or
 * has given that its name: looked for before, and again once this one has the unfinished file. */
int weft__rank_file(const struct weft_context *context, const char *directory, const char *what,
                    unsigned *number, char path[WEFT__PATH_BYTES])
{
    char part[WEFT__PATH_BYTES];
    const struct weft__transport *transport = context->engine.transport;
    for (;;) {
        int length = snprintf(path, WEFT__PATH_BYTES, "%s/weft-%s.%d-of-%d.%ld.%u.json", directory,
                              what, transport->rank, transport->size, (long)getpid(), (*number)++);
        if (length < 0 || (size_t)length + sizeof unfinished > WEFT__PATH_BYTES)
            return weft__error(WEFT_ERR_IO, "%.64s...: %s", directory, strerror(ENAMETOOLONG));
        if (access(path, F_OK) == 0)
            continue;
        weft__rank_file_part(path, part);
        int file = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file < 0 && errno != EEXIST)
            return weft__error(WEFT_ERR_IO, "%s: %s", part, strerror(errno));
        if (file < 0)
            continue;
        close(file);
        if (access(path, F_OK) != 0)
            return WEFT_OK;
        unlink(part);
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
