/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the tests of a preloaded library share: each calls MPI_X, which is the library's, and
 * PMPI_X, which is MPI's own, with the same input, and compares what was written.
 *
 * Where there are more ranks than cores, MPI's blocking calls take 10 ms each, as they spin. What
 * is expected then comes from PMPI_IX, tests and yields, and programs take a part of their cases.
 */
#ifndef WEFT_TESTS_PMPI_COMPARE_H
#define WEFT_TESTS_PMPI_COMPARE_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PRINTF_LIKE(text, first) __attribute__((format(printf, text, first)))

/* ---- report.c: the life of a program ---- */

extern int test_rank;
extern int test_size;

/* MPI_Init (level -1) or MPI_Init_thread; returns the level that was provided. */
int test_begin(int *argc, char ***argv, int level);
/* All ranks agree whether one of them saw a mismatch. The exit status of main(). */
int test_end(void);
/* What a rank says that hangs from here on. */
void test_doing(const char *format, ...) PRINTF_LIKE(1, 2);
/* Says what differs; the program goes on and fails in the end. From any thread. */
void test_mismatch(const char *format, ...) PRINTF_LIKE(1, 2);
/* Ends all ranks unless the call has succeeded. */
#define MUST(call) test_must(__FILE__, __LINE__, #call, (call))
void test_must(const char *file, int line, const char *call, int code);
/* Fails, and goes on. */
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition))                                                                          \
            test_mismatch("%s:%d: %s", __FILE__, __LINE__, #condition);                            \
    } while (0)

/* No core is left over: whatever spins may be slow. */
bool test_crowded(void);
/* MPI_X is not MPI's own. */
bool test_preloaded(void);
/* The number of the next case, from 1 on; 0 if it is left out. Where there are more ranks than
 * cores, a part of the cases is taken, each time another with another number of ranks; a smaller
 * one where nothing is preloaded. All of them are with --all. From the main thread. */
unsigned test_next(void);
/* Every how many are taken then; 4 and 23 before it is called. */
void test_part(unsigned crowded, unsigned alone);
/* Completes a request of PMPI's, and yields meanwhile. */
void test_wait(MPI_Request *request);
void test_waitall(int count, MPI_Request *requests);
/* MPI_Wait, which yields. */
void test_wait_mpi(MPI_Request *request);
/* A duplicate of MPI_COMM_WORLD by MPI_Comm_idup. */
MPI_Comm test_idup(void);
/* Whether any rank of the communicator says so. */
bool test_any(MPI_Comm comm, bool mine);
bool test_option(int argc, char **argv, const char *name);
double test_seconds(void);
void *test_alloc(size_t bytes);
/* A number that depends on all three and on nothing else. */
uint64_t test_random(uint64_t seed, uint64_t rank, uint64_t index);

/* ---- buffers.c: memory with guards on both sides ---- */

enum { GUARD_BYTES = 64 };

struct buffer {
    unsigned char *memory;
    size_t bytes;        /* both guards among them */
    size_t low, high;    /* what is between the guards */
    unsigned char *data; /* what MPI is given: may lie outside [low, high) */
};

/* Bytes [low, high) relative to `data`, which are a pattern at first, as the guards are. */
void buffer_make(struct buffer *buffer, ptrdiff_t low, ptrdiff_t high, size_t shift);
void buffer_copy(struct buffer *copy, const struct buffer *of);
void buffer_free(struct buffer *buffer);
/* All of it is the pattern again. */
void buffer_reset(struct buffer *buffer);
/* Without the guards. */
void buffer_randomize(struct buffer *buffer, uint64_t seed);
/* `what` begins the text of a mismatch. */
bool buffer_guarded(const struct buffer *buffer, const char *what);
/* Every byte, the gaps too. */
bool buffer_same(const struct buffer *found, const struct buffer *expected, const char *what);

/* ---- kinds.c: the predefined datatypes and operations ---- */

enum group {
    GROUP_RAW, /* may be moved */
    GROUP_SIGNED,
    GROUP_UNSIGNED,
    GROUP_LOGICAL, /* 0 or 1 */
    GROUP_REAL,
    GROUP_COMPLEX,
    GROUP_PAIR, /* of a value and a place */
};
/* i: signed, u: unsigned, f: real, b: 0 or 1. size 0: none. */
struct member {
    char form;
    unsigned char size;
    unsigned char at;
};
struct kind {
    const char *name;
    MPI_Datatype type;
    enum group group;
    size_t extent;
    struct member members[2];
};
enum fill { FILL_ANY, FILL_SUM, FILL_PRODUCT, FILL_ORDER, FILL_TRUTH, FILL_BITS, FILL_PLACE };
struct operation {
    const char *name;
    MPI_Op op;
    enum fill fill; /* values for which the order does not matter */
};

/* Those that this MPI has, in the order of their numbers. Call kinds_find() first. */
void kinds_find(void);
int kinds_count(void);
const struct kind *kinds_get(int index);
/* NULL: this MPI has none of that name. */
const struct kind *kinds_named(const char *name);
enum { OPERATIONS = 12 };
const struct operation *operations_get(int index);
const struct operation *operations_named(const char *name);
/* MPI accepts them together. */
bool kind_takes(const struct kind *kind, const struct operation *operation);
/* One that it accepts, another for each number; NULL if there is none. */
const struct operation *kind_operation(const struct kind *kind, int number);
void kind_fill(const struct kind *kind, enum fill fill, int ranks, void *element, uint64_t random);
/* Padding does not count. */
bool kind_same(const struct kind *kind, const void *a, const void *b);
void kind_print(const struct kind *kind, const void *element, char *text, size_t bytes);
/* Of a GROUP_REAL or GROUP_COMPLEX: the real (0) or imaginary (1) part. */
long double kind_real(const struct kind *kind, const void *element, int part);
void kind_set_real(const struct kind *kind, void *element, int part, double value);

