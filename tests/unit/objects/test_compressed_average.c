/* SPDX-License-Identifier: BSD-3-Clause */
/* Compressed averaging: what all methods promise, on any number of ranks; and what each does. */
#include <criterion/criterion.h>

#include "compressed_config.h"
#include "support/virtual_ranks.h"

enum { MOST = 13, STEPS = 7, GAP = 3 };

/* ---- a training: some steps on some ranks, and what came of it ---- */

struct seen {
    float mean[STEPS][COMPRESSED_ELEMENTS];
    float residual[STEPS][COMPRESSED_ELEMENTS];
    struct weft_compressed_average_result result[STEPS];
    struct weft_compressed_average_stats stats;
};

struct training {
    const struct compressed_method *method;
    weft_dtype_t dtype;
    int sum;
    int split;   /* steps are posted and waited for */
    int restart; /* before this step a new object goes on from a checkpoint; 0: no */
    struct seen *seen;
};

/* A state as a file would keep it. */
struct file {
    struct weft_compressed_average_state state;
    uint64_t *words;
    float *numbers, *residual;
};

static void *copy(const void *from, size_t bytes)
{
    if (!from)
        return NULL;
    void *to = malloc(bytes + 1);
    CHECK(to);
    return memcpy(to, from, bytes);
}

static struct file keep_state(struct weft_compressed_average *average)
{
    struct file file = {.state = {.struct_size = sizeof file.state}};
    struct weft_compressed_average_state *state = &file.state;
    OK(weft_compressed_average_get_state(average, state));
    CHECK(!state->failed && !state->unsent);
    state->words = file.words = copy(state->words, state->word_count * sizeof *state->words);
    state->numbers = file.numbers =
        copy(state->numbers, state->number_count * sizeof *state->numbers);
    if (state->residual)
        state->residual = file.residual =
            copy(state->residual, COMPRESSED_ELEMENTS * sizeof *state->residual);
    return file;
}

static void start_again(struct weft_compressed_average **average, struct weft_context *context,
                        struct compressed_settings *settings)
{
    struct file file = keep_state(*average);
    OK(weft_compressed_average_destroy(*average));
    settings->config.state = &file.state;
    OK(weft_compressed_average_create(average, context, &settings->config));
    settings->config.state = NULL;
    free(file.words);
    free(file.numbers);
    free(file.residual);
}

static void fill(const struct compressed_settings *settings, int rank, uint64_t step)
{
    size_t element = 0;
    for (int t = 0; t < COMPRESSED_TENSORS; t++)
        for (size_t i = 0; i < compressed_counts[t]; i++) {
            const float value = compressed_gradient(rank, step, element++);
            const size_t size = weft_dtype_size(settings->config.dtype);
            weft_convert(settings->config.dtype, (char *)settings->tensors[t].data + i * size,
                         WEFT_F32, &value, 1);
        }
}

static void look(const struct compressed_settings *settings, float *values)
{
    for (int t = 0; t < COMPRESSED_TENSORS; t++) {
        weft_convert(WEFT_F32, values, settings->config.dtype, settings->tensors[t].data,
                     compressed_counts[t]);
        values += compressed_counts[t];
    }
}

static void train(struct ranks *ranks, struct weft_context *context, int rank)
{
    const struct training *training = ranks->user;
    struct seen *seen = &training->seen[rank];
    struct weft_compressed_average *average = NULL;
    struct compressed_settings settings;
    static _Thread_local float data[COMPRESSED_ELEMENTS + COMPRESSED_TENSORS * GAP];
    compressed_set(&settings, training->method, training->dtype, data, GAP);
    settings.config.sum = training->sum;
    OK(weft_compressed_average_create(&average, context, &settings.config));
    for (uint64_t step = 0; step < STEPS; step++) {
        struct weft_compressed_average_result *result = &seen->result[step];
        result->struct_size = sizeof *result;
        if (step && step == (uint64_t)training->restart)
            start_again(&average, context, &settings);
        CHECK(weft_compressed_average_next(average) == step);
        const weft_compressed_phase_t phase = weft_compressed_average_phase(average);
        fill(&settings, rank, step);
        if (training->split) {
            OK(weft_compressed_average_post(average));
            memset(data, 0, sizeof data); /* they may be overwritten */
            OK(weft_compressed_average_wait(average, result));
        } else {
            OK(weft_compressed_average_step(average, result));
        }
        CHECK(result->phase == phase && result->step == step);
        look(&settings, seen->mean[step]);
        struct file file = keep_state(average);
        CHECK(!file.residual == !training->method->keeps);
        if (file.residual)
            memcpy(seen->residual[step], file.residual, sizeof seen->residual[step]);
        free(file.words);
        free(file.numbers);
        free(file.residual);
    }
    seen->stats.struct_size = sizeof seen->stats;
    OK(weft_compressed_average_get_stats(average, &seen->stats));
    OK(weft_compressed_average_destroy(average));
}

