/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives in one line that do not block (weft/collectives.h): what fails, and what ends while
 * they are under way.
 */
#include <criterion/criterion.h>

#include "runtime/base/alloc.h"
#include "tests/support/blocking.h"
#include "tests/support/sums.h"
#include "tests/support/virtual_ranks.h"

static const int sizes[] = {1, 2, 3, 5};
enum { SIZES = sizeof sizes / sizeof sizes[0] };
enum { QUEUED = 1000 };

/* ---- failing ---- */

/* One rank after the other has wrong arguments behind requests that are under way. */
static int fail_among_others(struct weft_context *context, void *user)
{
    int rank = weft_context_rank(context), size = weft_context_size(context);
    struct sum sums[16];
    (void)user;
    for (int culprit = 0; culprit < size; culprit++) {
        for (int i = 0; i < 16; i++)
            if (i % 4 == 1 && rank == culprit)
                begin_wrongly(context, &sums[i], (unsigned)i / 4);
            else
                OK(begin_sum(context, &sums[i], 2, i));
        for (int i = 16; i-- > 0;) {
            if (i % 4 != 1) {
                end_sum(context, &sums[i]);
                continue;
            }
            if (rank == culprit)
                continue;
            char who[32];
            snprintf(who, sizeof who, "rank %d failed: weft_i", culprit);
            CHECK_STATUS(weft_request_wait(sums[i].request, WEFT_NEVER), WEFT_ERR_PEER);
            CHECK_TEXT(weft_error_text(), who);
            CHECK_TEXT(weft_request_error(sums[i].request), who);
            CHECK_STATUS(weft_request_test(sums[i].request), WEFT_ERR_PEER);
            weft_request_destroy(sums[i].request);
        }
        still_in_step(context);
    }
    return WEFT_OK;
}

static void fail_among_others_locally(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)rank;
    fail_among_others(context, ranks->user);
}

Test(requests_ends, an_argument_of_one_rank_fails_that_call_alone)
{
    for (int i = 0; i < SIZES; i++)
        ranks_run_each_way(fail_among_others_locally, sizes[i], NULL);
    for (unsigned seed = 0; seed < SWEPT(32, 6); seed++) {
        struct weft_virtual_config config = with_delays(seed, 20000, 0.2, 500000);
        OK(weft_virtual_run(sizes[seed % SIZES], &config, fail_among_others, NULL));
    }
}

/* Behind one that is under way, a thousand that fail when their turn comes. */
static void fail_many(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct sum first, last, none;
    if (rank == 1)
        ranks_meet(ranks);
    OK(begin_sum(context, &first, 1, 0));
    for (unsigned i = 0; i < QUEUED; i++)
        begin_wrongly(context, &none, i);
    OK(begin_sum(context, &last, 1, 0));
    if (rank == 0)
        ranks_meet(ranks);
    end_sum(context, &last);
    end_sum(context, &first);
    CHECK(weft_sequence_next(context) == QUEUED + 2);
    still_in_step(context);
}

Test(requests_ends, a_thousand_that_fail_at_once)
{
    ranks_run_each_progress(fail_many, 2, NULL);
}

/* One rank after the other fails a call of its own accord, behind requests and behind none. */
static int fail_by_word(struct weft_context *context, void *user)
{
    int rank = weft_context_rank(context), size = weft_context_size(context);
    struct sum sums[8];
    (void)user;
    for (int culprit = 0; culprit < size; culprit++) {
        for (int i = 0; i < 8; i++)
            if (i % 3 == 0 && rank == culprit)
                OK(weft_collectives_fail(context, WEFT_ERR_IO, i == 3 ? NULL : "the dog ate it"));
            else
                OK(begin_sum(context, &sums[i], 2, i));
        for (int i = 8; i-- > 0;) {
            if (i % 3 != 0) {
                end_sum(context, &sums[i]);
                continue;
            }
            if (rank == culprit)
                continue;
            CHECK_STATUS(weft_request_wait(sums[i].request, WEFT_NEVER), WEFT_ERR_PEER);
            CHECK_TEXT(weft_error_text(),
                       i == 3 ? weft_status_text(WEFT_ERR_IO) : "the dog ate it");
            weft_request_destroy(sums[i].request);
        }
        still_in_step(context);
    }
    return WEFT_OK;
}

