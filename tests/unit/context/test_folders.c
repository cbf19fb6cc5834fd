/* SPDX-License-Identifier: BSD-3-Clause */
/* Folders that the environment names and nothing can be written to: said when a context is made. */
#include <criterion/criterion.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/ranks.h"

static char lines[2000];

static void note(void *user, weft_log_level_t level, int rank, const char *line)
{
    (void)user;
    (void)rank;
    cr_expect_eq(level, WEFT_LOG_WARNING);
    size_t used = strlen(lines);
    snprintf(lines + used, sizeof lines - used, "%s\n", line);
}

/* What is said while a context is made and used. */
static const char *said(void)
{
    struct weft_local *local = NULL;
    struct weft_context *context = NULL;
    struct weft_context_config config;
    weft_context_config_init(&config);
    config.log = note;
    lines[0] = '\0';
    OK(weft_local_create(&local, 1, NULL));
    OK(weft_context_create_local(&context, local, 0, &config));
    static char first[sizeof lines];
    memcpy(first, lines, sizeof lines);
    struct weft_schedule *s = new_schedule(0, 1);
    weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    struct weft_run *run = make_run(context, commit(s), NULL);
    OK(weft_run_set_deadline(run, 1));
    cr_expect_eq(weft_run_execute(run), WEFT_ERR_TIMEOUT);
    weft_run_destroy(run);
    weft_context_destroy(context);
    weft_local_destroy(local);
    cr_expect_str_eq(lines, first, "something is said later, too: %s", lines);
    return first;
}

static void expect_said(const char *variable, const char *path, const char *why)
{
    char text[300];
    setenv(variable, path, 1);
    snprintf(text, sizeof text,
             "environment: %s is `%s`, expected a folder that can be written to (%s); ignored\n",
             variable, path, why);
    cr_expect_str_eq(said(), text);
    cr_expect_str_eq(said(), "", "once in a process is enough");
}

Test(folders, a_trace_needs_one)
{
    expect_said("WEFT_TRACE", "/nowhere/at/all", "No such file or directory");
}

Test(folders, a_state_needs_one)
{
    expect_said("WEFT_STATE", "/dev/null", "Not a directory");
}

Test(folders, a_dump_needs_one)
{
    expect_said("WEFT_DUMP", "/dev/null/below", "Not a directory");
}

Test(folders, the_last_part_is_made)
{
    char folder[64] = "/tmp/weft-folders-XXXXXX";
    cr_assert_not_null(mkdtemp(folder));
    strcat(folder, "/made");
    setenv("WEFT_STATE", folder, 1);
    cr_expect_str_eq(said(), "");
    char command[100];
    snprintf(command, sizeof command, "test -d %s && rm -r %.24s", folder, folder);
    cr_expect_eq(system(command), 0);
}
