/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every blocking collective, with every predefined datatype and every operation that MPI accepts
 * for it: MPI_X leaves what PMPI_X does. Values are such that sums are exact; others are compared
 * within what rounding may make of them, and must be the same on all ranks where MPI says so.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compare.h"

enum { LARGE = 100000, WIDEST = 1000 };

static void compare(struct shape shape)
{
    unsigned number = test_next();

    if (!number)
        return;
    shape.comm = MPI_COMM_WORLD;
    shape.seed = number;
    shape.absent = test_random(number, 0, 0) % 2;
    trial_run(&shape, FORM_BLOCKING);
}

/* Allreduce to Exscan with an operation, all others with none. */
static void compare_all(const struct kind *kind, const struct operation *operation, int count,
                        bool in_place)
{
    for (int which = operation ? ALLREDUCE : BCAST; which <= (operation ? EXSCAN : ALLTOALLW);
         which++)
        compare((struct shape){
            .which = (enum collective)which,
            .kind = kind,
            .operation = operation,
            .count = count,
            .root = (count + which) % test_size,
            .in_place = in_place && which != BCAST,
        });
}

static void every_kind(void)
{
    static const int counts[] = {1, 3, 17};

    for (int i = 0; i < kinds_count(); i++) {
        const struct kind *kind = kinds_get(i);

        compare_all(kind, NULL, counts[i % 3], false);
        compare_all(kind, NULL, counts[(i + 1) % 3], true);
        for (int j = 0; j < OPERATIONS; j++)
            if (kind_takes(kind, operations_get(j)))
                compare_all(kind, operations_get(j), counts[(i + j) % 3], (i + j) % 2);
    }
}

static const char *const few[][2] = {
    {"MPI_INT", "MPI_SUM"},           {"MPI_DOUBLE", "MPI_SUM"},
    {"MPI_FLOAT", "MPI_MAX"},         {"MPI_SIGNED_CHAR", "MPI_PROD"},
    {"MPI_DOUBLE_INT", "MPI_MINLOC"}, {"MPI_C_DOUBLE_COMPLEX", "MPI_PROD"},
    {"MPI_BYTE", "MPI_BXOR"},
};
enum { FEW = sizeof few / sizeof few[0] };

static void every_count(void)
{
    static const int counts[] = {0, 1, 3, 17, WIDEST};

    for (int i = 0; i < FEW; i++) {
        const struct kind *kind = kinds_named(few[i][0]);

        for (size_t j = 0; j < sizeof counts / sizeof counts[0]; j++)
            for (int in_place = 0; in_place < 2; in_place++) {
                compare_all(kind, NULL, counts[j], in_place);
                compare_all(kind, operations_named(few[i][1]), counts[j], in_place);
            }
    }
}

static void every_root(void)
{
    for (int which = 0; which < BARRIER; which++)
        for (int root = 0; root < test_size && call_has_root((enum collective)which); root++)
            for (int i = 0; i < 4; i++)
                compare((struct shape){
                    .which = (enum collective)which,
                    .kind = kinds_named(few[i % 2][0]),
                    .operation = which == REDUCE ? operations_named(few[i % 2][1]) : NULL,
                    .count = 17 + root,
                    .root = root,
                    .in_place = i >= 2 && which != BCAST,
                });
}

static void large(void)
{
    static const char *const names[] = {"MPI_INT", "MPI_FLOAT", "MPI_DOUBLE"};

    compare_all(kinds_named("MPI_INT"), NULL, LARGE, false);
    compare_all(kinds_named("MPI_BYTE"), NULL, LARGE, true);
    for (int i = 0; i < 3; i++)
        compare_all(kinds_named(names[i]), operations_named("MPI_SUM"), LARGE, i % 2);
    compare_all(kinds_named("MPI_DOUBLE_INT"), operations_named("MPI_MINLOC"), LARGE, false);
}

/* No rank leaves before the last has come: one of them is late. */
static void barriers(void)
{
    for (int late = 0; late < test_size; late++) {
        double came, left, last = 0, first = 0;
        MPI_Request requests[2];

        test_doing("MPI_Barrier, rank %d is late", late);
        if (test_rank == late)
            usleep(20000);
        came = test_seconds();
        MUST(MPI_Barrier(MPI_COMM_WORLD));
        left = test_seconds();
        MUST(PMPI_Iallreduce(&came, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD, &requests[0]));
        MUST(PMPI_Iallreduce(&left, &first, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD, &requests[1]));
        test_waitall(2, requests);
        if (test_rank == 0 && first < last)
            test_mismatch("MPI_Barrier: a rank has left %g s before the last came", last - first);
    }
}

/* ---- values that round ---- */

static double uneven(uint64_t random)
{
    double fraction = (double)(random >> 12) / (double)(UINT64_C(1) << 52);

    return ldexp(random % 2 ? 1 + fraction : -1 - fraction, (int)(random >> 1) % 8);
}

