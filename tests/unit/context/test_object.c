/* SPDX-License-Identifier: BSD-3-Clause */
/* Objects whose runs and series fail as one: by which cause, on which rank, whoever has created
 * them already. */
#include <criterion/criterion.h>

#include "parts.h"
#include "runtime/base/alloc.h"
#include "support/transfer.h"

/* ---- one fails, all fail ---- */

enum cause { NODE, DEADLINE, CANCEL, FAIL, ARM, DESTROY, CAUSES };

struct failing {
    enum cause cause;
    int culprit;
    atomic_int told; /* `failed` callbacks, on all ranks */
};

/* What the text of the culprit says. */
static const char *const words[CAUSES] = {
    [NODE] = "it broke",       [DEADLINE] = "not finished 0.005 s", [CANCEL] = "cancelled",
    [FAIL] = "the sky is low", [ARM] = "no version like that",      [DESTROY] = "cancelled"};

static int statuses[CAUSES] = {
    [NODE] = WEFT_ERR_COMPUTE, [DEADLINE] = WEFT_ERR_TIMEOUT, [CANCEL] = WEFT_ERR_CANCELLED,
    [FAIL] = WEFT_ERR_IO,      [ARM] = WEFT_ERR_NOT_FOUND,    [DESTROY] = WEFT_ERR_CANCELLED};

static void count_failure(void *user, struct weft_object *object, int status)
{
    struct failing *failing = user;
    CHECK(status < 0);
    CHECK(weft_object_check(object, "count_failure") == status);
    atomic_fetch_add(&failing->told, 1);
}

static int hold(void *user, struct weft_series *series, struct weft_series_arm *arm)
{
    (void)user, (void)series, (void)arm;
    return WEFT_IN_PROGRESS;
}

static int go_on(void *user, struct weft_series *series, struct weft_series_arm *arm)
{
    (void)user, (void)series, (void)arm;
    return WEFT_OK;
}

/* Holds until it is poked, then fails. */
struct refusal {
    atomic_int refuse;
};

static int refuse(void *user, struct weft_series *series, struct weft_series_arm *arm)
{
    struct refusal *refusal = user;
    (void)series, (void)arm;
    return atomic_load(&refusal->refuse)
               ? weft_error_set(WEFT_ERR_NOT_FOUND, "no version like that")
               : WEFT_IN_PROGRESS;
}

struct parts {
    struct weft_object *object;
    struct weft_run *held, *work, *alone;
    struct weft_series *waiting, *running, *refusing, *idle;
    struct refusal refusal;
    struct weft_op *op;
    uint64_t first; /* of `running`, which fails with it */
    int64_t x[3];
};

static struct weft_object *new_object(struct weft_context *context, struct failing *failing)
{
    struct weft_object_config config;
    struct weft_object *object = NULL;
    weft_object_config_init(&config);
    config.failed = count_failure;
    config.user = failing;
    OK(weft_object_create(&object, context, &config));
    return object;
}

static struct weft_series *new_series(struct weft_context *context, struct weft_object *object,
                                      int (*arm)(void *, struct weft_series *,
                                                 struct weft_series_arm *),
                                      void *user)
{
    struct weft_series_config config;
    weft_series_config_init(&config);
    config.object = object;
    config.arm = arm;
    config.user = user;
    return wait_series(context, &config);
}

static int as_expected(int status)
{
    return status == WEFT_OK || status == WEFT_ERR_PEER;
}

