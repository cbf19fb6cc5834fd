/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a stale step makes of a sum and of its own model, bit by bit. On virtual ranks, where it is
 * known which contributions are in the sum: one rank sleeps, the others never do.
 *
 *     step            0   1   2   3   4   5
 *     others          x   x   x   x   x   x      contribute what is of the step
 *     the late rank   x   x   (sleeps)      2    contributes its model of step 1 to 2 to 5, and
 *                                                takes the sum of version 5 in its step 2
 */
#include <criterion/criterion.h>
#include <math.h>

#include "average_job.h"
#include "runtime/base/alloc.h"

enum { ELEMENTS = 2053, STEPS = 6 }; /* more than a block that is converted at a time */

struct late {
    struct weft_group_average_config config;
    int rank;  /* who is late */
    int after; /* so many steps */
    int split;
    int fine; /* values whose sums round: of two members at most, in which order does not matter */
    void *initial;
};

/* ---- a reference ---- */

static double value_of(const struct late *late, int rank, int step, size_t i)
{
    uint64_t random = (uint64_t)(rank * 64 + step) * 4096 + i + 1;
    random *= UINT64_C(0x9e3779b97f4a7c15);
    random ^= random >> 29;
    if (!late->fine)
        return (double)(random % 255) - 127;
    return ((double)(random >> 11) * 0x1p-53 - 0.5) * (i % 7 == 0 ? 100 : 1);
}

static void *new_model(void)
{
    void *model = calloc(ELEMENTS, sizeof(double));
    CHECK(model);
    return model;
}

static void write_model(const struct late *late, void *model, int rank, int step)
{
    double *wide = new_model();
    for (size_t i = 0; i < ELEMENTS; i++)
        wide[i] = value_of(late, rank, step, i);
    OK(weft_convert(late->config.dtype, model, WEFT_F64, wide, ELEMENTS));
    free(wide);
}

/* Contributions in the datatype of sums. */
static weft_dtype_t work_of(const struct late *late)
{
    return late->config.dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32;
}

static void *contribution(const struct late *late, int rank, int step)
{
    void *model = new_model(), *wide = new_model();
    if (step < 0)
        memcpy(model, late->initial, ELEMENTS * weft_dtype_size(late->config.dtype));
    else
        write_model(late, model, rank, step);
    OK(weft_convert(work_of(late), wide, late->config.dtype, model, ELEMENTS));
    free(model);
    return wide;
}

#define REFERENCE(name, type)                                                                      \
    static void add_##name(type *sum, const type *more)                                            \
    {                                                                                              \
        for (size_t i = 0; i < ELEMENTS; i++)                                                      \
            sum[i] += more[i];                                                                     \
    }                                                                                              \
    static void divide_##name(type *sum, int by)                                                   \
    {                                                                                              \
        for (size_t i = 0; i < ELEMENTS; i++)                                                      \
            sum[i] /= (type)by;                                                                    \
    }                                                                                              \
    /* model: what the tensors hold when the sum is taken; posted: W', the same if not split. */   \
    static void mix_##name(const struct late *late, type *model, const type *sum, const type *own, \
                           const type *posted, int members)                                        \
    {                                                                                              \
        for (size_t i = 0; i < ELEMENTS; i++) {                                                    \
            type mixed = late->config.stale_mix == WEFT_STALE_SUBSTITUTE                           \
                             ? (sum[i] - own[i] + posted[i]) / (type)members                       \
                             : (sum[i] + posted[i]) / (type)(members + 1);                         \
            if (late->config.stale_mix == WEFT_STALE_SUBSTITUTE && members == 1)                   \
                mixed = posted[i]; /* sum - own is exactly 0 */                                    \
            model[i] = late->split ? model[i] + (mixed - posted[i]) : mixed;                       \
        }                                                                                          \
    }
REFERENCE(f32, float)
REFERENCE(f64, double)

static void add(const struct late *late, void *sum, void *more)
{
    if (work_of(late) == WEFT_F64)
        add_f64(sum, more);
    else
        add_f32(sum, more);
    free(more);
}

/* This rank's contribution to the last version: the average of the last synchronisation, its last
 * step, or the first model. */
static void *own_of(const struct late *late, int ranks)
{
    if (late->config.sync_period != (uint64_t)late->after)
        return contribution(late, late->rank, late->after - 1);
    void *sum = contribution(late, 0, late->after - 1);
    for (int r = 1; r < ranks; r++)
        add(late, sum, contribution(late, r, late->after - 1));
    if (work_of(late) == WEFT_F64)
        divide_f64(sum, ranks);
    else
        divide_f32(sum, ranks);
    return sum;
}

