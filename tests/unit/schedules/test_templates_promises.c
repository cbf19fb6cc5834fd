/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What templates promise beyond the data: the root may be in place where others are not, nobody
 * leaves a barrier early, sums have the same bits everywhere, and a plan is one call.
 */
#include "cells.h"

/* ---- in place on the root alone, or everywhere else ---- */

static int check_apart(const struct cell *c)
{
    struct weft_schedule *at[16] = {NULL};
    struct weft_check_report *report = NULL;
    struct weft_fault fault = {.struct_size = sizeof fault, .text = "no report"};
    int status = WEFT_OK, ok = 0;

    for (int r = 0; r < c->size && !status; r++) {
        struct weft_template_params params = params_of(c, r);
        status = weft_template_build(c->template->name, r, c->size, &params, &at[r]);
    }
    if (!status)
        status =
            weft_check((const struct weft_schedule *const *)at, (size_t)c->size, NULL, &report);
    if (!status) {
        ok = weft_check_report_ok(report);
        weft_check_report_get_fault(report, 0, &fault);
    }
    if (!ok)
        weft_error_set(WEFT_ERR_STATE, "%.300s", status ? weft_error_text() : fault.text);
    weft_check_report_destroy(report);
    for (int r = 0; r < c->size; r++)
        weft_schedule_destroy(at[r]);
    return ok ? WEFT_OK : WEFT_ERR_STATE;
}

static int run_apart(struct team *team, struct weft_context *context)
{
    int rank = weft_context_rank(context);

    for (unsigned i = 0; i < team->template->algorithm_count * (unsigned)team->size * 2;
         i += SWEPT(1, 3)) {
        struct cell c = {.template = team->template, .size = team->size, .number = i, .apart = 1};
        unsigned algorithm = i / 2 / (unsigned)team->size;
        weft_template_params_init(&c.params);
        c.params.algo = c.template->algorithms[algorithm].name;
        c.params.op = weft_op_builtin(WEFT_SUM);
        c.params.dtype = WEFT_U16;
        if (c.template->algorithms[algorithm].ordered)
            c.params.op = team->affine;
        c.params.count = 37;
        c.params.segment = i % 3 ? 0 : 24;
        c.params.root = (int)(i / 2 % (unsigned)team->size);
        c.params.in_place = !(i % 2);
        if (rank == c.params.root && check_apart(&c))
            fail_cell(team, &c, rank, weft_error_text());
        c.params.op = i % 4 < 2 ? weft_op_builtin(WEFT_SUM) : c.params.op;
        if (rank == c.params.root && check_apart(&c))
            fail_cell(team, &c, rank, weft_error_text());
        if (run_cell(team, context, &c) || atomic_load(&team->failed))
            return -1;
    }
    return 0;
}

Test(templates_promises, the_root_may_be_in_place_where_others_are_not)
{
    static const char *const names[] = {"gather", "reduce", "scatter"};
    for (size_t t = 0; t < sizeof names / sizeof names[0]; t++) {
        struct team team = {.template = weft_template_find(names[t]), .work = run_apart};
        run_team_sizes(&team);
    }
}

/* ---- no rank leaves a barrier before all have entered ---- */

static int enter_barriers(struct team *team, struct weft_context *context)
{
    struct weft_run *run = NULL;
    int status = weft_template_create_run(&run, context, "barrier", NULL);
    for (int start = 1; start <= 50 && !status; start++) {
        atomic_fetch_add(&team->entered, 1);
        status = weft_run_start(run);
        if (!status)
            status = weft_run_wait(run, PATIENCE);
        if (!status && atomic_load(&team->entered) < start * team->size)
            fail(team, "a rank left the barrier before all had entered");
    }
    if (status)
        fail(team, weft_error_text());
    weft_run_destroy(run);
    return status;
}

Test(templates_promises, barrier)
{
    struct team team = {.template = weft_template_find("barrier"), .work = enter_barriers};
    for (int i = 0; i < SIZES; i++) {
        team.size = sizes[i];
        atomic_store(&team.entered, 0);
        run_team(&team, i % 3);
    }
    for (uint64_t seed = 1; seed < SWEPT(40, 8); seed++) {
        team.size = (int)(seed % 18) + 1;
        atomic_store(&team.entered, 0);
        run_virtual_team(&team, seed);
    }
}

/* ---- sums of real numbers are the same on all ranks and at every start ---- */

