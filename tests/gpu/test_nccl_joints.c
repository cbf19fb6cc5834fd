/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Joint nodes over NCCL: random schedules of them and of messages, on local ranks with a device
 * each, under the stand-ins; and what is refused when a run is created.
 */
#include <criterion/criterion.h>
#include <stdatomic.h>

#include "tests/gpu/support/device_memory.h"
#include "tests/gpu/support/nccl_library.h"
#include "tests/support/bind.h"
#include "tests/support/draw.h"
#include "tests/support/joints.h"
#include "tests/support/ranks.h"

static int make(struct weft_run **run, struct weft_context *context, struct weft_schedule *s,
                weft_nccl_t how)
{
    struct weft_run_config config;
    struct weft_plan *plan;
    int status;

    OK(weft_schedule_set_memory(s, WEFT_SLOT_ALL, WEFT_MEMORY_DEVICE));
    OK(weft_schedule_commit(s, &plan));
    weft_schedule_destroy(s);
    weft_run_config_init(&config);
    config.nccl = how;
    status = weft_run_create(run, context, plan, &config);
    weft_plan_destroy(plan);
    return status;
}

/* ---- random ones ---- */

static void execute(struct weft_run *run, const struct joints *joints, int rank, void *memory)
{
    int32_t x[JOINTS_COUNT];

    joints_fill(joints, rank, x);
    device_put(memory, x, sizeof x);
    OK(weft_run_execute(run));
    device_get(x, memory, sizeof x);
    joints_check(joints, rank, x);
}

static void random_rank(struct ranks *ranks, struct weft_context *context, int rank)
{
    const struct joints *joints = ranks->user;
    struct weft_run *run;

    device_use(rank);
    void *memory = device_alloc(JOINTS_COUNT * sizeof(int32_t));
    OK(make(&run, context, joints_build(joints, rank), WEFT_NCCL_KNOWN));
    OK(bind_slot(run, 0, memory));
    for (int round = 0; round < 2; round++)
        execute(run, joints, rank, memory);
    weft_run_destroy(run);
    device_free(memory);
}

Test(nccl_joints, random_schedules)
{
    unsigned long before = nccl_calls("ncclAllReduce");
    const char *seeds = getenv("WEFT_TEST_SEEDS");
    uint64_t count = seeds ? strtoull(seeds, NULL, 10) : 40;

    for (uint64_t seed = 0; seed < count; seed++) {
        struct joints *joints = joints_create(seed, 0);

        nccl_play(random_rank, joints_size(joints),
                  seed % 2 ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER, joints);
        joints_destroy(joints);
    }
    cr_expect(!nccl_stands_in() || nccl_calls("ncclAllReduce") > before, "NCCL was not called");
}

/* ---- lists of tensors ---- */

static void listed_rank(struct ranks *ranks, struct weft_context *context, int rank)
{
    const struct joints *joints = ranks->user;
    const size_t cut = 31 + 57 * (size_t)rank % (JOINTS_COUNT - 31);
    struct weft_run *run;
    int32_t x[JOINTS_COUNT];

    device_use(rank);
    int32_t *memory = device_alloc((JOINTS_COUNT + 64) * sizeof(int32_t));
    struct weft_piece pieces[] = {{memory, cut}, {memory + cut + 64, JOINTS_COUNT - cut}};
    OK(make(&run, context, joints_build(joints, rank), WEFT_NCCL_KNOWN));
    OK(bind_list(run, 0, pieces, 2));
    joints_fill(joints, rank, x);
    device_put(memory, x, cut * sizeof *x);
    device_put(memory + cut + 64, x + cut, (JOINTS_COUNT - cut) * sizeof *x);
    OK(weft_run_execute(run));
    device_get(x, memory, cut * sizeof *x);
    device_get(x + cut, memory + cut + 64, (JOINTS_COUNT - cut) * sizeof *x);
    joints_check(joints, rank, x);
    weft_run_destroy(run);
    device_free(memory);
}

Test(nccl_joints, lists_of_tensors)
{
    for (uint64_t seed = 1000; seed < 1012; seed++) {
        struct joints *joints = joints_create(seed, 0);

        nccl_play(listed_rank, joints_size(joints),
                  seed % 2 ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER, joints);
        joints_destroy(joints);
    }
}

/* ---- several runs at once, in another order on each rank ---- */

enum { RUNS = 3 };

