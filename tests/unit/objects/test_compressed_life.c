/* SPDX-License-Identifier: BSD-3-Clause */
/* Compressed averaging: who is late or leaves, what is empty or not finite, what is out of memory,
 * virtual ranks. */
#include <criterion/criterion.h>
#include <float.h>

#include "compressed_config.h"
#include "runtime/base/alloc.h"
#include "support/virtual_ranks.h"

/* Settings of method number m on a tensor of its own. */
static struct compressed_settings settings_of(int m, void *data)
{
    struct compressed_settings settings;
    compressed_set(&settings, &compressed_methods[m], WEFT_F32, data, 0);
    return settings;
}

/* What points into the settings points into where they are now. */
static const struct weft_compressed_average_config *config_of(struct compressed_settings *settings)
{
    settings->config.quantiser = &settings->quantiser;
    settings->config.powersgd = &settings->powersgd;
    settings->config.tensors = settings->tensors;
    return &settings->config;
}

static void for_each_method(ranks_fn fn, int size)
{
    for (int m = 0; m < COMPRESSED_METHODS; m++)
        ranks_run_once(fn, size, &m);
}

static void fill(float *data, int rank, uint64_t step)
{
    for (size_t i = 0; i < COMPRESSED_ELEMENTS; i++)
        data[i] = compressed_gradient(rank, step, i);
}

/* ---- late ranks ---- */

static void late(struct ranks *ranks, struct weft_context *context, int rank)
{
    float *data = calloc(COMPRESSED_ELEMENTS, sizeof *data);
    struct compressed_settings settings = settings_of(*(int *)ranks->user, data);
    struct weft_compressed_average *average = NULL;
    struct weft_compressed_average_state state = {.struct_size = sizeof state};
    double norm;
    CHECK(data);
    settings.config.deadline_ns = rank == 0 ? 1000000 : 0;
    OK(weft_compressed_average_create(&average, context, config_of(&settings)));
    fill(data, rank, 0);
    if (rank == 1)
        ranks_meet(ranks); /* until rank 0 has given up twice */
    if (rank == 0) {
        const float first = data[0];
        CHECK_STATUS(weft_compressed_average_step(average, NULL), WEFT_ERR_TIMEOUT);
        CHECK_TEXT(weft_error_text(), "step 0");
        CHECK_TEXT(weft_error_text(), "rank 1");
        CHECK_STATUS(weft_compressed_average_wait(average, NULL), WEFT_ERR_TIMEOUT);
        CHECK_STATUS(weft_compressed_average_step(average, NULL), WEFT_ERR_STATE);
        CHECK_STATUS(weft_compressed_average_post(average), WEFT_ERR_STATE);
        CHECK_STATUS(weft_compressed_average_get_state(average, &state), WEFT_ERR_STATE);
        CHECK_STATUS(weft_compressed_average_residual_norm(average, &norm), WEFT_ERR_STATE);
        CHECK(data[0] == first);
        ranks_meet(ranks);
        int status;
        while ((status = weft_compressed_average_wait(average, NULL)) == WEFT_ERR_TIMEOUT) {
        }
        OK(status);
    } else {
        OK(weft_compressed_average_step(average, NULL));
    }
    CHECK(weft_compressed_average_next(average) == 1);
    OK(weft_compressed_average_residual_norm(average, &norm));
    CHECK(norm >= 0 && isfinite(norm));
    OK(weft_compressed_average_destroy(average));
    free(data);
}

Test(compressed_life, a_deadline_leaves_the_step_to_be_waited_for)
{
    for_each_method(late, 2);
}

static void leave(struct ranks *ranks, struct weft_context *context, int rank)
{
    static const int m = 2;
    float *data = calloc(COMPRESSED_ELEMENTS, sizeof *data);
    struct compressed_settings settings = settings_of(m, data);
    struct weft_compressed_average *average = NULL;
    CHECK(data);
    settings.config.leave_ns = 1000000;
    OK(weft_compressed_average_create(&average, context, config_of(&settings)));
    if (rank == 0) {
        OK(weft_compressed_average_post(average));
        /* The other does not come in time. */
        CHECK_STATUS(weft_compressed_average_destroy(average), WEFT_ERR_TIMEOUT);
        ranks_meet(ranks);
    } else {
        ranks_meet(ranks);
        CHECK_STATUS(weft_compressed_average_step(average, NULL), WEFT_ERR_PEER);
        CHECK_STATUS(weft_compressed_average_step(average, NULL), WEFT_ERR_PEER);
        CHECK_TEXT(weft_error_text(), "rank 0 has failed: ");
        struct weft_compressed_average_state state = {.struct_size = sizeof state};
        OK(weft_compressed_average_get_state(average, &state));
        CHECK(state.failed && state.next == 0);
        CHECK_STATUS(weft_compressed_average_destroy(average), WEFT_ERR_PEER);
    }
    free(data);
}