static void fail_by_word_locally(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)rank;
    fail_by_word(context, ranks->user);
}

Test(requests_ends, a_rank_that_fails_a_call_of_its_own_accord)
{
    for (int i = 0; i < SIZES; i++)
        ranks_run_each_way(fail_by_word_locally, sizes[i], NULL);
    for (unsigned seed = 0; seed < SWEPT(32, 6); seed++) {
        struct weft_virtual_config config = with_delays(seed, 20000, 0.2, 500000);
        OK(weft_virtual_run(sizes[seed % SIZES], &config, fail_by_word, NULL));
    }
}

static void refuse_to_fail(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)ranks;
    (void)rank;
    CHECK_STATUS(weft_collectives_fail(NULL, WEFT_ERR_IO, "x"), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "weft_collectives_fail: argument `context` is NULL");
    CHECK_STATUS(weft_collectives_fail(context, WEFT_OK, "x"), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "argument `status` is 0, expected an error");
    still_in_step(context);
}

Test(requests_ends, what_is_no_failure)
{
    ranks_run_once(refuse_to_fail, 2, NULL);
}

/* A call that waits, and is wrong, does so at once. */
static void fail_a_blocking_one(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct sum sum;
    int64_t x = 0;
    if (rank == 1)
        ranks_meet(ranks);
    OK(begin_sum(context, &sum, 1, 0));
    if (rank == 0) {
        CHECK_STATUS(weft_allreduce(context, &x, NULL, 1, WEFT_I64, weft_op_builtin(WEFT_SUM)),
                     WEFT_ERR_INVALID);
        CHECK(weft_request_wait(sum.request, 0) == WEFT_IN_PROGRESS);
        CHECK(weft_request_error(sum.request)[0] == '\0');
        ranks_meet(ranks); /* rank 1 has not called yet */
    } else {
        CHECK_STATUS(allreduce_one(context, 1, &x), WEFT_ERR_PEER);
        CHECK_TEXT(weft_error_text(), "rank 0 failed: weft_allreduce: argument `recv` is NULL");
    }
    end_sum(context, &sum);
    still_in_step(context);
}

Test(requests_ends, a_blocking_call_that_is_wrong_waits_for_nobody)
{
    ranks_run_each_progress(fail_a_blocking_one, 2, NULL);
}

static void come_late(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct sum sums[3];
    still_in_step(context);
    if (rank == 0)
        configure(context, 0, 0, 20000000);
    if (rank == 1)
        ranks_meet(ranks); /* until 0 has given up */
    for (int i = 0; i < 3; i++)
        OK(begin_sum(context, &sums[i], 1, i));
    if (rank == 0)
        OK(weft_collectives_configure(context, NULL)); /* those keep theirs */
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(weft_request_wait(sums[i].request, WEFT_NEVER),
                     rank == 0 ? WEFT_ERR_TIMEOUT : WEFT_ERR_PEER);
        weft_request_destroy(sums[i].request);
    }
    if (rank != 1)
        ranks_meet(ranks);
    for (int i = 0; i < 3; i++)
        still_in_step(context);
}

Test(requests_ends, each_has_a_deadline)
{
    ranks_run_each_progress(come_late, 2, NULL);
}

static void abort_context(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct sum sums[QUEUED / 10];
    int64_t out;
    still_in_step(context);
    ranks_meet(ranks);
    for (int i = 0; rank != 1 && i < QUEUED / 10; i++)
        OK(begin_sum(context, &sums[i], 1, 0));
    if (rank == 1)
        OK(weft_context_abort(context, WEFT_ERR_IO, "no disk"));
    for (int i = 0; rank != 1 && i < QUEUED / 10; i++) {
        CHECK_STATUS(weft_request_wait(sums[i].request, WEFT_NEVER), WEFT_ERR_PEER);
        CHECK_TEXT(weft_request_error(sums[i].request), "no disk");
        weft_request_destroy(sums[i].request);
    }
    CHECK_STATUS(allreduce_one(context, 1, &out), rank == 1 ? WEFT_ERR_IO : WEFT_ERR_PEER);
}

Test(requests_ends, a_context_that_is_aborted_fails_all_of_them)
{
    ranks_run_each_progress(abort_context, 3, NULL);
}

