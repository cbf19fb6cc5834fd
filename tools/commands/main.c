/* SPDX-License-Identifier: BSD-3-Clause */
/* The `weft` command: finds the subcommand in one table and hands over. */
#include "tools/cli/cli.h"
#include "tools/cli/parse.h"
#include "tools/cli/table.h"
#include "tools/cli/terminal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Every subcommand, in the order of the help: NAME is weft_command_NAME, a struct cli_spec in a
 * file of its own. */
#define COMMANDS(X)                                                                                \
    X(info)                                                                                        \
    X(list)                                                                                        \
    X(dump)                                                                                        \
    X(check)                                                                                       \
    X(run)                                                                                         \
    X(sim)                                                                                         \
    X(groups)                                                                                      \
    X(trace)                                                                                       \
    X(post_mortem)                                                                                 \
    X(profile)                                                                                     \
    X(merge)                                                                                       \
    X(launch)                                                                                      \
    X(bench)                                                                                       \
    X(train)

#define DECLARE(name) extern const struct cli_spec weft_command_##name;
COMMANDS(DECLARE)
#undef DECLARE

#define ENTRY(name) &weft_command_##name,
static const struct cli_spec *const commands[] = {COMMANDS(ENTRY)};
#undef ENTRY

enum { COUNT = sizeof commands / sizeof commands[0] };

/* What programs that link weft read when they make a context, and the command itself. */
static const struct cli_term environment[] = {
    {"WEFT_DUMP=DIR", "writes every plan that is committed"},
    {"WEFT_TRACE=DIR", "writes a trace of every context when it is destroyed, when a stall is "
                       "reported and when a signal ends the program"},
    {"WEFT_TRACE_RECORDS=N", "records that a trace keeps, the latest"},
    {"WEFT_STALL=SECONDS", "reports a wait that takes longer, and goes on waiting"},
    {"WEFT_STATE=DIR", "writes the state of a context when a run fails or a stall is reported, "
                       "for weft post-mortem"},
    {"WEFT_COST=FILE", "costs that choose algorithms, as weft bench model -o FILE writes them"},
    {"WEFT_HOSTS=N,N,...", "over MPI: the host of each process of MPI_COMM_WORLD, which pretends "
                           "to be there"},
    {"WEFT_DEVICE_WAY=WAY",
     "how messages of device memory travel between processes: direct, also by "
     "MPI, or staged, by way of the host"},
    {"WEFT_LOG=LEVEL", "error, warning (default), info or debug"},
    {"WEFT_PROGRESS=WHO", "caller (default) or helper drives the engine"},
    {"WEFT_APART=off", "ranks that wait on one hardware thread do not move apart"},
    {"WEFT_SIMD=LEVEL", "scalar, avx2 or avx512: at most that"},
    {"WEFT_DATA=DIR", "folder of the data set of weft train"},
    {"WEFT_FINALIZE=0", "of the command under mpiexec: ranks end after a barrier and without "
                        "MPI_Finalize, which may never return in MPICH before 4.2"},
    {0},
};

static const struct cli_section sections[] = {
    {"Environment", .terms = environment},
    {0},
};

static const struct cli_option options[] = {
    {"version", 'V', .help = "the version"},
    {"help", 'h', .help = "this text"},
    {0},
};

/* The command as a whole, for what is generated from the tables. */
static const struct cli_spec whole = {
    .name = "weft",
    .summary = "collective communication written down as graphs",
    .operands = "COMMAND",
    .about = "weft COMMAND --help (or weft help COMMAND) describes a command. Exit status: 0 done, "
             "1 it ran and the answer is no, 2 wrong usage or unreadable input.",
    .sections = sections,
    .options = options,
    .common = CLI_NOTHING,
};

