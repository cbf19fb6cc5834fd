/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts of the ranks that are left, where ranks return or destroy their contexts: who dies is in
 * transport/test_virtual_shrink.c. */
#include <criterion/criterion.h>

#include "runtime/base/alloc.h"
#include "support/ranks.h"
#include <unistd.h>

static const int sizes[] = {1, 2, 3, 5, 7, 8, 13, 16};
enum { SIZES = SWEPT(sizeof sizes / sizeof *sizes, 6) };
enum { PHASES = 4, MOST = 16 };

struct leaving {
    uint64_t seed;
    int phase[MOST]; /* in which a rank returns */
};

static uint64_t mixed(uint64_t a, uint64_t b)
{
    uint64_t x = a * UINT64_C(0x9e3779b97f4a7c15) + b * UINT64_C(0xbf58476d1ce4e5b9) + 1;
    x = (x ^ (x >> 31)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 29);
}

/* The context has the ranks that are still there, in their order, and works. */
static void check_members(const struct leaving *leaving, struct weft_context *context, int size,
                          int phase)
{
    int ranks[MOST], expected[MOST], count = 0;
    for (int r = 0; r < size; r++)
        if (leaving->phase[r] > phase)
            expected[count++] = r;
    CHECK(weft_context_size(context) == count);
    OK(weft_context_root_ranks(context, ranks));
    CHECK(memcmp(ranks, expected, (size_t)count * sizeof *ranks) == 0);
    int32_t one = 1, sum = 0;
    OK(weft_allreduce(context, &one, &sum, 1, WEFT_I32, weft_op_builtin(WEFT_SUM)));
    CHECK(sum == count);
}

static int leave_in_turn(struct weft_context *root, void *user)
{
    const struct leaving *leaving = user;
    struct weft_context *context = root;
    int rank = weft_context_rank(root), size = weft_context_size(root);
    for (int phase = 0; phase < PHASES; phase++) {
        uint64_t own = mixed(leaving->seed, (uint64_t)(100 * phase + rank));
        struct weft_context *next = NULL;
        if (own % 3 == 0)
            usleep((useconds_t)(own >> 8) % 300);
        if (leaving->phase[rank] == phase)
            break;
        OK(weft_context_shrink(context, &next));
        check_members(leaving, next, size, phase);
        if (context != root && own & 1)
            OK(weft_context_destroy(context));
        context = next;
    }
    if (context != root && mixed(leaving->seed, (uint64_t)rank) & 1)
        OK(weft_context_destroy(context)); /* else with the root */
    return WEFT_OK;
}

static void play(int size, uint64_t seed, weft_progress_t progress)
{
    struct leaving leaving = {.seed = seed};
    struct weft_context_config config;
    weft_context_config_init(&config);
    config.progress = progress;
    for (int r = 0; r < size; r++)
        leaving.phase[r] = (int)(mixed(seed, (uint64_t)r) % (2 * PHASES));
    OK(weft_local_run(size, &config, leave_in_turn, &leaving));
}

Test(shrink, ranks_that_return_are_counted_out)
{
    for (size_t i = 0; i < SIZES; i++)
        for (uint64_t seed = 1; seed <= SWEPT(25, 5); seed++) {
            play(sizes[i], seed, WEFT_PROGRESS_CALLER);
            play(sizes[i], seed, WEFT_PROGRESS_HELPER);
        }
}

/* ---- contexts that are destroyed ---- */

static void destroy_one(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_context *child = NULL, *left = NULL;
    weft_rank_state_t state;
    const char *how = NULL;
    OK(weft_context_split(context, 0, 0, &child));
    if (rank == ranks->size / 2) {
        OK(weft_context_destroy(child));
        return;
    }
    OK(weft_context_shrink(child, &left));
    CHECK(weft_context_size(left) == ranks->size - 1);
    OK(weft_context_rank_state(child, ranks->size / 2, &state, &how));
    CHECK(state == WEFT_RANK_LEFT && how[0] == '\0');
    OK(weft_context_rank_state(child, weft_context_rank(child), &state, NULL));
    CHECK(state == WEFT_RANK_PRESENT);
    OK(weft_barrier(left));
    OK(weft_context_destroy(child));
    OK(weft_barrier(left));
    OK(weft_context_destroy(left));
}

