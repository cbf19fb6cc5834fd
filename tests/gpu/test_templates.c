/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every template and every algorithm of the table, on 1 to 8 ranks, with all slots on devices: what
 * the schedules state of their results is compared with a plain computation, as `weft run --verify`
 * does. The suite goes over the table, so a new template is tested here from the start.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <weft/weft.h>

#include "tests/support/placed.h"
#include "tests/support/ranks.h"
#include "tools/commands/verify.h"

enum { MOST = 8, ROUNDS = 2, COUNT = 301, SEGMENT = 200 };

/* ---- a template with one algorithm, on all ranks ---- */

struct trial {
    const char *name, *algo;
    int size;
    struct weft_schedule *schedules[MOST];
    enum verify_fill fill;
};

static void open_trial(struct trial *trial, const struct weft_template *template, size_t algorithm,
                       int size)
{
    /* Blocks of different sizes, and of none. */
    static const size_t counts[MOST] = {40, 0, 301, 7, 100, 0, 64, 1};
    struct weft_template_params params;

    *trial = (struct trial){template->name, template->algorithms[algorithm].name, size, {NULL}, 0};
    weft_template_params_init(&params);
    params.algo = trial->algo;
    params.count = COUNT;
    params.segment = (size_t)size % 2 ? SEGMENT : 0;
    params.in_place = size % 3 == 0;
    params.root = size / 2;
    params.k = 20;
    params.counts = size % 2 ? counts : NULL;
    params.counts_agreed = 1;
    params.memory = WEFT_MEMORY_DEVICE;
    for (int r = 0; r < size; r++)
        OK(weft_template_build(trial->name, r, size, &params, &trial->schedules[r]));
    trial->fill = verify_fill_for(trial->schedules, (size_t)size);
    if (trial->fill < VERIFY_PAIRS) /* one may state no result */
        trial->fill = verify_fill_for_op(weft_op_builtin(WEFT_SUM));
}

static void close_trial(struct trial *trial)
{
    for (int r = 0; r < trial->size; r++)
        weft_schedule_destroy(trial->schedules[r]);
}

/* ---- one rank of it ---- */

struct memory {
    size_t count;
    void **here, **there; /* of each slot that is bound */
};

static struct weft_slot_info slot_of(const struct weft_schedule *schedule, size_t slot)
{
    struct weft_slot_info info = {.struct_size = sizeof info};

    OK(weft_schedule_get_slot(schedule, (weft_slot_t)slot, &info));
    CHECK(info.memory == WEFT_MEMORY_DEVICE);
    return info;
}

static size_t bytes_of(const struct weft_slot_info *info)
{
    return info->count * weft_dtype_size(info->dtype);
}

static void open_memory(struct memory *memory, const struct weft_schedule *schedule,
                        struct weft_run *run)
{
    memory->count = weft_schedule_slot_count(schedule);
    memory->here = calloc(memory->count + 1, sizeof *memory->here);
    memory->there = calloc(memory->count + 1, sizeof *memory->there);
    CHECK(memory->here && memory->there);
    for (size_t s = 0; s < memory->count; s++) {
        struct weft_slot_info info = slot_of(schedule, s);

        if (info.kind == WEFT_SLOT_SCRATCH)
            continue;
        memory->here[s] = malloc(bytes_of(&info) + 1);
        CHECK(memory->here[s]);
        memory->there[s] = placed_alloc(ON_DEVICE, bytes_of(&info));
        OK(weft_run_bind(run, (weft_slot_t)s, memory->there[s], info.count, info.dtype));
    }
}

static void close_memory(struct memory *memory)
{
    for (size_t s = 0; s < memory->count; s++) {
        placed_free(ON_DEVICE, memory->there[s]);
        free(memory->here[s]);
    }
    free(memory->there);
    free(memory->here);
}

/* Contributions to the device; what is only written holds something else before. */
static void fill(const struct trial *trial, const struct memory *memory, int rank, uint64_t round)
{
    const struct weft_schedule *schedule = trial->schedules[rank];

    for (size_t s = 0; s < memory->count; s++) {
        struct weft_slot_info info = slot_of(schedule, s);

        if (!memory->here[s])
            continue;
        if (info.kind == WEFT_SLOT_OUTPUT)
            memset(memory->here[s], 0x5a, bytes_of(&info));
        else if (trial->fill == VERIFY_COMPRESSED)
            OK(verify_fill_compressed(schedule, &info, memory->here[s], round));
        else if (trial->fill == VERIFY_PAIRS)
            verify_fill_pairs(schedule, &info, memory->here[s], round);
        else
            verify_fill(trial->fill, memory->here[s], info.dtype, rank, info.name, 0, info.count,
                        round);
        placed_put(ON_DEVICE, memory->there[s], memory->here[s], bytes_of(&info));
    }
}