static struct seen *run(struct training *training, int size)
{
    training->seen = calloc((size_t)size, sizeof *training->seen);
    CHECK(training->seen);
    if (size <= 3)
        ranks_run_each_progress(train, size, training);
    else
        ranks_run_once(train, size, training);
    return training->seen;
}

/* ---- what all promise ---- */

static double rounded(weft_dtype_t dtype, double value)
{
    float single = (float)value;
    uint32_t bits = 0;
    weft_convert(dtype, &bits, WEFT_F32, &single, 1);
    weft_convert(WEFT_F32, &single, dtype, &bits, 1);
    return (double)single;
}

/* Of every element the sum and what ranks keep are what there was, up to rounding: of the largest
 * magnitude, some units in the last place a rank. */
static void check_conserved(const struct training *training, int size, int step)
{
    const struct seen *seen = training->seen;
    double most = 0, worst = 0;
    for (size_t i = 0; i < COMPRESSED_ELEMENTS; i++) {
        double was = 0, is = (double)seen[0].mean[step][i] * (training->sum ? 1 : size);
        for (int r = 0; r < size; r++) {
            const double before = step ? (double)seen[r].residual[step - 1][i] : 0;
            const double gradient =
                rounded(training->dtype, (double)compressed_gradient(r, (uint64_t)step, i));
            was += before + gradient;
            is += (double)seen[r].residual[step][i];
            most = fmax(most, fabs(before + gradient));
        }
        worst = fmax(worst, fabs(was - is));
    }
    CHECK(worst <= 32 * size * 0x1p-24 * size * most);
}

static void check_alike(const struct training *training, int size)
{
    const struct seen *seen = training->seen;
    for (int r = 0; r < size; r++) {
        CHECK(!memcmp(seen[r].mean, seen[0].mean, sizeof seen[0].mean));
        CHECK(seen[r].stats.steps == STEPS && seen[r].stats.nans == 0);
        CHECK(seen[r].stats.elements == (uint64_t)STEPS * COMPRESSED_ELEMENTS);
        CHECK(seen[r].stats.compressed_steps == STEPS - training->method->warmup);
        CHECK((seen[r].stats.messages > 0) == (size > 1));
        double bits = 0;
        uint64_t bytes = 0;
        for (int step = 0; step < STEPS; step++) {
            const struct weft_compressed_average_result *result = &seen[r].result[step];
            const int warm = (uint64_t)step < training->method->warmup;
            CHECK(warm ? result->bits == 32 : result->bits > 0 && result->bits < 32);
            /* Of 2 bits the error may be larger than what it is of. */
            CHECK(!training->method->keeps || (result->loss >= 0 && result->loss < 100));
            CHECK(!warm || result->loss == 0);
            bits += result->bits * COMPRESSED_ELEMENTS;
            bytes += result->bytes;
        }
        CHECK(seen[r].stats.wire_bits == bits && seen[r].stats.bytes == bytes);
    }
}

Test(compressed_average, ranks_have_the_same_bits_and_nothing_is_lost)
{
    static const int sizes[] = {1, 2, 3, 5, 8, 13};
    for (int m = 0; m < COMPRESSED_METHODS; m++)
        for (size_t s = 0; s < SWEPT(sizeof sizes / sizeof *sizes, 4); s++) {
            struct training training = {.method = &compressed_methods[m], .dtype = WEFT_F32};
            fprintf(stderr, "%s, %d ranks\n", training.method->name, sizes[s]);
            run(&training, sizes[s]);
            check_alike(&training, sizes[s]);
            for (int step = 0; step < STEPS && training.method->keeps; step++)
                check_conserved(&training, sizes[s], step);
            free(training.seen);
        }
}

