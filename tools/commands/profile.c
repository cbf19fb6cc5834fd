/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft profile: what a program's collectives cost it, by call and size, and what weft would choose.
 * It runs the program with libweft-pmpi before MPI and shows what that has counted, or shows what
 * it has counted before (WEFT_PMPI_STATS).
 */
#include "tools/commands/profile.h"

#include "tools/cli/cli.h"
#include "tools/cli/files.h"
#include "tools/cli/module.h"
#include "tools/cli/ranks.h"
#include "tools/cli/terminal.h"
#include "tools/cli/transports.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef WEFT_HAVE_MPI
#    define WEFT_HAVE_MPI 0
#endif

struct options {
    const char *read; /* a profile that was taken before; NULL: a program is run */
    const char *keep; /* where what ranks write stays; NULL: nowhere */
    const char *who;  /* WEFT_PMPI; NULL: as the environment has it */
    const char *output;
    int by_communicator;
    const char *transport;
    const char *cost_file;
};

/* ---- files of a profile ---- */

/* The ranks that have one. */
struct rank_files {
    int *ranks;
    size_t count, capacity;
};

/* The rank of a file FILE.RANK of @p base, FILE; -1: it is no such file. */
static int rank_of(const char *name, const char *base)
{
    size_t length = strlen(base);
    const char *digits = name + length + 1;
    char *end;

    if (strncmp(name, base, length) != 0 || name[length] != '.' ||
        !isdigit((unsigned char)*digits) || (digits[0] == '0' && digits[1]))
        return -1;
    errno = 0;
    long long rank = strtoll(digits, &end, 10);
    return *end || errno || rank > INT_MAX - 1 ? -1 : (int)rank;
}

static int compare_ranks(const void *left, const void *right)
{
    const int *a = left, *b = right;

    return *a < *b ? -1 : *a > *b;
}

/* 0, or -1 without memory. */
static int add_rank(struct rank_files *files, int rank)
{
    if (files->count == files->capacity) {
        size_t capacity = files->capacity ? 2 * files->capacity : 64;
        int *ranks = realloc(files->ranks, capacity * sizeof *ranks);
        if (!ranks)
            return -1;
        files->ranks = ranks;
        files->capacity = capacity;
    }
    files->ranks[files->count++] = rank;
    return 0;
}

/* "FOLDER/" and what comes behind it, of a path. */
static const char *split(const char *path, char **folder)
{
    const char *slash = strrchr(path, '/');

    *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup("./");
    return slash ? slash + 1 : path;
}

/* The files of ranks, ascending; none where there is no such folder. 0, or -1 without memory. */
static int find_files(struct rank_files *files, const char *prefix)
{
    char *above;
    const char *base = split(prefix, &above);
    DIR *folder = above ? opendir(above) : NULL;
    int status = above ? 0 : -1;

    for (const struct dirent *entry; folder && !status && (entry = readdir(folder));) {
        int rank = rank_of(entry->d_name, base);
        if (rank >= 0)
            status = add_rank(files, rank);
    }
    if (folder)
        closedir(folder);
    free(above);
    if (files->count)
        qsort(files->ranks, files->count, sizeof *files->ranks, compare_ranks);
    return status;
}

static int read_one(const char *command, struct profile *profile, const char *prefix, int rank)
{
    char *path, *text = NULL;
    size_t length;
    int status = CLI_OK;

    if (asprintf(&path, "%s.%d", prefix, rank) < 0)
        return cli_fail(command, "out of memory for the file of rank %d", rank);
    text = cli_read_file(command, path, "what a rank has written (WEFT_PMPI_STATS)", &length);
    if (!text)
        status = CLI_WRONG;
    else if (profile_add(profile, rank, path, text, length) != WEFT_OK)
        status = cli_usage(command, "%s", weft_error_text());
    free(text);
    free(path);
    return status;
}

/* Reads the files of all ranks. 0, or the exit status after a line; no file is no error. */
static int read_files(const char *command, struct profile *profile, const char *prefix)
{
    struct rank_files files = {0};
    int status = CLI_OK;

    if (find_files(&files, prefix))
        status = cli_fail(command, "%s: out of memory", prefix);
    for (size_t i = 0; i < files.count && !status; i++)
        status = read_one(command, profile, prefix, files.ranks[i]);
    free(files.ranks);
    return status;
}