/* ---- calls.c: the collectives, in all their forms ---- */

enum collective {
    ALLREDUCE,
    REDUCE,
    REDUCE_SCATTER,
    REDUCE_SCATTER_BLOCK,
    SCAN,
    EXSCAN, /* the last that takes an operation */
    BCAST,
    ALLGATHER,
    ALLGATHERV,
    GATHER,
    GATHERV,
    SCATTER,
    SCATTERV,
    ALLTOALL,
    ALLTOALLV,
    ALLTOALLW,
    BARRIER,
    COLLECTIVES
};
enum form {
    FORM_BLOCKING,
    FORM_NONBLOCKING,
    FORM_PERSISTENT, /* MPI 4 has this one and those below */
    FORM_BLOCKING_C,
    FORM_NONBLOCKING_C,
    FORM_PERSISTENT_C,
    FORMS
};
#if MPI_VERSION >= 4
enum { FORMS_HERE = FORMS };
typedef MPI_Count wide_count;
#else
enum { FORMS_HERE = FORM_PERSISTENT };
typedef int wide_count;
#endif

/* What is sent or received; displacements in elements, for Alltoallw in bytes. */
struct part {
    MPI_Datatype type;
    int count;
    int *counts, *displs;
    MPI_Datatype *types;
    wide_count *wide_counts;
    MPI_Aint *wide_displs;
};
struct call {
    enum collective which;
    const void *send;
    void *recv; /* Bcast's buffer */
    struct part out, in;
    MPI_Op op;
    int root;
    MPI_Comm comm;
};

/* "MPI_Iallreduce" */
const char *call_name(enum collective which, enum form form);
bool call_reduces(enum collective which);
bool call_has_root(enum collective which);
bool call_irregular(enum collective which);
/* The request is set by the forms that have one; a persistent one is not started. */
int call_mpi(const struct call *call, enum form form, MPI_Request *request);
/* The blocking or nonblocking form of PMPI. */
int call_pmpi(const struct call *call, enum form form, MPI_Request *request);
/* PMPI's; returns when it is complete. */
int call_expected(const struct call *call);
void part_alloc(struct part *part, int ranks);
/* The int arrays are ready: the others follow. */
void part_widen(struct part *part, int ranks);
void part_free(struct part *part);

/* ---- trials.c: one collective of a predefined datatype ---- */

struct shape {
    enum collective which;
    const struct kind *kind;
    const struct operation *operation; /* NULL: none */
    int count;
    int root;
    bool in_place;
    bool absent; /* what is not significant is NULL */
    MPI_Comm comm;
    uint64_t seed;
};
struct trial {
    struct shape shape;
    enum form form;
    int rank, ranks;
    struct part out, in;
    struct call call; /* has what is significant of them */
    struct buffer send, sent, recv, expected;
    int out_elements, in_elements; /* the lengths of the buffers */
    bool receives;                 /* `recv` is significant here */
    int compared;                  /* so many elements have a value when it is complete */
    const long double *slack;      /* of each part of an element; NULL: they are the same */
};

void trial_make(struct trial *trial, const struct shape *shape, enum form form);
/* The same call with other values. */
void trial_refill(struct trial *trial, uint64_t seed);
/* The buffers' values have been changed. */
void trial_changed(struct trial *trial);
/* What is sent, or received in place: its elements, and how many there are. */
struct buffer *trial_input(struct trial *trial, int *elements);
/* What PMPI makes of it. */
void trial_expect(struct trial *trial);
/* Calls MPI. */
void trial_start(struct trial *trial, MPI_Request *request);
/* It is complete. */
bool trial_check(const struct trial *trial);
void trial_free(struct trial *trial);
void trial_describe(const struct trial *trial, char *text, size_t bytes);
/* This MPI cannot do it. */
bool shape_broken(const struct shape *shape);
/* All of it, with MPI_Wait; nothing if this MPI cannot do it. */
bool trial_run(const struct shape *shape, enum form form);

/* ---- rounds.c: small calls whose outcome is known ---- */

/* The last is a message, the others are collectives. */
enum { ROUNDS_KNOWN = 9, ROUNDS_COLLECTIVE = ROUNDS_KNOWN - 1 };
/* Another call for each number. Any thread. */
void round_run(MPI_Comm comm, int number, int root, int base);

/* ---- layouts.c: derived datatypes with the same signature ---- */

enum family {
    FAMILY_INTS,    /* a unit is an MPI_INT */
    FAMILY_RECORDS, /* a unit is an MPI_DOUBLE, an MPI_INT and an MPI_CHAR */
    FAMILIES
};
enum { UNITS_MULTIPLE = 12 }; /* of the units of any layout */

struct layout {
    const char *name;
    MPI_Datatype type;
    enum family family;
    int units;
    bool send_only; /* elements lie over each other */
    MPI_Aint extent, true_lower, true_extent;
};

void layouts_make(void);
void layouts_free(void);
int layouts_count(enum family family);
/* Any number; MPI's own datatype is number 0. */
const struct layout *layouts_get(enum family family, unsigned number);
/* One that may be received into. */
const struct layout *layouts_to_receive(enum family family, unsigned number);
/* The bytes that `elements` of them have, relative to the first. */
void layout_span(const struct layout *layout, int elements, ptrdiff_t *low, ptrdiff_t *high);

#endif
