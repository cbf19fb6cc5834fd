/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations of the program's own, commutative and not, on predefined and on derived datatypes, in
 * every collective that reduces. They live from right before the call to right after it, so that
 * the next one may have the same handle and another function; nonblocking and persistent ones
 * outlive both their operation and their datatype.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "compare.h"

enum { LARGE = 50000 };

/* What the call in progress is to see of itself. */
static MPI_Datatype expected_type;
static atomic_long elements_combined;
static atomic_int bad_calls;

static void seen(const int *len, const MPI_Datatype *type)
{
    if (*len <= 0 || *type != expected_type)
        atomic_fetch_add(&bad_calls, 1);
    atomic_fetch_add(&elements_combined, *len);
}

/* ---- operations: out[i] = in[i] o out[i], all of them associative ---- */

static void sum(void *in, void *out, int *len, MPI_Datatype *type)
{
    uint32_t *a = in, *b = out;

    seen(len, type);
    for (int i = 0; i < *len; i++)
        b[i] += a[i];
}

static void first(void *in, void *out, int *len, MPI_Datatype *type)
{
    seen(len, type);
    memcpy(out, in, (size_t)*len * sizeof(uint32_t));
}

static void last_byte(void *in, void *out, int *len, MPI_Datatype *type)
{
    (void)in;
    (void)out;
    seen(len, type);
}

/* x -> a x + b, as two numbers of 32 bits; what comes first is applied last. */
static void compose(void *in, void *out, int *len, MPI_Datatype *type)
{
    const uint32_t(*f)[2] = in;
    uint32_t(*g)[2] = out;

    seen(len, type);
    for (int i = 0; i < *len; i++) {
        g[i][1] = f[i][0] * g[i][1] + f[i][1];
        g[i][0] *= f[i][0];
    }
}

static void multiply(void *in, void *out, int *len, MPI_Datatype *type)
{
    const uint32_t(*a)[2][2] = in;
    uint32_t(*b)[2][2] = out;

    seen(len, type);
    for (int i = 0; i < *len; i++)
        for (int column = 0; column < 2; column++) {
            uint32_t top = b[i][0][column], bottom = b[i][1][column];
            b[i][0][column] = a[i][0][0] * top + a[i][0][1] * bottom;
            b[i][1][column] = a[i][1][0] * top + a[i][1][1] * bottom;
        }
}

static void exclusive(void *in, void *out, int *len, MPI_Datatype *type)
{
    const uint32_t *a = in;
    uint32_t *b = out;

    seen(len, type);
    for (int i = 0; i < 4 * *len; i++)
        b[i] ^= a[i];
}

/* A string by its hash and by the base to the power of its length. No gap at the end: MPICH 4.0.2's
 * Reduce_scatter and Reduce_scatter_block would then write beyond the memory that they allocate. */
struct string {
    uint32_t power;
    uint32_t gap[2];
    uint32_t hash;
};

static void concatenate(void *in, void *out, int *len, MPI_Datatype *type)
{
    const struct string *a = in;
    struct string *b = out;

    seen(len, type);
    for (int i = 0; i < *len; i++) {
        b[i].hash += a[i].hash * b[i].power;
        b[i].power *= a[i].power;
    }
}

/* ---- datatypes, made for each call ---- */

static MPI_Datatype make_four(void)
{
    MPI_Datatype type;

    MUST(MPI_Type_contiguous(4, MPI_UINT32_T, &type));
    MUST(MPI_Type_commit(&type));
    return type;
}

static MPI_Datatype make_string(void)
{
    MPI_Datatype parts, type;
    const MPI_Datatype types[] = {MPI_UINT32_T, MPI_UINT32_T};
    const MPI_Aint displs[] = {offsetof(struct string, power), offsetof(struct string, hash)};

    MUST(MPI_Type_create_struct(2, (const int[]){1, 1}, displs, types, &parts));
    MUST(MPI_Type_create_resized(parts, 0, sizeof(struct string), &type));
    MUST(MPI_Type_commit(&type));
    MUST(MPI_Type_free(&parts));
    return type;
}

static MPI_Datatype make_dup(void)
{
    MPI_Datatype type;

    MUST(MPI_Type_dup(MPI_UINT32_T, &type));
    return type;
}

struct subject {
    const char *name;
    MPI_User_function *function;
    int commutes;
    MPI_Datatype predefined; /* unless `make` */
    MPI_Datatype (*make)(void);
    size_t extent;
    struct member members[2];
};

/* clang-format off */
static const struct subject subjects[] = {
    {"sum of MPI_UINT32_T", sum, 1, MPI_UINT32_T, NULL, 4, {{'u', 4, 0}}},
    {"sum of MPI_UINT32_T, said not to commute", sum, 0, MPI_UINT32_T, NULL, 4, {{'u', 4, 0}}},
    {"the first MPI_UINT32_T", first, 0, MPI_UINT32_T, NULL, 4, {{'u', 4, 0}}},
    {"the last MPI_BYTE", last_byte, 0, MPI_BYTE, NULL, 1, {{'u', 1, 0}}},
    {"affine maps of MPI_UINT64_T", compose, 0, MPI_UINT64_T, NULL, 8, {{'u', 8, 0}}},
    {"affine maps of MPI_2INT", compose, 0, MPI_2INT, NULL, 8, {{'u', 8, 0}}},
    {"sum of a duplicate", sum, 1, MPI_UINT32_T, make_dup, 4, {{'u', 4, 0}}},
    {"matrices", multiply, 0, MPI_UINT32_T, make_four, 16, {{'u', 8, 0}, {'u', 8, 8}}},
    {"exclusive or", exclusive, 1, MPI_UINT32_T, make_four, 16, {{'u', 8, 0}, {'u', 8, 8}}},
    {"strings", concatenate, 0, MPI_UINT32_T, make_string, 16, {{'u', 4, 0}, {'u', 4, 12}}},
};
/* clang-format on */
enum { SUBJECTS = sizeof subjects / sizeof subjects[0] };

