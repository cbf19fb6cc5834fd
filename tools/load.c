/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TEMPLATE on the command line: a template's name, or a file that `weft dump` wrote. Names win, so a
 * file that is called like a template is given as ./NAME.
 */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The whole of a file, NUL-terminated; NULL with errno. */
static char *read_file(const char *path, size_t *length)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    size_t capacity = 1 << 16;
    size_t used = 0;
    char *text = malloc(capacity);

    while (file && text) {
        used += fread(text + used, 1, capacity - used - 1, file);
        if (used + 1 < capacity) {
            break;
        }
        char *larger = realloc(text, capacity *= 2);
        if (!larger) {
            free(text);
            errno = ENOMEM;
        }
        text = larger;
    }
    int failed = !file || !text || ferror(file);
    int reason = errno;
    if (file && file != stdin) {
        fclose(file);
    }
    if (failed) {
        free(text);
        errno = reason ? reason : EIO;
        return NULL;
    }
    text[used] = '\0';
    *length = used;
    return text;
}

static int unknown(const struct cli *cli, const char *name)
{
    const char *names[128] = {NULL};
    size_t count = weft_template_count();

    for (size_t i = 0; i < count && i < 127; i++) {
        names[i] = weft_template_at(i)->name;
    }
    const char *near = cli_nearest(name, names);
    return cli_usage(cli->spec->name,
                     "'%s' is neither a template nor a file%s%s%s; expected a name that weft list "
                     "prints, or a file that weft dump wrote",
                     name, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

static int load_file(struct cli_schedules *schedules, const struct cli *cli, const char *path,
                     int only)
{
    const char *command = cli->spec->name;
    size_t length = 0;
    char *text = read_file(path, &length);

    if (!text) {
        return cli_usage(command, "%s: %s; expected a schedule file that can be read", path,
                         strerror(errno));
    }
    int status = weft_schedule_read(text, length, NULL, 0, &schedules->at, &schedules->count);
    free(text);
    if (status != WEFT_OK) {
        schedules->at = NULL;
        schedules->count = 0;
        return cli_usage(command, "%s: %s", path, weft_error_text());
    }
    schedules->file = 1;
    schedules->size = schedules->count ? weft_schedule_size(schedules->at[0]) : 0;
    if (cli->ranks && cli->ranks != schedules->size) {
        return cli_usage(command, "-n: %d, but %s is for %d ranks; leave -n out", cli->ranks, path,
                         schedules->size);
    }
    if (only < 0) {
        return 0;
    }
    for (size_t i = 0; i < schedules->count; i++) {
        if (weft_schedule_rank(schedules->at[i]) == only) {
            struct weft_schedule *kept = schedules->at[i];
            schedules->at[i] = schedules->at[0];
            schedules->at[0] = kept;
            return 0;
        }
    }
    return cli_usage(command, "rank %d is not in %s; expected a rank that the file has", only,
                     path);
}

static int load_template(struct cli_schedules *schedules, const struct cli *cli, const char *name,
                         int size, int only)
{
    const char *command = cli->spec->name;
    size_t count = only < 0 ? (size_t)size : 1;

    if (only >= size) {
        return cli_usage(command, "rank %d; expected a rank from 0 to %d (-n %d)", only, size - 1,
                         size);
    }
    schedules->size = size;
    schedules->at = weft_memory_alloc(count, sizeof(struct weft_schedule *));
    if (!schedules->at) {
        return cli_fail(command, "out of memory for the schedules of %d ranks", size);
    }
    for (size_t i = 0; i < count; i++) {
        int status = weft_template_build(name, only < 0 ? (int)i : only, size, &cli->params,
                                         &schedules->at[i]);
        if (status != WEFT_OK) {
            return status == WEFT_ERR_MEMORY ? cli_fail(command, "%s", weft_error_text())
                                             : cli_usage(command, "%s", weft_error_text());
        }
        schedules->count = i + 1;
    }
    return 0;
}

int cli_schedules_load(struct cli_schedules *schedules, const struct cli *cli, const char *name,
                       int fallback, int only)
{
    struct stat about;
    int status;

    memset(schedules, 0, sizeof(*schedules));
    if (weft_template_find(name)) {
        status = load_template(schedules, cli, name, cli->ranks ? cli->ranks : fallback, only);
    } else if (strcmp(name, "-") != 0 && stat(name, &about) != 0) {
        return errno == ENOENT ? unknown(cli, name)
                               : cli_usage(cli->spec->name, "%s: %s", name, strerror(errno));
    } else {
        status = load_file(schedules, cli, name, only);
    }
    if (status) {
        cli_schedules_free(schedules);
    }
    return status;
}

void cli_schedules_free(struct cli_schedules *schedules)
{
    for (size_t i = 0; i < schedules->count; i++) {
        weft_schedule_destroy(schedules->at[i]);
    }
    if (schedules->file) {
        weft_text_free(schedules->at);
    } else {
        weft_memory_free(schedules->at);
    }
    memset(schedules, 0, sizeof(*schedules));
}
