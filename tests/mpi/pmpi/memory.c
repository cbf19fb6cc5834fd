/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every allocation that weft makes on one rank fails in turn (of more ranks than cores, some). No
 * rank hangs then; a call that says it has succeeded has; and what comes after it is as good as
 * ever.
 *
 * The functions that allocate are this program's, and fail for callers in weft's libraries.
 */
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"

/* ---- what fails ---- */

enum { LIBRARIES = 8, NEVER = -1 };

static struct {
    uintptr_t from, to;
} weft[LIBRARIES];
static int weft_count;
static _Atomic long countdown = NEVER;

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static int note_library(struct dl_phdr_info *info, size_t bytes, void *user)
{
    (void)bytes;
    (void)user;
    for (int i = 0; strstr(info->dlpi_name, "libweft") && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X) || weft_count == LIBRARIES)
            continue;
        weft[weft_count].from = (uintptr_t)(info->dlpi_addr + part->p_vaddr);
        weft[weft_count].to = weft[weft_count].from + part->p_memsz;
        weft_count++;
    }
    return 0;
}

static bool fails(const void *caller)
{
    uintptr_t at = (uintptr_t)caller;
    bool is_weft = false;

    for (int i = 0; i < weft_count; i++)
        is_weft |= at >= weft[i].from && at < weft[i].to;
    return is_weft && countdown > 0 && atomic_fetch_sub(&countdown, 1) == 1;
}

void *malloc(size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(memory, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    *memory = fails(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, bytes);
    return *memory ? 0 : ENOMEM;
}

/* ---- calls that may fail ---- */

enum { COUNT = 6, ROOM = 1000 };
/* Where no core is left over one of so many fails; so many there are in every stage. */
enum { PART = 8, LEAST = 30 };

struct stage {
    const char *name;
    void (*run)(MPI_Comm comm);
};
static int errors;

/* Whether it has succeeded. */
static bool done(int code)
{
    errors += code != MPI_SUCCESS;
    return code == MPI_SUCCESS;
}

static void fill(int *data, int count)
{
    for (int i = 0; i < count; i++)
        data[i] = 10 * test_rank + i;
}

/* Sums over all ranks of what fill() makes, one in `step`. */
static void expect_sums(const char *what, const int *data, int step)
{
    for (int i = 0; i < COUNT; i++) {
        int expected = test_size * i * step + 10 * (test_size * (test_size - 1) / 2);
        if (data[i * step] == expected)
            continue;
        test_mismatch("%s: element %d: expected %d, found %d", what, i, expected, data[i * step]);
        return;
    }
}

/* Blocks of two that fill() has made on each rank, from its element `first` on. */
static void expect_blocks(const char *what, const int *data, int first)
{
    for (int r = 0; r < test_size; r++)
        for (int i = 0; i < 2; i++)
            if (data[2 * r + i] != 10 * r + first + 2 * i)
                test_mismatch("%s: block %d: expected %d, found %d", what, r,
                              10 * r + first + 2 * i, data[2 * r + i]);
}

/* Every second int. */
static MPI_Datatype make_type(int count)
{
    MPI_Datatype vector, type;

    MUST(MPI_Type_vector(count, 1, 2, MPI_INT, &vector));
    MUST(MPI_Type_create_resized(vector, 0, (MPI_Aint)(2 * count * (int)sizeof(int)), &type));
    MUST(MPI_Type_commit(&type));
    MUST(MPI_Type_free(&vector));
    return type;
}

static void add(void *in, void *inout, int *count, MPI_Datatype *type)
{
    const int *from = in;
    int *to = inout, step = *type == MPI_INT ? 1 : 2;

    for (int i = 0; i < *count; i++)
        to[i * step] += from[i * step];
}

/* ---- what is called ---- */

static void sum(MPI_Comm comm)
{
    int send[COUNT], recv[COUNT];

    fill(send, COUNT);
    if (done(MPI_Allreduce(send, recv, COUNT, MPI_INT, MPI_SUM, comm)))
        expect_sums("MPI_Allreduce", recv, 1);
}

static void duplicate(MPI_Comm comm)
{
    MPI_Comm copy, parts;

    MUST(MPI_Comm_dup(comm, &copy));
    sum(copy);
    MUST(MPI_Comm_free(&copy));
    MUST(MPI_Comm_split(comm, 0, test_rank, &parts));
    sum(parts);
    MUST(MPI_Comm_free(&parts));
}

/* It gets its context in its first blocking collective. */
static void duplicate_later(MPI_Comm comm)
{
    MPI_Comm copy;
    MPI_Request request;

    MUST(MPI_Comm_idup(comm, &copy, &request));
    test_wait(&request);
    MUST(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN));
    for (int round = 0; round < 2; round++)
        sum(copy);
    MUST(MPI_Comm_free(&copy));
}

static void derived(MPI_Comm comm)
{
    MPI_Datatype type = make_type(2);
    int send[ROOM], recv[ROOM], counts[ROOM], places[ROOM];

    fill(send, ROOM);
    for (int r = 0; r < test_size; r++) {
        counts[r] = 2;
        places[r] = 2 * r;
    }
    if (done(MPI_Allgatherv(send, 1, type, recv, counts, places, MPI_INT, comm)))
        expect_blocks("MPI_Allgatherv", recv, 0);
    MUST(MPI_Type_free(&type));
}