Test(compressed_life, who_leaves_in_the_middle_of_a_step_fails_it)
{
    ranks_run_once(leave, 2, NULL);
}

/* What has been posted and not been waited for is ended by the destruction. */
static void leave_posted(struct ranks *ranks, struct weft_context *context, int rank)
{
    float *data = calloc(COMPRESSED_ELEMENTS, sizeof *data);
    struct compressed_settings settings = settings_of(*(int *)ranks->user, data);
    struct weft_compressed_average *average = NULL;
    CHECK(data);
    OK(weft_compressed_average_create(&average, context, config_of(&settings)));
    fill(data, rank, 0);
    OK(weft_compressed_average_post(average));
    if (rank % 2)
        OK(weft_compressed_average_wait(average, NULL));
    OK(weft_compressed_average_destroy(average));
    free(data);
}

Test(compressed_life, a_posted_step_is_ended_by_the_destruction)
{
    for (int size = 1; size <= 4; size += 3)
        for_each_method(leave_posted, size);
}

/* Ranks end after as many steps as they like: the step after it fails. */
static void end_early(struct ranks *ranks, struct weft_context *context, int rank)
{
    const int steps = rank == ranks->size / 2 ? 2 : 4;
    float *data = calloc(COMPRESSED_ELEMENTS, sizeof *data);
    struct compressed_settings settings = settings_of(*(int *)ranks->user, data);
    struct weft_compressed_average *average = NULL;
    int status = WEFT_OK, step = 0;
    CHECK(data);
    settings.powersgd.warmup_steps = 0; /* after it, its run is quit as well */
    OK(weft_compressed_average_create(&average, context, config_of(&settings)));
    while (!status && step < steps) {
        status = weft_compressed_average_step(average, NULL);
        step += !status;
    }
    /* Others may hear of the failure before they have ended the step before. */
    CHECK(steps > 2 ? step <= 2 : step == 2);
    if (steps > 2) {
        char named[32];
        snprintf(named, sizeof named, "rank %d has left", ranks->size / 2);
        CHECK_STATUS(status, WEFT_ERR_PEER);
        CHECK_TEXT(weft_error_text(), named);
    }
    CHECK(!weft_compressed_average_destroy(average) == (steps == 2));
    free(data);
}

Test(compressed_life, a_step_that_needs_who_has_ended_fails)
{
    for (int size = 2; size < 6; size++)
        for_each_method(end_early, size);
}

static void give_up(struct ranks *ranks, struct weft_context *context, int rank)
{
    float *data = calloc(COMPRESSED_ELEMENTS, sizeof *data);
    const int m = *(int *)ranks->user;
    struct compressed_settings settings = settings_of(m, data);
    struct weft_compressed_average *average = NULL;
    struct weft_compressed_average_state state = {.struct_size = sizeof state};
    CHECK(data);
    OK(weft_compressed_average_create(&average, context, config_of(&settings)));
    fill(data, rank, 0);
    OK(weft_compressed_average_step(average, NULL));
    ranks_meet(ranks);
    fill(data, rank, 1);
    if (rank == 2) { /* fails in its wait, whether or not it is known by then */
        const int posted = weft_compressed_average_post(average);
        CHECK(!posted || posted == WEFT_ERR_PEER);
        CHECK_STATUS(weft_compressed_average_wait(average, NULL), WEFT_ERR_PEER);
        CHECK(!strncmp(weft_error_text(), "weft_compressed_average_wait: rank 1", 36));
        CHECK_TEXT(weft_error_text(), "no more");
    } else if (rank == 1) {
        CHECK_STATUS(weft_compressed_average_fail(average, WEFT_OK, NULL), WEFT_ERR_INVALID);
        OK(weft_compressed_average_fail(average, WEFT_ERR_COMPUTE, "no more"));
        CHECK_STATUS(weft_compressed_average_step(average, NULL), WEFT_ERR_COMPUTE);
    } else {
        CHECK_STATUS(weft_compressed_average_step(average, NULL), WEFT_ERR_PEER);
        CHECK_TEXT(weft_error_text(), "no more");
    }
    CHECK(weft_compressed_average_next(average) == 1);
    OK(weft_compressed_average_get_state(average, &state));
    CHECK(state.failed && state.next == 1);
    if (rank == 1) /* it has not come to a post */
        CHECK(!state.unsent && !state.residual == !compressed_methods[m].keeps);
    if (rank == 0 && compressed_methods[m].keeps) {
        /* What was to be sent is all there. */
        CHECK(!state.residual != !state.unsent || !state.unsent);
        for (size_t i = 0; i < COMPRESSED_ELEMENTS && state.unsent; i++)
            CHECK(isfinite(state.unsent[i]));
    }
    CHECK(weft_compressed_average_destroy(average) != WEFT_OK);
    free(data);
}