/* ---- calls ---- */

static long total(long mine)
{
    long all = 0;
    MPI_Request request;

    MUST(PMPI_Iallreduce(&mine, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD, &request));
    test_wait(&request);
    return all;
}

/* What each rank gives has to go into a result at least once. */
static void check_calls(const struct trial *trial, long combined)
{
    long elements = trial->shape.which == REDUCE_SCATTER ? trial->out_elements
                    : trial->shape.which == REDUCE_SCATTER_BLOCK
                        ? (long)trial->shape.count * test_size
                        : trial->shape.count;
    long least = elements * (test_size - (trial->shape.which == EXSCAN ? 2 : 1));
    long all = total(combined);
    char text[300];

    trial_describe(trial, text, sizeof text);
    if (atomic_load(&bad_calls))
        test_mismatch("%s: %d calls of the operation had no elements, or another datatype", text,
                      atomic_load(&bad_calls));
    if (test_rank == 0 && all < least)
        test_mismatch("%s: the operation had %ld elements, expected at least %ld", text, all,
                      least);
}

static void complete(struct trial *trial, MPI_Request *request)
{
    bool persistent = trial->form == FORM_PERSISTENT || trial->form == FORM_PERSISTENT_C;

    if (persistent)
        MUST(MPI_Start(request));
    MUST(MPI_Wait(request, MPI_STATUS_IGNORE));
    if (persistent)
        MUST(MPI_Request_free(request));
}

static void run(struct trial *trial, MPI_Op *op, MPI_Datatype *type)
{
    MPI_Request request = MPI_REQUEST_NULL;
    long combined;

    trial_expect(trial);
    atomic_store(&elements_combined, 0);
    atomic_store(&bad_calls, 0);
    trial_start(trial, &request);
    MUST(MPI_Op_free(op));
    if (type)
        MUST(MPI_Type_free(type));
    if (trial->form != FORM_BLOCKING && trial->form != FORM_BLOCKING_C)
        complete(trial, &request);
    combined = atomic_load(&elements_combined);
    trial_check(trial);
    check_calls(trial, combined);
}

static void compare(const struct subject *subject, struct shape shape, enum form form)
{
    MPI_Datatype type = subject->predefined;
    struct operation operation = {.name = "the program's"};
    struct kind kind = {.name = subject->name, .group = GROUP_RAW, .extent = subject->extent};
    struct trial trial;
    unsigned number = test_next();

    shape.comm = MPI_COMM_WORLD;
    shape.seed = number;
    shape.kind = &kind;
    if (!number || shape_broken(&shape))
        return;
    memcpy(kind.members, subject->members, sizeof kind.members);
    if (subject->make)
        type = subject->make();
    kind.type = expected_type = type;
    MUST(MPI_Op_create(subject->function, subject->commutes, &operation.op));
    shape.operation = &operation;
    trial_make(&trial, &shape, form);
    run(&trial, &operation.op, subject->make ? &type : NULL);
    trial_free(&trial);
}

static void every_call(void)
{
    static const int counts[] = {1, 5, 1000};

    for (int i = 0; i < 3 * 2 * (EXSCAN + 1); i++)
        for (int j = 0; j < SUBJECTS; j++)
            compare(&subjects[j],
                    (struct shape){
                        .which = (enum collective)(i / 6),
                        .count = counts[i % 3],
                        .root = (i + j) % test_size,
                        .in_place = i / 3 % 2,
                    },
                    FORM_BLOCKING);
}

static void every_root(void)
{
    for (int root = 0; root < test_size; root++)
        for (int j = 0; j < SUBJECTS; j++)
            compare(&subjects[j],
                    (struct shape){
                        .which = REDUCE,
                        .count = 7,
                        .root = root,
                        .in_place = (root + j) % 2,
                    },
                    FORM_BLOCKING);
}

/* Those that return before they are complete. */
static void every_form(void)
{
    for (int form = FORM_NONBLOCKING; form < FORMS_HERE; form++)
        for (int which = 0; which <= EXSCAN; which++)
            for (int j = 0; j < SUBJECTS; j++)
                compare(&subjects[j],
                        (struct shape){
                            .which = (enum collective)which,
                            .count = 12,
                            .root = (which + j) % test_size,
                            .in_place = (form + j) % 2,
                        },
                        (enum form)form);
}

static void large(void)
{
    for (int j = 0; j < SUBJECTS; j++)
        for (int which = 0; which <= EXSCAN; which++)
            if ((which + j) % 3 == 0)
                compare(&subjects[j],
                        (struct shape){
                            .which = (enum collective)which,
                            .count = LARGE,
                            .in_place = j % 2,
                        },
                        FORM_BLOCKING);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv, -1);
    test_part(2, 7);
    every_call();
    every_root();
    every_form();
    large();
    return test_end();
}
