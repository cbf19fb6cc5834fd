/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Derived datatypes by every constructor, in families of the same signature: what is sent as any of
 * a family may be received as any other.
 */
#include <string.h>

#include "compare.h"

enum { LAYOUTS_MAX = 24, INT = sizeof(int) };

static struct layout layouts[FAMILIES][LAYOUTS_MAX];
static int counts[FAMILIES];

/* Commits it and keeps it. */
static struct layout *keep(enum family family, const char *name, MPI_Datatype type, int units)
{
    struct layout *layout = &layouts[family][counts[family]++];
    MPI_Aint lower;

    if (type != MPI_INT)
        MUST(MPI_Type_commit(&type));
    *layout = (struct layout){.name = name, .type = type, .family = family, .units = units};
    MUST(PMPI_Type_get_extent(type, &lower, &layout->extent));
    MUST(PMPI_Type_get_true_extent(type, &layout->true_lower, &layout->true_extent));
    return layout;
}

static MPI_Datatype vector(int blocks, int length, int stride, MPI_Datatype of)
{
    MPI_Datatype type;

    MUST(MPI_Type_vector(blocks, length, stride, of, &type));
    return type;
}

static MPI_Datatype resized(MPI_Datatype of, MPI_Aint lower, MPI_Aint extent)
{
    MPI_Datatype type;

    MUST(MPI_Type_create_resized(of, lower, extent, &type));
    if (of != MPI_INT)
        MUST(MPI_Type_free(&of));
    return type;
}

static MPI_Datatype contiguous(int count, MPI_Datatype of)
{
    MPI_Datatype type;

    MUST(MPI_Type_contiguous(count, of, &type));
    return type;
}

static void make_simple(void)
{
    MPI_Datatype type;

    keep(FAMILY_INTS, "MPI_INT", MPI_INT, 1);
    MUST(MPI_Type_dup(MPI_INT, &type));
    keep(FAMILY_INTS, "dup", type, 1);
    keep(FAMILY_INTS, "contiguous", contiguous(12, MPI_INT), 12);
    keep(FAMILY_INTS, "vector", vector(4, 3, 5, MPI_INT), 12);
    keep(FAMILY_INTS, "vector of single ones", vector(3, 1, 2, MPI_INT), 3);
    keep(FAMILY_INTS, "vector backwards", vector(3, 1, -2, MPI_INT), 3);
    MUST(MPI_Type_create_hvector(2, 3, 20, MPI_INT, &type));
    keep(FAMILY_INTS, "hvector", type, 6);
    keep(FAMILY_INTS, "resized", resized(MPI_INT, 0, 12), 1);
    keep(FAMILY_INTS, "resized, from below zero", resized(contiguous(2, MPI_INT), -8, 24), 2);
    keep(FAMILY_INTS, "resized, over each other", resized(vector(3, 1, 2, MPI_INT), 0, 4), 3)
        ->send_only = true;
}

static void make_indexed(void)
{
    MPI_Datatype type;

    MUST(MPI_Type_indexed(3, (const int[]){2, 1, 3}, (const int[]){7, 0, 3}, MPI_INT, &type));
    keep(FAMILY_INTS, "indexed", type, 6);
    MUST(MPI_Type_create_hindexed(2, (const int[]){1, 1}, (const MPI_Aint[]){8, -16}, MPI_INT,
                                  &type));
    keep(FAMILY_INTS, "hindexed, to below zero", type, 2);
    MUST(MPI_Type_create_indexed_block(3, 2, (const int[]){6, 0, 3}, MPI_INT, &type));
    keep(FAMILY_INTS, "indexed_block", type, 6);
    MUST(MPI_Type_create_struct(2, (const int[]){1, 2}, (const MPI_Aint[]){0, 12},
                                (const MPI_Datatype[]){MPI_INT, MPI_INT}, &type));
    keep(FAMILY_INTS, "struct", type, 3);
}