Test(compressed_life, who_gives_up_fails_it_on_all)
{
    for_each_method(give_up, 3);
}

/* ---- what is not finite ---- */

static void not_finite(struct ranks *ranks, struct weft_context *context, int rank)
{
    static const float bads[] = {NAN, INFINITY, -INFINITY};
    float *data = calloc(COMPRESSED_ELEMENTS, sizeof *data);
    struct compressed_settings settings = settings_of(*(int *)ranks->user, data);
    struct weft_compressed_average *average = NULL;
    struct weft_compressed_average_stats stats = {.struct_size = sizeof stats};
    CHECK(data);
    for (int policy = 0; policy < 2; policy++) {
        settings.config.nan = policy ? WEFT_NAN_ZERO : WEFT_NAN_ERROR;
        OK(weft_compressed_average_create(&average, context, config_of(&settings)));
        for (uint64_t step = 0; step < 4; step++) {
            fill(data, rank, step);
            const int bad = rank == 1 && step == 1;
            for (size_t i = 0; i < 3 && bad; i++)
                data[110 + i] = bads[i]; /* in tensor 1 */
            const int status = weft_compressed_average_step(average, NULL);
            if (bad && !policy) {
                CHECK_STATUS(status, WEFT_ERR_COMPUTE);
                CHECK_TEXT(weft_error_text(), "step 1: 3 NaNs or infinities");
                CHECK_TEXT(weft_error_text(), "tensor 1");
            } else {
                CHECK_STATUS(status, WEFT_OK);
            }
            CHECK(weft_compressed_average_next(average) == step + 1);
            for (size_t i = 0; i < COMPRESSED_ELEMENTS; i++)
                CHECK(isfinite(data[i]));
        }
        OK(weft_compressed_average_get_stats(average, &stats));
        CHECK(stats.nans == (rank == 1 ? 3 : 0) && stats.steps == 4);
        OK(weft_compressed_average_destroy(average));
    }
    free(data);
}

Test(compressed_life, what_is_not_finite_is_told_or_counts_as_zero)
{
    for_each_method(not_finite, 3);
}

enum { OVERFLOWS = 4, MOST_RANKS = 4 };

/* What a rank had of each step whose sum was more than a float can be. */
struct overflowed {
    int steps;
    uint64_t hash[OVERFLOWS];
};

/* Sums of several ranks: where they are quantised again they count as zero or fail the object, as
 * the policy says, and PowerSGD fails in any case. */
static void check_overflow(const struct compressed_method *method, int ranks,
                           weft_nan_policy_t policy, const struct overflowed *seen,
                           const struct weft_compressed_average_stats *stats, const float *data)
{
    const int fails = method->method == WEFT_COMPRESSED_POWERSGD || policy == WEFT_NAN_ERROR;
    if (ranks == 1)
        return;
    if (fails)
        CHECK(seen->steps == (int)method->warmup);
    if (fails || method->keeps) /* what is kept makes gradients that are not finite */
        return;
    CHECK(seen->steps == OVERFLOWS && stats->nans == 0);
    for (size_t i = 0; i < COMPRESSED_ELEMENTS; i++)
        CHECK(method->way == WEFT_QSGD_RING ? isfinite(data[i]) : data[i] == 0);
}

/* Sums that overflow end in an error or in what is not finite, on all ranks alike; residuals stay
 * finite; nobody hangs. */