static void parts_make(struct parts *parts, struct weft_context *context, struct failing *failing)
{
    int rank = weft_context_rank(context);
    memset(parts, 0, sizeof *parts);
    parts->op = failing->cause == NODE ? broken_op() : NULL;
    parts->alone = chain_run(context, NULL, 0, "alone", NULL, &parts->x[2]);
    parts->object = new_object(context, failing);
    parts->held = chain_run(context, parts->object, 0, "held", NULL, &parts->x[0]);
    parts->work =
        chain_run(context, parts->object, failing->culprit, "work", parts->op, &parts->x[1]);
    if (failing->cause == DEADLINE && rank == failing->culprit)
        OK(weft_run_set_deadline(parts->work, 5 * MS));
    OK(weft_run_start(parts->alone));
    OK(weft_run_start(parts->held)); /* which nobody begins */
    if (weft_context_progress_mode(context) != WEFT_PROGRESS_HELPER)
        return;
    parts->waiting = new_series(context, parts->object, hold, NULL);
    parts->running = new_series(context, parts->object, go_on, NULL);
    parts->refusing = new_series(context, parts->object, refuse, &parts->refusal);
    parts->idle = new_series(context, parts->object, go_on, NULL);
    /* Another rank may have failed the object by now. */
    CHECK(as_expected(weft_series_start(parts->waiting)));
    parts->first = weft_series_start_version(parts->running, 7) == WEFT_OK ? 7 : 0;
    CHECK(as_expected(weft_series_start(parts->refusing)));
}

static void parts_destroy(struct parts *parts)
{
    weft_series_destroy(parts->waiting);
    weft_series_destroy(parts->running);
    weft_series_destroy(parts->refusing);
    weft_series_destroy(parts->idle);
    weft_run_destroy(parts->held);
    weft_run_destroy(parts->work);
    weft_object_destroy(parts->object);
    weft_op_destroy(parts->op);
}

/* What the culprit does. */
static void commit_crime(struct parts *parts, const struct failing *failing)
{
    switch (failing->cause) {
    case NODE:
        OK(weft_run_fire(parts->work, 0));
        break;
    case CANCEL:
        OK(weft_run_cancel(parts->work));
        break;
    case FAIL:
        OK(weft_object_fail(parts->object, WEFT_ERR_IO, "the sky is low"));
        OK(weft_object_fail(parts->object, WEFT_ERR_INVALID, "too late")); /* the first counts */
        break;
    case ARM:
        atomic_store(&parts->refusal.refuse, 1);
        OK(weft_series_poke(parts->refusing));
        break;
    case DESTROY:
        weft_run_destroy(parts->work);
        parts->work = NULL;
        break;
    case DEADLINE:
    default:
        break;
    }
}

static void expect_why(const char *text, const struct failing *failing, int rank)
{
    char culprit[32];
    snprintf(culprit, sizeof culprit, "rank %d", failing->culprit);
    CHECK_TEXT(text, words[failing->cause]);
    if (rank != failing->culprit || (failing->cause != FAIL && failing->cause != ARM))
        CHECK_TEXT(text, culprit);
}

static void expect_run(struct weft_run *run, int status, const struct failing *failing, int rank)
{
    if (!run)
        return;
    CHECK_STATUS(weft_run_wait(run, WEFT_NEVER), status);
    expect_why(weft_error_text(), failing, rank);
}

static void expect_series(struct weft_series *series, uint64_t version, int status,
                          const struct failing *failing, int rank)
{
    if (!series)
        return;
    CHECK_STATUS(weft_series_wait(series, version, WEFT_NEVER), status);
    expect_why(weft_error_text(), failing, rank);
    CHECK(weft_series_version(series) == version); /* a failure advances nothing */
    CHECK_STATUS(weft_series_start(series), status);
    expect_why(weft_error_text(), failing, rank);
}

