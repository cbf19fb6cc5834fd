/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocking collectives that are MPI's (beside.json has them so) while a call of weft's is under
 * way: on some ranks, where others have ended theirs before. Who waits in either is waited for in
 * the other.
 */
#include <stdlib.h>
#include <string.h>

#include "compare.h"

enum { ENDS_FIRST, ENDS_LAST, HALF, WHO };
enum { FEW = 1, MANY = 100000 };

struct under {
    MPI_Request request;
    int *send, *recv;
    int count, base;
};

static void add(void *in, void *inout, int *count, MPI_Datatype *type)
{
    const int *from = in;
    int *to = inout;

    (void)type;
    for (int i = 0; i < *count; i++)
        to[i] += from[i];
}

static void begin(struct under *under, MPI_Comm comm, int count, int base, MPI_Op op)
{
    under->count = count;
    under->base = base;
    under->send = test_alloc(sizeof(int) * (size_t)count);
    under->recv = test_alloc(sizeof(int) * (size_t)count);
    for (int i = 0; i < count; i++)
        under->send[i] = base + i + test_rank;
    MUST(MPI_Iallreduce(under->send, under->recv, count, MPI_INT, op, comm, &under->request));
}

static void end(struct under *under)
{
    int ranks = test_size * (test_size - 1) / 2;

    test_wait_mpi(&under->request);
    for (int i = 0; i < under->count; i++) {
        int expected = test_size * (under->base + i) + ranks;
        if (under->recv[i] == expected)
            continue;
        test_mismatch("MPI_Iallreduce, %d elements: element %d: expected %d, found %d",
                      under->count, i, expected, under->recv[i]);
        break;
    }
    free(under->send);
    free(under->recv);
}

static bool ends_before(unsigned number)
{
    int one = (int)number % test_size;

    switch (number % WHO) {
    case ENDS_FIRST:
        return test_rank == one;
    case ENDS_LAST:
        return test_rank != one;
    default:
        return test_rank % 2;
    }
}

/* Every kind, twice, as the first and as the second of two communicators. */
static void one(const struct shape *shape, unsigned number, MPI_Comm other, MPI_Op op)
{
    bool before = ends_before(number);
    struct trial trial;
    struct under under;
    MPI_Request request;

    trial_make(&trial, shape, FORM_BLOCKING);
    trial_expect(&trial);
    test_doing("%s beside a call that %s", call_name(shape->which, FORM_BLOCKING),
               before ? "has ended" : "is under way");
    begin(&under, other, number / 2 % 2 ? MANY : FEW, (int)number, op);
    if (before)
        end(&under);
    trial_start(&trial, &request);
    if (!before)
        end(&under);
    trial_check(&trial);
    trial_free(&trial);
}

int main(int argc, char **argv)
{
    MPI_Comm other;
    MPI_Op own;
    unsigned number = 0;

    test_begin(&argc, &argv, -1);
    kinds_find();
    MUST(MPI_Comm_dup(MPI_COMM_WORLD, &other));
    MUST(MPI_Op_create(add, 1, &own));
    for (int which = 0; which < COLLECTIVES; which++)
        for (int round = 0; round < 6; round++, number++) {
            struct shape shape = {.which = (enum collective)which,
                                  .kind = kinds_named("MPI_INT"),
                                  .count = round < 3 ? 4 : 3000,
                                  .root = (int)number % test_size,
                                  .comm = round % 2 ? other : MPI_COMM_WORLD,
                                  .seed = number};
            if (call_reduces(shape.which))
                shape.operation = operations_named("MPI_SUM");
            if (!shape_broken(&shape))
                one(&shape, number, number / 3 % 2 ? other : MPI_COMM_WORLD,
                    number % 5 ? MPI_SUM : own);
        }
    MUST(MPI_Op_free(&own));
    MUST(MPI_Comm_free(&other));
    return test_end();
}