/* However steps are taken, and whatever they go on from, the bits are the same. */
Test(compressed_average, splitting_and_restarting_change_no_bit)
{
    for (int m = 0; m < COMPRESSED_METHODS; m++)
        for (int size = 1; size <= 3; size += 2) {
            struct training plain = {.method = &compressed_methods[m], .dtype = WEFT_F32};
            struct training other = plain;
            run(&plain, size);
            for (int restart = 0; restart <= 4; restart += 2) {
                other.split = restart != 2;
                other.restart = restart;
                run(&other, size);
                CHECK(!memcmp(plain.seen[0].mean, other.seen[0].mean, sizeof other.seen[0].mean));
                for (int r = 0; r < size; r++)
                    CHECK(!memcmp(plain.seen[r].residual, other.seen[r].residual,
                                  sizeof other.seen[r].residual));
                CHECK(other.seen[0].stats.bytes == plain.seen[0].stats.bytes);
                free(other.seen);
            }
            free(plain.seen);
        }
}

/* Sums, and gradients of 16 bits: what is written is rounded, what is kept is not. */
Test(compressed_average, narrow_gradients_and_sums)
{
    static const weft_dtype_t dtypes[] = {WEFT_F16, WEFT_BF16};
    for (int m = 0; m < COMPRESSED_METHODS; m++) {
        struct training wide = {.method = &compressed_methods[m], .dtype = WEFT_F32};
        struct training sum = wide;
        run(&wide, 4);
        sum.sum = 1;
        run(&sum, 4);
        for (int step = 0; step < STEPS; step++)
            for (size_t i = 0; i < COMPRESSED_ELEMENTS; i++)
                CHECK(sum.seen[0].mean[step][i] == 4 * wide.seen[0].mean[step][i]);
        for (int d = 0; d < 2; d++) {
            struct training narrow = {.method = &compressed_methods[m], .dtype = dtypes[d]};
            run(&narrow, 3);
            check_alike(&narrow, 3);
            free(narrow.seen);
        }
        free(sum.seen);
        free(wide.seen);
    }
}

/* ---- QSGD ---- */

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SEEDS = 50, SAMPLE = 200 }; /* the bounds are as much wider */
#else
enum { SEEDS = 400, SAMPLE = 200 };
#endif

struct drawn {
    int bits;
    weft_qsgd_way_t way;
    double sum[SAMPLE], worst;
};

static void draw(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct drawn *drawn = ranks->user;
    struct weft_compressed_average_config config;
    struct weft_quantiser quantiser;
    float data[SAMPLE];
    struct weft_piece tensor = {data, SAMPLE};
    weft_compressed_average_config_init(&config);
    weft_quantiser_init(&quantiser);
    config.method = WEFT_COMPRESSED_QSGD;
    config.quantiser = &quantiser;
    config.qsgd_way = drawn->way;
    config.tensors = &tensor;
    config.tensor_count = 1;
    quantiser.bits = drawn->bits;
    quantiser.bucket = 16;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct weft_compressed_average *average = NULL;
        quantiser.seed = seed;
        for (size_t i = 0; i < SAMPLE; i++)
            data[i] = compressed_gradient(rank, 0, i);
        OK(weft_compressed_average_create(&average, context, &config));
        OK(weft_compressed_average_step(average, NULL));
        OK(weft_compressed_average_destroy(average));
        for (size_t i = 0; i < SAMPLE && rank == 0; i++)
            drawn->sum[i] += (double)data[i] * ranks->size;
    }
}

/* Each value is quantised to one of two levels n / s apart around it, with a norm n of at most the
 * bucket's largest magnitude (of sums: of P times that): so no error of one is larger than that,
 * and its deviation is at most half. Of sums of so many seeds no error is 6 deviations. */