/* What a stale step makes of `model`. Returns the members of the sum. */
static int mix(const struct late *late, int ranks, void *model)
{
    int list[MOST], members;
    struct weft_groups *groups = NULL;
    OK(weft_groups_create(&groups, ranks, late->config.group_size));
    OK(weft_groups_at(groups, STEPS - 1, late->rank, list, &members, NULL));
    weft_groups_destroy(groups);
    void *sum = new_model(), *wide = new_model(), *own = own_of(late, ranks);
    void *posted = contribution(late, late->rank, late->after);
    for (int m = 0; m < members; m++)
        add(late, sum,
            list[m] == late->rank ? own_of(late, ranks) : contribution(late, list[m], STEPS - 1));
    OK(weft_convert(work_of(late), wide, late->config.dtype, model, ELEMENTS));
    if (work_of(late) == WEFT_F64)
        mix_f64(late, wide, sum, own, posted, members);
    else
        mix_f32(late, wide, sum, own, posted, members);
    OK(weft_convert(late->config.dtype, model, work_of(late), wide, ELEMENTS));
    free(posted);
    free(own);
    free(wide);
    free(sum);
    return members;
}

/* ---- ranks ---- */

static void sleep_until(struct weft_context *context, uint64_t time)
{
    uint64_t now = weft_context_now(context);
    if (time > now)
        OK(weft_context_sleep(context, time - now));
}

/* Adds to the model while its average is made. */
static void go_on(const struct late *late, void *model)
{
    double *wide = new_model();
    OK(weft_convert(WEFT_F64, wide, late->config.dtype, model, ELEMENTS));
    for (size_t i = 0; i < ELEMENTS; i++)
        wide[i] += 2;
    OK(weft_convert(late->config.dtype, model, WEFT_F64, wide, ELEMENTS));
    free(wide);
}

static void take_step(const struct late *late, struct weft_group_average *average, void *model,
                      struct weft_group_average_result *result)
{
    if (!late->split) {
        OK(weft_group_average_step(average, result));
        return;
    }
    OK(weft_group_average_post(average));
    go_on(late, model);
    OK(weft_group_average_wait(average, result));
}

static void be_late(const struct late *late, int ranks, struct weft_group_average *average,
                    void *model)
{
    struct weft_group_average_result result = {.struct_size = sizeof result};
    size_t bytes = ELEMENTS * weft_dtype_size(late->config.dtype);
    void *expected = new_model();
    write_model(late, model, late->rank, late->after);
    memcpy(expected, model, bytes);
    if (late->split)
        go_on(late, expected);
    int members = mix(late, ranks, expected);
    take_step(late, average, model, &result);
    CHECK(result.stale && result.version == STEPS - 1 && result.members == members);
    CHECK(memcmp(model, expected, bytes) == 0);
    /* There is no newer sum. */
    OK(weft_group_average_step(average, &result));
    CHECK(result.stale && result.members == 0);
    CHECK(memcmp(model, expected, bytes) == 0);
    free(expected);
}

static int enter_late(struct weft_context *context, void *user)
{
    const uint64_t apart = 10000000;
    const struct late *late = user;
    struct weft_group_average_result result = {.struct_size = sizeof result};
    int rank = weft_context_rank(context), ranks = weft_context_size(context);
    int steps = rank == late->rank ? late->after : STEPS;
    void *model = new_model();
    memcpy(model, late->initial, ELEMENTS * weft_dtype_size(late->config.dtype));
    struct weft_group_average *average = create(context, &late->config, model, ELEMENTS);
    for (int step = 0; step < steps; step++) {
        sleep_until(context, (uint64_t)(step + 1) * apart);
        write_model(late, model, rank, step);
        take_step(late, average, model, &result);
        CHECK(!result.stale && result.version == (uint64_t)step);
    }
    sleep_until(context, (STEPS + 1) * apart);
    if (rank == late->rank)
        be_late(late, ranks, average, model);
    OK(weft_group_average_destroy(average));
    free(model);
    return WEFT_OK;
}

static void run_late(struct late *late, int ranks)
{
    struct weft_virtual_config config;
    double *wide = new_model();
    weft_virtual_config_init(&config);
    late->initial = new_model();
    for (size_t i = 0; i < ELEMENTS; i++)
        wide[i] = (double)(i % 200);
    OK(weft_convert(late->config.dtype, late->initial, WEFT_F64, wide, ELEMENTS));
    free(wide);
    OK(weft_virtual_run(ranks, &config, enter_late, late));
    free(late->initial);
}

static struct late new_late(weft_stale_mix_t stale_mix, weft_dtype_t dtype, int group_size)
{
    struct late late = {.rank = 1, .after = 2, .fine = group_size <= 2};
    weft_group_average_config_init(&late.config);
    late.config.stale_mix = stale_mix;
    late.config.dtype = dtype;
    late.config.group_size = group_size;
    late.config.sync_period = WEFT_NEVER;
    late.config.patience_ns = 1000000; /* groups end a step at different times */
    return late;
}

