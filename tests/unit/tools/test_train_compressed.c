/* SPDX-License-Identifier: BSD-3-Clause */
/* The demonstration trainer with compressed gradients: phases, bits and residuals. */
#include "tools/train/compressed.h"
#include "train_jobs.h"

static struct train_outcome train_compressed_as(const struct train_algorithm *algorithm, int ranks,
                                                const struct train_compress_options *compress,
                                                enum train_order order)
{
    struct train_job job = {.algorithm = algorithm};
    struct train_options options;

    cr_assert_eq(train_options_init(&options), WEFT_OK);
    options.ranks = ranks;
    options.steps = 24;
    options.order = order;
    options.momentum = order == TRAIN_BESIDE ? 0.5 : 0.9;
    options.compress = *compress;
    cr_assert_eq(run_with(&job, &options, 9, 4), WEFT_OK, "%s, %d ranks: %s", algorithm->name,
                 ranks, weft_error_text());
    cr_assert(job.outcome.identical, "%s: %d ranks differ", algorithm->name, ranks);
    train_options_free(&options);
    return job.outcome;
}

/* The defaults of the command, with these lengths, none of which ends early. */
static struct train_compress_options compress_options(uint64_t warmup, uint64_t samples,
                                                      uint64_t compressed)
{
    struct train_options options;

    cr_assert_eq(train_options_init(&options), WEFT_OK);
    struct train_compress_options compress = options.compress;
    train_options_free(&options);
    cr_assert_eq(compress.warmup_steps, TRAIN_SCALED);
    cr_assert_eq(compress.sample_steps, 0);
    cr_assert_eq(compress.compressed_steps, 0);
    compress.warmup_steps = warmup;
    compress.sample_steps = samples;
    compress.compressed_steps = compressed;
    compress.loss_bound = 0.0;
    return compress;
}

/* Where nothing is compressed the sum is that of allreduce. */
Test(train_compressed, gradients_that_are_not_compressed_yet_are_dense_ones)
{
    static const struct train_algorithm *const algorithms[] = {&train_powersgd, &train_gradiveq};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct train_outcome dense = train_once(&train_allreduce, sizes[i], 24, 9);
        for (size_t a = 0; a < 2 && is_available(algorithms[a]); a++) {
            struct train_compress_options compress = compress_options(24, 2, 1);
            compress.uncompressed = WEFT_UNCOMPRESSED_DENSE;
            struct train_outcome found =
                train_compressed_as(algorithms[a], sizes[i], &compress, TRAIN_AFTER);
            cr_assert_float_eq(found.loss, dense.loss, 1e-4 * (1 + dense.loss),
                               "%s, %d ranks: %g, not %g", algorithms[a]->name, sizes[i],
                               found.loss, dense.loss);
            cr_assert_eq(found.compressed.steps, 0);
            cr_assert_eq(found.phase_count, 1);
            cr_assert_str_eq(found.phases[0].name, "warm-up");
            train_outcome_free(&found);
        }
        train_outcome_free(&dense);
    }
}

/* 24 steps: 5 of warm-up, and then 4 and 6 in turns; with --compressed-steps never no others. */
Test(train_compressed, phases_begin_when_they_should)
{
    static const uint64_t begins[] = {0, 5, 9, 15, 19};
    static const char *const names[] = {"warm-up", "sampling", "compressed", "sampling",
                                        "compressed"};

    if (!is_available(&train_gradiveq))
        cr_skip_test("no LAPACK");
    for (int way = 0; way < 4; way++) {
        struct train_compress_options compress = compress_options(5, 4, way / 2 ? WEFT_NEVER : 6);
        struct train_outcome outcome = train_compressed_as(&train_gradiveq, 3, &compress,
                                                           way % 2 ? TRAIN_BESIDE : TRAIN_AFTER);
        cr_assert_eq(outcome.phase_count, way / 2 ? 3 : 5);
        for (size_t i = 0; i < outcome.phase_count; i++) {
            cr_assert_eq(outcome.phases[i].step, begins[i]);
            cr_assert_str_eq(outcome.phases[i].name, names[i]);
            cr_assert_geq(outcome.phases[i].seconds, i > 0 ? outcome.phases[i - 1].seconds : 0.0);
            cr_assert_leq(outcome.phases[i].seconds, outcome.seconds);
        }
        cr_assert_eq(outcome.compressed.steps, way / 2 ? 15 : 11);
        cr_assert_eq(outcome.compressed.phases, way / 2 ? 1 : 2);
        cr_assert_gt(outcome.compressed.projection_count, 0);
        train_outcome_free(&outcome);
    }
}

