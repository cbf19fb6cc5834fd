/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft run: executes a template or a schedule file, over local ranks or over MPI, and says how long
 * it took and whether the result was right.
 *
 * Every iteration has other data, so that a result left over from the one before is seen. The ranks
 * meet in weft's own barrier before each, and weft's own allreduce brings their times together, so
 * nothing here depends on the transport.
 */
#include "tools/cli/devices.h"
#include "tools/cli/ranks.h"
#include "tools/cli/table.h"
#include "tools/cli/transports.h"
#include "tools/commands/run_rank.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static int report(struct run_job *job)
{
    size_t n = job->iterations;
    int verified = job->verify && !job->faults;
    double *t = job->times_us;

    qsort(t, n, sizeof *t, by_value);
    double median = n % 2 ? t[n / 2] : (t[n / 2 - 1] + t[n / 2]) / 2;
    if (job->cli->json) {
        /* Nobody asked: that is neither right nor wrong. */
        json_t *answer = job->verify ? json_boolean(verified) : json_null();
        return cli_print_json(
            "run", json_pack("{s:s, s:s, s:i, s:s, s:I, s:f, s:o, s:f, s:f, s:I, s:s?}", "name",
                             job->name, "schedule", job->schedule, "ranks", job->size, "transport",
                             job->transport, "iterations", (json_int_t)n, "median_us", median,
                             "verified", answer, "min_us", t[0], "max_us", t[n - 1], "nodes",
                             (json_int_t)job->nodes, "device", job->cli->device));
    }
    table_say(0, 2, "%s over %s, %d rank%s%s%s", job->schedule, job->transport, job->size,
              job->size == 1 ? "" : "s", job->cli->device ? ", on " : "",
              job->cli->device ? job->cli->device : "");
    printf("  %-11s %zu, of the slowest rank:\n", "iterations", n);
    printf("  %-11s %10.2f us\n  %-11s %10.2f us\n  %-11s %10.2f us\n", "median", median, "minimum",
           t[0], "maximum", t[n - 1]);
    table_say(2, 12, "%-11s %s", "verified",
              verified      ? "yes, every result of every rank and iteration"
              : job->faults ? "NO"
                            : "not asked for (--verify)");
    return cli_finish("run");
}

/* Bytes of all slots of a schedule. */
static double bytes_of(const struct weft_schedule *schedule)
{
    struct weft_slot_info slot = {.struct_size = sizeof slot};
    double bytes = 0;

    for (size_t s = 0; s < weft_schedule_slot_count(schedule); s++)
        if (weft_schedule_get_slot(schedule, (weft_slot_t)s, &slot) == WEFT_OK)
            bytes += (double)slot.count * (double)weft_dtype_size(slot.dtype);
    return bytes;
}

/* Refuses what cannot fit: this system promises memory that it does not have, and then kills. The
 * ranks in between take at least what the lesser of the first and the last takes. */
static int check_memory(const struct run_job *job, const struct cli *cli,
                        const struct cli_schedules *schedules)
{
    int local = strcmp(job->transport, "mpi") != 0;
    struct weft_topology topology = {.struct_size = sizeof topology};
    struct cli_schedules last;
    double need = bytes_of(schedules->at[0]);

    for (size_t i = 1; local && i < schedules->count; i++)
        need += bytes_of(schedules->at[i]);
    if (local && !schedules->file && job->size > 1) {
        int status = cli_schedules_load(&last, cli, job->name, 4, job->size - 1);
        if (status)
            return status;
        double other = bytes_of(last.at[0]);
        need += other + (job->size - 2) * (need < other ? need : other);
        cli_schedules_free(&last);
    }
    if (weft_topology_get(&topology) != WEFT_OK || topology.memory_bytes == 0 ||
        need <= (double)topology.memory_bytes)
        return 0;
    return cli_usage(
        "run", "%s: %d ranks need %.3g GiB; expected at most the %.3g GiB of memory here",
        job->name, job->size, need / (1 << 30), (double)topology.memory_bytes / (1 << 30));
}

