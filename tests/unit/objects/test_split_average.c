/* SPDX-License-Identifier: BSD-3-Clause */
/* Trainers' objects on contexts of some ranks: some late, some that leave and destroy the context
 * at once, some that fail; and creation where the n-th allocation fails. */
#include <criterion/criterion.h>

#include "runtime/base/alloc.h"
#include "support/virtual_ranks.h"

#include "support/splitting.h" /* after CHECK and OK */

enum { COUNT = 6, STEPS = 6 };

/* ---- group averaging ---- */

struct training {
    uint64_t seed;
    int failing; /* this rank of each context fails; -1: none */
};

static struct weft_group_average *new_average(struct weft_context *context, float *weights)
{
    struct weft_group_average_config config;
    struct weft_group_average *average = NULL;
    struct weft_piece tensor = {weights, COUNT};
    weft_group_average_config_init(&config);
    config.tensors = &tensor;
    config.tensor_count = 1;
    config.sync_period = STEPS;
    OK(weft_group_average_create(&average, context, &config));
    return average;
}

static void doze(struct weft_context *context, const struct training *training, int turn)
{
    uint64_t number = mixed(training->seed, (uint64_t)(1000 * weft_context_rank(context) + turn));
    if (number % 3 == 0)
        OK(weft_context_sleep(context, number % 200000 + 1));
}

/* The last step averages over all ranks of the context, so all have the same then: which is what
 * the creation of another one looks at. */
static void train(struct weft_context *context, const struct training *training, int number)
{
    float weights[COUNT] = {1, 2, 3, 4, 5, 6};
    int rank = weft_context_rank(context), status = WEFT_OK;
    int fails = training->failing >= 0 && training->failing < weft_context_size(context);
    struct weft_group_average *average = new_average(context, weights);
    for (int step = 0; step < STEPS && !status; step++) {
        doze(context, training, step);
        for (int i = 0; i < COUNT; i++)
            weights[i] += (float)(number * (i + step));
        if (rank == training->failing && step == STEPS / 2)
            OK(weft_group_average_fail(average, WEFT_ERR_IO, "the data are gone"));
        status = weft_group_average_step(average, NULL);
    }
    if (fails) {
        CHECK_STATUS(status, rank == training->failing ? WEFT_ERR_IO : WEFT_ERR_PEER);
        /* Who has heard it may destroy the context before all others have. */
        const char *text = weft_error_text();
        if (rank == training->failing ||
            (!strstr(text, "has left") && !strstr(text, "has destroyed its context")))
            CHECK_TEXT(text, "the data are gone");
        CHECK(weft_group_average_destroy(average) == status);
        return;
    }
    OK(status);
    struct weft_group_average *other = new_average(context, weights);
    doze(context, training, 99);
    OK(weft_group_average_destroy(average)); /* others may still be at it */
    OK(weft_group_average_destroy(other));
}

static int trained(struct weft_context *context, void *user)
{
    const struct training *training = user;
    int rank = weft_context_rank(context);
    struct weft_context *children[2];
    for (int i = 0; i < 2; i++)
        OK(weft_context_split(context, i == 0 ? rank % 2 : rank / 2 % 2, i == 0 ? -rank : 0,
                              &children[i]));
    for (int i = 0; i < 2; i++) {
        train(children[i], training, rank);
        OK(weft_context_destroy(children[i])); /* its family serves the object on */
    }
    exchange_once(context, 2);
    return WEFT_OK;
}

Test(split_average, ranks_are_late_and_leave_at_once)
{
    for (uint64_t seed = 1; seed <= SWEPT(300, 60); seed++) {
        struct weft_virtual_config config = with_seed(seed);
        struct training training = {.seed = seed, .failing = -1};
        config.delay_ns = 20000;
        config.duplicate_share = 0.1;
        int status = weft_virtual_run(1 + (int)(seed % 12), &config, trained, &training);
        cr_assert(status == WEFT_OK, "seed %llu: %s", (unsigned long long)seed, weft_error_text());
    }
}

Test(split_average, one_fails_and_its_relatives_do_not)
{
    for (uint64_t seed = 1; seed <= SWEPT(300, 60); seed++) {
        struct weft_virtual_config config = with_seed(seed);
        struct training training = {.seed = seed, .failing = (int)(seed % 3)};
        config.delay_ns = 20000;
        int status = weft_virtual_run(1 + (int)(seed % 12), &config, trained, &training);
        cr_assert(status == WEFT_OK, "seed %llu: %s", (unsigned long long)seed, weft_error_text());
    }
}

static void trained_locally(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)rank;
    trained(context, ranks->user);
}

Test(split_average, local_ranks_with_helpers)
{
    for (int size = 1; size <= 8; size++)
        for (int failing = -1; failing < 2; failing++) {
            struct training training = {.seed = (uint64_t)size, .failing = failing};
            ranks_run_helped(trained_locally, size, &training);
        }
}

/* ---- objects that are left ---- */

struct left {
    struct weft_object *object;
    atomic_int *released;
};

static void release(void *user)
{
    struct left *left = user;
    weft_object_destroy(left->object);
    atomic_fetch_add(left->released, 1);
    free(left);
}