static void own_operation(MPI_Comm comm)
{
    MPI_Datatype type = make_type(1);
    MPI_Op op;
    int send[ROOM], recv[ROOM];

    MUST(MPI_Op_create(add, 1, &op));
    fill(send, ROOM);
    if (done(MPI_Allreduce(send, recv, COUNT, MPI_INT, op, comm)))
        expect_sums("MPI_Allreduce by the program", recv, 1);
    if (done(MPI_Allreduce(send, recv, COUNT, type, op, comm)))
        expect_sums("MPI_Allreduce of derived types by the program", recv, 2);
    MUST(MPI_Op_free(&op));
    MUST(MPI_Type_free(&type));
}

/* What it takes is freed before it has ended. */
static void later(MPI_Comm comm)
{
    MPI_Datatype type = make_type(1);
    MPI_Op op;
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    int send[ROOM], recv[2][ROOM];
    bool begun[2];

    MUST(MPI_Op_create(add, 1, &op));
    fill(send, ROOM);
    begun[0] = done(MPI_Iallreduce(send, recv[0], COUNT, type, op, comm, &requests[0]));
    begun[1] = done(MPI_Iallreduce(send, recv[1], COUNT, MPI_INT, MPI_SUM, comm, &requests[1]));
    MUST(MPI_Op_free(&op));
    MUST(MPI_Type_free(&type));
    for (int i = 0; i < 2; i++)
        if (begun[i] && done(MPI_Wait(&requests[i], MPI_STATUS_IGNORE)))
            expect_sums("MPI_Iallreduce", recv[i], 2 - i);
}

static void exchange_later(MPI_Comm comm)
{
    MPI_Datatype types[ROOM], plain[ROOM];
    MPI_Request request;
    int send[ROOM], recv[ROOM], ones[ROOM], twos[ROOM], from[ROOM], to[ROOM];

    fill(send, ROOM);
    for (int r = 0; r < test_size; r++) {
        types[r] = make_type(2);
        plain[r] = MPI_INT;
        ones[r] = 1;
        twos[r] = 2;
        from[r] = 0;
        to[r] = 2 * r * (int)sizeof(int);
    }
    bool begun =
        done(MPI_Ialltoallw(send, ones, from, types, recv, twos, to, plain, comm, &request));
    if (begun && done(MPI_Wait(&request, MPI_STATUS_IGNORE)))
        expect_blocks("MPI_Ialltoallw", recv, 0);
    for (int r = 0; r < test_size; r++)
        MUST(MPI_Type_free(&types[r]));
}

#if MPI_VERSION >= 4
static void again(MPI_Comm comm)
{
    MPI_Datatype type = make_type(1);
    MPI_Op op;
    MPI_Request requests[2];
    int send[ROOM], recv[2][ROOM];
    bool made[2];

    MUST(MPI_Op_create(add, 1, &op));
    fill(send, ROOM);
    made[0] =
        done(MPI_Allreduce_init(send, recv[0], COUNT, type, op, comm, MPI_INFO_NULL, &requests[0]));
    made[1] = done(MPI_Allreduce_init(send, recv[1], COUNT, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL,
                                      &requests[1]));
    for (int i = 0; i < 4; i++)
        if (made[i % 2] && done(MPI_Start(&requests[i % 2])) &&
            done(MPI_Wait(&requests[i % 2], MPI_STATUS_IGNORE)))
            expect_sums("MPI_Allreduce_init", recv[i % 2], 2 - i % 2);
    for (int i = 0; i < 2; i++)
        if (made[i])
            MUST(MPI_Request_free(&requests[i]));
    MUST(MPI_Op_free(&op));
    MUST(MPI_Type_free(&type));
}
#endif

static const struct stage stages[] = {
    {"a duplicate and a part", duplicate}, {"a duplicate that does not block", duplicate_later},
    {"a derived datatype", derived},       {"a program's operation", own_operation},
    {"calls that do not block", later},    {"an exchange that does not block", exchange_later},
#if MPI_VERSION >= 4
    {"persistent calls", again},
#endif
};

/* ---- in turn ---- */

/* Whether there was an allocation of that number. */
static bool try(const struct stage *stage, MPI_Comm base, int victim, long number)
{
    MPI_Comm comm;
    bool hit;

    MUST(MPI_Comm_dup(base, &comm));
    errors = 0;
    test_doing("%s: allocation %ld of rank %d fails", stage->name, number, victim);
    countdown = test_rank == victim ? number : NEVER;
    stage->run(comm);
    hit = test_any(base, test_rank == victim && countdown == 0);
    countdown = NEVER;
    if (!hit && errors > 0)
        test_mismatch("%s: %d errors where nothing has failed", stage->name, errors);
    errors = 0;
    stage->run(comm);
    if (errors > 0)
        test_mismatch("%s: allocation %ld of rank %d has failed, and %d calls do after it",
                      stage->name, number, victim, errors);
    MUST(MPI_Comm_free(&comm));
    return hit;
}

int main(int argc, char **argv)
{
    MPI_Comm base;

    test_begin(&argc, &argv, -1);
    dl_iterate_phdr(note_library, NULL);
    if (weft_count < 2)
        test_mismatch("%d libraries of weft, expected two at least", weft_count);
    MUST(MPI_Comm_dup(MPI_COMM_WORLD, &base));
    MUST(MPI_Comm_set_errhandler(base, MPI_ERRORS_RETURN));
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        for (int victim = 0; victim < test_size; victim++) {
            long number = 1 + victim;
            while (try(&stages[i], base, victim, number))
                number += test_crowded() ? PART : 1;
            if (number < LEAST)
                test_mismatch("%s: %ld allocations have been seen", stages[i].name, number);
        }
    MUST(MPI_Comm_free(&base));
    return test_end();
}