static void several_rank(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct joints *const *joints = ranks->user;
    struct weft_run *runs[RUNS];
    void *memory[RUNS];
    int32_t x[JOINTS_COUNT];

    device_use(rank);
    for (int i = 0; i < RUNS; i++) {
        OK(make(&runs[i], context, joints_build(joints[i], rank), WEFT_NCCL_KNOWN));
        memory[i] = device_alloc(sizeof x);
        OK(bind_slot(runs[i], 0, memory[i]));
    }
    for (int round = 0; round < 6; round++) {
        for (int k = 0; k < RUNS; k++) {
            int i = (k * (rank % 2 ? 2 : 1) + rank + round) % RUNS;

            joints_fill(joints[i], rank, x);
            device_put(memory[i], x, sizeof x);
            OK(weft_run_start(runs[i]));
        }
        for (int i = 0; i < RUNS; i++) {
            OK(weft_run_wait(runs[i], WEFT_NEVER));
            device_get(x, memory[i], sizeof x);
            joints_check(joints[i], rank, x);
        }
    }
    for (int i = 0; i < RUNS; i++) {
        weft_run_destroy(runs[i]);
        device_free(memory[i]);
    }
}

Test(nccl_joints, several_runs_at_once)
{
    for (int size = 2; size <= 6; size++) {
        struct joints *joints[RUNS];

        for (int i = 0; i < RUNS; i++)
            joints[i] = joints_create(2000 + (uint64_t)(10 * size + i), size);
        nccl_play(several_rank, size, WEFT_PROGRESS_HELPER, joints);
        for (int i = 0; i < RUNS; i++)
            joints_destroy(joints[i]);
    }
}

/* ---- all datatypes ---- */

struct typed {
    weft_dtype_t dtype;
    weft_op_kind_t op;
};

static void typed_rank(struct ranks *ranks, struct weft_context *context, int rank)
{
    const struct typed *typed = ranks->user;
    enum { N = 37 };
    size_t element = weft_dtype_size(typed->dtype);
    struct weft_schedule *s;
    struct weft_run *run;
    unsigned char ones[N * 8], out[N * 8], expected[8];
    float one = 1;
    int8_t whole = 1;

    memset(ones, 0, sizeof ones);
    for (size_t i = 0; i < N; i++)
        if (weft_convert(typed->dtype, ones + i * element, WEFT_F32, &one, 1) != WEFT_OK)
            memcpy(ones + i * element, &whole, 1); /* little-endian integers */
    memcpy(expected, ones, element);
    device_use(rank);
    OK(weft_schedule_create(&s, rank, ranks->size));
    CHECK(weft_schedule_add_slot(s, "x", typed->dtype, N, WEFT_SLOT_INOUT) == 0);
    CHECK(weft_schedule_nccl_allreduce(s, typed->op, weft_region_at(0, 0, N),
                                       weft_region_at(0, 0, N), NULL) == 0);
    OK(make(&run, context, s, WEFT_NCCL_KNOWN));
    void *memory = device_alloc(N * element);
    device_put(memory, ones, N * element);
    OK(bind_slot(run, 0, memory));
    OK(weft_run_execute(run));
    device_get(out, memory, N * element);
    for (int r = 1; r < ranks->size; r++)
        OK(weft_op_reduce(weft_op_builtin(typed->op), typed->dtype, expected, expected, ones, 1));
    for (size_t i = 0; i < N; i++)
        CHECK(memcmp(out + i * element, expected, element) == 0);
    weft_run_destroy(run);
    device_free(memory);
}

Test(nccl_joints, all_datatypes)
{
    static const weft_op_kind_t ops[] = {WEFT_SUM, WEFT_PROD, WEFT_MIN, WEFT_MAX};

    for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++)
        if (dtype != WEFT_I16 && dtype != WEFT_U16)
            nccl_play(typed_rank, 3, WEFT_PROGRESS_CALLER,
                      &(struct typed){(weft_dtype_t)dtype, ops[dtype % 4]});
}

/* ---- what is refused ---- */

static struct weft_schedule *sum_of(int rank, int size, size_t count, uint32_t tag)
{
    struct weft_joint joint;
    struct weft_schedule *s;

    weft_joint_init(&joint);
    joint.tag = tag;
    OK(weft_schedule_create(&s, rank, size));
    CHECK(weft_schedule_add_slot(s, "x", WEFT_F32, count, WEFT_SLOT_INOUT) == 0);
    CHECK(weft_schedule_nccl_allreduce(s, WEFT_SUM, weft_region_at(0, 0, count),
                                       weft_region_at(0, 0, count), &joint) == 0);
    return s;
}

/* Two joint nodes, one behind the other, in another order on rank 1. */
static struct weft_schedule *circle(int rank)
{
    struct weft_joint joint;
    struct weft_schedule *s = sum_of(rank, 2, 8, 0);
    weft_node_t two;

    weft_joint_init(&joint);
    joint.tag = 2;
    two = weft_schedule_nccl_broadcast(s, weft_region_at(0, 0, 8), 0, &joint);
    OK(weft_schedule_add_order(s, rank ? two : 0, rank ? 0 : two));
    return s;
}