static void overflow(struct ranks *ranks, struct weft_context *context, int rank)
{
    static struct overflowed all[MOST_RANKS];
    const struct compressed_method *method = &compressed_methods[*(int *)ranks->user];
    float *data = calloc(COMPRESSED_ELEMENTS, sizeof *data);
    struct compressed_settings settings = settings_of(*(int *)ranks->user, data);
    struct weft_compressed_average_stats stats = {.struct_size = sizeof stats};
    CHECK(data);
    for (int policy = WEFT_NAN_ERROR; policy <= WEFT_NAN_ZERO; policy++) {
        struct weft_compressed_average *average = NULL;
        struct overflowed *seen = &all[rank];
        int status = WEFT_OK;
        memset(seen, 0, sizeof *seen);
        settings.config.nan = (weft_nan_policy_t)policy;
        OK(weft_compressed_average_create(&average, context, config_of(&settings)));
        ranks_meet(ranks); /* or who is still creating hears of the first step's end */
        while (seen->steps < OVERFLOWS && !status) {
            double norm = 0;
            for (size_t i = 0; i < COMPRESSED_ELEMENTS; i++)
                data[i] = (float)(0.9 * (double)FLT_MAX);
            status = weft_compressed_average_step(average, NULL);
            if (status && weft_compressed_average_next(average) == (uint64_t)seen->steps)
                break;
            OK(weft_compressed_average_residual_norm(average, &norm));
            CHECK(isfinite(norm));
            for (size_t i = 0; i < COMPRESSED_ELEMENTS; i++) {
                uint32_t bits;
                memcpy(&bits, &data[i], sizeof bits);
                seen->hash[seen->steps] = compressed_scramble(seen->hash[seen->steps] ^ bits);
            }
            seen->steps++;
            status = WEFT_OK; /* NaNs of a residual, which the step has taken as zero */
        }
        CHECK(!status || status == WEFT_ERR_COMPUTE || status == WEFT_ERR_PEER);
        OK(weft_compressed_average_get_stats(average, &stats));
        check_overflow(method, ranks->size, (weft_nan_policy_t)policy, seen, &stats, data);
        ranks_meet(ranks);
        for (int r = 0; r < ranks->size; r++)
            for (int step = 0; step < seen->steps && step < all[r].steps; step++)
                CHECK(all[r].hash[step] == seen->hash[step]);
        weft_compressed_average_destroy(average);
        ranks_meet(ranks);
    }
    free(data);
}

Test(compressed_life, sums_that_overflow_hang_nobody)
{
    for (int size = 1; size <= MOST_RANKS; size++)
        for_each_method(overflow, size);
}

/* ---- what is kept ---- */

/* Noise of which more is made than is sent piles up: with 2 bits, not with 8. */
static void noise(struct ranks *ranks, struct weft_context *context, int rank)
{
    const int bits = *(const int *)ranks->user;
    const struct compressed_method method = {
        .method = WEFT_COMPRESSED_QSGD, .bits = bits, .residual = WEFT_COMPRESSED_RESIDUAL_KEPT};
    float *data = calloc(COMPRESSED_ELEMENTS, sizeof *data);
    struct compressed_settings settings;
    struct weft_compressed_average *average = NULL;
    double norm = 0, largest = 0;
    CHECK(data);
    compressed_set(&settings, &method, WEFT_F32, data, 0);
    settings.quantiser.bucket = 512;
    OK(weft_compressed_average_create(&average, context, &settings.config));
    for (uint64_t step = 0; step < 100; step++) {
        double squares = 0;
        fill(data, rank, step);
        for (size_t i = 0; i < COMPRESSED_ELEMENTS; i++)
            squares += (double)data[i] * (double)data[i];
        largest = fmax(largest, sqrt(squares));
        OK(weft_compressed_average_step(average, NULL));
    }
    OK(weft_compressed_average_residual_norm(average, &norm));
    CHECK(bits == 2 ? norm > 3 * largest : norm < 0.1 * largest);
    OK(weft_compressed_average_destroy(average));
    free(data);
}

Test(compressed_life, residuals_of_two_bits_pile_up)
{
    for (int bits = 2; bits <= 8; bits += 6)
        ranks_run_once(noise, 4, &bits);
}

/* ---- small models ---- */

