/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TEMPLATE on the command line: a template's name, or a file that `weft dump` wrote. Names win, so
 * a file that is called like a template is given as ./NAME. Several files are the ranks of one
 * collective.
 */
#include "tools/cli/cli.h"

#include "tools/cli/files.h"
#include "tools/cli/parse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int unknown(const struct cli *cli, const char *name)
{
    const char *names[128] = {NULL};
    size_t count = weft_template_count();

    for (size_t i = 0; i < count && i < 127; i++)
        names[i] = weft_template_at(i)->name;
    const char *near = cli_nearest(name, names);
    return cli_usage(cli->spec->name,
                     "'%s' is neither a template nor a file%s%s%s; expected a name that weft list "
                     "prints, or a file that weft dump wrote",
                     name, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

/* Frees the array, not the schedules in it. weft_memory_free() and weft_memory_free() are one. */
static void release(struct cli_schedules *schedules)
{
    weft_memory_free(schedules->at);
    memset(schedules, 0, sizeof *schedules);
}

/* Whether a file declares a parameter. */
static int declares(const struct weft_parameter *declared, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(declared[i].name, name) == 0)
            return 1;
    return 0;
}

/* The parameters that a file gets: those of templates that were typed, which it must declare by
 * their names (with _ for -), and -D. */
struct values {
    struct weft_parameter at[CLI_OPTIONS + CLI_DEFINITIONS];
    char names[CLI_OPTIONS][32];
    char numbers[CLI_OPTIONS][32];
    size_t count;
};

static int refuse_option(const struct cli *cli, const char *path, const char *option,
                         const struct weft_parameter *declared, size_t count)
{
    char list[512] = "";
    size_t used = 0;

    for (size_t i = 0; i < count && used < sizeof list; i++) {
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                                 declared[i].name);
    }
    return cli_usage(
        cli->spec->name, "--%s: %s declares no such parameter; expected a template, or %s%s",
        option, path, count ? "one of those that it declares: " : "a file that declares it", list);
}

static int find_values(struct values *values, const struct cli *cli, const char *path,
                       const struct weft_parameter *declared, size_t count)
{
    for (const struct cli_option *option = cli_template_options; option->name; option++) {
        const char *text = cli_typed(cli, option->name);
        if (!text || strcmp(option->name, "define") == 0)
            continue;
        if (option->kind == CLI_TAKE) /* a list, which is no parameter of a file */
            return refuse_option(cli, path, option->name, declared, count);
        size_t i = values->count;
        snprintf(values->names[i], sizeof values->names[i], "%s", option->name);
        for (char *c = values->names[i]; *c; c++)
            *c = *c == '-' ? '_' : *c;
        if (!declares(declared, count, values->names[i]))
            return refuse_option(cli, path, option->name, declared, count);
        if (option->kind == CLI_SIZE) { /* without k, M and G */
            snprintf(values->numbers[i], sizeof values->numbers[i], "%zu",
                     *(const size_t *)((const char *)cli + option->field));
            text = values->numbers[i];
        }
        values->at[values->count++] = (struct weft_parameter){
            .name = values->names[i], .value = option->kind == CLI_FLAG ? "1" : text};
    }
    for (size_t i = 0; i < cli->definition_count; i++)
        values->at[values->count++] = cli->definitions[i];
    return 0;
}

/* What the options give to a file. 0, or CLI_WRONG after a line; what is wrong with the file itself
 * is for its reader to say. */
static int take_values(struct values *values, const struct cli *cli, const char *path,
                       const char *text, size_t length)
{
    struct weft_parameter *declared = NULL;
    size_t count = 0;

    values->count = 0;
    if (weft_schedule_read_parameters(text, length, &declared, &count) != WEFT_OK)
        return 0;
    int status = find_values(values, cli, path, declared, count);
    weft_memory_free(declared);
    return status;
}

/* What the repetitions of a file may make when -n says how many ranks are wanted. */
#define ASKED_FOR ((size_t)4 << 30)

