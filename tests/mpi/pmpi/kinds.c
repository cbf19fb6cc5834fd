/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The predefined datatypes, of C and of Fortran, the operations that MPI accepts for them, and
 * values for which no operation rounds: the order in which ranks are combined then does not show.
 */
#include <float.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include "compare.h"

/* clang-format off */
#define KIND(name, type, group, element_t, form)                                                   \
    {name, type, group, sizeof(element_t), {{form, sizeof(element_t), 0}}}
#define RAW(type, element_t) KIND(#type, type, GROUP_RAW, element_t, 'u')
#define SIGNED(type, element_t) KIND(#type, type, GROUP_SIGNED, element_t, 'i')
#define UNSIGNED(type, element_t) KIND(#type, type, GROUP_UNSIGNED, element_t, 'u')
/* Open MPI 4.1 takes it for unsigned, so it has values that are the same either way. */
#ifdef OPEN_MPI
#    define OFFSET(type, element_t) UNSIGNED(type, element_t)
#else
#    define OFFSET(type, element_t) SIGNED(type, element_t)
#endif
#define LOGICAL(type, element_t) KIND(#type, type, GROUP_LOGICAL, element_t, 'b')
#define REAL(type, element_t) KIND(#type, type, GROUP_REAL, element_t, 'f')
#define COMPLEX(type, element_t)                                                                   \
    {#type, type, GROUP_COMPLEX, 2 * sizeof(element_t),                                            \
     {{'f', sizeof(element_t), 0}, {'f', sizeof(element_t), sizeof(element_t)}}}
#define PAIR(type, value_t, form, place_t, place_form)                                             \
    {#type, type, GROUP_PAIR, sizeof(struct { value_t v; place_t p; }),                            \
     {{form, sizeof(value_t), 0},                                                                  \
      {place_form, sizeof(place_t), offsetof(struct { value_t v; place_t p; }, p)}}}
/* clang-format on */

enum { KINDS_MAX = 96 };