/* Fills both with the same, the second with magnitudes alone. */
static void fill_uneven(struct trial *trial, struct trial *magnitudes)
{
    int elements = 0;
    const struct kind *kind = trial->shape.kind, *wide = magnitudes->shape.kind;
    struct buffer *values = trial_input(trial, &elements);
    struct buffer *sizes = trial_input(magnitudes, &elements);

    for (int i = 0; i < 2 * elements; i++) {
        uint64_t random = test_random(trial->shape.seed, (uint64_t)test_rank, (uint64_t)i);
        size_t at = (size_t)i / 2;

        if (!kind->members[i % 2].size)
            continue;
        kind_set_real(kind, values->data + at * kind->extent, i % 2, uneven(random));
        kind_set_real(wide, sizes->data + at * wide->extent, i % 2, fabs(uneven(random)));
    }
    trial_changed(trial);
    trial_changed(magnitudes);
}

static long double epsilon(const struct kind *kind)
{
    size_t bytes = kind->members[0].size;

    return bytes == sizeof(float)    ? FLT_EPSILON
           : bytes == sizeof(double) ? DBL_EPSILON
                                     : LDBL_EPSILON;
}

/* Each of both results is off by less than half the epsilons of a sum of magnitudes, for each rank.
 * */
static long double *slack_of(const struct trial *magnitudes, const struct kind *kind)
{
    const struct kind *wide = magnitudes->shape.kind;
    size_t parts = 2 * (size_t)magnitudes->in_elements;
    long double *slack = test_alloc(parts * sizeof *slack);

    memset(slack, 0, parts * sizeof *slack);
    for (size_t i = 0; i < parts && i / 2 < (size_t)magnitudes->compared; i++)
        slack[i] = magnitudes->ranks * epsilon(kind) *
                   kind_real(wide, magnitudes->expected.data + i / 2 * wide->extent, (int)i % 2);
    return slack;
}

/* Ranks that all receive the same bytes. */
static void same_everywhere(const struct trial *trial)
{
    size_t bytes = (size_t)trial->in_elements * trial->shape.kind->extent;
    unsigned char *first = memcpy(test_alloc(bytes), trial->recv.data, bytes);
    MPI_Request request;

    MUST(PMPI_Ibcast(first, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD, &request));
    test_wait(&request);
    for (int i = 0; i < trial->in_elements; i++) {
        size_t at = (size_t)i * trial->shape.kind->extent;
        char text[300];

        if (kind_same(trial->shape.kind, trial->recv.data + at, first + at))
            continue;
        trial_describe(trial, text, sizeof text);
        test_mismatch("%s: element %d is not the same as on rank 0", text, i);
        break;
    }
    free(first);
}

static void compare_uneven(struct shape shape, const struct kind *wide)
{
    struct trial trial, magnitudes;
    struct shape wider;
    long double *slack;
    unsigned number = test_next();

    shape.seed = number;
    shape.comm = MPI_COMM_WORLD;
    if (!number || shape_broken(&shape))
        return;
    wider = shape;
    wider.kind = wide;
    trial_make(&trial, &shape, FORM_BLOCKING);
    trial_make(&magnitudes, &wider, FORM_BLOCKING);
    fill_uneven(&trial, &magnitudes);
    trial_expect(&magnitudes);
    slack = slack_of(&magnitudes, shape.kind);
    trial.slack = slack;
    trial_start(&trial, NULL);
    trial_expect(&trial);
    trial_check(&trial);
    if (shape.which == ALLREDUCE)
        same_everywhere(&trial);
    free(slack);
    trial_free(&trial);
    trial_free(&magnitudes);
}

static void rounding(void)
{
    static const char *const names[][2] = {
        {"MPI_FLOAT", "MPI_LONG_DOUBLE"},
        {"MPI_DOUBLE", "MPI_LONG_DOUBLE"},
        {"MPI_LONG_DOUBLE", "MPI_LONG_DOUBLE"},
        {"MPI_C_FLOAT_COMPLEX", "MPI_C_LONG_DOUBLE_COMPLEX"},
        {"MPI_C_DOUBLE_COMPLEX", "MPI_C_LONG_DOUBLE_COMPLEX"},
    };
    static const int counts[] = {1, 17, WIDEST};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct kind *kind = kinds_named(names[i][0]), *wide = kinds_named(names[i][1]);

        for (int j = 0; j < 3 * (EXSCAN + 1) && kind && wide; j++)
            for (int product = 0; product < (kind->group == GROUP_REAL ? 2 : 1); product++)
                compare_uneven(
                    (struct shape){
                        .which = (enum collective)(j / 3),
                        .kind = kind,
                        .operation = operations_named(product ? "MPI_PROD" : "MPI_SUM"),
                        .count = counts[j % 3],
                        .root = j % test_size,
                        .in_place = j % 2,
                    },
                    wide);
    }
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv, -1);
    kinds_find();
    every_kind();
    every_count();
    every_root();
    large();
    barriers();
    rounding();
    return test_end();
}
