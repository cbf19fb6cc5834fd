/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that ranks leave, each its own, and whose they are. */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/context/context.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char unfinished[] = ".unfinished";

static char *part_of(const char *path)
{
    size_t length = strlen(path);
    char *part = weft__malloc(length + sizeof unfinished, 1);
    if (part) {
        memcpy(part, path, length);
        memcpy(part + length, unfinished, sizeof unfinished);
    }
    return part;
}

/* Whether a name is this context's, if nothing begins with it. Others of the process look for one,
 * too: who has it has the unfinished file, or has given that its name. That is looked for before,
 * and again once this one has the unfinished file. An errno below 0. */
static int take(const char *path, const char *part)
{
    if (access(path, F_OK) == 0)
        return 0;
    int file = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0)
        return errno == EEXIST ? 0 : -errno;
    close(file);
    if (access(path, F_OK) != 0)
        return 1;
    unlink(part);
    return 0;
}

int weft__rank_file(const struct weft_context *context, const char *directory, const char *what,
                    unsigned *number, char **out)
{
    const struct weft__transport *transport = context->engine.transport;
    size_t size = strlen(directory) + strlen(what) + 128;
    char *path = weft__malloc(size, 1);
    for (; path; ++*number) {
        snprintf(path, size, "%s/weft-%s.%d-of-%d.%ld.%u.json", directory, what, transport->rank,
                 transport->size, (long)getpid(), *number);
        char *part = part_of(path);
        int taken = part ? take(path, part) : -ENOMEM;
        weft__free(part);
        if (taken > 0) {
            ++*number;
            *out = path;
            return WEFT_OK;
        }
        if (taken < 0) {
            int status = weft__error(WEFT_ERR_IO, "%s: %s", path, strerror(-taken));
            weft__free(path);
            return status;
        }
    }
    return weft__error_memory("the name of a file");
}

int weft__rank_file_write(const char *path, int (*write)(void *user, const char *part), void *user)
{
    char *part = part_of(path);
    if (!part)
        return weft__error_memory("the name of a file");
    int status = write(user, part);
    if (status == WEFT_OK && rename(part, path) != 0)
        status = weft__error(WEFT_ERR_IO, "%s: %s", path, strerror(errno));
    if (status != WEFT_OK)
        unlink(part);
    weft__free(part);
    return status;
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