Test(compressed_average, qsgd_is_unbiased_over_seeds)
{
    static const int bits[] = {2, 4, 8};
    const int size = 3;
    for (int b = 0; b < 3; b++)
        for (int way = 0; way < 2; way++) {
            struct drawn drawn = {.bits = bits[b], .way = (weft_qsgd_way_t)way};
            ranks_run_once(draw, size, &drawn);
            const double levels = (1 << (bits[b] - 1)) - 1;
            const double most = 32; /* of a gradient's element */
            double bias = 0;
            for (size_t i = 0; i < SAMPLE; i++) {
                double exact = 0;
                for (int r = 0; r < size; r++)
                    exact += (double)compressed_gradient(r, 0, i);
                /* P first quantisations and one of the sum; or P - 1 + 1 of partial sums. */
                const double deviation = most / levels / 2 * sqrt(size + 4.0 * size * size);
                const double error = drawn.sum[i] / SEEDS - exact;
                CHECK(fabs(error) <= 6 * deviation / sqrt(SEEDS));
                bias += error;
            }
            CHECK(fabs(bias / SAMPLE) <= 6 * most / levels * size / sqrt(SEEDS * SAMPLE));
        }
}

/* ---- PowerSGD ---- */

enum { ROWS = 9, COLUMNS = 6, MATRIX = ROWS * COLUMNS };

struct factored {
    size_t rank;
    int own; /* the rank of what ranks add up to; 0: full */
    double worst[4];
};

/* An element of a matrix of a rank: of a sum of `own` products of vectors, or of any. */
static float entry(const struct factored *factored, int rank, size_t step, size_t i)
{
    if (!factored->own)
        return compressed_gradient(rank, step, i);
    double sum = 0;
    for (int k = 0; k < factored->own; k++)
        sum += (double)compressed_gradient(50 + k, 0, i / COLUMNS) *
               (double)compressed_gradient(rank, step, 1000 + (size_t)k * 100 + i % COLUMNS);
    return (float)sum;
}

static void factor(struct ranks *ranks, struct weft_context *context, int rank)
{
    struct factored *factored = ranks->user;
    struct weft_compressed_average *average = NULL;
    struct weft_compressed_average_config config;
    struct weft_powersgd_config powersgd;
    float data[MATRIX];
    struct weft_piece tensor = {data, MATRIX};
    const struct weft_tensor_shape shape = {WEFT_TENSOR_DENSE, ROWS, COLUMNS, 0, 0};
    weft_compressed_average_config_init(&config);
    weft_powersgd_config_init(&powersgd);
    powersgd.rank = factored->rank;
    powersgd.least_ratio = 0.1;
    config.method = WEFT_COMPRESSED_POWERSGD;
    config.powersgd = &powersgd;
    config.residual = WEFT_COMPRESSED_RESIDUAL_NONE;
    config.tensors = &tensor;
    config.tensor_count = 1;
    config.shapes = &shape;
    OK(weft_compressed_average_create(&average, context, &config));
    for (size_t step = 0; step < 4; step++) {
        for (size_t i = 0; i < MATRIX; i++)
            data[i] = step == 2 ? 0 : entry(factored, rank, step, i);
        OK(weft_compressed_average_step(average, NULL));
        for (size_t i = 0; i < MATRIX && rank == 0; i++) {
            double exact = 0, most = 0;
            for (int r = 0; r < ranks->size && step != 2; r++) {
                exact += (double)entry(factored, r, step, i) / ranks->size;
                most = fmax(most, fabs(exact));
            }
            factored->worst[step] = fmax(factored->worst[step], fabs((double)data[i] - exact));
        }
    }
    OK(weft_compressed_average_destroy(average));
}

/* At full rank, and of matrices of no higher rank than the factors, the sum is exact, up to
 * rounding errors of some units in the last place of the largest elements (below 32); also after a
 * gradient of zeros, from which factors begin anew. */
Test(compressed_average, powersgd_is_exact_at_full_rank)
{
    static const struct factored cases[] = {
        {.rank = 6}, {.rank = 100}, {.rank = 1, .own = 1}, {.rank = 3, .own = 2}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int size = 1; size <= 4; size++) {
            struct factored factored = cases[c];
            ranks_run_once(factor, size, &factored);
            for (int step = 0; step < 4; step++)
                CHECK(factored.worst[step] <= 0x1p-20 * 32 * 32);
            CHECK(factored.worst[2] == 0);
        }
}