/* A wait that succeeds leaves the text of the error before, whatever fails meanwhile. */
static void keep_the_text(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct sum good, bad;
    if (rank == 1)
        ranks_meet(ranks);
    CHECK_STATUS(weft_context_sleep(NULL, 1), WEFT_ERR_INVALID);
    char before[512];
    snprintf(before, sizeof before, "%s", weft_error_text());
    if (rank == 0)
        OK(begin_sum(context, &bad, 1, 0));
    else
        begin_wrongly(context, &bad, 0);
    OK(begin_sum(context, &good, 1, 0));
    if (rank == 0) {
        ranks_meet(ranks);
        end_sum(context, &good);
        CHECK(strcmp(before, weft_error_text()) == 0);
        CHECK_STATUS(weft_request_test(bad.request), WEFT_ERR_PEER);
        weft_request_destroy(bad.request);
    } else {
        end_sum(context, &good);
    }
}

Test(requests_ends, a_wait_that_succeeds_leaves_the_text_of_errors)
{
    ranks_run_each_progress(keep_the_text, 2, NULL);
}

/* ---- not allowed ---- */

struct nested {
    struct weft_context *context;
    struct weft_request *request;
    atomic_int calls;
};

static int call_in_a_callback(void *user, void *dst, const void *a, const void *b, size_t count,
                              weft_dtype_t dtype)
{
    struct nested *nested = user;
    struct weft_request *request = (struct weft_request *)nested;
    int64_t x = 1, y;
    (void)a, (void)b, (void)count, (void)dtype;
    CHECK_STATUS(
        weft_iallreduce(nested->context, &x, &y, 1, WEFT_I64, weft_op_builtin(WEFT_SUM), &request),
        WEFT_ERR_STATE);
    CHECK(request == (struct weft_request *)nested);
    CHECK_TEXT(weft_error_text(), "weft_iallreduce: called by a callback");
    CHECK_STATUS(allreduce_one(nested->context, 1, &y), WEFT_ERR_STATE);
    CHECK_STATUS(weft_request_wait(nested->request, WEFT_NEVER), WEFT_ERR_STATE);
    CHECK(weft_request_test(nested->request) == WEFT_IN_PROGRESS);
    *(int64_t *)dst = 77;
    atomic_fetch_add(&nested->calls, 1);
    return WEFT_OK;
}

static void recurse(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_op_config config;
    struct weft_op *op = NULL;
    struct nested nested = {.context = context};
    int64_t in = 1, out;
    weft_op_config_init(&config);
    config.name = "recursive";
    config.reduce = call_in_a_callback;
    config.user = &nested;
    OK(weft_op_create(&op, &config));
    if (rank != 0) /* whose contribution starts the operation of rank 0 */
        ranks_meet(ranks);
    OK(weft_ireduce(context, &in, &out, 1, WEFT_I64, op, 0, &nested.request));
    if (rank == 0)
        ranks_meet(ranks);
    OK(weft_request_wait(nested.request, WEFT_NEVER));
    CHECK(rank != 0 || (nested.calls > 0 && out == 77));
    weft_request_destroy(nested.request);
    weft_op_destroy(op);
    still_in_step(context);
    CHECK(weft_sequence_next(context) == 2); /* what was refused is no step */
}

Test(requests_ends, a_call_from_a_callback_is_refused)
{
    ranks_run_each_progress(recurse, 2, NULL);
}

/* Steps of the program's own are in the same sequence. */
static void among_steps(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct weft_run_config config;
    struct weft_schedule *s = new_schedule(rank, ranks->size);
    weft_node_t event = weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    struct sum sum;
    weft_run_config_init(&config);
    config.sequence = 1;
    struct weft_run *held = make_run(context, commit(s), &config);
    OK(begin_sum(context, &sum, 1, 0));
    end_sum(context, &sum);
    OK(weft_run_start(held));
    CHECK_STATUS(begin_sum(context, &sum, 1, 0), WEFT_ERR_STATE);
    CHECK(!sum.request);
    CHECK_TEXT(weft_error_text(), "of the same sequence is active");
    CHECK(weft_sequence_next(context) == 2);
    OK(weft_run_fire(held, event));
    OK(weft_run_wait(held, WEFT_NEVER));
    OK(begin_sum(context, &sum, 1, 0));
    end_sum(context, &sum);
    weft_run_destroy(held);
    CHECK(weft_sequence_next(context) == 3);
}