static void refused_rank(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_run *run = NULL;

    (void)ranks;
    device_use(rank);
    CHECK_STATUS(make(&run, context, sum_of(rank, 2, 8, 0), WEFT_NCCL_NONE), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "has joint nodes, expected WEFT_NCCL_KNOWN or _IN_ORDER");
    CHECK_STATUS(make(&run, context, sum_of(rank, 2, 8, 0), WEFT_NCCL_AGREED), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "has joint nodes, expected WEFT_NCCL_KNOWN or _IN_ORDER");
    CHECK_STATUS(make(&run, context, sum_of(rank, 2, 8 + (size_t)rank, 0), WEFT_NCCL_KNOWN),
                 WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "expected the same kind, ranks, datatype and counts there");
    CHECK_STATUS(make(&run, context, sum_of(rank, 2, 8, (uint32_t)rank), WEFT_NCCL_KNOWN),
                 WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "is a joint node with tag 0 that rank 1 has no equal of");
    CHECK_STATUS(make(&run, context, circle(rank), WEFT_NCCL_KNOWN), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "wait for each other in a circle");
    CHECK_TEXT(weft_error_text(), "(joint, tag 2)");
    CHECK(!run);
    /* What is created next is as good as ever. */
    OK(make(&run, context, sum_of(rank, 2, 0, 0), WEFT_NCCL_IN_ORDER));
    weft_run_destroy(run);
}

Test(nccl_joints, what_cannot_be_is_refused_on_all_ranks)
{
    nccl_play(refused_rank, 2, WEFT_PROGRESS_CALLER, NULL);
    nccl_play(refused_rank, 2, WEFT_PROGRESS_HELPER, NULL);
}

static void choice_rank(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_schedule *s = sum_of(rank, 2, 8, 0);
    weft_node_t event = weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    struct weft_run *run = NULL;

    (void)ranks;
    device_use(rank);
    OK(weft_schedule_add_order(s, event, 0));
    CHECK_STATUS(make(&run, context, s, WEFT_NCCL_KNOWN), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "needs an order that is known beforehand");
    CHECK(!run);
}

Test(nccl_joints, an_order_must_be_known)
{
    nccl_play(choice_rank, 2, WEFT_PROGRESS_CALLER, NULL);
}

/* ---- failures ---- */

struct faults {
    struct joints *joints;
    atomic_ulong next; /* the call that fails */
    atomic_int failed; /* ranks that have had an error */
};

/* Of so many calls one fails. */
#ifdef __SANITIZE_ADDRESS__
enum { STEP = 4 };
#else
enum { STEP = 12 };
#endif

/* Where a call fails all ranks hear of it, in the creation or in the version; what comes afterwards
 * is good. */
static void with_faults(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct faults *faults = ranks->user;
    struct weft_run *run = NULL;
    int32_t x[JOINTS_COUNT];
    int status;

    device_use(rank);
    void *memory = device_alloc(sizeof x);
    joints_fill(faults->joints, rank, x);
    device_put(memory, x, sizeof x);
    ranks_meet(ranks);
    if (rank == 0)
        nccl_fail_at(atomic_load(&faults->next));
    ranks_meet(ranks);
    status = make(&run, context, joints_build(faults->joints, rank), WEFT_NCCL_KNOWN);
    CHECK((run != NULL) == (status == WEFT_OK));
    if (status == WEFT_OK) {
        OK(bind_slot(run, 0, memory));
        status = weft_run_execute(run);
    }
    if (status != WEFT_OK)
        atomic_fetch_add(&faults->failed, 1);
    ranks_meet(ranks);
    if (rank == 0)
        nccl_fail_at(0);
    ranks_meet(ranks);
    weft_run_destroy(run);
    OK(make(&run, context, joints_build(faults->joints, rank), WEFT_NCCL_KNOWN));
    OK(bind_slot(run, 0, memory));
    execute(run, faults->joints, rank, memory);
    weft_run_destroy(run);
    device_free(memory);
}

Test(nccl_joints, any_call_may_fail)
{
    struct faults faults = {.joints = joints_create(7, 3)};
    int quiet = 0;

    /* Until there are no more calls to fail. */
    for (unsigned long n = 1; nccl_stands_in() && quiet < 3; n += 1 + n / STEP) {
        atomic_store(&faults.next, n);
        atomic_store(&faults.failed, 0);
        nccl_play(with_faults, 3, n % 2 ? WEFT_PROGRESS_CALLER : WEFT_PROGRESS_HELPER, &faults);
        quiet = atomic_load(&faults.failed) ? 0 : quiet + 1;
        cr_assert_lt(n, 100000);
    }
    joints_destroy(faults.joints);
}
