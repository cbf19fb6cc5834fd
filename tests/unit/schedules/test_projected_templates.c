/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sums of vectors that are projected: the same bits on all ranks, and the projection of the plain
 * sum within bounds that follow from rounding.
 */
#include "compressed_trial.h"

/* The second has slices that do not divide it, the fourth has none, the last but one sends nothing.
 */
static const struct weft_compressed_block blocks[] = {
    {300, 60, 7}, {250, 64, 64}, {17, 0, 0}, {0, 8, 3}, {33, 40, 5}, {90, 9, 0}, {200, 10, 1}};
enum { BLOCKS = sizeof blocks / sizeof blocks[0] };

/* Orthonormal columns, of every block others; means of any kind. */
static void fill_projection(const struct trial *trial, const char *slot, void *data, size_t count)
{
    uint64_t number = strtoull(slot + strcspn(slot, ".") + 1, NULL, 10);
    float *to = data;

    if (strncmp(slot, "mean.", 5) != 0 && strncmp(slot, "basis.", 6) != 0)
        return;
    for (size_t i = 0; i < count; i++)
        to[i] = (float)draw(number + (slot[0] == 'm' ? 1000 : 2000), i);
    if (slot[0] == 'b') {
        size_t slice = trial->params.blocks ? blocks[number].slice : 64;

        OK(weft_orthonormalise(to, slice, count / slice, NULL));
    }
}

/* The projection of a slice of the plain sum, in f64; the bound is that of a dot product. */
static void expect_slice(const struct trial *trial, int size, int round, size_t offset,
                         size_t elements, const struct weft_compressed_block *block,
                         const float *basis, const float *mean)
{
    double values[ELEMENTS], sums[ELEMENTS], magnitudes[ELEMENTS], whole = 1;

    for (size_t k = 0; k < elements; k++) {
        sums[k] = sum_of(trial, size, round, offset + k);
        magnitudes[k] = magnitude_of(trial, size, round, offset + k);
        values[k] = (double)mean[k];
    }
    for (size_t j = 0; j < block->components; j++) {
        double c = 0;

        for (size_t k = 0; k < elements; k++) {
            double u = (double)basis[k * block->components + j];

            c += u * (sums[k] - (double)mean[k]);
            whole += fabs(u) * magnitudes[k];
        }
        for (size_t k = 0; k < elements; k++)
            values[k] += c * (double)basis[k * block->components + j];
    }
    double roundings = (double)(block->slice + block->components) + size + 4;
    for (size_t k = 0; k < elements; k++)
        expect_near(trial, size, round, offset + k, values[k], roundings * 0x1p-23 * whole);
}

static void expect_projection(const struct trial *trial, int size,
                              const struct weft_compressed_block *block, size_t number,
                              size_t offset)
{
    char name[32];
    float *basis = calloc(block->slice * block->components + 1, sizeof *basis);
    float *mean = calloc(block->count + 1, sizeof *mean);

    snprintf(name, sizeof name, "basis.%zu", number);
    if (block->components)
        fill_projection(trial, name, basis, block->slice * block->components);
    snprintf(name, sizeof name, "mean.%zu", number);
    fill_projection(trial, name, mean, block->count);
    for (int round = 0; round < ROUNDS; round++)
        for (size_t begin = 0; begin < block->count; begin += block->slice) {
            size_t left = block->count - begin;

            expect_slice(trial, size, round, offset + begin,
                         left < block->slice ? left : block->slice, block, basis, mean + begin);
        }
    free(basis);
    free(mean);
}

static void expect_blocks(const struct trial *trial, int size)
{
    size_t offset = 0;

    for (size_t b = 0; b < BLOCKS; b++) {
        for (size_t i = offset; !blocks[b].slice && i < offset + blocks[b].count; i++)
            for (int round = 0; round < ROUNDS; round++)
                expect_near(trial, size, round, i, sum_of(trial, size, round, i),
                            size * 0x1p-24 * magnitude_of(trial, size, round, i));
        if (blocks[b].slice)
            expect_projection(trial, size, &blocks[b], b, offset);
        offset += blocks[b].count;
    }
}