Test(requests_ends, a_step_of_the_program_that_is_active_is_respected)
{
    ranks_run_each_progress(among_steps, 3, NULL);
}

Test(requests_ends, what_is_no_request)
{
    CHECK_STATUS(weft_request_test(NULL), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "weft_request_test: argument `request` is NULL");
    CHECK_STATUS(weft_request_wait(NULL, 0), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "weft_request_wait: argument `request` is NULL");
    CHECK(weft_request_error(NULL)[0] == '\0');
    weft_request_destroy(NULL);
    struct weft_request *request = (struct weft_request *)&request;
    CHECK_STATUS(weft_ibarrier(NULL, &request), WEFT_ERR_INVALID);
    CHECK(request == (struct weft_request *)&request);
    CHECK_TEXT(weft_error_text(), "weft_ibarrier: argument `context` is NULL");
}

/* ---- contexts that go ---- */

struct left {
    struct sum sums[3][20];
    int count;
};

/* Rank 0 does not call: it leaves the others alone with theirs. */
static void leave_with_requests(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct left *left = ranks->user;
    still_in_step(context);
    for (int i = 0; rank > 0 && i < left->count; i++)
        OK(begin_sum(context, &left->sums[rank][i], 1 + (size_t)i % 3, i));
    if (rank == 2) /* with a step that fails among them */
        CHECK_STATUS(weft_ibarrier(context, NULL), WEFT_ERR_INVALID);
}

Test(requests_ends, they_outlive_their_context)
{
    struct left left = {.count = 20};
    for (int turn = 0; turn < 10; turn++) {
        if (turn % 2)
            ranks_run_helped(leave_with_requests, 3, &left);
        else
            ranks_run_once(leave_with_requests, 3, &left);
        for (int r = 1; r < 3; r++)
            for (int i = 0; i < left.count; i++) {
                struct weft_request *request = left.sums[r][i].request;
                int status = weft_request_wait(request, WEFT_NEVER);
                CHECK(status == WEFT_ERR_CANCELLED || status == WEFT_ERR_PEER);
                CHECK(weft_request_test(request) == status && weft_request_error(request)[0]);
                weft_request_destroy(request);
            }
    }
}

/* One rank destroys its part of a context with calls under way, the others hear of each. */
static int destroy_a_split_one(struct weft_context *context, void *user)
{
    int rank = weft_context_rank(context);
    struct weft_context *all = NULL;
    struct sum sums[10];
    (void)user;
    OK(weft_context_split(context, 0, 0, &all));
    still_in_step(all);
    for (int i = 0; i < 10; i++)
        OK(begin_sum(all, &sums[i], 1, i));
    if (rank == 0)
        OK(weft_context_destroy(all));
    for (int i = 0; i < 10; i++) {
        int status = weft_request_wait(sums[i].request, WEFT_NEVER);
        CHECK(status == WEFT_OK || status == (rank == 0 ? WEFT_ERR_CANCELLED : WEFT_ERR_PEER));
        if (status == WEFT_OK)
            check_sum(context, &sums[i]);
        weft_request_destroy(sums[i].request);
    }
    still_in_step(context);
    if (rank != 0)
        OK(weft_context_destroy(all));
    return WEFT_OK;
}

static void destroy_locally(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)rank;
    destroy_a_split_one(context, ranks->user);
}

Test(requests_ends, a_context_that_is_destroyed_tells_the_others)
{
    for (int i = 0; i < SIZES; i++)
        for (int turn = 0; turn < 10; turn++)
            ranks_run_each_progress(destroy_locally, sizes[i], NULL);
    for (unsigned seed = 0; seed < SWEPT(32, 6); seed++) {
        struct weft_virtual_config config = with_delays(seed, 20000, 0.2, 500000);
        OK(weft_virtual_run(sizes[seed % SIZES], &config, destroy_a_split_one, NULL));
    }
}