static void small(struct ranks *ranks, struct weft_context *context, int rank)
{
    const int m = *(int *)ranks->user;
    float data[2];
    struct compressed_settings settings = settings_of(m, data);
    struct weft_compressed_average *average = NULL;
    struct weft_compressed_average_result result = {.struct_size = sizeof result};
    const struct weft_piece tensors[] = {{NULL, 0}, {data, 1}, {NULL, 0}, {data + 1, 1}};
    const size_t tensor_counts[] = {0, 1, 2, 4};
    for (int c = 0; c < 4; c++) {
        config_of(&settings);
        settings.config.tensors = tensor_counts[c] ? tensors : NULL;
        settings.config.tensor_count = tensor_counts[c];
        settings.config.shapes = NULL;
        OK(weft_compressed_average_create(&average, context, &settings.config));
        for (uint64_t step = 0; step < 3; step++) {
            data[0] = (float)rank;
            data[1] = -1;
            OK(weft_compressed_average_step(average, &result));
            CHECK(result.step == step && weft_compressed_average_next(average) == step + 1);
            CHECK(isfinite(data[0]) && (c == 3 || data[1] == -1));
            if (compressed_methods[m].method == WEFT_COMPRESSED_POWERSGD) /* sent as it is */
                CHECK((c < 2 || data[0] == (float)(ranks->size - 1) / 2) && data[1] == -1);
        }
        OK(weft_compressed_average_post(average));
        OK(weft_compressed_average_wait(average, NULL));
        OK(weft_compressed_average_destroy(average));
    }
}

Test(compressed_life, models_may_be_empty_or_tiny)
{
    for (int size = 1; size <= 3; size++)
        for_each_method(small, size);
}

/* ---- memory ---- */

Test(compressed_life, every_allocation_may_fail)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    float *data = calloc(COMPRESSED_ELEMENTS, sizeof *data);
    CHECK(data);
    for (int m = 0; m < COMPRESSED_METHODS; m++) {
        struct compressed_settings settings = settings_of(m, data);
        struct weft_compressed_average_state state = {.struct_size = sizeof state};
        struct weft_compressed_average *average = NULL;
        int status = WEFT_ERR_MEMORY;
        long n = 0;
        while (status == WEFT_ERR_MEMORY) {
            atomic_store(&weft__alloc_countdown, ++n);
            status = weft_compressed_average_create(&average, alone.context, config_of(&settings));
            atomic_store(&weft__alloc_countdown, -1);
            CHECK((status == WEFT_OK) == (average != NULL));
        }
        OK(status);
        cr_assert_gt(n, 10);
        fill(data, 0, 0);
        atomic_store(&weft__alloc_countdown, 1); /* a step allocates nothing */
        OK(weft_compressed_average_step(average, NULL));
        CHECK(atomic_load(&weft__alloc_countdown) == 1);
        /* A state does, and what it has come to stays for the next call. */
        status = WEFT_ERR_MEMORY;
        for (n = 0; status == WEFT_ERR_MEMORY;) {
            atomic_store(&weft__alloc_countdown, ++n);
            status = weft_compressed_average_get_state(average, &state);
        }
        OK(status);
        cr_assert_gt(n, 1);
        atomic_store(&weft__alloc_countdown, -1);
        OK(weft_compressed_average_get_state(average, &state));
        OK(weft_compressed_average_destroy(average));
    }
    free(data);
    alone_destroy(&alone);
}

/* ---- virtual ranks ---- */

enum { VIRTUAL = 6, VIRTUAL_STEPS = 5 };

struct play {
    int method;
    float means[VIRTUAL][COMPRESSED_ELEMENTS];
};

static int play(struct weft_context *context, void *user)
{
    struct play *play = user;
    const int rank = weft_context_rank(context);
    float *data = play->means[rank];
    struct compressed_settings settings = settings_of(play->method, data);
    struct weft_compressed_average *average = NULL;
    OK(weft_compressed_average_create(&average, context, config_of(&settings)));
    for (uint64_t step = 0; step < VIRTUAL_STEPS; step++) {
        fill(data, rank, step);
        weft_context_sleep(context, 1 + (uint64_t)rank * 1000);
        OK(weft_compressed_average_step(average, NULL));
    }
    return weft_compressed_average_destroy(average);
}

/* Whenever messages arrive, the bits are the same; without their contents nobody fails. */
Test(compressed_life, virtual_ranks)
{
    struct play *first = calloc(1, sizeof *first), *next = calloc(1, sizeof *next);
    CHECK(first && next);
    for (int m = 0; m < COMPRESSED_METHODS; m++) {
        for (uint64_t seed = 0; seed < 4; seed++) {
            struct weft_virtual_config config = with_delays(seed, 30000, 0.1, 300000);
            struct play *now = seed ? next : first;
            now->method = m;
            OK(weft_virtual_run(VIRTUAL, &config, play, now));
            for (int r = 0; r < VIRTUAL; r++)
                CHECK(!memcmp(now->means[r], first->means[0], sizeof now->means[r]));
        }
        struct weft_virtual_config config = with_seed(1);
        config.no_payload = 1;
        OK(weft_virtual_run(VIRTUAL, &config, play, next));
    }
    free(first);
    free(next);
}
