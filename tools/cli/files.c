/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/cli/files.h"

#include "tools/cli/cli.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef WEFT_DATA_DIR
#    define WEFT_DATA_NEAR "../share/weft"
#    define WEFT_DATA_DIR  "/usr/share/weft"
#endif

/* What a pipe may give: it does not say how much there is. */
#define MOST_PIPED ((size_t)1 << 30)

/* What kind of device it is; NULL: none. A terminal is where somebody types. */
static const char *device_of(const struct stat *about, int file)
{
    if (S_ISBLK(about->st_mode))
        return "block";
    return S_ISCHR(about->st_mode) && (file < 0 || !isatty(file)) ? "character" : NULL;
}

/* /dev/null is a device, but it has an end: it is an empty file. */
static int is_null(const struct stat *about)
{
    struct stat null;

    return stat("/dev/null", &null) == 0 && S_ISCHR(about->st_mode) &&
           null.st_rdev == about->st_rdev;
}

int cli_check_file(const char *command, const char *option, const char *path)
{
    struct stat about;

    if (stat(path, &about) != 0 || is_null(&about))
        return 0;
    const char *device = device_of(&about, -1);
    return device ? cli_usage(command, "%s%s%s: a %s device; expected a file", option ? option : "",
                              option ? ": " : "", path, device)
                  : 0;
}

/* Bytes that may be read of an open file; 0 after a line. */
static size_t most_of(const char *command, int file, const char *path, const char *what)
{
    struct weft_topology topology = {.struct_size = sizeof topology};
    struct stat about;

    if (fstat(file, &about) != 0) {
        cli_usage(command, "%s: %s; expected %s that can be read", path, strerror(errno), what);
        return 0;
    }
    const char *device = is_null(&about) ? NULL : device_of(&about, file);
    if (device) {
        cli_usage(command, "%s: a %s device; expected %s", path, device, what);
        return 0;
    }
    if (!S_ISREG(about.st_mode))
        return MOST_PIPED;
    if (weft_topology_get(&topology) == WEFT_OK && topology.memory_bytes &&
        (size_t)about.st_size >= topology.memory_bytes / 2) {
        cli_usage(command,
                  "%s: %.3g GiB; expected %s of less than half the %.3g GiB of memory here", path,
                  (double)about.st_size / (1 << 30), what,
                  (double)topology.memory_bytes / (1 << 30));
        return 0;
    }
    return SIZE_MAX / 4;
}

/* Reads to the end; NULL after a line. */
static char *read_all(const char *command, FILE *file, const char *path, const char *what,
                      size_t most, size_t *length)
{
    size_t capacity = 1 << 16;
    size_t used = 0;
    char *text = malloc(capacity);

    while (text) {
        used += fread(text + used, 1, capacity - used - 1, file);
        if (used + 1 < capacity)
            break;
        if (used > most) {
            cli_usage(command, "%s: more than %zu MiB from a pipe; expected %s, as a regular file",
                      path, most >> 20, what);
            free(text);
            return NULL;
        }
        char *larger = realloc(text, capacity *= 2);
        if (!larger)
            free(text);
        text = larger;
    }
    if (!text) {
        cli_usage(command, "%s: no memory for more than %zu bytes; expected %s", path, used, what);
        return NULL;
    }
    if (ferror(file)) {
        cli_usage(command, "%s: %s; expected %s that can be read", path,
                  strerror(errno ? errno : EIO), what);
        free(text);
        return NULL;
    }
    text[used] = '\0';
    *length = used;
    return text;
}

char *cli_read_file(const char *command, const char *path, const char *what, size_t *length)
{
    int standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdin : fopen(path, "rb");
    char *text = NULL;

    if (!file) {
        cli_usage(command, "%s: %s; expected %s that can be read", path, strerror(errno), what);
        return NULL;
    }
    size_t most = most_of(command, fileno(file), path, what);
    if (most)
        text = read_all(command, file, path, what, most, length);
    if (!standard)
        fclose(file);
    return text;
}

const char *cli_data_path(const char *name, char *storage, size_t size)
{
    char command[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", command, sizeof command - 1);

    command[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(command, '/');
    if (slash) {
        snprintf(storage, size, "%.*s/" WEFT_DATA_NEAR "/%s", (int)(slash - command), command,
                 name);
        if (access(storage, R_OK) == 0)
            return storage;
    }
    snprintf(storage, size, WEFT_DATA_DIR "/%s", name);
    return storage;
}