Test(train_compressed, phases_are_as_long_as_trainings_allow)
{
    static const struct {
        uint64_t steps, warmup, samples, compressed;
        int scaled;
    } cases[] = {{1, 0, 2, 8, 1},          {30, 3, 3, 12, 1},          {400, 40, 40, 160, 1},
                 {1600, 160, 100, 400, 1}, {25000, 2500, 100, 400, 0}, {99999, 2500, 100, 400, 0}};
    struct train_options options;

    cr_assert_eq(train_options_init(&options), WEFT_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        options.steps = cases[i].steps;
        struct train_phase_lengths found = train_compressed_lengths(&options);
        cr_assert_eq(found.warmup_steps, cases[i].warmup);
        cr_assert_eq(found.sample_steps, cases[i].samples);
        cr_assert_eq(found.compressed_steps, cases[i].compressed);
        cr_assert_eq(found.scaled, cases[i].scaled);
    }
    options.steps = 400;
    options.compress = compress_options(0, 7, 9);
    struct train_phase_lengths typed = train_compressed_lengths(&options);
    cr_assert(typed.warmup_steps == 0 && typed.sample_steps == 7 && typed.compressed_steps == 9);
    cr_assert_not(typed.scaled);
    train_options_free(&options);
}

/* 4 bits an element and 32 a bucket; what ranks tell each other is little beside that. */
Test(train_compressed, quantised_gradients_take_as_many_bits_as_asked)
{
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int bits = 2; bits <= 8; bits *= 2) {
            struct train_compress_options compress = compress_options(0, 0, 0);
            compress.bits = bits;
            struct train_outcome outcome =
                train_compressed_as(&train_qsgd, sizes[i], &compress, TRAIN_AFTER);
            double expected = 32.0 / (bits + 32.0 / 512);
            cr_assert_eq(outcome.compressed.steps, 24);
            cr_assert_float_eq(outcome.compressed.ratio, expected, 0.02 * expected);
            if (sizes[i] > 1)
                cr_assert_float_eq(outcome.compression_ratio, expected, 0.05 * expected,
                                   "%d ranks, %d bits: %g", sizes[i], bits,
                                   outcome.compression_ratio);
            train_outcome_free(&outcome);
        }
    }
}

/* Seeds of what is drawn are the training's; what is kept makes another model. */
Test(train_compressed, residuals_are_kept_where_that_is_asked_for)
{
    static const struct train_algorithm *const algorithms[] = {&train_qsgd, &train_powersgd,
                                                               &train_gradiveq};
    static const weft_compressed_residual_t residuals[] = {WEFT_COMPRESSED_RESIDUAL_DEFAULT,
                                                           WEFT_COMPRESSED_RESIDUAL_NONE,
                                                           WEFT_COMPRESSED_RESIDUAL_KEPT};

    for (size_t a = 0; a < 3; a++) {
        uint64_t checksums[3];
        if (!is_available(algorithms[a]))
            continue;
        for (int r = 0; r < 3; r++) {
            struct train_compress_options compress = compress_options(1, 4, 6);
            compress.residual = residuals[r];
            struct train_outcome outcome =
                train_compressed_as(algorithms[a], 2, &compress, TRAIN_AFTER);
            checksums[r] = outcome.checksum;
            train_outcome_free(&outcome);
        }
        int same = algorithms[a] == &train_powersgd ? 2 : 1;
        cr_assert_eq(checksums[0], checksums[same], "%s", algorithms[a]->name);
        cr_assert_neq(checksums[0], checksums[3 - same], "%s", algorithms[a]->name);
    }
}