static const char *const projected_algos[] = {"ring", "reduce-scatter-allgather"};

static struct trial *projected_trial(size_t algo, int in_place)
{
    struct trial *trial = make_trial("projected-allreduce", projected_algos[algo], 890, in_place);

    trial->params.blocks = blocks;
    trial->params.block_count = BLOCKS;
    trial->fill = fill_projection;
    return trial;
}

Test(projected_templates, projections_of_sums)
{
    for (size_t s = 0; s < SIZES; s++)
        for (size_t a = 0; a < 4; a++) {
            struct trial *trial = projected_trial(a % 2, (int)(a / 2));

            play(trial, sizes[s], 0);
            expect_blocks(trial, sizes[s]);
            free(trial);
        }
}

Test(projected_templates, projections_in_segments_and_late)
{
    for (uint64_t seed = 1; seed <= SWEPT(40, 12); seed++) {
        struct trial *trial = projected_trial(seed % 2, (int)(seed / 2 % 2));
        int size = 1 + (int)(seed % MOST_RANKS);

        trial->params.segment = seed % 3 ? 0 : 40;
        play(trial, size, seed);
        expect_blocks(trial, size);
        free(trial);
    }
}

Test(projected_templates, one_block_of_any_count)
{
    static const size_t counts[] = {0, 1, 63, 64, 65, 1000};

    for (size_t c = 0; c < 6; c++)
        for (size_t s = 0; s < SIZES; s++) {
            struct trial *trial =
                make_trial("projected-allreduce", projected_algos[s % 2], counts[c], c % 2);
            const struct weft_compressed_block one = {counts[c], 64, 8};

            trial->fill = fill_projection;
            play(trial, sizes[s], 0);
            expect_projection(trial, sizes[s], &one, 0, 0);
            free(trial);
        }
}

/* With as many components as elements nothing is lost: U U^T is the identity. */
Test(projected_templates, all_components_are_the_plain_sum)
{
    for (size_t s = 0; s < SIZES; s++)
        for (size_t a = 0; a < 2; a++) {
            struct trial *trial = make_trial("projected-allreduce", projected_algos[a], 500, 0);

            trial->params.components = trial->params.slice = 64;
            trial->fill = fill_projection;
            play(trial, sizes[s], 0);
            for (int round = 0; round < ROUNDS; round++)
                for (size_t i = 0; i < 500; i++)
                    expect_near(trial, sizes[s], round, i, sum_of(trial, sizes[s], round, i),
                                sizes[s] * 1e-5);
            free(trial);
        }
}

/* What a rank has dropped, equation 7, is what weft_project() says of its own contribution. */
Test(projected_templates, squares_are_those_of_the_own_contribution)
{
    for (size_t s = 0; s < SIZES; s++) {
        struct trial *trial = projected_trial(s % 2, 0);
        size_t offset = 0;

        play(trial, sizes[s], 0);
        for (size_t b = 0; b < BLOCKS; offset += blocks[b++].count)
            for (int r = 0; r < sizes[s]; r++) {
                const double *got = &trial->squares[1][r][3 * b];
                double values = 0;

                for (size_t i = 0; blocks[b].slice && i < blocks[b].count; i++)
                    values += pow((double)trial->send[1][r][offset + i], 2);
                cr_expect(fabs(got[0] - values) <= 1e-9 * values, "P=%d rank %d block %zu: %g, %g",
                          sizes[s], r, b, got[0], values);
                cr_expect(got[2] <= got[1] * (1 + 1e-5), "P=%d rank %d block %zu: %g of %g",
                          sizes[s], r, b, got[2], got[1]);
                if (blocks[b].slice && !blocks[b].components)
                    cr_expect_eq(got[2], 0);
            }
        free(trial);
    }
}
