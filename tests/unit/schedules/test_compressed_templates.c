/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sums of vectors that are quantised or factored: the same bits on all ranks, and the plain sum
 * within bounds that follow from what the compression is. What is refused, of all templates.
 */
#include "compressed_trial.h"

/* ---- quantised ---- */

static const char *const quantised_algos[] = {"all-to-all", "ring"};

/* The largest sum of magnitudes in the bucket that begins at an element. */
static double bucket_most(const struct trial *trial, int size, int round, size_t begin,
                          size_t bucket)
{
    double most = 0;

    for (size_t k = begin; k < begin + bucket && k < trial->count; k++)
        most = fmax(most, magnitude_of(trial, size, round, k));
    return most;
}

/* An element changes by less than the distance n / s of levels, each time that it is quantised; the
 * norm n of what is there then is at most the sum of the magnitudes and what has changed so far. */
static double quantised_bound(const struct trial *trial, int size, double most)
{
    double levels = (double)((1 << (trial->params.quantiser->bits - 1)) - 1), bound = 0;
    int times = strcmp(trial->params.algo, "ring") == 0 ? size : 2;

    for (int t = 0; t < times; t++)
        bound += (most + bound) / levels;
    return bound * (1 + 1e-5);
}

static void expect_quantised(const struct trial *trial, int size)
{
    size_t bucket = trial->params.quantiser->bucket ? trial->params.quantiser->bucket : 512;

    for (int round = 0; round < ROUNDS; round++)
        for (size_t begin = 0; begin < trial->count; begin += bucket) {
            double most = bucket_most(trial, size, round, begin, bucket);
            double bound = quantised_bound(trial, size, most);

            for (size_t i = begin; i < begin + bucket && i < trial->count; i++)
                expect_near(trial, size, round, i, sum_of(trial, size, round, i), bound);
        }
}

Test(compressed_templates, quantised_sums)
{
    static const int bits[] = {2, 4, 8};

    for (size_t s = 0; s < SIZES; s++)
        for (int a = 0; a < 12; a++) {
            struct weft_quantiser quantiser;
            struct trial *trial = make_trial("quantised-allreduce", quantised_algos[a % 2],
                                             a % 4 == 3 ? 5 : 1001, a / 2 % 2);

            weft_quantiser_init(&quantiser);
            quantiser.bits = bits[a / 4];
            quantiser.bucket = a % 3 ? 24 : 0;
            trial->params.quantiser = &quantiser;
            trial->params.sent = a % 5 < 3;
            trial->scattered = a % 2;
            play(trial, sizes[s], 0);
            expect_quantised(trial, sizes[s]);
            if (trial->params.sent)
                expect_shares(trial, sizes[s], 2 * sizes[s] * 0x1p-22);
            free(trial);
        }
}

Test(compressed_templates, quantised_sums_that_are_late)
{
    for (uint64_t seed = 1; seed <= SWEPT(40, 8); seed++) {
        struct weft_quantiser quantiser;
        struct trial *trial =
            make_trial("quantised-allreduce", quantised_algos[seed % 2], 700, (int)(seed / 2 % 2));
        int size = 1 + (int)(seed % MOST_RANKS);

        weft_quantiser_init(&quantiser);
        quantiser.bits = 8;
        quantiser.bucket = 40;
        trial->params.quantiser = &quantiser;
        trial->params.sent = seed % 3 == 0;
        play(trial, size, seed);
        expect_quantised(trial, size);
        if (trial->params.sent)
            expect_shares(trial, size, 2 * size * 0x1p-22);
        free(trial);
    }
}

/* Mean square of the error. */
static double error_of(const char *algo, int size)
{
    struct weft_quantiser quantiser;
    struct trial *trial = make_trial("quantised-allreduce", algo, ELEMENTS, 0);
    double sum = 0;

    weft_quantiser_init(&quantiser);
    quantiser.bits = 4;
    trial->params.quantiser = &quantiser;
    play(trial, size, 0);
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < ELEMENTS; i++)
            sum += pow((double)trial->recv[round][0][i] - sum_of(trial, size, round, i), 2);
    free(trial);
    return sum / (ROUNDS * ELEMENTS);
}

/* Levels are drawn from seeds: the same here on every machine. */
Test(compressed_templates, two_quantisations_are_better_than_one_a_hop)
{
    cr_expect_lt(error_of("all-to-all", 13), error_of("ring", 13));
}