static int one_fails(struct weft_context *context, void *user)
{
    struct failing *failing = user;
    int rank = weft_context_rank(context);
    int status = rank == failing->culprit ? statuses[failing->cause] : WEFT_ERR_PEER;
    struct parts parts;
    parts_make(&parts, context, failing);
    OK(weft_run_start(parts.work));
    if (rank == failing->culprit)
        commit_crime(&parts, failing);
    expect_run(parts.held, status, failing, rank);
    expect_run(parts.work, status, failing, rank);
    expect_series(parts.waiting, 0, status, failing, rank);
    expect_series(parts.running, parts.first, status, failing, rank);
    expect_series(parts.refusing, 0, status, failing, rank);
    expect_series(parts.idle, 0, status, failing, rank);
    CHECK_STATUS(weft_object_check(parts.object, __func__), status);
    expect_why(weft_error_text(), failing, rank);
    CHECK_TEXT(weft_error_text(), __func__);
    /* Later starts fail at once, and what is made later too. */
    while (weft_run_reclaim(parts.held) == WEFT_IN_PROGRESS)
        sched_yield();
    OK(weft_run_start(parts.held));
    expect_run(parts.held, status, failing, rank);
    int64_t x = 0;
    struct weft_run *late = chain_run(context, parts.object, 0, "late", NULL, &x);
    OK(weft_run_start(late));
    expect_run(late, status, failing, rank);
    weft_run_destroy(late);
    if (parts.idle) {
        struct weft_series *held = new_series(context, parts.object, hold, NULL);
        expect_series(held, 0, status, failing, rank);
        weft_series_destroy(held);
    }
    parts_destroy(&parts);
    /* What belongs to nothing goes on. */
    if (rank == 0)
        OK(weft_run_fire(parts.alone, 0));
    OK(weft_run_wait(parts.alone, WEFT_NEVER));
    weft_run_destroy(parts.alone);
    still_works(context);
    return WEFT_OK;
}

static const int sizes[] = {1, 2, 3, 5, 8};
enum { SIZES = sizeof sizes / sizeof *sizes };

Test(object, one_failure_ends_everything_of_it_on_local_ranks)
{
    for (int s = 0; s < SIZES; s++)
        for (int cause = 0; cause < CAUSES; cause++)
            for (int helped = 0; helped < 2; helped++) {
                struct failing failing = {.cause = (enum cause)cause, .culprit = sizes[s] / 2};
                if (cause == ARM && !helped)
                    continue; /* series need a helper */
                OK(local_run(sizes[s], helped ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER,
                             one_fails, &failing));
                cr_expect_eq(failing.told, sizes[s]);
            }
}

Test(object, one_failure_ends_everything_of_it_on_virtual_ranks)
{
    for (int size = 1; size <= 24; size++)
        for (int cause = 0; cause < CAUSES; cause++) {
            struct failing failing = {.cause = (enum cause)cause};
            struct weft_virtual_config config = with_seed((uint64_t)(size * CAUSES + cause));
            failing.culprit = (int)drawn(config.seed, 0, (uint64_t)size);
            config.delay_ns = 20000;
            config.duplicate_share = 0.2;
            OK(weft_virtual_run(size, &config, one_fails, &failing));
            cr_expect_eq(failing.told, size);
        }
}

/* ---- several at once ---- */

enum { FAILERS = 4 };

struct failer {
    pthread_t thread;
    struct weft_object *object;
    int number;
};

static void *fail_now(void *argument)
{
    struct failer *failer = argument;
    char text[32];
    snprintf(text, sizeof text, "thread %d", failer->number);
    OK(weft_object_fail(failer->object, WEFT_ERR_IO, text));
    return NULL;
}

static int fail_by_threads(struct weft_context *context, void *user)
{
    struct failing *failing = user;
    int rank = weft_context_rank(context);
    struct parts parts;
    struct failer failers[FAILERS];
    parts_make(&parts, context, failing);
    OK(weft_run_start(parts.work));
    for (int i = 0; i < FAILERS; i++) {
        failers[i].object = parts.object;
        failers[i].number = FAILERS * rank + i;
        CHECK(pthread_create(&failers[i].thread, NULL, fail_now, &failers[i]) == 0);
    }
    int status = weft_run_wait(parts.held, WEFT_NEVER);
    CHECK(status == WEFT_ERR_IO || status == WEFT_ERR_PEER);
    CHECK_TEXT(weft_error_text(), "thread ");
    CHECK_STATUS(weft_run_wait(parts.work, WEFT_NEVER), status);
    for (int i = 0; i < FAILERS; i++)
        CHECK(pthread_join(failers[i].thread, NULL) == 0);
    parts_destroy(&parts);
    weft_run_destroy(parts.alone);
    still_works(context);
    return WEFT_OK;
}

