/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/cli/ranks.h"

#include "tools/cli/cli.h"
#include "tools/cli/starter.h"
#include "tools/cli/transports.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Those that have not failed end by themselves, and say why. */
#define PATIENCE_S 3.0
#define GRACE_S    5.0

/* What a launcher says of a process: hydra (MPICH), Open MPI, PMIx. */
static const char *const mpi_ranks[] = {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", NULL};
static const char *const mpi_sizes[] = {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", NULL};
/* The inner one counts, if one has started another. */
static const char *const own_rank[] = {"WEFT_RANK", NULL};
static const char *const own_size[] = {"WEFT_SIZE", NULL};

/* The number in the first of some variables that is set; -1: none is. */
static int number_in(const char *const *names)
{
    for (; *names; names++) {
        const char *text = getenv(*names);
        if (text)
            return (int)strtol(text, NULL, 10);
    }
    return -1;
}

int ranks_launched(void)
{
    const char *launch = getenv("WEFT_LAUNCH");

    return launch && *launch;
}

int ranks_under_mpiexec(void)
{
    return !ranks_launched() && (number_in(mpi_ranks) >= 0 || getenv("PMI_FD"));
}

int ranks_processes(void)
{
    int size = number_in(ranks_launched() ? own_size : mpi_sizes);

    if (size >= 0)
        return size;
    return !ranks_launched() && number_in(mpi_ranks) > 0 ? 0 : 1;
}

static int follows_nobody;

void cli_follow_nobody(void)
{
    follows_nobody = 1;
}

int cli_is_follower(void)
{
    return !follows_nobody && number_in(ranks_launched() ? own_rank : mpi_ranks) > 0;
}

static const char *launcher(void)
{
    return ranks_launched() ? "weft launch" : "mpiexec";
}

int ranks_refuse_processes(const char *command)
{
    int processes = ranks_processes();
    char count[16] = "several";

    if (processes == 1)
        return 0;
    if (processes > 1)
        snprintf(count, sizeof count, "%d", processes);
    return cli_usage(command,
                     "--transport: local, by default, but %s started %s processes; expected "
                     "--transport %s (or --transport local: ranks of the first process alone)",
                     launcher(), count, ranks_launched() ? "shared" : "mpi");
}

/* ---- shared ---- */

/* Starts this command again, for each rank. Returns its exit status. */
static int start_shared(const struct cli *cli, const struct ranks_world *world)
{
    char self[PATH_MAX];
    const char *command = cli->spec->name;
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    char **words = calloc((size_t)cli->argc + 2, sizeof *words);

    if (length < 0 || !words) {
        free(words);
        return cli_fail(command, "this command was not found, or there is no memory for its words");
    }
    self[length] = '\0';
    words[0] = self;
    memcpy(words + 1, cli->argv, (size_t)cli->argc * sizeof *words);
    const struct starter starter = {
        .command = command,
        .ranks = world->wanted,
        .words = words,
        .keep_going = world->keep_going,
        .quiet = 1,
        .patience_s = PATIENCE_S,
        .grace_s = GRACE_S,
    };
    int status = starter_run(&starter);
    free(words);
    return status;
}

static int join_shared(const struct cli *cli, struct ranks_world *world)
{
    const char *command = cli->spec->name;
    int processes = ranks_processes();

    world->rank = 0;
    world->size = processes;
    if (ranks_launched() && cli->ranks && cli->ranks + world->more != processes) {
        return world->more > 0
                   ? cli_usage(command,
                               "-n: %d and %d more, but weft launch started %d; leave -n out",
                               cli->ranks, world->more, processes)
                   : cli_usage(command, "-n: %d, but weft launch started %d; leave -n out",
                               cli->ranks, processes);
    }
    if (ranks_launched())
        world->rank = number_in(own_rank);
    else if (processes != 1)
        return cli_usage(command, "--transport: shared, but mpiexec started several processes; "
                                  "expected --transport mpi, weft launch, or -n without mpiexec");
    else if (world->wanted > 1)
        world->over = 1;
    return world->over ? start_shared(cli, world) : 0;
}

int ranks_join(const struct cli *cli, struct ranks_world *world)
{
    const char *command = cli->spec->name;

    world->over = 0;
    if (strcmp(world->transport, "shared") == 0)
        return join_shared(cli, world);
    if (ranks_launched() && ranks_processes() != 1)
        return cli_usage(command,
                         "--transport: %s, but weft launch started %d processes; expected "
                         "--transport shared, or mpiexec in place of weft launch",
                         world->transport, ranks_processes());
    return ranks_start_mpi(command, world->threads, &world->rank, &world->size);
}

uint64_t ranks_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int run_world(const char *transport, const struct weft_context_config *config,
                     weft_rank_fn fn, void *user)
{
    struct weft_context *context;
    int status = weft_context_create_world(&context, transport, config);

    if (status == WEFT_OK) {
        char text[512] = "";
        status = fn(context, user);
        if (status < 0)
            snprintf(text, sizeof text, "%s", weft_error_text());
        weft_context_destroy(context);
        if (status < 0)
            weft_error_set(status, "%s", text);
    }
    return status;
}

int ranks_run(const char *transport, int ranks, const struct weft_context_config *config,
              weft_rank_fn fn, void *user)
{
    if (cli_uses_processes(transport))
        return run_world(transport, config, fn, user);
    return weft_local_run(ranks, config, fn, user);
}
