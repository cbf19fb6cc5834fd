/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A pipelined chain broadcast, built step by step in docs/tutorial.md.
 *
 *   chain_broadcast [RANKS [COUNT [SEGMENT]]]     runs it on local ranks and checks the data
 *   chain_broadcast --dump RANKS COUNT SEGMENT    prints the schedules of all ranks
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

struct options {
    int ranks;
    int root;
    size_t count;
    size_t segment;
};

/* [build] */
/* Rank `root` sends `count` floats down a chain of all ranks, `segment` elements at a time. */
static int build_chain(const struct options *options, int rank, struct weft_schedule **schedule)
{
    int size = options->ranks;
    int position = (rank - options->root + size) % size; /* in the chain; the root is first */
    int left = (rank - 1 + size) % size;
    int right = (rank + 1) % size;
    struct weft_schedule *s;
    int status = weft_schedule_create(&s, rank, size);
    if (status)
        return status;
    weft_schedule_set_name(s, "chain-broadcast");
    weft_slot_t data = weft_schedule_add_slot(s, "data", WEFT_F32, options->count, WEFT_SLOT_INOUT);

    uint32_t tag = 0;
    for (size_t at = 0; at < options->count; at += options->segment, tag++) {
        size_t rest = options->count - at;
        struct weft_region segment =
            weft_region_at(data, at, rest < options->segment ? rest : options->segment);
        weft_node_t received = -1;
        if (position > 0)
            received = weft_schedule_add_recv(s, segment, left, tag);
        if (position < size - 1) {
            weft_node_t passed = weft_schedule_add_send(s, segment, right, tag);
            if (position > 0)
                weft_schedule_add_order(s, received, passed);
        }
    }

    const struct weft_result result = {.struct_size = sizeof result,
                                       .dst = weft_region_at(data, 0, options->count),
                                       .from = "data",
                                       .first = options->root,
                                       .ranks = 1};
    weft_schedule_add_result(s, &result);
    status = weft_schedule_status(s); /* the first error of all the calls above */
    if (status)
        weft_schedule_destroy(s);
    else
        *schedule = s;
    return status;
}
/* [build] */

/* [run] */
/* What one rank does: builds its graph, commits it once, runs it three times with new data. */
static int broadcast(struct weft_context *context, void *user)
{
    const struct options *options = user;
    int rank = weft_context_rank(context);
    struct weft_schedule *schedule = NULL;
    struct weft_plan *plan = NULL;
    struct weft_run *run = NULL;
    float *data = weft_memory_alloc(options->count, sizeof *data);
    int status = data ? WEFT_OK : weft_error_set(WEFT_ERR_MEMORY, "no memory for the data");
    if (!status)
        status = build_chain(options, rank, &schedule);
    if (!status)
        status = weft_schedule_commit(schedule, &plan);
    if (!status)
        status = weft_run_create(&run, context, plan, NULL);
    if (!status)
        status = weft_run_bind_name(run, "data", data, options->count, WEFT_F32);

    for (int round = 0; !status && round < 3; round++) {
        for (size_t i = 0; i < options->count; i++)
            data[i] = rank == options->root ? (float)((i + (size_t)round) % 1000) : -1;
        status = weft_run_execute(run); /* starts it, and waits until it has ended */
        for (size_t i = 0; !status && i < options->count; i++) {
            if (data[i] != (float)((i + (size_t)round) % 1000))
                status = weft_error_set(WEFT_ERR_STATE, "rank %d, round %d: element %zu is %g",
                                        rank, round, i, (double)data[i]);
        }
    }
    weft_run_destroy(run);
    weft_plan_destroy(plan);
    weft_schedule_destroy(schedule);
    weft_memory_free(data);
    return status;
}
/* [run] */

/* [dump] */
/* Prints the graphs of all ranks. No rank has to exist for that. */
static int dump(const struct options *options)
{
    struct weft_schedule **all = weft_memory_alloc((size_t)options->ranks, sizeof(void *));
    char *text = NULL;
    int status = all ? WEFT_OK : weft_error_set(WEFT_ERR_MEMORY, "no memory for the schedules");
    for (int rank = 0; !status && rank < options->ranks; rank++)
        status = build_chain(options, rank, &all[rank]);
    if (!status)
        status = weft_schedule_write((const struct weft_schedule *const *)all,
                                     (size_t)options->ranks, WEFT_FORMAT_TEXT, &text, NULL);
    if (!status)
        fputs(text, stdout);
    for (int rank = 0; all && rank < options->ranks; rank++)
        weft_schedule_destroy(all[rank]);
    weft_memory_free(text);
    weft_memory_free(all);
    return status;
}
/* [dump] */

int main(int argc, char **argv)
{
    struct options options = {.ranks = 4, .count = 100000, .segment = 8192};
    int is_dump = argc > 1 && strcmp(argv[1], "--dump") == 0;
    argv += is_dump;
    argc -= is_dump;
    if (argc > 1)
        options.ranks = (int)strtol(argv[1], NULL, 10);
    if (argc > 2)
        options.count = strtoul(argv[2], NULL, 10);
    if (argc > 3)
        options.segment = strtoul(argv[3], NULL, 10);
    if (options.ranks < 1 || options.segment < 1) {
        fputs(
            "usage: chain_broadcast [--dump] [RANKS [COUNT [SEGMENT]]], RANKS and SEGMENT from 1\n",
            stderr);
        return 2;
    }
    int status =
        is_dump ? dump(&options) : weft_local_run(options.ranks, NULL, broadcast, &options);
    if (status) {
        fprintf(stderr, "%s: %s\n", weft_status_text(status), weft_error_text());
        return 1;
    }
    if (!is_dump)
        printf("%zu elements reached %d ranks, three times\n", options.count, options.ranks);
    return 0;
}