static const struct kind kinds[] = {
    RAW(MPI_BYTE, char),
    RAW(MPI_PACKED, char),
    RAW(MPI_WCHAR, wchar_t),
    SIGNED(MPI_CHAR, char),
    SIGNED(MPI_SIGNED_CHAR, signed char),
    UNSIGNED(MPI_UNSIGNED_CHAR, unsigned char),
    SIGNED(MPI_SHORT, short),
    UNSIGNED(MPI_UNSIGNED_SHORT, unsigned short),
    SIGNED(MPI_INT, int),
    UNSIGNED(MPI_UNSIGNED, unsigned),
    SIGNED(MPI_LONG, long),
    UNSIGNED(MPI_UNSIGNED_LONG, unsigned long),
    SIGNED(MPI_LONG_LONG, long long),
    UNSIGNED(MPI_UNSIGNED_LONG_LONG, unsigned long long),
    SIGNED(MPI_INT8_T, int8_t),
    SIGNED(MPI_INT16_T, int16_t),
    SIGNED(MPI_INT32_T, int32_t),
    SIGNED(MPI_INT64_T, int64_t),
    UNSIGNED(MPI_UINT8_T, uint8_t),
    UNSIGNED(MPI_UINT16_T, uint16_t),
    UNSIGNED(MPI_UINT32_T, uint32_t),
    UNSIGNED(MPI_UINT64_T, uint64_t),
    SIGNED(MPI_AINT, MPI_Aint),
    OFFSET(MPI_OFFSET, MPI_Offset),
    SIGNED(MPI_COUNT, MPI_Count),
    LOGICAL(MPI_C_BOOL, _Bool),
    REAL(MPI_FLOAT, float),
    REAL(MPI_DOUBLE, double),
    REAL(MPI_LONG_DOUBLE, long double),
    COMPLEX(MPI_C_COMPLEX, float),
    COMPLEX(MPI_C_FLOAT_COMPLEX, float),
    COMPLEX(MPI_C_DOUBLE_COMPLEX, double),
    COMPLEX(MPI_C_LONG_DOUBLE_COMPLEX, long double),
    PAIR(MPI_FLOAT_INT, float, 'f', int, 'i'),
    PAIR(MPI_DOUBLE_INT, double, 'f', int, 'i'),
    PAIR(MPI_LONG_INT, long, 'i', int, 'i'),
    PAIR(MPI_2INT, int, 'i', int, 'i'),
    PAIR(MPI_SHORT_INT, short, 'i', int, 'i'),
    PAIR(MPI_LONG_DOUBLE_INT, long double, 'f', int, 'i'),
    SIGNED(MPI_INTEGER, MPI_Fint),
    REAL(MPI_REAL, float),
    REAL(MPI_DOUBLE_PRECISION, double),
    COMPLEX(MPI_COMPLEX, float),
    COMPLEX(MPI_DOUBLE_COMPLEX, double),
    LOGICAL(MPI_LOGICAL, MPI_Fint),
    RAW(MPI_CHARACTER, char),
    PAIR(MPI_2INTEGER, MPI_Fint, 'i', MPI_Fint, 'i'),
    PAIR(MPI_2REAL, float, 'f', float, 'f'),
    PAIR(MPI_2DOUBLE_PRECISION, double, 'f', double, 'f'),
#ifdef MPI_INTEGER1
    SIGNED(MPI_INTEGER1, int8_t),
#endif
#ifdef MPI_INTEGER2
    SIGNED(MPI_INTEGER2, int16_t),
#endif
#ifdef MPI_INTEGER4
    SIGNED(MPI_INTEGER4, int32_t),
#endif
#ifdef MPI_INTEGER8
    SIGNED(MPI_INTEGER8, int64_t),
#endif
#ifdef MPI_LOGICAL1
    LOGICAL(MPI_LOGICAL1, int8_t),
    LOGICAL(MPI_LOGICAL2, int16_t),
    LOGICAL(MPI_LOGICAL4, int32_t),
    LOGICAL(MPI_LOGICAL8, int64_t),
#endif
#ifdef MPI_REAL4
    REAL(MPI_REAL4, float),
#endif
#ifdef MPI_REAL8
    REAL(MPI_REAL8, double),
#endif
#ifdef MPI_REAL16 /* which type of C that is, if any, MPI does not say: it is only moved */
    KIND("MPI_REAL16", MPI_REAL16, GROUP_REAL, unsigned char[16], 'q'),
#endif
#ifdef MPI_COMPLEX8
    COMPLEX(MPI_COMPLEX8, float),
#endif
#ifdef MPI_COMPLEX16
    COMPLEX(MPI_COMPLEX16, double),
#endif
#ifdef MPI_COMPLEX32
    KIND("MPI_COMPLEX32", MPI_COMPLEX32, GROUP_COMPLEX, unsigned char[32], 'q'),
#endif
#ifdef MPI_CXX_BOOL
    LOGICAL(MPI_CXX_BOOL, _Bool),
    COMPLEX(MPI_CXX_FLOAT_COMPLEX, float),
    COMPLEX(MPI_CXX_DOUBLE_COMPLEX, double),
    COMPLEX(MPI_CXX_LONG_DOUBLE_COMPLEX, long double),
#endif
};
static const struct operation operations[OPERATIONS] = {
    {"MPI_SUM", MPI_SUM, FILL_SUM},         {"MPI_PROD", MPI_PROD, FILL_PRODUCT},
    {"MPI_MAX", MPI_MAX, FILL_ORDER},       {"MPI_MIN", MPI_MIN, FILL_ORDER},
    {"MPI_LAND", MPI_LAND, FILL_TRUTH},     {"MPI_LOR", MPI_LOR, FILL_TRUTH},
    {"MPI_LXOR", MPI_LXOR, FILL_TRUTH},     {"MPI_BAND", MPI_BAND, FILL_BITS},
    {"MPI_BOR", MPI_BOR, FILL_BITS},        {"MPI_BXOR", MPI_BXOR, FILL_BITS},
    {"MPI_MAXLOC", MPI_MAXLOC, FILL_PLACE}, {"MPI_MINLOC", MPI_MINLOC, FILL_PLACE},
};

static const struct kind *found[KINDS_MAX];
static bool taken[KINDS_MAX][OPERATIONS];
static int found_count;

_Static_assert(sizeof kinds / sizeof kinds[0] <= KINDS_MAX, "KINDS_MAX is too small");

static void member_set(const struct member *member, void *element, int64_t integer, double real)
{
    unsigned char *at = (unsigned char *)element + member->at;
    long double quad = real;
    float single = (float)real;

    if (member->form == 'f' && member->size == sizeof single)
        memcpy(at, &single, sizeof single);
    else if (member->form == 'f' && member->size == sizeof real)
        memcpy(at, &real, sizeof real);
    else if (member->form == 'f')
        memcpy(at, &quad, sizeof quad);
    else
        memcpy(at, &integer, member->size); /* the low bytes come first */
}