/* ---- what is shown ---- */

/* Where it is written, opened before the program runs: what is there stays until it is written. */
static int open_output(const char *command, const struct options *options, FILE **file)
{
    int descriptor = -1;

    *file = stdout;
    if (!options->output || strcmp(options->output, "-") == 0)
        return CLI_OK;
    int status = cli_check_file(command, "-o", options->output);
    if (status)
        return status;
    descriptor = open(options->output, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    *file = descriptor < 0 ? NULL : fdopen(descriptor, "w");
    if (*file)
        return CLI_OK;
    status = cli_usage(command, "-o %s: %s; expected a file that can be written", options->output,
                       strerror(errno));
    if (descriptor >= 0)
        close(descriptor);
    return status;
}

/* Ends what open_output() has opened. 0, or the exit status after a line. */
static int close_output(const char *command, const struct options *options, FILE *file)
{
    if (file == stdout)
        return cli_finish(command);
    int failed = ferror(file), reason = errno;
    if (fclose(file) == 0 && !failed)
        return CLI_OK;
    return cli_usage(command, "-o %s: %s; expected a file that can be written", options->output,
                     strerror(failed ? reason : errno));
}

static int show(const struct cli *cli, const struct options *options,
                const struct profile_costs *costs, struct profile *profile,
                const struct profile_run *run, FILE *file)
{
    struct profile_sum sum;
    const struct profile_view view = {.profile = profile,
                                      .sum = &sum,
                                      .costs = costs,
                                      .transport = options->transport,
                                      .run = run};
    int failed = profile_sum_up(&sum, profile, options->by_communicator, costs);

    int cut = file != stdout ? ftruncate(fileno(file), 0) : 0;
    (void)cut; /* a pipe has nothing in it yet */
    if (!failed)
        failed = cli->json ? profile_print_json(&view, file)
                           : profile_print(&view, file, file == stdout ? cli_width() : 0);
    profile_sum_free(&sum);
    return failed ? cli_fail(cli->spec->name, "out of memory for %zu lines", profile->count)
                  : CLI_OK;
}

/* ---- the library ---- */

/* Its path. 0, or the exit status after a line. */
static int find_library(const char *command, char path[PATH_MAX])
{
    static const char *const places[] = {"pmpi/libweft-pmpi.so", WEFT_LIBRARIES "/libweft-pmpi.so",
                                         NULL};
    char found[PATH_MAX];

    if (!WEFT_HAVE_MPI)
        return cli_usage(command, "weft was built without MPI, so it has no libweft-pmpi.so to run "
                                  "a program with; --read shows a profile that was taken before");
    if (!cli_find_beside(places, found, sizeof found) || !realpath(found, path))
        return cli_usage(command, "libweft-pmpi.so, which counts what a program calls, is not "
                                  "installed; expected it in the folder of weft's libraries");
    if (strpbrk(path, " :"))
        return cli_usage(command,
                         "%s: LD_PRELOAD takes no blanks and colons; expected libweft-pmpi.so in a "
                         "folder without",
                         path);
    return CLI_OK;
}

/* ---- a program ---- */

/* A path that ranks can use from any folder; the folder in it is there. NULL after a line. */
static char *absolute(const char *command, const char *path)
{
    char *above, *whole = NULL;
    const char *base = split(path, &above);
    char *folder = above ? realpath(above, NULL) : NULL;

    if (!folder)
        cli_usage(command, "--keep: %s: %s; expected a name in a folder that is there",
                  above ? above : path, strerror(errno));
    else if (!*base)
        cli_usage(command, "--keep: '%s'; expected a name in a folder", path);
    else if (asprintf(&whole, "%s/%s", strcmp(folder, "/") == 0 ? "" : folder, base) < 0)
        whole = NULL;
    free(folder);
    free(above);
    return whole;
}

/* Refuses a name under which there is a profile already: its ranks would be taken for ours. */
static int refuse_old(const char *command, const char *keep)
{
    struct rank_files files = {0};
    int status = CLI_OK;

    if (find_files(&files, keep))
        status = cli_fail(command, "%s: out of memory", keep);
    else if (files.count)
        status = cli_usage(command, "--keep: %s.%d is there; expected a name that no profile has",
                           keep, files.ranks[0]);
    free(files.ranks);
    return status;
}

static int say_nobody(const struct profile_run *run)
{
    return cli_fail(
        run->command,
        "no rank reported: %s is no MPI program, or is linked with another MPI than weft, or was "
        "killed before MPI_Finalize, or its ranks have not got the environment; preloaded was %s",
        run->words[0], run->library);
}

/* Runs the program and reads what it has left. 0, or the exit status after a line. */
static int take(struct profile_run *run, struct profile *profile)
{
    int status = profile_execute(run);

    if (!status)
        status = read_files(run->command, profile, run->stats);
    if (!status && !profile->reported)
        status = say_nobody(run);
    return status;
}

/* In a folder that is gone afterwards. */
static int take_in_folder(struct profile_run *run, struct profile *profile)
{
    char folder[PATH_MAX], stats[PATH_MAX + 8];
    int status = profile_make_folder(run->command, folder, sizeof folder);

    if (status)
        return status;
    snprintf(stats, sizeof stats, "%s/rank", folder);
    run->stats = stats;
    status = take(run, profile);
    run->stats = NULL;
    profile_remove_folder(folder);
    return status;
}

static int take_and_keep(struct profile_run *run, struct profile *profile, const char *keep)
{
    char *stats = absolute(run->command, keep);
    int status = stats ? refuse_old(run->command, stats) : CLI_WRONG;

    run->stats = stats;
    if (!status)
        status = take(run, profile);
    run->stats = NULL;
    free(stats);
    return status;
}

/* WEFT_PMPI, as it will be, has to let something be counted. */
static int check_who(const char *command, const struct options *options)
{
    const char *value = getenv("WEFT_PMPI");

    if (options->who ? strcmp(options->who, "never") != 0 : !value || strcmp(value, "never") != 0)
        return CLI_OK;
    return cli_usage(command, "%s never: nothing would be counted; expected %sauto or always",
                     options->who ? "--pmpi" : "WEFT_PMPI is", options->who ? "" : "--pmpi ");
}

static int run_program(struct cli *cli, const struct options *options,
                       const struct profile_costs *costs)
{
    const char *command = cli->spec->name;
    char library[PATH_MAX];
    struct profile profile = {0};
    struct profile_run run = {.command = command,
                              .words = cli->operands,
                              .library = library,
                              .who = options->who,
                              .status = 0};
    FILE *file;

    int status = find_library(command, library);
    if (!status)
        status = open_output(command, options, &file);
    if (status)
        return status;
    run.to_error = cli->json && file == stdout;
    profile_guard_begin();
    status = options->keep ? take_and_keep(&run, &profile, options->keep)
                           : take_in_folder(&run, &profile);
    profile_guard_end();
    if (!status)
        status = show(cli, options, costs, &profile, &run, file);
    int closed = close_output(command, options, file);
    profile_free(&profile);
    return run.status ? run.status : status ? status : closed;
}

/* ---- a profile that was taken before ---- */

static int read_profile(struct cli *cli, const struct options *options,
                        const struct profile_costs *costs)
{
    const char *command = cli->spec->name;
    struct profile profile = {0};
    FILE *file;

    int status = read_files(command, &profile, options->read);
    if (!status && !profile.reported)
        status = cli_usage(command,
                           "--read: '%s': there is no %s.0, nor one of another rank; expected what "
                           "WEFT_PMPI_STATS was",
                           options->read, options->read);
    if (!status)
        status = open_output(command, options, &file);
    if (!status) {
        status = show(cli, options, costs, &profile, NULL, file);
        int closed = close_output(command, options, file);
        status = status ? status : closed;
    }
    profile_free(&profile);
    return status;
}

/* ---- options ---- */

/* As a context has them: of one host with its cores, or of several; WEFT_COST has nothing to say
 * where it has nothing of the transport. */
static int settle_costs(const char *command, const struct options *options,
                        struct profile_costs *costs)
{
    const char *file = options->cost_file ? options->cost_file : getenv("WEFT_COST");
    int status = WEFT_OK;

    weft_cost_model_init(&costs->model, options->transport);
    if (file && *file)
        status = weft_cost_model_read(file, options->transport, &costs->model, NULL);
    if (status != WEFT_OK && (options->cost_file || status != WEFT_ERR_NOT_FOUND))
        return cli_usage(command, "%s: %s", options->cost_file ? "--cost" : "WEFT_COST",
                         weft_error_text());
    costs->apart = strcmp(options->transport, "mpi") == 0;
    if (!costs->apart && costs->model.cores == 0)
        costs->model.cores = (size_t)sysconf(_SC_NPROCESSORS_ONLN);
    return CLI_OK;
}

/* Options that are of no use with a profile that was taken before. */
static int refuse_with_read(const struct cli *cli)
{
    static const char *const names[] = {"keep", "pmpi"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (cli_typed(cli, names[i]))
            return cli_usage(cli->spec->name, "--%s with --read, which runs nothing", names[i]);
    if (cli->operand_count)
        return cli_usage(cli->spec->name,
                         "unexpected word '%s'; --read runs nothing, expected options alone",
                         cli->operands[0]);
    return CLI_OK;
}

static int refuse_without(const struct cli *cli, const struct options *options)
{
    const char *command = cli->spec->name;

    if (!cli->operand_count)
        return cli_usage(command,
                         "missing PROGRAM; usage: weft profile [options] %s, or weft "
                         "profile --read FILE",
                         cli->spec->operands);
    if (ranks_processes() != 1)
        return cli_usage(
            command,
            "started as one of several processes; expected weft profile mpiexec -n P PROGRAM");
    return check_who(command, options);
}

static int profile(struct cli *cli)
{
    struct options options = {0};
    struct profile_costs costs;

    if (!cli_parse(cli, &options))
        return cli->status;
    int status = options.read ? refuse_with_read(cli) : refuse_without(cli, &options);
    if (!status)
        status = settle_costs(cli->spec->name, &options, &costs);
    if (status)
        return status;
    return options.read ? read_profile(cli, &options, &costs) : run_program(cli, &options, &costs);
}

static const char *const whos[] = {"auto", "always", "never", NULL};

static const struct cli_option table[] = {
    {"read", 'r', CLI_TEXT, "FILE", "show what WEFT_PMPI_STATS=FILE or --keep FILE has left",
     CLI_AT(struct options, read)},
    {"communicators", 'c', .help = "communicators of different names are told apart",
     CLI_AT(struct options, by_communicator)},
    {"pmpi", 'p', CLI_WORD, "WHO",
     "who serves the calls, WEFT_PMPI: always weft, or auto (default: as the environment has it)",
     CLI_AT(struct options, who), .words = whos},
    {"keep", 'k', CLI_TEXT, "FILE", "keep what ranks count, as FILE.RANK",
     CLI_AT(struct options, keep)},
    {"output", 'o', CLI_TEXT, "FILE", "where to write it (default: standard output)",
     CLI_AT(struct options, output)},
    {"transport", 0, CLI_TRANSPORT, "NAME",
     "whose costs choose: shared, all ranks on this host; mpi, each on its own", "shared",
     CLI_AT(struct options, transport), .uses = CLI_COSTS},
    {"cost", 0, CLI_FILE, "FILE", "costs that choose (weft bench model; default: WEFT_COST)",
     CLI_AT(struct options, cost_file)},
    {0},
};

const struct cli_spec weft_command_profile = {
    .name = "profile",
    .summary = "what an MPI program's collectives cost it, and what weft would choose",
    .operands = "PROGRAM [ARGUMENT...]",
    .operands_max = INT32_MAX,
    .operands_last = 1,
    .about =
        "Runs PROGRAM, mpiexec mostly, with libweft-pmpi before MPI, and shows what its "
        "collectives have cost it: a row for each call, size and number of ranks, the most time "
        "first, with the time of a rank on average and of the one that spent the most, who served "
        "the calls (weft, or MPI and why), and the algorithm that weft chooses for so many bytes "
        "on so many ranks. With --read, what was counted before is shown, and nothing is run. "
        "Options stand before PROGRAM. With --json the program's standard output goes to standard "
        "error, unless -o names a file. Over several hosts --keep names a file in a folder that "
        "all see. Signals are passed on. Exit status: that of PROGRAM if it has failed, 128 + N if "
        "signal N ended it; 127 if there is no such program, 126 if it cannot be executed; 1 if no "
        "rank reported.",
    .options = table,
    .common = CLI_NO_RANKS,
    .run = profile,
};