Test(shrink, ranks_that_have_destroyed_the_context_are_counted_out)
{
    for (size_t i = 1; i < SIZES; i++)
        ranks_run_each_progress(destroy_one, sizes[i], NULL);
}

/* ---- objects that a rank leaves behind when it returns ---- */

static int leave_an_object(struct weft_context *context, void *user)
{
    struct weft_object *object = NULL;
    OK(weft_object_create(&object, context, NULL));
    OK(weft_barrier(context));
    if (weft_context_rank(context) == 1)
        return WEFT_OK;
    while (weft_object_check(object, __func__) == WEFT_OK)
        weft_context_progress(context);
    CHECK_STATUS(weft_object_check(object, __func__), WEFT_ERR_PEER);
    CHECK_TEXT(weft_error_text(), "rank 1 has");
    weft_object_destroy(object);
    (void)user;
    return WEFT_OK;
}

Test(shrink, an_object_that_a_rank_has_not_left_fails_when_it_returns)
{
    struct weft_context_config config;
    weft_context_config_init(&config);
    OK(weft_local_run(4, &config, leave_an_object, NULL));
    config.progress = WEFT_PROGRESS_HELPER;
    OK(weft_local_run(4, &config, leave_an_object, NULL));
}

/* ---- aborts and errors ---- */

static void abort_while_shrinking(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_context *child = NULL, *left = NULL;
    OK(weft_context_split(context, 0, 0, &child));
    if (rank == ranks->size - 1)
        OK(weft_context_abort(child, WEFT_ERR_COMPUTE, "enough"));
    int status = weft_context_shrink(child, &left);
    CHECK(status == (rank == ranks->size - 1 ? WEFT_ERR_COMPUTE : WEFT_ERR_PEER));
    CHECK_TEXT(weft_error_text(), "enough");
    CHECK(!left);
    OK(weft_context_shrink(context, &left)); /* that is another */
    OK(weft_barrier(left));
    OK(weft_context_destroy(left));
    OK(weft_context_destroy(child));
}

Test(shrink, an_abort_ends_it_on_all_ranks)
{
    for (size_t i = 1; i < SIZES; i++)
        for (int again = 0; again < SWEPT(20, 4); again++)
            ranks_run_each_progress(abort_while_shrinking, sizes[i], NULL);
}

/* One allocation of some rank fails: then all fail, and the next call does not; or nobody needs it.
 */
static void without_memory(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_context *left = NULL;
    atomic_int *failed = ranks->user;
    for (int call = 0; call < 40; call++) {
        ranks_meet(ranks);
        if (rank == 0)
            atomic_store(&weft__alloc_countdown, call);
        ranks_meet(ranks);
        int status = weft_context_shrink(context, &left);
        CHECK(status == WEFT_OK || status == WEFT_ERR_MEMORY);
        CHECK((status == WEFT_OK) == (left != NULL));
        if (status < 0)
            atomic_fetch_add(failed, 1);
        ranks_meet(ranks);
        CHECK(atomic_load(failed) % ranks->size == 0);
        ranks_meet(ranks);
        if (rank == 0)
            atomic_store(&weft__alloc_countdown, -1);
        ranks_meet(ranks);
        if (left)
            OK(weft_barrier(left));
        OK(weft_context_destroy(left));
        left = NULL;
    }
}

Test(shrink, without_memory_on_one_rank_all_fail)
{
    for (int size = 1; size <= 4; size++) {
        atomic_int failed = 0;
        ranks_run_each_progress(without_memory, size, &failed);
        cr_assert_gt(atomic_load(&failed), 0);
    }
}