static int64_t member_integer(const struct member *member, const void *element)
{
    const unsigned char *at = (const unsigned char *)element + member->at;
    uint64_t bits = 0;
    int unused = 64 - 8 * member->size;

    memcpy(&bits, at, member->size);
    return member->form == 'i' ? (int64_t)(bits << unused) >> unused : (int64_t)bits;
}

static long double member_real(const struct member *member, const void *element)
{
    const unsigned char *at = (const unsigned char *)element + member->at;
    long double quad = 0;
    double real;
    float single;

    if (member->size == sizeof single) {
        memcpy(&single, at, sizeof single);
        return single;
    }
    if (member->size == sizeof real) {
        memcpy(&real, at, sizeof real);
        return real;
    }
    memcpy(&quad, at, sizeof quad);
    return quad;
}

/* x87's long double has six bytes that mean nothing. */
static size_t member_bytes(const struct member *member)
{
    if (member->form == 'f' && member->size == sizeof(long double) && LDBL_MANT_DIG == 64)
        return 10;
    return member->size;
}

static bool usable(const struct kind *kind)
{
    MPI_Aint lower, extent;
    int size;

    if (kind->type == MPI_DATATYPE_NULL || PMPI_Type_size(kind->type, &size) != MPI_SUCCESS ||
        size == 0)
        return false;
    return PMPI_Type_get_extent(kind->type, &lower, &extent) == MPI_SUCCESS && lower == 0 &&
           extent == (MPI_Aint)kind->extent;
}

static bool accepted(const struct kind *kind, const struct operation *operation)
{
    _Alignas(max_align_t) unsigned char in[64] = {0}, out[64] = {0};

    if (kind->members[0].form == 'q')
        return false;
    /* MPICH lets MPI_LAND pass with MPI_FLOAT, which MPI does not allow, and then aborts. */
    if (kind->group == GROUP_REAL && operation->fill == FILL_TRUTH)
        return false;
    for (int i = 0; i < 2; i++) {
        member_set(&kind->members[i], in, 1, 1);
        member_set(&kind->members[i], out, 1, 1);
    }
    return PMPI_Reduce_local(in, out, 1, kind->type, operation->op) == MPI_SUCCESS;
}