/* Loads the file, or tries the template for one rank: what is wrong is found before ranks start. */
static int prepare(struct run_job *job, struct cli *cli, struct cli_schedules *schedules, int size)
{
    int template = weft_template_find(job->name) != NULL;
    int ranks = size ? size : cli->ranks ? cli->ranks : 4;

    weft_cost_model_init(&job->cost, job->transport);
    if (job->cost_file &&
        weft_cost_model_read(job->cost_file, job->transport, &job->cost, NULL) != WEFT_OK)
        return cli_usage("run", "--cost: %s", weft_error_text());
    cli->params.cost = &job->cost;
    int status = cli_settle_layers(cli, job->name, ranks);
    if (status)
        return status;
    job->params = cli->params;
    struct cli one = *cli;
    one.ranks = size ? size : one.ranks;
    if (template && strcmp(job->transport, "mpi") != 0 &&
        cli_check_memory(&one, job->name, ranks, (size_t)ranks))
        return CLI_WRONG;
    status = cli_schedules_load(schedules, &one, job->name, 4, template ? 0 : -1);
    if (status)
        return status;
    /* NCCL executes joint nodes in an order that is known; elsewhere they are messages. */
    if (job->nccl == WEFT_NCCL_NONE || job->nccl == WEFT_NCCL_AGREED)
        status = cli_schedules_write_out(schedules, cli);
    if (status) {
        cli_schedules_free(schedules);
        return status;
    }
    job->size = schedules->size;
    job->fill = verify_fill_for(schedules->at, schedules->count);
    if (template && job->fill < VERIFY_PAIRS) /* rank 0 may state no result */
        job->fill = verify_fill_for_op(job->params.op);
    job->file = template ? NULL : schedules;
    if (!template && schedules->count != (size_t)schedules->size) {
        status = cli_usage("run",
                           "%s holds %zu of %d ranks; expected all of them (weft dump without -r)",
                           job->name, schedules->count, schedules->size);
    } else {
        status = check_memory(job, &one, schedules);
    }
    if (status)
        cli_schedules_free(schedules);
    return status;
}

/* Whether the slot `from` that a result of a file is combined from exists on rank @p rank. */
static int check_source(const struct cli_schedules *file, const char *name,
                        const struct weft_result *result, const char *from, int rank)
{
    const struct weft_schedule *schedule = file->at[rank];
    struct weft_slot_info slot = {.struct_size = sizeof slot};
    size_t count = result->dst.count;

    for (size_t s = 0; s < weft_schedule_slot_count(schedule); s++) {
        weft_schedule_get_slot(schedule, (weft_slot_t)s, &slot);
        if (strcmp(slot.name, from) != 0)
            continue;
        if (slot.kind == WEFT_SLOT_SCRATCH || result->offset > slot.count ||
            count > slot.count - result->offset) {
            return cli_usage("run",
                             "%s: a result is of %s[%zu:%zu], which on rank %d is %s; expected a "
                             "bound slot with these elements",
                             name, from, result->offset, result->offset + count, rank,
                             slot.kind == WEFT_SLOT_SCRATCH ? "scratch" : "shorter");
        }
        return 0;
    }
    return cli_usage("run", "%s: a result is of slot %s, which rank %d does not have", name, from,
                     rank);
}

/* 1 if a schedule of the file leaves something in a slot that the user binds. */
static int writes(const struct cli_schedules *file)
{
    struct weft_slot_info slot = {.struct_size = sizeof slot};

    for (size_t i = 0; i < file->count; i++) {
        for (size_t s = 0; s < weft_schedule_slot_count(file->at[i]); s++) {
            weft_schedule_get_slot(file->at[i], (weft_slot_t)s, &slot);
            if (slot.kind == WEFT_SLOT_OUTPUT || slot.kind == WEFT_SLOT_INOUT)
                return 1;
        }
    }
    return 0;
}

/* Whether the results of a file can be verified. One that writes nothing may state none: it is as
 * it should be when it has ended on every rank. */
static int check_results(const struct cli_schedules *file, const char *name)
{
    struct weft_result result = {.struct_size = sizeof result};
    size_t stated = 0;

    for (size_t i = 0; i < file->count; i++) {
        stated += weft_schedule_result_count(file->at[i]);
        for (size_t r = 0; r < weft_schedule_result_count(file->at[i]); r++) {
            weft_schedule_get_result(file->at[i], r, &result);
            for (int k = 0; result.kind == WEFT_RESULT_REGION && k < result.ranks; k++) {
                int rank = weft_result_rank(&result, k);
                const char *from = weft_result_slot(&result, weft_schedule_rank(file->at[i]), rank);
                int status = check_source(file, name, &result, from, rank);
                if (status)
                    return status;
            }
        }
    }
    if (!stated && writes(file)) {
        return cli_usage("run", "--verify: %s states no result; expected a schedule that does",
                         name);
    }
    return 0;
}

static int run(struct run_job *job)
{
    struct weft_context_config config;

    weft_context_config_init(&config);
    config.device = job->cli->device;
    if (job->driver)
        config.progress =
            strcmp(job->driver, "helper") == 0 ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER;
    int status = run_trace_open(job);
    if (status)
        return status;
    job->times_us = calloc(job->iterations, sizeof *job->times_us);
    if (!job->times_us)
        return cli_fail("run", "out of memory for %zu times", job->iterations);
    status = ranks_run(job->transport, job->size, &config, run_rank, job);
    if (status != WEFT_OK)
        status = cli_fail("run", "%s: %s", job->name, weft_error_text());
    else if (cli_is_follower())
        status = 0;
    else if (!(status = report(job)) && job->faults)
        status = CLI_NO;
    free(job->times_us);
    run_free_kept(job);
    int traced = run_trace_write(job);
    weft_trace_destroy(job->trace);
    return status ? status : traced;
}