/* Left, and the context destroyed at once; the last rank does it much later. */
static int leave_and_destroy(struct weft_context *context, void *user)
{
    struct weft_context *child = NULL;
    struct weft_object_config config;
    struct left *left = calloc(1, sizeof *left);
    CHECK(left);
    OK(weft_context_split(context, 0, 0, &child));
    weft_object_config_init(&config);
    config.release = release;
    config.user = left;
    left->released = user;
    OK(weft_object_create(&left->object, child, &config));
    if (weft_context_rank(child) == weft_context_size(child) - 1)
        OK(weft_context_sleep(context, 5000000));
    OK(weft_object_leave(left->object));
    OK(weft_context_destroy(child));
    return WEFT_OK;
}

static void leave_locally(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)rank;
    leave_and_destroy(context, ranks->user);
}

Test(split_average, objects_that_are_left_outlive_their_context)
{
    for (int size = 1; size <= 9; size++) {
        atomic_int released = 0;
        struct weft_virtual_config config = with_seed((uint64_t)size);
        config.delay_ns = 20000;
        OK(weft_virtual_run(size, &config, leave_and_destroy, &released));
        cr_assert_eq(released, size);
        released = 0;
        ranks_run_helped(leave_locally, size, &released);
        cr_assert_eq(released, size);
        released = 0;
        OK(weft_local_run(size, NULL, leave_and_destroy, &released)); /* who drives has returned */
        cr_assert_eq(released, size);
    }
}

/* As above, with an object that has runs of one rank alone: they go with it, not the context. */
static int leave_pairs(struct weft_context *context, void *user)
{
    struct weft_context *child = NULL;
    struct weft_pair_average_config config;
    struct weft_pair_average *average = NULL;
    float weights[COUNT] = {1, 2, 3, 4, 5, 6};
    struct weft_piece tensor = {weights, COUNT};
    (void)user;
    OK(weft_context_split(context, 0, 0, &child));
    weft_pair_average_config_init(&config);
    config.tensors = &tensor;
    config.tensor_count = 1;
    OK(weft_pair_average_create(&average, child, &config));
    if (weft_context_rank(child) == weft_context_size(child) - 1)
        OK(weft_context_sleep(context, 5000000));
    for (int step = 0; step < STEPS; step++)
        OK(weft_pair_average_step(average));
    OK(weft_pair_average_destroy(average));
    OK(weft_context_destroy(child));
    return WEFT_OK;
}

static void leave_pairs_locally(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)rank;
    leave_pairs(context, ranks->user);
}

Test(split_average, runs_of_one_rank_go_with_their_object)
{
    for (int size = 1; size <= 6; size++) {
        struct weft_virtual_config config = with_seed((uint64_t)size);
        config.delay_ns = 20000;
        OK(weft_virtual_run(size, &config, leave_pairs, NULL));
        ranks_run_helped(leave_pairs_locally, size, NULL);
    }
}

/* ---- memory ---- */

enum { RANKS = 3 };

struct job {
    int subset;
    long nth;
    int status[RANKS];
    char text[RANKS][512];
};

static int make(const struct job *job, struct weft_context *context, struct weft_context **child)
{
    static const int ranks[] = {2, 0, 1};
    return job->subset ? weft_context_subset(context, ranks, RANKS, 5, child)
                       : weft_context_split(context, 0, -weft_context_rank(context), child);
}

static int short_of_memory(struct weft_context *context, void *user)
{
    struct job *job = user;
    struct weft_context *child = NULL;
    int rank = weft_context_rank(context);
    if (rank == 0)
        atomic_store(&weft__alloc_countdown, job->nth);
    job->status[rank] = make(job, context, &child);
    CHECK(!child == (job->status[rank] < 0));
    if (!child)
        snprintf(job->text[rank], sizeof job->text[rank], "%s", weft_error_text());
    OK(weft_context_sleep(context, 1000000)); /* what was under way has arrived */
    if (atomic_load(&weft__alloc_countdown) > 0)
        return WEFT_OK; /* enough; the outer loop looks at it */
    OK(weft_context_destroy(child));
    OK(make(job, context, &child)); /* the next one works */
    exchange_once(child, 3);
    OK(weft_context_destroy(child));
    return WEFT_OK;
}

static int judge(const struct job *job)
{
    int failed = 0;
    for (int r = 0; r < RANKS; r++) {
        failed += job->status[r] < 0;
        cr_assert(!job->status[r] || job->status[r] == WEFT_ERR_MEMORY, "%ld: rank %d: %s",
                  job->nth, r, job->text[r]);
        if (job->status[r])
            CHECK_TEXT(job->text[r], "memory");
    }
    cr_assert(failed == 0 || failed == RANKS, "%ld: on %d ranks", job->nth, failed);
    return failed > 0;
}

Test(split_average, who_runs_out_of_memory_is_named_and_nobody_has_the_context)
{
    for (int subset = 0; subset <= 1; subset++) {
        int told = 0, spared = 0;
        for (long nth = 1; !spared; nth++) {
            struct weft_virtual_config config;
            struct job job = {.subset = subset, .nth = nth};
            weft_virtual_config_init(&config);
            int status = weft_virtual_run(RANKS, &config, short_of_memory, &job);
            spared = atomic_load(&weft__alloc_countdown) > 0;
            atomic_store(&weft__alloc_countdown, -1);
            cr_assert(status == WEFT_OK, "%ld: %s", nth, weft_error_text());
            told += judge(&job);
        }
        cr_assert_gt(told, 10);
    }
}