/* Signs: of ranks that are alike the mean magnitude, by the same sign, added up exactly. */
Test(compressed_templates, signs)
{
    for (size_t s = 0; s < SIZES; s++)
        for (size_t a = 0; a < 2; a++) {
            struct weft_quantiser quantiser;
            struct trial *trial = make_trial("quantised-allreduce", quantised_algos[a], 512, 0);

            weft_quantiser_init(&quantiser);
            quantiser.bits = WEFT_QUANTISE_SIGN;
            trial->params.quantiser = &quantiser;
            trial->params.sent = 1;
            trial->ranks_alike = 1;
            play(trial, sizes[s], 0);
            expect_shares(trial, sizes[s], 4 * sizes[s] * 0x1p-22);
            for (size_t i = 0; i < 512; i++)
                cr_assert_eq(signbit(trial->recv[0][0][i]) != 0, signbit(trial->send[0][0][i]) != 0,
                             "P=%d element %zu", sizes[s], i);
            free(trial);
        }
}

/* ---- factors ---- */

static void fill_factor(const struct trial *trial, const char *slot, void *data, size_t count)
{
    float *to = data;

    (void)trial;
    for (size_t i = 0; strncmp(slot, "factor.", 7) == 0 && i < count; i++)
        to[i] = (float)draw(strtoull(slot + 7, NULL, 10) + 3000, i);
}

static const char *const powersgd_algos[] = {"recursive-doubling", "reduce-scatter-allgather",
                                             "ring"};

static void expect_sum(const struct trial *trial, int size, double bound)
{
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < trial->count; i++)
            expect_near(trial, size, round, i, sum_of(trial, size, round, i), size * bound);
}

/* Factors of full rank, one of more columns than rows, and what is no matrix. */
Test(compressed_templates, factors_of_full_rank_are_the_plain_sum)
{
    static const struct weft_compressed_block full[] = {
        {20 * 6, 6, 6}, {13, 0, 0}, {5 * 30, 30, 8}, {0, 7, 2}, {7, 0, 0}};

    for (size_t s = 0; s < SIZES; s++)
        for (int a = 0; a < 6; a++) {
            struct trial *trial =
                make_trial("powersgd-allreduce", powersgd_algos[a % 3], 290, a / 3);

            trial->params.blocks = full;
            trial->params.block_count = 5;
            trial->params.sent = a % 2;
            trial->fill = fill_factor;
            play(trial, sizes[s], 0);
            expect_sum(trial, sizes[s], 3e-5);
            if (trial->params.sent)
                expect_shares(trial, sizes[s], 1e-4);
            free(trial);
        }
}

static double square_of_rest(const struct trial *trial, int size, int round)
{
    double sum = 0;

    for (size_t i = 0; i < trial->count; i++)
        sum += pow((double)trial->recv[round][0][i] - sum_of(trial, size, round, i), 2);
    return sum;
}

/* The result is a projection of the sum: shorter than it, and what is left out is at right angles.
 */
Test(compressed_templates, few_factors_leave_out_the_rest)
{
    for (size_t s = 0; s < SIZES; s++)
        for (int a = 0; a < 3; a++) {
            struct trial *trial = make_trial("powersgd-allreduce", powersgd_algos[a], 1000, 0);

            trial->params.sent = 1;
            trial->fill = fill_factor;
            play(trial, sizes[s], 0);
            expect_shares(trial, sizes[s], 1e-3);
            for (int round = 0; round < ROUNDS; round++) {
                double whole = 0, kept = 0;

                for (size_t i = 0; i < 1000; i++) {
                    whole += pow(sum_of(trial, sizes[s], round, i), 2);
                    kept += pow((double)trial->recv[round][0][i], 2);
                }
                cr_expect(fabs(whole - kept - square_of_rest(trial, sizes[s], round)) <
                              1e-4 * whole,
                          "P=%d: %g of %g", sizes[s], kept, whole);
                cr_expect(kept < whole && kept > 0);
            }
            for (int r = 1; r < sizes[s]; r++)
                cr_assert_arr_eq(trial->factor[1][r], trial->factor[1][0], 128 * sizeof(float));
            free(trial);
        }
}

Test(compressed_templates, factors_that_are_late)
{
    for (uint64_t seed = 1; seed <= SWEPT(30, 6); seed++) {
        struct trial *trial =
            make_trial("powersgd-allreduce", powersgd_algos[seed % 3], 130, (int)(seed / 2 % 2));
        int size = 1 + (int)(seed % MOST_RANKS);

        trial->params.slice = trial->params.components = 10;
        trial->params.segment = seed % 4 ? 0 : 40;
        trial->fill = fill_factor;
        play(trial, size, seed);
        expect_sum(trial, size, 3e-5);
        free(trial);
    }
}

/* ---- no payload ---- */