/* How many processes of `shared` there are to be: a file may say so itself. */
static int count_ranks(struct run_job *job, struct cli *cli, int *ranks)
{
    struct cli_schedules schedules;

    *ranks = cli->ranks ? cli->ranks : ranks_launched() ? ranks_processes() : 0;
    if (*ranks)
        return 0;
    int status = prepare(job, cli, &schedules, 0);
    if (!status) {
        *ranks = job->size;
        cli_schedules_free(&schedules);
    }
    return status;
}

/* Ranks that are processes: the world's size is their number. Without a launcher, -n starts them.
 */
static int join(struct run_job *job, struct cli *cli, int *size, int *over)
{
    struct ranks_world world = {.transport = job->transport, .threads = 1};
    int status = 0;

    if (strcmp(job->transport, "mpi") != 0)
        status = count_ranks(job, cli, &world.wanted);
    else if (!ranks_under_mpiexec() && !ranks_launched() && cli->ranks > 1)
        return ranks_exec("run", cli->ranks, cli->argc, cli->argv);
    if (!status)
        status = ranks_join(cli, &world);
    *size = world.size;
    *over = world.over;
    if (!status && !world.over && cli->ranks && cli->ranks != *size) {
        status =
            cli_usage("run", "-n: %d, but mpiexec started %d; leave -n out", cli->ranks, *size);
    }
    return status;
}

static int execute(struct cli *cli)
{
    struct run_job job = {.cli = cli, .lock = PTHREAD_MUTEX_INITIALIZER};
    struct cli_schedules schedules;
    int size = 0;
    int over = 0;
    int status = 0;

    if (!cli_parse(cli, &job))
        return cli->status;
    job.name = cli->operands[0];
    if (cli->device && cli_check_device("run", "--device", cli->device))
        return CLI_WRONG;
    if (cli_uses_processes(job.transport))
        status = join(&job, cli, &size, &over);
    else if (!cli_typed(cli, "transport"))
        status = ranks_refuse_processes("run");
    else if (cli_is_follower())
        return CLI_OK; /* local ranks under a launcher: its rank 0 does it */
    if (!status && !over) {
        status = prepare(&job, cli, &schedules, size);
        if (!status) {
            status = job.file && job.verify ? check_results(job.file, job.name) : 0;
            status = status ? status : run(&job);
            cli_schedules_free(&schedules);
        }
    }
    ranks_stop_mpi();
    return status;
}

static const char *const memories[] = {"arena", "private", NULL};
/* As weft_nccl_t has them. */
static const char *const ways[] = {"none", "known", "agreed", "in-order", NULL};
static const char *const drivers[] = {"caller", "helper", NULL};

static const struct cli_option table[] = {
    {"transport", 't', CLI_TRANSPORT, "NAME",
     "local: threads; shared: processes; mpi: under mpiexec, without -n", "local",
     CLI_AT(struct run_job, transport), .uses = CLI_RUNS},
    {"iterations", 'i', CLI_INTEGER, "N", "timed executions, each with other data", "10",
     CLI_AT(struct run_job, iterations), .least = 1, .most = INT_MAX},
    {"verify", .help = "compare every result with a plain computation",
     CLI_AT(struct run_job, verify)},
    {"progress", 0, CLI_WORD, "WHO", "caller (default) or helper drives the engine",
     CLI_AT(struct run_job, driver), .words = drivers},
    {"memory", 0, CLI_CHOICE, "WHERE",
     "arena: of the context, which its transport moves best; private: the process' own", "arena",
     CLI_AT(struct run_job, memory), .words = memories},
    {"nccl", 0, CLI_CHOICE, "HOW",
     "messages between devices over NCCL: in an order known before, agreed on one by one, or as "
     "runs are started",
     "none", CLI_AT(struct run_job, nccl), .words = ways},
    {"deadline", 0, CLI_REAL, "SECONDS", "fail an execution that takes longer, 0: never", "60",
     CLI_AT(struct run_job, timeout_s), .high = 1e9},
    {"timeout", 0, CLI_REAL, "SECONDS", .help = NULL, CLI_AT(struct run_job, timeout_s),
     .high = 1e9},
    {"trace", 0, CLI_TEXT, "FILE", "write when each node ran, as a Chrome trace",
     CLI_AT(struct run_job, trace_path)},
    {"cost", 0, CLI_FILE, "FILE", "costs that choose the algorithm (weft bench model)",
     CLI_AT(struct run_job, cost_file)},
    {0},
};

const struct cli_spec weft_command_run = {
    .name = "run",
    .summary = "executes a template or a schedule file",
    .operands = "TEMPLATE|FILE...",
    .operands_min = 1,
    .operands_max = INT32_MAX,
    .about =
        "Executes a template or a schedule file (of all ranks) and prints how long the slowest "
        "rank took. Events of the application are fired at the start. Exit status 1 if the "
        "result was wrong.",
    .options = table,
    .common = CLI_TEMPLATE,
    .mpi = 1,
    .run = execute,
};