Test(object, threads_of_all_ranks_fail_it_at_once)
{
    for (int round = 0; round < 20; round++)
        for (int helped = 0; helped < 2; helped++) {
            struct failing failing = {.cause = FAIL};
            OK(local_run(3, helped ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER, fail_by_threads,
                         &failing));
            cr_expect_eq(failing.told, 3);
        }
}

/* ---- by callbacks ---- */

enum place { IN_ARM, IN_ENDED, IN_SIGNALLED, IN_POKED, IN_RUN_ENDED, PLACES };

struct calling {
    enum place place;
    struct weft_object *objects[8]; /* by rank */
    struct weft_context *contexts[8];
};

static void fail_in(const struct calling *calling, struct weft_series *series, enum place place,
                    int rank)
{
    (void)series;
    if (rank != 0 || calling->place != place)
        return;
    OK(weft_object_fail(calling->objects[0], WEFT_ERR_IO, "by a callback"));
    /* Here at once, whoever drives. */
    CHECK(weft_object_check(calling->objects[0], "fail_in") == WEFT_ERR_IO);
    CHECK_TEXT(weft_error_text(), "fail_in: by a callback");
}

static int rank_of_series(struct weft_series *series)
{
    return weft_plan_rank(weft_run_plan(weft_series_get_run(series, 0)));
}

static int arm_failing(void *user, struct weft_series *series, struct weft_series_arm *arm)
{
    if (arm->version == 1)
        fail_in(user, series, IN_ARM, rank_of_series(series));
    return arm->version < 2 ? WEFT_OK : WEFT_IN_PROGRESS;
}

static void ended_failing(void *user, struct weft_series *series, uint64_t version, int status)
{
    (void)version;
    if (status == WEFT_OK)
        fail_in(user, series, IN_ENDED, rank_of_series(series));
}

static void signalled_failing(void *user, struct weft_series *series, int from, uint32_t channel,
                              uint64_t version)
{
    (void)from, (void)channel, (void)version;
    fail_in(user, series, IN_SIGNALLED, rank_of_series(series));
}

static void poked_failing(void *user, struct weft_series *series)
{
    const struct calling *calling = user;
    int rank = rank_of_series(series);
    fail_in(user, series, IN_POKED, rank);
    if (calling->place == IN_SIGNALLED && rank == weft_context_size(calling->contexts[rank]) - 1)
        OK(weft_series_signal(series, 0, 3, 1));
}

static void run_ended_failing(void *user, struct weft_run *run, int status)
{
    if (status == WEFT_OK)
        fail_in(user, NULL, IN_RUN_ENDED, weft_plan_rank(weft_run_plan(run)));
}

static int fail_by_callback(struct weft_context *context, void *user)
{
    struct calling *calling = user;
    int rank = weft_context_rank(context);
    struct weft_series_config config;
    struct weft_run_config run_config;
    int64_t x = 0;
    calling->contexts[rank] = context;
    OK(weft_object_create(&calling->objects[rank], context, NULL));
    weft_run_config_init(&run_config);
    run_config.object = calling->objects[rank];
    run_config.ended = run_ended_failing;
    run_config.user = calling;
    struct weft_run *run = make_run(
        context, chain_from(0, rank, weft_context_size(context), "short", NULL), &run_config);
    OK(bind_slot(run, 0, &x));
    weft_series_config_init(&config);
    config.object = calling->objects[rank];
    config.arm = arm_failing;
    config.ended = ended_failing;
    config.signalled = signalled_failing;
    config.poked = poked_failing;
    config.user = calling;
    struct weft_series *series = wait_series(context, &config);
    int status = weft_series_start(series); /* another rank may have failed it by now */
    CHECK(status == WEFT_OK || status == (rank == 0 ? WEFT_ERR_IO : WEFT_ERR_PEER));
    status = weft_run_start(run);
    if (rank == 0 && status == WEFT_OK)
        weft_run_fire(run, 0);
    weft_series_fire(series, 0, 0);
    OK(weft_series_poke(series));
    status = weft_series_wait(series, 5, WEFT_NEVER);
    CHECK(status == (rank == 0 ? WEFT_ERR_IO : WEFT_ERR_PEER));
    CHECK_TEXT(weft_error_text(), "by a callback");
    weft_series_destroy(series);
    weft_run_destroy(run);
    weft_object_destroy(calling->objects[rank]);
    still_works(context);
    return WEFT_OK;
}