void kinds_find(void)
{
    MPI_Errhandler world, self;

    MUST(PMPI_Comm_get_errhandler(MPI_COMM_WORLD, &world));
    MUST(PMPI_Comm_get_errhandler(MPI_COMM_SELF, &self));
    MUST(PMPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MUST(PMPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (!usable(&kinds[i]))
            continue;
        for (int j = 0; j < OPERATIONS; j++)
            taken[found_count][j] = accepted(&kinds[i], &operations[j]);
        found[found_count++] = &kinds[i];
    }
    MUST(PMPI_Comm_set_errhandler(MPI_COMM_WORLD, world));
    MUST(PMPI_Comm_set_errhandler(MPI_COMM_SELF, self));
    MUST(PMPI_Errhandler_free(&world));
    MUST(PMPI_Errhandler_free(&self));
}

int kinds_count(void)
{
    return found_count;
}

const struct kind *kinds_get(int index)
{
    return found[index];
}

const struct kind *kinds_named(const char *name)
{
    for (int i = 0; i < found_count; i++)
        if (strcmp(found[i]->name, name) == 0)
            return found[i];
    return NULL;
}

const struct operation *operations_get(int index)
{
    return &operations[index];
}

const struct operation *operations_named(const char *name)
{
    for (int i = 0; i < OPERATIONS; i++)
        if (strcmp(operations[i].name, name) == 0)
            return &operations[i];
    return NULL;
}

bool kind_takes(const struct kind *kind, const struct operation *operation)
{
    for (int i = 0; i < found_count; i++)
        if (found[i] == kind)
            return taken[i][operation - operations];
    return false;
}

const struct operation *kind_operation(const struct kind *kind, int number)
{
    for (int i = 0; i < OPERATIONS; i++) {
        const struct operation *operation = &operations[(number + i) % OPERATIONS];
        if (kind_takes(kind, operation))
            return operation;
    }
    return NULL;
}

/* No sum of `ranks` of them leaves the type: that would be undefined in C. */
static int64_t summand(int size, int ranks, uint64_t random)
{
    int64_t most = (INT64_MAX >> (64 - 8 * size)) / ranks;

    return (int64_t)(random % (2 * (uint64_t)most + 1) - (uint64_t)most);
}

static void fill_integer(const struct kind *kind, enum fill fill, int ranks, void *element,
                         uint64_t random)
{
    const struct member *member = &kind->members[0];
    int64_t value = (int64_t)random;

    if (fill == FILL_SUM && member->form == 'i')
        value = summand(member->size, ranks, random);
    if (fill == FILL_PRODUCT && member->form == 'i')
        value = (int64_t[]){1, -1, 2, -2, 1, -1, 1, -1}[random % 8];
    if (fill == FILL_TRUTH && random % 2)
        value = 0;
    if (fill == FILL_ORDER && member->form == 'u') /* MPICH 4.0.2 takes them for signed ones */
        value &= INT64_MAX >> (64 - 8 * member->size);
    if (kind->group == GROUP_LOGICAL)
        value = random % 3 != 0;
    member_set(member, element, value, 0);
}

static double real_value(enum fill fill, uint64_t random)
{
    if (fill == FILL_PRODUCT)
        return (double[]){1, -1, 2, -2, 0.5, -0.5, 1, -1}[random % 8];
    return (double)(random % 2001) - 1000;
}

static void fill_complex(const struct kind *kind, enum fill fill, void *element, uint64_t random)
{
    static const double factors[][2] = {{1, 0}, {-1, 0}, {0, 1}, {0, -1},
                                        {1, 1}, {1, -1}, {2, 0}, {1, 0}};

    for (int i = 0; i < 2; i++)
        member_set(&kind->members[i], element, 0,
                   fill == FILL_PRODUCT ? factors[random % 8][i]
                                        : real_value(fill, random >> (20 * i)));
}

void kind_fill(const struct kind *kind, enum fill fill, int ranks, void *element, uint64_t random)
{
    unsigned char *at = element;

    /* Padding has no value in particular. */
    for (size_t i = 0; i < kind->extent; i += sizeof random)
        memcpy(at + i, &random,
               kind->extent - i < sizeof random ? kind->extent - i : sizeof random);
    if (kind->group == GROUP_LOGICAL)
        fill_integer(kind, fill, ranks, element, random);
    if (fill == FILL_ANY)
        return;
    if (kind->group == GROUP_PAIR) {
        member_set(&kind->members[0], element, (int64_t)(random % 4) - 1,
                   (double)(random % 4) - 1.5);
        member_set(&kind->members[1], element, (random >> 8) % 50, (double)((random >> 8) % 50));
    } else if (kind->group == GROUP_COMPLEX) {
        fill_complex(kind, fill, element, random);
    } else if (kind->group == GROUP_REAL) {
        member_set(&kind->members[0], element, 0, real_value(fill, random));
    } else {
        fill_integer(kind, fill, ranks, element, random);
    }
}

/* A product of complex numbers has zeros whose signs depend on the order. */
static bool member_same(const struct member *member, const void *a, const void *b)
{
    if (memcmp((const unsigned char *)a + member->at, (const unsigned char *)b + member->at,
               member_bytes(member)) == 0)
        return true;
    return member->form == 'f' && member_real(member, a) == 0 && member_real(member, b) == 0;
}

bool kind_same(const struct kind *kind, const void *a, const void *b)
{
    for (int i = 0; i < 2; i++)
        if (kind->members[i].size && !member_same(&kind->members[i], a, b))
            return false;
    return true;
}

static int member_print(const struct member *member, const void *element, char *text, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)element + member->at;
    int length = 0;

    if (member->form == 'i')
        return snprintf(text, bytes, "%lld", (long long)member_integer(member, element));
    if (member->form == 'u')
        return snprintf(text, bytes, "%llu", (unsigned long long)member_integer(member, element));
    if (member->form == 'f')
        return snprintf(text, bytes, "%.21Lg", member_real(member, element));
    for (int i = 0; i < member->size && 2 * i + 3 < (int)bytes; i++)
        length += snprintf(text + length, bytes - (size_t)length, "%02x", at[i]);
    return length;
}

void kind_print(const struct kind *kind, const void *element, char *text, size_t bytes)
{
    char parts[2][96] = {"", ""};

    for (int i = 0; i < 2; i++)
        if (kind->members[i].size)
            member_print(&kind->members[i], element, parts[i], sizeof parts[i]);
    if (kind->members[1].size)
        snprintf(text, bytes, "(%s, %s)", parts[0], parts[1]);
    else
        snprintf(text, bytes, "%s", parts[0]);
}

long double kind_real(const struct kind *kind, const void *element, int part)
{
    return kind->members[part].size ? member_real(&kind->members[part], element) : 0;
}

void kind_set_real(const struct kind *kind, void *element, int part, double value)
{
    member_set(&kind->members[part], element, 0, value);
}