static const weft_dtype_t dtypes[] = {WEFT_F32, WEFT_F64, WEFT_F16, WEFT_BF16};

static void every_case(weft_stale_mix_t stale_mix)
{
    for (int ranks = 2; ranks <= MOST; ranks++)
        for (int size = 1; size <= ranks; size++)
            for (int d = 0; d < 4; d++)
                for (int split = 0; split <= 1; split++) {
                    struct late late = new_late(stale_mix, dtypes[d], size);
                    late.rank = (size + d) % ranks;
                    late.split = split;
                    late.after = (ranks + d) % 3; /* 0: what it contributed was the first model */
                    run_late(&late, ranks);
                }
}

Test(stale_mix, paper_keeps_the_old_model_in_the_sum, .timeout = 140)
{
    every_case(WEFT_STALE_PAPER);
}

Test(stale_mix, substitute_takes_the_old_model_out, .timeout = 140)
{
    every_case(WEFT_STALE_SUBSTITUTE);
}

/* A synchronisation publishes its average for all. */
Test(stale_mix, substitute_takes_out_the_average_of_a_synchronisation, .timeout = 140)
{
    for (int ranks = 2; ranks <= MOST; ranks++)
        for (int size = 1; size <= (ranks & (ranks - 1) ? 2 : ranks); size++)
            for (int split = 0; split <= 1; split++) {
                struct late late = new_late(WEFT_STALE_SUBSTITUTE, dtypes[size % 2], size);
                late.split = split;
                late.fine = 0;
                late.after = 4; /* the next synchronisation would be version 7 */
                late.config.sync_period = 4;
                run_late(&late, ranks);
            }
}

/* ---- alone ---- */

enum { LATE_STEPS = 20 };

/* Groups of one member; the ranks but 0 are late in each step by half of it. Each adds 1 to its
 * model in every step. */
static int always_late(struct weft_context *context, void *user)
{
    const struct weft_group_average_config *config = user;
    struct weft_group_average_result result = {.struct_size = sizeof result};
    int late = weft_context_rank(context) > 0;
    float model = 0, sent = 0, kept = 0;
    struct weft_group_average *average = create(context, config, &model, 1);
    for (int step = 0; step < LATE_STEPS; step++) {
        float before = model, mine = model + 1;
        sleep_until(context, 10000000 * (uint64_t)(step + 1) + (late ? 5000000 : 0));
        model = mine;
        OK(weft_group_average_step(average, &result));
        CHECK(result.stale == late && result.members == 1 && result.version == (uint64_t)step);
        if (!late || config->stale_mix == WEFT_STALE_SUBSTITUTE)
            CHECK(model == mine);
        else
            CHECK(model == (sent + mine) / 2);
        sent = mine;
        kept = model - before;
        CHECK(!late || config->stale_mix == WEFT_STALE_SUBSTITUTE || step > 0 || kept == 0.5F);
    }
    if (late && config->stale_mix == WEFT_STALE_PAPER)
        CHECK(fabsf(kept - 2 / 3.F) < 1e-5F);
    OK(weft_group_average_destroy(average));
    return WEFT_OK;
}

Test(stale_mix,
     a_lone_member_keeps_half_to_two_thirds_of_its_step_with_paper_and_all_with_substitute)
{
    for (int mix = WEFT_STALE_SUBSTITUTE; mix <= WEFT_STALE_PAPER; mix++)
        for (int ranks = 2; ranks <= 5; ranks++) {
            struct late late = new_late((weft_stale_mix_t)mix, WEFT_F32, 1);
            struct weft_virtual_config config;
            weft_virtual_config_init(&config);
            OK(weft_virtual_run(ranks, &config, always_late, &late.config));
        }
}

/* Steps take random times, and where P is no multiple of S ranks are alone in turns: how many late
 * steps took a sum of this rank alone, and what they kept in all. */
struct lonely {
    struct weft_group_average_config config;
    int steps;
    double kept;
};

static int random_steps(struct weft_context *context, void *user)
{
    struct lonely *lonely = user;
    struct weft_group_average_result result = {.struct_size = sizeof result};
    uint64_t random = (uint64_t)weft_context_rank(context) + 1;
    float model = 0;
    struct weft_group_average *average = create(context, &lonely->config, &model, 1);
    for (int step = 0; step < 200; step++) {
        float before = model;
        random = random * UINT64_C(6364136223846793005) + 1;
        OK(weft_context_sleep(context, 10000000 + (random >> 33) % 10000000));
        model += 1;
        OK(weft_group_average_step(average, &result));
        if (result.stale && result.members == 1) {
            lonely->steps++;
            lonely->kept += (double)(model - before);
        }
    }
    OK(weft_group_average_destroy(average));
    return WEFT_OK;
}