Test(object, callbacks_may_fail_it)
{
    for (int place = 0; place < PLACES; place++)
        for (int size = 1; size <= 4; size++) {
            struct calling calling = {.place = (enum place)place};
            OK(local_run(size, WEFT_PROGRESS_HELPER, fail_by_callback, &calling));
            for (uint64_t seed = 0; seed < 10; seed++) {
                struct weft_virtual_config config = with_seed(seed);
                config.delay_ns = 10000;
                OK(weft_virtual_run(size, &config, fail_by_callback, &calling));
            }
        }
}

/* ---- news that come before the object ---- */

struct early {
    int late[32]; /* by rank: creates at 1 s */
    int checked;
};

static int hear_early(struct weft_context *context, void *user)
{
    const struct early *early = user;
    struct failing failing = {.cause = FAIL};
    int rank = weft_context_rank(context);
    struct weft_object *object = NULL;
    int64_t x = 0;
    if (early->late[rank])
        OK(weft_context_sleep(context, S));
    object = new_object(context, &failing);
    struct weft_run *run = chain_run(context, object, 0, "work", NULL, &x);
    if (rank == 0)
        OK(weft_object_fail(object, WEFT_ERR_IO, "at once"));
    OK(weft_run_start(run));
    CHECK_STATUS(weft_run_wait(run, WEFT_NEVER), rank == 0 ? WEFT_ERR_IO : WEFT_ERR_PEER);
    CHECK_TEXT(weft_error_text(), "at once");
    if (rank != 0)
        CHECK_TEXT(weft_error_text(), "rank 0 has failed");
    /* Who has created it does not wait for those who have not. */
    CHECK(weft_context_now(context) < (early->late[rank] ? 2 * S : S / 2));
    CHECK(atomic_load(&failing.told) == 1);
    weft_run_destroy(run);
    weft_object_destroy(object);
    still_works(context);
    return WEFT_OK;
}

Test(object, ranks_that_have_not_created_it_pass_news_on_and_hear_them_then)
{
    for (int size = 2; size <= 24; size++)
        for (uint64_t seed = 0; seed < 8; seed++) {
            struct early early = {{0}, 0};
            struct weft_virtual_config config = with_seed(seed);
            config.delay_ns = 30000;
            config.duplicate_share = 0.3;
            /* All that rank 0 tells itself; or any. */
            for (int hop = 1; seed == 0 && hop < size; hop *= 2)
                early.late[hop] = early.late[size - hop] = 1;
            for (int r = 1; seed > 0 && r < size; r++)
                early.late[r] = (int)drawn(seed, (uint64_t)r, 2);
            OK(weft_virtual_run(size, &config, hear_early, &early));
        }
}

/* ---- out of memory while it is made ---- */

struct scarce {
    uint64_t late_ns;
    int culprit;
    long failing; /* the allocation that fails there */
    int enough;   /* there were not so many */
    int failed;
};