static int help_all(void)
{
    int width = cli_width() ? cli_width() : 100;

    printf("weft %s: %s\n\nusage: weft COMMAND [options]\n\n", weft_version(), whole.summary);
    for (int i = 0; i < COUNT; i++)
        table_term(stdout, commands[i]->name, commands[i]->summary, width, 2, 15);
    printf("\n");
    cli_print_sections(sections);
    table_paragraph(stdout, whole.about, width, 0, 0);
    return cli_finish(NULL);
}

static int unknown(const char *word)
{
    const char *names[COUNT + 1] = {NULL};
    char list[256] = "";
    size_t used = 0;

    for (int i = 0; i < COUNT; i++) {
        names[i] = commands[i]->name;
        if (used < sizeof list) {
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                                     commands[i]->name);
        }
    }
    if (!word)
        return cli_usage(NULL, "no command; expected one of %s (see weft --help)", list);
    const char *near = cli_nearest(word, names);
    if (near) {
        return cli_usage(NULL, "unknown command '%s', did you mean '%s'? Expected one of %s", word,
                         near, list);
    }
    return cli_usage(NULL, "unknown command '%s'; expected one of %s", word, list);
}

static const struct cli_spec *find(const char *word)
{
    for (int i = 0; i < COUNT; i++)
        if (strcmp(word, commands[i]->name) == 0)
            return commands[i];
    return NULL;
}

/* weft help [--json] [COMMAND] */
static int help(int argc, char **argv)
{
    int json = argc > 1 && strcmp(argv[1], "--json") == 0;
    const char *word = argc > 1 + json ? argv[1 + json] : NULL;

    if (argc > 2 + json) {
        return cli_usage(NULL, "unexpected word '%s'; usage: weft help [--json] [COMMAND]",
                         argv[2 + json]);
    }
    if (word && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0))
        return help_all();
    if (word)
        return find(word) ? cli_help(find(word), json) : unknown(word);
    int status = json ? cli_help(&whole, 1) : help_all();
    for (int i = 0; json && i < COUNT && !status; i++)
        status = cli_help(commands[i], 1);
    return status;
}

/* ---- little memory ---- */

/* By this BLAS learns how many threads to start when it is loaded. */
static const char threads[] = "OPENBLAS_NUM_THREADS";
/* What was there before, while the command begins again. */
static const char threads_before[] = "WEFT_OPENBLAS_NUM_THREADS";

static int is_limited(int resource)
{
    struct rlimit limit;

    return getrlimit((__rlimit_resource_t)resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

/* Threads of BLAS ask for memory as soon as they are there, again and again until they have it, and
 * whoever forks or exits waits for them. The command needs none of them, so where memory is limited
 * it begins again without. What it starts itself has the environment that was there before. */
static void do_without_threads(char **argv)
{
    char self[PATH_MAX];
    const char *before = getenv(threads_before);
    const char *now = getenv(threads);

    if (!before) {
        if ((now && strcmp(now, "1") == 0) || (!is_limited(RLIMIT_AS) && !is_limited(RLIMIT_DATA)))
            return;
        ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
        if (length < 0)
            return;
        self[length] = '\0';
        if (setenv(threads_before, now ? now : "", 1) != 0 || setenv(threads, "1", 1) != 0)
            return;
        execv(self, argv);
        before = getenv(threads_before); /* it goes with the threads that there are */
    }
    if (*before)
        setenv(threads, before, 1);
    else
        unsetenv(threads);
    unsetenv(threads_before);
}

int main(int argc, char **argv)
{
    do_without_threads(argv);
    if (argc < 2)
        return unknown(NULL);
    const struct cli_spec *command = find(argv[1]);
    if (command && command->each)
        cli_follow_nobody();
    if (cli_is_follower() && !(command && command->mpi))
        return CLI_OK; /* under a launcher, rank 0 prints */
    if (command)
        return cli_run(command, argc - 1, argv + 1);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return help_all();
    if (strcmp(argv[1], "help") == 0)
        return help(argc - 1, argv + 1);
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        printf("weft %s\n", weft_version());
        return cli_finish(NULL);
    }
    return unknown(argv[1]);
}