static void verify(const struct trial *trial, const struct memory *memory, int rank, uint64_t round)
{
    const struct weft_schedule *schedule = trial->schedules[rank];
    struct verify_fault fault;

    for (size_t s = 0; s < memory->count; s++) {
        struct weft_slot_info info = slot_of(schedule, s);

        if (memory->here[s])
            placed_get(ON_DEVICE, memory->here[s], memory->there[s], bytes_of(&info));
    }
    int status = verify_results(schedule, trial->fill, memory->here, round, &fault);
    if (status == WEFT_IN_PROGRESS)
        fprintf(stderr, "%s %s P=%d: rank %d, slot %s, element %zu: got %s, expected %s\n",
                trial->name, trial->algo, trial->size, rank, fault.slot, fault.element, fault.got,
                fault.expected);
    OK(status);
}

/* What only the application binds and fires, as `weft run` does. */
static void bind_values(const struct weft_schedule *schedule, struct weft_run *run)
{
    struct weft_value_info value = {.struct_size = sizeof value};

    for (size_t v = 1; v <= weft_schedule_value_count(schedule); v++) {
        OK(weft_schedule_get_value(schedule, (weft_value_t)v, &value));
        if (value.producer < 0)
            OK(weft_run_bind_value(run, (weft_value_t)v, value.max));
    }
}

static void fire_events(const struct weft_schedule *schedule, struct weft_run *run)
{
    struct weft_node_info node = {.struct_size = sizeof node};

    for (size_t n = 0; n < weft_schedule_node_count(schedule); n++) {
        OK(weft_schedule_get_node(schedule, (weft_node_t)n, &node));
        if (node.kind == WEFT_NODE_EVENT && node.channel == WEFT_CHANNEL_NONE)
            weft_run_fire(run, (weft_node_t)n); /* others may have been first */
    }
}

static void try(struct ranks *ranks, struct weft_context *context, int rank)
{
    const struct trial *trial = ranks->user;
    const struct weft_schedule *schedule = trial->schedules[rank];
    struct weft_plan *plan = NULL;
    struct memory memory;

    placed_rank(rank);
    OK(weft_schedule_commit(schedule, &plan));
    struct weft_run *run = make_run(context, plan, NULL);
    open_memory(&memory, schedule, run);
    bind_values(schedule, run);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        fill(trial, &memory, rank, round);
        ranks_meet(ranks);
        OK(weft_run_start(run));
        fire_events(schedule, run);
        OK(weft_run_wait(run, WEFT_NEVER));
        verify(trial, &memory, rank, round);
    }
    ranks_meet(ranks);
    weft_run_destroy(run);
    close_memory(&memory);
}

/* ---- all of them ---- */

/* Sanitizers, which take ten times as long, see one rank, an even and two odd numbers of ranks,
 * both ways of progress. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { FEW = 1 };
#else
enum { FEW = 0 };
#endif

static void try_size(int size)
{
    struct trial trial;
    struct ranks ranks;

    if (FEW && (size == 4 || size > 5))
        return;
    placed_hold();
    for (size_t t = 0; t < weft_template_count(); t++) {
        const struct weft_template *template = weft_template_at(t);

        for (size_t a = 0; a < template->algorithm_count; a++) {
            open_trial(&trial, template, a, size);
            ranks_init(&ranks, size, try, &trial);
            ranks.config.progress = size % 4 == 3 ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER;
            ranks.local_config.eager_bytes = size % 4 == 2 ? WEFT_EAGER_NONE : 0;
            ranks_run(&ranks);
            close_trial(&trial);
        }
    }
    placed_check();
}

Test(device_templates, on_one_rank)
{
    try_size(1);
}

Test(device_templates, on_two_ranks)
{
    try_size(2);
}

Test(device_templates, on_three_ranks)
{
    try_size(3);
}

Test(device_templates, on_four_ranks)
{
    try_size(4);
}

Test(device_templates, on_five_ranks)
{
    try_size(5);
}

Test(device_templates, on_six_ranks)
{
    try_size(6);
}

Test(device_templates, on_seven_ranks)
{
    try_size(7);
}

Test(device_templates, on_eight_ranks)
{
    try_size(8);
}