static int load_file(struct cli_schedules *schedules, const struct cli *cli, const char *path,
                     int fallback)
{
    struct weft_read_options options;
    struct values values;
    const char *command = cli->spec->name;
    size_t length = 0;
    char *text = cli_read_file(command, path, "a schedule file", &length);

    if (!text)
        return CLI_WRONG;
    if (take_values(&values, cli, path, text, length)) {
        free(text);
        return CLI_WRONG;
    }
    weft_read_options_init(&options);
    options.parameters = values.at;
    options.parameter_count = values.count;
    options.size = cli->ranks ? cli->ranks : fallback;
    options.most_repeated = cli->ranks ? ASKED_FOR : 0;
    options.refusal = cli->refusal;
    int status = weft_schedule_read_with(text, length, &options, &schedules->at, &schedules->count);
    free(text);
    if (status != WEFT_OK) {
        schedules->at = NULL;
        schedules->count = 0;
        if (cli->refusal && status == WEFT_ERR_FORMAT && cli->refusal->rank >= 0)
            return CLI_NO; /* for the command to tell, by weft_error_text() */
        return cli_usage(command, "%s: %s", path, weft_error_text());
    }
    schedules->file = 1;
    schedules->size = schedules->count ? weft_schedule_size(schedules->at[0]) : 0;
    if (cli->ranks && cli->ranks != schedules->size && !cli_typed(cli, "ranks")) {
        return cli_usage(command, "%s is for %d ranks, but mpiexec started %d", path,
                         schedules->size, cli->ranks);
    }
    if (cli->ranks && cli->ranks != schedules->size) {
        return cli_usage(command, "-n: %d, but %s is for %d ranks; leave -n out", cli->ranks, path,
                         schedules->size);
    }
    return 0;
}

/* Moves the schedules of @p more, which file @p path holds, behind those of @p schedules. */
static int append(struct cli_schedules *schedules, struct cli_schedules *more,
                  const struct cli *cli, const char *path)
{
    const char *command = cli->spec->name;
    size_t count = schedules->count + more->count;
    struct weft_schedule **at = weft_memory_alloc(count, sizeof(struct weft_schedule *));

    if (!at)
        return cli_fail(command, "out of memory for %zu schedules", count);
    memcpy(at, schedules->at, schedules->count * sizeof(struct weft_schedule *));
    memcpy(at + schedules->count, more->at, more->count * sizeof(struct weft_schedule *));
    int size = weft_schedule_size(at[count - 1]);
    release(schedules);
    release(more);
    *schedules = (struct cli_schedules){.at = at, .count = count, .size = size, .file = 1};
    const char *name = weft_schedule_name(at[0]);
    if (strcmp(weft_schedule_name(at[count - 1]), name) != 0 ||
        weft_schedule_size(at[0]) != schedules->size) {
        return cli_usage(command, "%s is of `%s` on %d ranks; expected `%s` on %d, as %s", path,
                         weft_schedule_name(at[count - 1]), schedules->size, name,
                         weft_schedule_size(at[0]), cli->operands[0]);
    }
    return 0;
}

static int by_rank(const void *a, const void *b)
{
    int x = weft_schedule_rank(*(struct weft_schedule *const *)a);
    int y = weft_schedule_rank(*(struct weft_schedule *const *)b);

    return (x > y) - (x < y);
}

/* The file, and those in the words after it: the ranks of one collective, as WEFT_DUMP writes them.
 */
static int load_files(struct cli_schedules *schedules, const struct cli *cli, const char *path,
                      int fallback)
{
    int status = load_file(schedules, cli, path, fallback);

    for (int i = 1; !status && i < cli->operand_count; i++) {
        struct cli_schedules more = {0};
        status = load_file(&more, cli, cli->operands[i], fallback);
        status = status ? status : append(schedules, &more, cli, cli->operands[i]);
        cli_schedules_free(&more);
    }
    if (status || cli->operand_count < 2)
        return status;
    qsort(schedules->at, schedules->count, sizeof(struct weft_schedule *), by_rank);
    for (size_t i = 1; i < schedules->count; i++) {
        if (by_rank(&schedules->at[i - 1], &schedules->at[i]) == 0) {
            return cli_usage(cli->spec->name, "rank %d is in two of the files; expected each once",
                             weft_schedule_rank(schedules->at[i]));
        }
    }
    return 0;
}