static int make_with(struct weft_context *context, struct weft_object **object,
                     struct weft_run **runs, struct weft_series **series, struct weft_plan *plan,
                     int64_t *x)
{
    struct weft_run_config config;
    struct weft_series_config series_config;
    int status = weft_object_create(object, context, NULL);
    weft_run_config_init(&config);
    weft_series_config_init(&series_config);
    config.object = series_config.object = *object;
    series_config.arm = hold;
    series_config.plans = &plan;
    series_config.plan_count = 1;
    for (int i = 0; status == WEFT_OK && i < 2; i++) {
        status = weft_run_create(&runs[i], context, plan, &config);
        if (status == WEFT_OK)
            OK(bind_slot(runs[i], 0, x));
        if (status == WEFT_OK && i == 0)
            status = weft_series_create(series, context, &series_config);
    }
    return status;
}

static int make_object(struct weft_context *context, void *user)
{
    struct scarce *scarce = user;
    int rank = weft_context_rank(context), size = weft_context_size(context);
    struct weft_object *object = NULL;
    struct weft_run *runs[2] = {NULL, NULL};
    struct weft_series *series = NULL;
    struct weft_plan *plan = chain_from(0, rank, size, "work", NULL);
    int64_t x = rank == 0 ? 11 : 0;
    char culprit[32];
    snprintf(culprit, sizeof culprit, "rank %d has failed", scarce->culprit);
    if (rank == scarce->culprit) {
        OK(weft_context_sleep(context, scarce->late_ns)); /* others have sent to it before */
        atomic_store(&weft__alloc_countdown, scarce->failing);
    }
    int status = make_with(context, &object, runs, &series, plan, &x);
    if (rank == scarce->culprit) {
        scarce->enough = atomic_exchange(&weft__alloc_countdown, -1) > 0;
        scarce->failed = status != WEFT_OK;
        CHECK(status == WEFT_OK || status == WEFT_ERR_MEMORY);
        if (object && status != WEFT_OK)
            OK(weft_object_fail(object, status, NULL));
    } else {
        OK(status);
    }
    /* Is all there that is needed? */
    int own = status;
    if (own == WEFT_OK) {
        OK(chain_start(runs[1], 0, rank));
        status = weft_run_wait(runs[1], WEFT_NEVER);
        if (status != WEFT_OK) {
            CHECK_STATUS(status, WEFT_ERR_PEER);
            CHECK_TEXT(weft_error_text(), culprit);
            CHECK_TEXT(weft_error_text(), "memory");
        }
    }
    OK(weft_context_sleep(context, S)); /* by now all have heard */
    if (own == WEFT_OK && rank != scarce->culprit && scarce->failed) {
        CHECK_STATUS(weft_object_check(object, "test"), WEFT_ERR_PEER);
        CHECK_TEXT(weft_error_text(), culprit);
    }
    weft_series_destroy(series);
    weft_run_destroy(runs[0]);
    weft_run_destroy(runs[1]);
    weft_object_destroy(object);
    /* The numbers agree: the next works. */
    series = NULL;
    runs[0] = runs[1] = NULL;
    object = NULL;
    x = rank == 0 ? 12 : 0;
    OK(make_with(context, &object, runs, &series, plan, &x));
    for (int i = 0; i < 2; i++) {
        OK(chain_start(runs[i], 0, rank));
        OK(weft_run_wait(runs[i], WEFT_NEVER));
        CHECK(x == 12);
    }
    OK(weft_context_sleep(context, S));
    weft_series_destroy(series);
    weft_run_destroy(runs[0]);
    weft_run_destroy(runs[1]);
    weft_object_destroy(object);
    weft_plan_destroy(plan);
    still_works(context);
    return WEFT_OK;
}

Test(object, a_rank_without_memory_fails_the_creation_of_all_and_the_next_works)
{
    struct weft_net net; /* by rendezvous: what is not wanted is refused */
    weft_net_init(&net);
    OK(weft_net_parse("L=1,S=1", &net));
    for (int size = 1; size <= 6; size++)
        for (int culprit = 0; culprit < 2 * size; culprit++) {
            struct scarce scarce = {.culprit = culprit / 2, .late_ns = culprit % 2 * 40000};
            long failing = 0;
            while (!scarce.enough) {
                struct weft_virtual_config config = with_seed((uint64_t)failing);
                config.delay_ns = 30000;
                config.net = scarce.late_ns ? &net : NULL;
                scarce.failing = ++failing;
                OK(weft_virtual_run(size, &config, make_object, &scarce));
            }
            cr_expect_gt(failing, 8, "few allocations: %ld", failing);
        }
}

