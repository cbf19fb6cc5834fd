/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/cli/ranks.h"

#include "tools/cli/cli.h"
#include "tools/cli/transports.h"

#include <stdlib.h>
#include <time.h>

/* What a launcher says of a process: hydra (MPICH), Open MPI, PMIx. */
static const char *const ranks_said[] = {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", NULL};
static const char *const sizes_said[] = {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", NULL};

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

int ranks_under_mpiexec(void)
{
    return number_in(ranks_said) >= 0 || getenv("PMI_FD");
}

int ranks_processes(void)
{
    int size = number_in(sizes_said);

    if (size >= 0)
        return size;
    return number_in(ranks_said) > 0 ? 0 : 1;
}

int cli_is_follower(void)
{
    return number_in(ranks_said) > 0;
}

int ranks_refuse_mpiexec(const char *command)
{
    int processes = ranks_processes();
    char count[16] = "several";

    if (processes == 1)
        return 0;
    if (processes > 1)
        snprintf(count, sizeof count, "%d", processes);
    return cli_usage(command,
                     "--transport: local, by default, but mpiexec started %s processes; expected "
                     "--transport mpi (or --transport local: ranks of the first process alone)",
                     count);
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