static void fill_real(unsigned char *data, size_t count, weft_dtype_t dtype, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        double number = 0.5 + (double)(seed >> 40) / (1 << 24);
        uint16_t half = (uint16_t)((seed >> 54) & 0x3ff); /* the bits below the exponent */
        switch (dtype) {
        case WEFT_F16:
            ((uint16_t *)(void *)data)[i] = 0x3800 | half;
            break;
        case WEFT_BF16:
            ((uint16_t *)(void *)data)[i] = 0x3f00 | (half & 0x7f);
            break;
        case WEFT_F32:
            ((float *)(void *)data)[i] = (float)number;
            break;
        default:
            ((double *)(void *)data)[i] = number;
            break;
        }
    }
}

static uint64_t sum_of(const unsigned char *data, size_t bytes)
{
    uint64_t sum = 14695981039346656037u;
    for (size_t i = 0; i < bytes; i++)
        sum = (sum ^ data[i]) * 1099511628211u;
    return sum;
}

static void compare_sums(struct team *team, const struct cell *c, int rank, uint64_t sum,
                         uint64_t *first)
{
    team->sums[rank] = sum;
    pthread_barrier_wait(&team->barrier);
    if (team->sums[0] != sum)
        fail_cell(team, c, rank, "the bits differ from those of rank 0");
    if (c->start == 0)
        *first = sum;
    else if (*first != sum)
        fail_cell(team, c, rank, "the bits differ from those of the first start");
    pthread_barrier_wait(&team->barrier);
}

static int sum_reals(struct team *team, struct weft_context *context)
{
    int rank = weft_context_rank(context), status = 0;
    for (unsigned i = 0; i < team->template->algorithm_count * 8 && !status; i += SWEPT(1, 3)) {
        struct cell c = {.template = team->template, .size = team->size};
        struct weft_run *run = NULL;
        struct slots slots = {0};
        uint64_t first = 0;
        weft_template_params_init(&c.params);
        c.params.algo = c.template->algorithms[i / 8].name;
        static const weft_dtype_t real[] = {WEFT_F16, WEFT_BF16, WEFT_F32, WEFT_F64};
        c.params.dtype = real[i % 4];
        c.params.count = i % 8 < 4 ? 61 : BIG;
        status = create_run(&c, context, &run, &slots);
        for (int s = 0; s < slots.count && !status; s++)
            status = bind_name(run, slots.names[s], slots.data[s]);
        for (c.start = 0; c.start < STARTS && !status; c.start++) {
            fill_real(slots.data[0], c.params.count, c.params.dtype, (uint64_t)rank + i);
            status = weft_run_execute(run);
            compare_sums(team, &c, rank, sum_of(slots.data[1], slots.bytes[1]), &first);
        }
        if (status)
            fail_cell(team, &c, rank, weft_error_text());
        weft_run_destroy(run);
        close_slots(&slots);
    }
    return status;
}

Test(templates_promises, allreduce_gives_all_ranks_the_same_bits)
{
    struct team team = {.template = weft_template_find("allreduce"), .work = sum_reals};
    for (int i = 0; i < SIZES; i++) {
        team.size = sizes[i];
        run_team(&team, i % 3);
    }
}

/* ---- a plan in one call ---- */

static int two_runs_of_a_plan(struct weft_context *context, void *user)
{
    struct weft_template_params params;
    struct weft_plan *plan = NULL;
    struct weft_run *runs[2] = {NULL, NULL};
    int64_t x[2];
    int size = weft_context_size(context);
    (void)user;
    weft_template_params_init(&params);
    params.count = 1;
    params.dtype = WEFT_I64;
    params.op = weft_op_builtin(WEFT_SUM);
    params.in_place = 1;
    int status = weft_template_create_plan(&plan, context, "allreduce", &params);
    for (int i = 0; i < 2 && !status; i++) {
        x[i] = i + 1;
        status = weft_run_create(&runs[i], context, plan, NULL);
        if (!status)
            status = weft_run_bind_name(runs[i], "recv", &x[i], 1, WEFT_I64);
        if (!status)
            status = weft_run_execute(runs[i]);
    }
    weft_plan_destroy(plan);
    weft_run_destroy(runs[0]);
    weft_run_destroy(runs[1]);
    return status                             ? status
           : x[0] == size && x[1] == 2 * size ? WEFT_OK
                                              : weft_error_set(WEFT_ERR_STATE, "a wrong sum");
}

Test(templates_promises, a_plan_is_made_for_a_context_in_one_call)
{
    struct weft_plan *plan = NULL;
    cr_expect_eq(weft_local_run(1, NULL, two_runs_of_a_plan, NULL), WEFT_OK, "%s",
                 weft_error_text());
    cr_expect_eq(weft_local_run(5, NULL, two_runs_of_a_plan, NULL), WEFT_OK, "%s",
                 weft_error_text());
    cr_expect_eq(weft_template_create_plan(&plan, NULL, "barrier", NULL), WEFT_ERR_INVALID);
    cr_expect(strstr(weft_error_text(), "weft_template_create_plan: argument `context` is NULL"));
}