/* ---- ranks that have stopped ---- */

struct stopped {
    int dead[24];
    int culprit;
};

static int hear_past_the_dead(struct weft_context *context, void *user)
{
    const struct stopped *stopped = user;
    struct failing failing = {.cause = FAIL};
    int rank = weft_context_rank(context);
    struct weft_object *object = new_object(context, &failing);
    struct weft_series *series = new_series(context, object, hold, NULL);
    OK(weft_series_start(series));
    int slept = weft_context_sleep(context, S); /* the faults happen */
    CHECK(slept == WEFT_OK || stopped->dead[rank]);
    if (rank == stopped->culprit)
        OK(weft_object_fail(object, WEFT_ERR_IO, "so be it"));
    int status = weft_series_wait(series, 0, WEFT_NEVER);
    if (!stopped->dead[rank]) {
        CHECK_STATUS(status, rank == stopped->culprit ? WEFT_ERR_IO : WEFT_ERR_PEER);
        CHECK_TEXT(weft_error_text(), "so be it");
    }
    weft_series_destroy(series);
    weft_object_destroy(object);
    return WEFT_OK;
}

Test(object, news_reach_all_that_are_alive_past_those_that_are_not)
{
    for (int first = 0; first < 16; first++)
        for (int second = first + 1; second < 16; second++) {
            struct stopped stopped = {{0}, 0};
            struct weft_virtual_config config = with_seed((uint64_t)(16 * first + second));
            struct weft_virtual_fault faults[2] = {{first, S / 2, WEFT_NEVER},
                                                   {second, S / 2, WEFT_NEVER}};
            stopped.dead[first] = stopped.dead[second] = 1;
            while (stopped.dead[stopped.culprit])
                stopped.culprit = (int)drawn(++config.seed, 1, 16);
            config.delay_ns = 30000;
            config.faults = faults;
            config.fault_count = 2;
            OK(weft_virtual_run(16, &config, hear_past_the_dead, &stopped));
        }
}

/* Three in a row, at any place, of 3 to 24 ranks: fewer than log2 P where there are more than 8. */
Test(object, news_pass_ranks_in_a_row_that_are_dead)
{
    for (int size = 9; size <= 24; size += 5)
        for (int first = 0; first < size; first++) {
            struct stopped stopped = {{0}, (first + 3) % size};
            struct weft_virtual_config config = with_seed((uint64_t)first);
            struct weft_virtual_fault faults[3];
            for (int i = 0; i < 3; i++) {
                faults[i] = (struct weft_virtual_fault){(first + i) % size, S / 2, WEFT_NEVER};
                stopped.dead[(first + i) % size] = 1;
            }
            config.faults = faults;
            config.fault_count = 3;
            OK(weft_virtual_run(size, &config, hear_past_the_dead, &stopped));
        }
}

/* ---- telling that no further version comes ---- */

/* The version that is started after another rank has said that it starts none. */
static uint64_t quit_version;

static int quit(struct weft_context *context, void *user)
{
    struct failing *failing = user;
    int rank = weft_context_rank(context), size = weft_context_size(context);
    struct weft_object *object = new_object(context, failing);
    int64_t x = 0;
    struct weft_run *run = chain_run(context, object, 0, "work", NULL, &x);
    for (int start = 0; start < 3; start++) {
        OK(chain_start(run, 0, rank));
        OK(weft_run_wait(run, WEFT_NEVER));
    }
    meet(context);
    if (rank == failing->culprit) {
        OK(weft_run_quit(run));
        OK(weft_run_quit(run)); /* told twice */
    } else if (rank == failing->culprit + 1) {
        OK(weft_run_start_version(run, quit_version));
        char culprit[32];
        snprintf(culprit, sizeof culprit, "rank %d has left", failing->culprit);
        expect_error(run, WEFT_ERR_PEER, culprit, "`work`");
    }
    if (size > failing->culprit + 1)
        while (weft_object_check(object, "test") == WEFT_OK)
            weft_context_progress(context); /* and so all hear of it */
    weft_run_destroy(run);
    weft_object_destroy(object);
    still_works(context);
    return WEFT_OK;
}