/* Rows of a matrix, and its columns one after the other. */
static void make_nested(void)
{
    const int sizes[] = {5, 6}, parts[] = {3, 4}, starts[] = {1, 1};
    MPI_Datatype type, column, spaced, halves;

    MUST(MPI_Type_create_subarray(2, sizes, parts, starts, MPI_ORDER_C, MPI_INT, &type));
    keep(FAMILY_INTS, "subarray", type, 12);
    MUST(MPI_Type_create_subarray(2, sizes, parts, starts, MPI_ORDER_FORTRAN, MPI_INT, &type));
    keep(FAMILY_INTS, "subarray of Fortran", type, 12);
    column = resized(vector(3, 1, 4, MPI_INT), 0, INT);
    keep(FAMILY_INTS, "columns", resized(contiguous(4, column), 0, 12 * INT), 12);
    MUST(MPI_Type_free(&column));
    spaced = resized(vector(3, 1, 2, MPI_INT), 0, 7 * INT);
    keep(FAMILY_INTS, "vector of vectors", vector(2, 1, 2, spaced), 6);
    halves = contiguous(2, spaced);
    MUST(MPI_Type_create_struct(2, (const int[]){1, 6}, (const MPI_Aint[]){40, 0},
                                (const MPI_Datatype[]){halves, MPI_INT}, &type));
    keep(FAMILY_INTS, "struct of vectors", type, 12);
    MUST(MPI_Type_free(&halves));
    MUST(MPI_Type_free(&spaced));
}

static MPI_Datatype record(MPI_Aint at_double, MPI_Aint at_int, MPI_Aint at_char, MPI_Aint lower,
                           MPI_Aint extent)
{
    const MPI_Aint displs[] = {at_double, at_int, at_char};
    const MPI_Datatype types[] = {MPI_DOUBLE, MPI_INT, MPI_CHAR};
    MPI_Datatype type;

    MUST(MPI_Type_create_struct(3, (const int[]){1, 1, 1}, displs, types, &type));
    return resized(type, lower, extent);
}

static void make_records(void)
{
    MPI_Datatype plain;

    keep(FAMILY_RECORDS, "record", record(0, 8, 12, 0, 16), 1);
    keep(FAMILY_RECORDS, "record with gaps", record(0, 16, 24, 0, 40), 1);
    keep(FAMILY_RECORDS, "record backwards", record(16, 8, 0, 0, 24), 1);
    keep(FAMILY_RECORDS, "record from below zero", record(0, 8, 13, -8, 32), 1);
    keep(FAMILY_RECORDS, "record without gaps", record(0, 8, 12, 0, 13), 1);
    plain = record(0, 8, 12, 0, 16);
    keep(FAMILY_RECORDS, "two records", contiguous(2, plain), 2);
    keep(FAMILY_RECORDS, "vector of records", vector(3, 2, 3, plain), 6);
    MUST(MPI_Type_free(&plain));
}

void layouts_make(void)
{
    make_simple();
    make_indexed();
    make_nested();
    make_records();
}

void layouts_free(void)
{
    for (int family = 0; family < FAMILIES; family++)
        for (int i = 0; i < counts[family]; i++)
            if (layouts[family][i].type != MPI_INT)
                MUST(MPI_Type_free(&layouts[family][i].type));
    memset(counts, 0, sizeof counts);
}

int layouts_count(enum family family)
{
    return counts[family];
}

const struct layout *layouts_get(enum family family, unsigned number)
{
    return &layouts[family][number % (unsigned)counts[family]];
}

const struct layout *layouts_to_receive(enum family family, unsigned number)
{
    const struct layout *layout = layouts_get(family, number);

    return layout->send_only ? layouts_get(family, 0) : layout;
}

void layout_span(const struct layout *layout, int elements, ptrdiff_t *low, ptrdiff_t *high)
{
    *low = *high = 0;
    if (elements <= 0)
        return;
    *low = layout->true_lower;
    *high = layout->true_lower + layout->true_extent + (elements - 1) * layout->extent;
}