/* Brings rank @p only to the front. */
static int choose(struct cli_schedules *schedules, const struct cli *cli, const char *path,
                  int only)
{
    for (size_t i = 0; i < schedules->count; i++) {
        if (weft_schedule_rank(schedules->at[i]) == only) {
            struct weft_schedule *kept = schedules->at[i];
            schedules->at[i] = schedules->at[0];
            schedules->at[0] = kept;
            return 0;
        }
    }
    return cli_usage(cli->spec->name, "rank %d is not in %s; expected a rank that the file has",
                     only, path);
}

static int load_template(struct cli_schedules *schedules, const struct cli *cli, const char *name,
                         int size, int only)
{
    const char *command = cli->spec->name;
    size_t count = only < 0 ? (size_t)size : 1;

    if (cli->definition_count) {
        return cli_usage(command,
                         "-D: '%s': %s is a template, whose parameters are options; expected a "
                         "schedule file",
                         cli->defined[0], name);
    }
    if (only >= size) {
        return cli_usage(command, "rank %d; expected a rank from 0 to %d (-n %d)", only, size - 1,
                         size);
    }
    int status = cli_check_counts(cli, name, size);
    if (!status)
        status = cli_check_memory(cli, name, size, count);
    if (status)
        return status;
    schedules->size = size;
    schedules->at = weft_memory_alloc(count, sizeof(struct weft_schedule *));
    if (!schedules->at)
        return cli_fail(command, "out of memory for the schedules of %d ranks", size);
    for (size_t i = 0; i < count; i++) {
        status = cli_template_build(cli, &cli->params, name, only < 0 ? (int)i : only, size,
                                    &schedules->at[i]);
        if (status != WEFT_OK) {
            return status == WEFT_ERR_MEMORY ? cli_fail(command, "%s", weft_error_text())
                                             : cli_usage(command, "%s", weft_error_text());
        }
        schedules->count = i + 1;
    }
    return 0;
}

/* As --device says of all slots. */
static int set_memory(struct cli_schedules *schedules, const struct cli *cli)
{
    for (size_t i = 0; cli->device && i < schedules->count; i++)
        if (weft_schedule_set_memory(schedules->at[i], WEFT_SLOT_ALL, WEFT_MEMORY_DEVICE) !=
            WEFT_OK)
            return cli_fail(cli->spec->name, "%s", weft_error_text());
    return 0;
}

int cli_schedules_load(struct cli_schedules *schedules, const struct cli *cli, const char *name,
                       int fallback, int only)
{
    struct stat about;
    int status;

    memset(schedules, 0, sizeof *schedules);
    if (weft_template_find(name)) {
        status = load_template(schedules, cli, name, cli->ranks ? cli->ranks : fallback, only);
    } else if (strcmp(name, "-") != 0 && stat(name, &about) != 0) {
        return errno == ENOENT ? unknown(cli, name)
                               : cli_usage(cli->spec->name, "%s: %s", name, strerror(errno));
    } else {
        status = load_files(schedules, cli, name, fallback);
        status = status ? status : set_memory(schedules, cli);
        status = status || only < 0 ? status : choose(schedules, cli, name, only);
    }
    if (status)
        cli_schedules_free(schedules);
    return status;
}

void cli_schedules_free(struct cli_schedules *schedules)
{
    for (size_t i = 0; i < schedules->count; i++)
        weft_schedule_destroy(schedules->at[i]);
    release(schedules);
}

int cli_schedules_write_out(struct cli_schedules *schedules, const struct cli *cli)
{
    for (size_t i = 0; i < schedules->count; i++)
        if (weft_schedule_write_out(schedules->at[i]) != WEFT_OK)
            return cli_fail(cli->spec->name, "%s: rank %d: %s", cli->operands[0],
                            weft_schedule_rank(schedules->at[i]), weft_error_text());
    return 0;
}