Test(object, who_starts_a_version_that_a_rank_has_said_not_to_come_fails)
{
    static const uint64_t versions[] = {3, 4, 1000}; /* the next one, or some are skipped */
    for (int size = 2; size <= 5; size++)
        for (int culprit = 0; culprit < size - 1; culprit++)
            for (int way = 0; way < 6; way++) {
                struct failing failing = {.cause = FAIL, .culprit = culprit};
                quit_version = versions[way / 2];
                OK(local_run(size, way % 2 ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER, quit,
                             &failing));
                OK(weft_virtual_run(size, NULL, quit, &failing));
            }
}

/* All but ranks 0 and 3 have destroyed it, so none that rank 0 tells has it, and rank 3 is none
 * that rank 0 tells. */
static int outlive(struct weft_context *context, void *user)
{
    struct weft_object *object = NULL;
    int rank = weft_context_rank(context), *heard = user;
    OK(weft_object_create(&object, context, NULL));
    if (rank == 0 || rank == 3)
        OK(weft_context_sleep(context, 1000000));
    if (rank == 0)
        OK(weft_object_fail(object, WEFT_ERR_IO, "no more"));
    if (rank == 3) {
        OK(weft_context_sleep(context, 1000000));
        CHECK_STATUS(weft_object_check(object, "outlive"), WEFT_ERR_PEER);
        CHECK_TEXT(weft_error_text(), "rank 0 has failed: no more");
        *heard = 1;
    }
    weft_object_destroy(object);
    return WEFT_OK;
}

Test(object, news_pass_ranks_that_have_destroyed_it)
{
    int heard = 0;
    OK(weft_virtual_run(24, NULL, outlive, &heard));
    cr_assert(heard);
}

/* ---- arguments ---- */

static void refused(int status, int expected, const char *word)
{
    cr_expect_eq(status, expected, "%s: %s", weft_status_name(status), weft_error_text());
    cr_expect_not_null(strstr(weft_error_text(), word), "\"%s\" does not say %s", weft_error_text(),
                       word);
}

Test(object, what_makes_no_sense_is_refused)
{
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER), other;
    struct weft_object *object = NULL;
    struct weft_run_config config;
    struct weft_run *run = NULL;
    OK(weft_object_create(&object, alone.context, NULL));
    refused(weft_object_fail(object, WEFT_OK, NULL), WEFT_ERR_INVALID, "`status` is 0");
    refused(weft_object_fail(object, WEFT_IN_PROGRESS, NULL), WEFT_ERR_INVALID, "`status`");
    refused(weft_object_leave(object), WEFT_ERR_INVALID, "release");
    refused(weft_object_settle(object, 1), WEFT_ERR_STATE, "left");
    refused(weft_object_done(object), WEFT_ERR_STATE, "weft_object_done");
    refused(weft_object_check(object, NULL), WEFT_ERR_INVALID, "`who`");
    other = alone_create(WEFT_PROGRESS_HELPER);
    weft_run_config_init(&config);
    config.object = object;
    struct weft_plan *plan = wait_plan(0, 1);
    refused(weft_run_create(&run, other.context, plan, &config), WEFT_ERR_INVALID,
            "another context");
    OK(weft_object_fail(object, WEFT_ERR_IO, NULL));
    refused(weft_object_check(object, "who"), WEFT_ERR_IO, weft_status_text(WEFT_ERR_IO));
    weft_object_destroy(object);
    weft_object_destroy(NULL);
    weft_plan_destroy(plan);
    alone_destroy(&other);
    alone_destroy(&alone);
}