Test(stale_mix, so_do_lone_members_in_turns)
{
    static const int sizes[][2] = {{3, 2}, {5, 2}, {3, 1}, {8, 1}};
    for (int mix = WEFT_STALE_SUBSTITUTE; mix <= WEFT_STALE_PAPER; mix++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            struct lonely lonely = {
                .config = new_late((weft_stale_mix_t)mix, WEFT_F32, sizes[i][1]).config};
            struct weft_virtual_config config;
            weft_virtual_config_init(&config);
            OK(weft_virtual_run(sizes[i][0], &config, random_steps, &lonely));
            double kept = lonely.kept / lonely.steps;
            cr_log_info("P = %d, S = %d, %s: %d late steps alone kept %.3f", sizes[i][0],
                        sizes[i][1], mix == WEFT_STALE_PAPER ? "paper" : "substitute", lonely.steps,
                        kept);
            cr_assert_geq(lonely.steps, 20);
            if (mix == WEFT_STALE_SUBSTITUTE)
                cr_assert_float_eq(kept, 1, 1e-4, "%g", kept); /* subtracting rounds */
            else
                cr_assert(kept > 0.5 && kept < 0.67, "%g", kept);
        }
}

static int alone_and_late(struct weft_context *context, void *user)
{
    static const float mine[] = {1.5F,      -0.F,     0x1p-149F, -0x1.fffffep127F,
                                 0x1.8p60F, INFINITY, 1e-30F};
    enum { MINE = sizeof mine / sizeof mine[0] };
    const struct weft_group_average_config *config = user;
    struct weft_group_average_result result = {.struct_size = sizeof result};
    float model[MINE];
    for (size_t i = 0; i < MINE; i++)
        model[i] = i == 5 ? INFINITY : 1e30F;
    struct weft_group_average *average = create(context, config, model, MINE);
    if (weft_context_rank(context) == 0) {
        OK(weft_context_sleep(context, 10000000));
        memcpy(model, mine, sizeof mine);
        OK(weft_group_average_step(average, &result));
        CHECK(result.stale && result.members == 1);
        CHECK(memcmp(model, mine, sizeof mine) == 0);
        memcpy(model, mine, sizeof mine);
    } else {
        OK(weft_group_average_step(average, &result));
    }
    OK(weft_group_average_destroy(average));
    return WEFT_OK;
}

Test(stale_mix, a_lone_member_keeps_its_step_bit_by_bit)
{
    struct weft_group_average_config config;
    struct weft_virtual_config ranks;
    weft_virtual_config_init(&ranks);
    weft_group_average_config_init(&config);
    config.stale_mix = WEFT_STALE_SUBSTITUTE;
    config.nan = WEFT_NAN_SPREAD;
    config.group_size = 1;
    config.sync_period = WEFT_NEVER;
    OK(weft_virtual_run(2, &ranks, alone_and_late, &config));
}

#ifndef WEFT_TEST_DEVICE /* where it is that of the host */
/* ---- memory ---- */

static size_t bytes_of(struct alone *alone, const struct weft_group_average_config *config)
{
    void *model = new_model();
    size_t before = atomic_load(&weft__alloc_bytes);
    struct weft_group_average *average = create(alone->context, config, model, ELEMENTS);
    size_t bytes = atomic_load(&weft__alloc_bytes) - before;
    OK(weft_group_average_destroy(average));
    free(model);
    return bytes;
}

/* One more model, of the sums' datatype, and only where a step may be stale. */
Test(stale_mix, substitute_takes_the_memory_of_one_model)
{
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);
    struct late first = new_late(WEFT_STALE_PAPER, WEFT_F32, 1);
    bytes_of(&alone, &first.config); /* what the context grows by stays */
    for (int d = 0; d < 4; d++)
        for (int mode = WEFT_AVERAGE_WAIT_AVOIDING; mode <= WEFT_AVERAGE_NONE; mode++) {
            struct late late = new_late(WEFT_STALE_PAPER, dtypes[d], 1);
            late.config.mode = (weft_average_mode_t)mode;
            size_t paper = bytes_of(&alone, &late.config);
            late.config.stale_mix = WEFT_STALE_SUBSTITUTE;
            size_t substitute = bytes_of(&alone, &late.config);
            size_t more =
                mode == WEFT_AVERAGE_WAIT_AVOIDING ? ELEMENTS * weft_dtype_size(work_of(&late)) : 0;
            cr_expect_eq(substitute, paper + more, "%s, mode %d: %zu and %zu bytes",
                         weft_dtype_name(dtypes[d]), mode, substitute, paper);
        }
    alone_destroy(&alone);
}
#endif