/* Nobody waits, nothing is destroyed: what is left goes with the context. */
static int leave_all(struct weft_context *context, void *user)
{
    struct sum *sums = user;
    int rank = weft_context_rank(context);
    for (int i = 0; i < 5; i++) {
        OK(begin_sum(context, &sums[rank * 5 + i], 1, i));
        weft_request_destroy(sums[rank * 5 + i].request);
    }
    return WEFT_OK;
}

Test(requests_ends, nobody_need_wait)
{
    struct sum sums[25];
    for (unsigned seed = 0; seed < SWEPT(20, 6); seed++) {
        struct weft_virtual_config config = with_delays(seed, 20000, 0.2, 500000);
        OK(weft_virtual_run(sizes[seed % SIZES], &config, leave_all, sums));
    }
    for (int i = 0; i < SIZES; i++)
        OK(weft_local_run(sizes[i], NULL, leave_all, sums));
}

/* ---- memory ---- */

enum { MOST_ALLOCATIONS = 600 };

static int count_failure(int status, atomic_int *failures)
{
    if (!status)
        return 0;
    CHECK(status == WEFT_ERR_MEMORY || status == WEFT_ERR_PEER);
    atomic_fetch_add(failures, 1);
    return 1;
}

/* One thread after the other has the n-th allocation fail: virtual ranks are one thread. */
static int live(struct weft_context *context, void *user)
{
    atomic_int *failures = user;
    struct sum sums[12];
    for (int i = 0; i < 12; i++)
        count_failure(begin_sum(context, &sums[i], 1 + (size_t)i % 4, i), failures);
    for (int i = 0; i < 12; i++) {
        if (!sums[i].request)
            continue;
        if (!count_failure(weft_request_wait(sums[i].request, WEFT_NEVER), failures))
            check_sum(context, &sums[i]);
        weft_request_destroy(sums[i].request);
    }
    still_in_step(context);
    return WEFT_OK;
}

Test(requests_ends, without_memory_a_call_fails_and_the_next_is_in_step)
{
    atomic_int failures = 0;
    int reached = 0;
    for (long n = 1; n < MOST_ALLOCATIONS; n += SWEPT(1, 4)) {
        struct weft_virtual_config config = with_seed((uint64_t)n);
        atomic_store(&weft__alloc_countdown, n);
        int status = weft_virtual_run(3, &config, live, &failures);
        int lucky = atomic_load(&weft__alloc_countdown) > 0;
        atomic_store(&weft__alloc_countdown, -1);
        CHECK(status == WEFT_OK || status == WEFT_ERR_MEMORY);
        reached += status == WEFT_OK;
        if (lucky)
            break;
    }
    cr_expect_gt(failures, 0);
    cr_expect_gt(reached, 0);
}

/* A call that fails behind others needs memory for that, and there is none: it fails in its order
 * all the same. */
static void fail_without_memory(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct sum sums[3];
    struct weft_request *request = NULL;
    int64_t x = 0;
    if (rank == 1)
        ranks_meet(ranks); /* it allocates nothing meanwhile */
    OK(begin_sum(context, &sums[0], 1, 0));
    for (int i = 0; i < 6; i++) {
        if (i == 3)
            OK(begin_sum(context, &sums[1], 1, 1));
        if (rank == 1) {
            CHECK_STATUS(weft_broadcast(context, &x, 1, WEFT_I64, 0), WEFT_ERR_PEER);
            CHECK_TEXT(weft_error_text(), i % 3 < 2 ? "out of memory" : "argument `root` is -1");
            continue;
        }
        atomic_store(&weft__alloc_countdown, i % 3 < 2 ? 1 : -1);
        CHECK_STATUS(weft_ibroadcast(context, &x, 1, WEFT_I64, -1, &request), WEFT_ERR_INVALID);
        CHECK_TEXT(weft_error_text(), "weft_ibroadcast: argument `root` is -1");
        CHECK(atomic_exchange(&weft__alloc_countdown, -1) <= 0);
    }
    OK(begin_sum(context, &sums[2], 1, 2));
    if (rank == 0)
        ranks_meet(ranks);
    for (int i = 0; i < 3; i++)
        end_sum(context, &sums[i]);
    CHECK(weft_sequence_next(context) == 9);
    still_in_step(context);
}

Test(requests_ends, without_memory_even_for_its_failure)
{
    ranks_run_once(fail_without_memory, 2, NULL);
}
