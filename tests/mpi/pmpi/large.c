/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The forms whose counts are MPI_Count, which MPI 4 has; the counts are small. With --huge there
 * are messages of more than 2^31 bytes too, which take 5 GiB of memory a rank and 20 s.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"

#if MPI_VERSION >= 4

/* Kinds and operations by turns; mostly in the blocking form, which no other program calls. */
static void every_call(void)
{
    static const int counts[] = {0, 1, 17, 1000};

    for (int which = 0; which < BARRIER; which++)
        for (int i = 0; i < 24; i++) {
            unsigned number = test_next();
            const struct kind *kind = kinds_get((which * 5 + i * 7) % kinds_count());
            const struct operation *operation = kind_operation(kind, i);
            bool reduces = call_reduces((enum collective)which);

            if (!number || (reduces && !operation))
                continue;
            trial_run(
                &(struct shape){
                    .which = (enum collective)which,
                    .kind = kind,
                    .operation = reduces ? operation : NULL,
                    .count = counts[i / 6],
                    .root = i % test_size,
                    .in_place = i % 3 == 0 && which != BCAST,
                    .absent = i / 2 % 2,
                    .comm = MPI_COMM_WORLD,
                    .seed = number,
                },
                i % 4 < 3 ? FORM_BLOCKING_C : FORM_NONBLOCKING_C);
        }
}

/* ---- an operation whose length is an MPI_Count ---- */

static MPI_Datatype expected_type;

static void add_and_three(void *in, void *out, MPI_Count *len, MPI_Datatype *type)
{
    const uint32_t *a = in;
    uint32_t *b = out;

    EXPECT(*len > 0 && *type == expected_type);
    for (MPI_Count i = 0; i < *len; i++)
        b[i] = a[i] + b[i] + 3;
}

static void operation(int commutes)
{
    struct operation own = {.name = "one of MPI_Op_create_c"};

    expected_type = MPI_UINT32_T;
    MUST(MPI_Op_create_c(add_and_three, commutes, &own.op));
    for (int which = 0; which <= EXSCAN; which++)
        for (int form = FORM_BLOCKING; form <= FORM_NONBLOCKING_C; form++) {
            unsigned number = test_next();

            if (number && form != FORM_PERSISTENT)
                trial_run(
                    &(struct shape){
                        .which = (enum collective)which,
                        .kind = kinds_named("MPI_UINT32_T"),
                        .operation = &own,
                        .count = 100,
                        .comm = MPI_COMM_WORLD,
                        .seed = number,
                    },
                    (enum form)form);
        }
    MUST(MPI_Op_free(&own.op));
}

/* ---- counts beyond an int ---- */

static const MPI_Count huge = (MPI_Count)(UINT64_C(1) << 31) + 5;

static unsigned char byte_at(MPI_Count at)
{
    return (unsigned char)(at + (at >> 8) * 3 + (at >> 24) * 7);
}

static void check_huge(const unsigned char *bytes, const char *what)
{
    for (MPI_Count i = 0; i < huge; i++) {
        if (bytes[i] == byte_at(i))
            continue;
        test_mismatch("%s: byte %lld: expected 0x%02x, found 0x%02x", what, (long long)i,
                      byte_at(i), bytes[i]);
        return;
    }
}

static void huge_bcast(unsigned char *bytes)
{
    int root = test_size - 1;

    for (MPI_Count i = 0; i < huge; i++)
        bytes[i] = test_rank == root ? byte_at(i) : 0;
    test_doing("MPI_Bcast_c of 2^31 + 5 bytes");
    MUST(MPI_Bcast_c(bytes, huge, MPI_BYTE, root, MPI_COMM_WORLD));
    check_huge(bytes, "MPI_Bcast_c");
}

/* In place, as one rank has all that is not 0. */
static void huge_allreduce(unsigned char *bytes)
{
    for (MPI_Count i = 0; i < huge; i++)
        bytes[i] = test_rank == 0 ? byte_at(i) : 0;
    test_doing("MPI_Allreduce_c of 2^31 + 5 elements");
    MUST(MPI_Allreduce_c(MPI_IN_PLACE, bytes, huge, MPI_UNSIGNED_CHAR, MPI_BXOR, MPI_COMM_WORLD));
    check_huge(bytes, "MPI_Allreduce_c");
}

static void huge_counts(void)
{
    unsigned char *bytes = test_alloc((size_t)huge);

    huge_bcast(bytes);
    huge_allreduce(bytes);
    free(bytes);
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv, -1);
    test_part(2, 4);
    kinds_find();
    every_call();
    operation(1);
    operation(0);
    if (test_option(argc, argv, "--huge"))
        huge_counts();
    return test_end();
}

#else

enum { SKIPPED = 77 };

int main(int argc, char **argv)
{
    test_begin(&argc, &argv, -1);
    if (test_rank == 0)
        fprintf(stderr, "large: skipped: this MPI is older than MPI 4\n");
    MPI_Finalize();
    return SKIPPED;
}

#endif