static int without_payload(struct weft_context *context, void *user)
{
    const char *const *names = user;
    struct weft_template_params params;
    struct weft_slot_info info = {.struct_size = sizeof info};
    struct weft_run *run = NULL;
    static float nothing[100000]; /* is neither read nor written */

    weft_template_params_init(&params);
    params.count = 100000;
    params.algo = names[1];
    OK(weft_template_create_run(&run, context, names[0], &params));
    for (weft_slot_t s = 0; weft_plan_get_slot(weft_run_plan(run), s, &info) == WEFT_OK; s++)
        if (info.kind != WEFT_SLOT_SCRATCH)
            OK(bind_slot(run, s, nothing));
    OK(weft_run_execute(run));
    OK(weft_run_execute(run));
    weft_run_destroy(run);
    return WEFT_OK;
}

Test(compressed_templates, virtual_ranks_without_payload)
{
    static const char *const names[] = {"projected-allreduce", "quantised-allreduce",
                                        "powersgd-allreduce"};

    for (size_t n = 0; n < 3; n++) {
        const struct weft_template *template = weft_template_find(names[n]);

        for (size_t a = 0; a < template->algorithm_count; a++)
            for (int size = 1; size <= 24; size += 23) {
                struct weft_virtual_config config = with_seed(7);
                const char *user[] = {names[n], template->algorithms[a].name};
                struct weft_net net;

                give_net(&config, &net);
                config.no_payload = 1;
                cr_assert_eq(weft_virtual_run(size, &config, without_payload, user), WEFT_OK,
                             "%s %s P=%d: %s", user[0], user[1], size, weft_error_text());
            }
    }
}

/* ---- wrong input ---- */

static void refused(const char *name, const struct weft_template_params *params, const char *word)
{
    struct weft_schedule *schedule = NULL;

    cr_expect_eq(weft_template_build(name, 0, 4, params, &schedule), WEFT_ERR_INVALID, "%s: %s",
                 name, word);
    cr_expect_null(schedule);
    cr_expect(strstr(weft_error_text(), word), "%s: %s", word, weft_error_text());
}

static void refused_block(const char *name, struct weft_compressed_block block, const char *word)
{
    const struct weft_compressed_block two[] = {{4, 0, 0}, block};
    struct weft_template_params params;

    weft_template_params_init(&params);
    params.blocks = two;
    params.block_count = 2;
    refused(name, &params, word);
}

Test(compressed_templates, parameters)
{
    struct weft_quantiser quantiser;
    struct weft_template_params params;

    refused_block("projected-allreduce", (struct weft_compressed_block){9, 3, 4},
                  "blocks[1].components is 4, expected at most its slice, 3");
    refused_block("projected-allreduce", (struct weft_compressed_block){9, 0, 1},
                  "blocks[1].components is 1, expected at most its slice, 0");
    refused_block("projected-allreduce",
                  (struct weft_compressed_block){9, (size_t)1 << 40, (size_t)1 << 30},
                  "expected at most");
    refused_block("projected-allreduce", (struct weft_compressed_block){SIZE_MAX / 4, 1, 1},
                  "behind 4 elements of other blocks");
    refused_block("powersgd-allreduce", (struct weft_compressed_block){10, 4, 2},
                  "blocks[1].count is 10, expected a multiple of its slice, 4");
    weft_template_params_init(&params);
    params.block_count = 1;
    refused("projected-allreduce", &params, "blocks is NULL, and block_count is 1");
    weft_template_params_init(&params);
    params.components = 65;
    refused("powersgd-allreduce", &params, "components is 65, expected at most the slice, 64");
    weft_template_params_init(&params);
    params.sent = 2;
    refused("quantised-allreduce", &params, "params->sent is 2");
    weft_template_params_init(&params);
    weft_quantiser_init(&quantiser);
    quantiser.bits = 3;
    params.quantiser = &quantiser;
    refused("quantised-allreduce", &params, "bits is 3");
    quantiser.bits = 4;
    quantiser.struct_size = 0;
    refused("quantised-allreduce", &params, "struct_size");
}

/* NaNs fail the run of the rank that has them, and so of the others. */
static int with_nan(struct weft_context *context, void *user)
{
    float send[8] = {0}, recv[8];
    struct weft_template_params params;
    struct weft_run *run = NULL;

    (void)user;
    weft_template_params_init(&params);
    params.count = 8;
    send[5] = weft_context_rank(context) == 1 ? NAN : 1;
    OK(weft_template_create_run(&run, context, "quantised-allreduce", &params));
    OK(bind_name(run, "send", send));
    OK(bind_name(run, "recv", recv));
    CHECK(weft_run_execute(run) < 0);
    weft_run_destroy(run);
    return WEFT_OK;
}

Test(compressed_templates, nan_fails_the_run)
{
    cr_assert_eq(weft_local_run(3, NULL, with_nan, NULL), WEFT_OK);
}
