/* SPDX-License-Identifier: BSD-3-Clause */
/* Every collective in one line, blocking and not, compared with plain loops, for suites on every
 * transport. */
#ifndef WEFT_TESTS_BLOCKING_H
#define WEFT_TESTS_BLOCKING_H

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

#include "support/affine.h"

enum blocking_function {
    DO_BARRIER,
    DO_BROADCAST,
    DO_REDUCE,
    DO_ALLREDUCE,
    DO_REDUCE_SCATTER,
    DO_ALLGATHER,
    DO_GATHER,
    DO_SCATTER,
    DO_ALLTOALL,
    DO_NEIGHBOUR_EXCHANGE,
    DO_SCAN,
    DO_EXSCAN,
    DO_ALLGATHERV, /* blocks of counts of their own: from here on */
    DO_GATHERV,
    DO_SCATTERV,
    DO_ALLTOALLV,
    DO_REDUCE_SCATTERV,
    DO_COUNT
};

/* How a call is made. */
enum blocking_way { DO_BLOCK, DO_WAIT, DO_TEST, DO_ANY /* one after the other */ };

/* A call with its arguments. */
struct blocking_cell {
    enum blocking_function function;
    weft_dtype_t dtype;
    const struct weft_op *op;
    size_t count;
    int root, in_place;
    unsigned salt; /* of the data */
    enum blocking_way way;
};

static inline int blocking_reduces(enum blocking_function function)
{
    return function == DO_REDUCE || function == DO_ALLREDUCE || function == DO_REDUCE_SCATTER ||
           function == DO_SCAN || function == DO_EXSCAN || function == DO_REDUCE_SCATTERV;
}

/* Element i that a rank gives. Small numbers: floating point adds them exactly in any order. */
static inline void blocking_element(const struct blocking_cell *cell, int rank, size_t i, void *to)
{
    uint64_t bits = (uint64_t)rank * 7 + i * 3 + cell->salt;
    size_t size = weft_dtype_size(cell->dtype);
    double real = (double)(bits * bits % 3);
    struct affine affine = {(uint32_t)bits * 2 + 1, (uint32_t)bits};
    switch (cell->dtype) {
    case WEFT_F32:
    case WEFT_F16:
    case WEFT_BF16:
    case WEFT_F64:
        weft_convert(cell->dtype, to, WEFT_F64, &real, 1);
        return;
    default:
        break;
    }
    if (weft_dtype_is_opaque(cell->dtype) && size == sizeof affine)
        memcpy(to, &affine, sizeof affine);
    else
        for (size_t b = 0; b < size; b++)
            ((unsigned char *)to)[b] = (unsigned char)(bits * (b + 1) + (b == 0));
}

static inline void blocking_fill(const struct blocking_cell *cell, int rank, size_t count, char *to)
{
    for (size_t i = 0; i < count; i++)
        blocking_element(cell, rank, i, to + i * weft_dtype_size(cell->dtype));
}

/* Elements first .. first + count - 1 of ranks 0 .. size - 1, combined in their order. */
static inline void blocking_combine(const struct blocking_cell *cell, int size, size_t first,
                                    char *to)
{
    size_t element = weft_dtype_size(cell->dtype);
    char *next = malloc(element);
    for (size_t i = 0; i < cell->count; i++)
        for (int r = 0; r < size; r++) {
            blocking_element(cell, r, first + i, r == 0 ? to + i * element : next);
            if (r > 0)
                weft_op_reduce(cell->op, cell->dtype, to + i * element, to + i * element, next, 1);
        }
    free(next);
}

/* A call that has been made, and what it is to give. */
struct blocking_job {
    struct blocking_cell cell;
    int rank, size, status;
    struct weft_request *request; /* or NULL */
    void *memory[3];              /* to be freed */
    const char *result, *expected;
    size_t bytes; /* of these */
};

/* Where a rank's own elements are, how many, and what it is to get, of how many. */
struct blocking_layout {
    size_t sent, got;
    int own_block;   /* in place: of recv, what is sent; -1: from the beginning of it */
    int sends, gets; /* whether the rank has such a buffer */
    int may_in_place;
};

static inline struct blocking_layout blocking_lay_out(const struct blocking_cell *cell, int rank,
                                                      int size)
{
    size_t one = cell->count, all = cell->count * (size_t)size;
    int root = rank == cell->root;
    switch (cell->function) {
    case DO_BROADCAST:
        return (struct blocking_layout){0, one, -1, 0, 1, 0};
    case DO_REDUCE:
        return (struct blocking_layout){one, one, -1, 1, root, root};
    case DO_ALLREDUCE:
    case DO_SCAN:
        return (struct blocking_layout){one, one, -1, 1, 1, 1};
    case DO_EXSCAN: /* the first rank gets nothing, and may have no buffer */
        return (struct blocking_layout){one, one, -1, 1, rank > 0, rank > 0};
    case DO_REDUCE_SCATTER:
        return (struct blocking_layout){all, one, -1, 1, 1, 1};
    case DO_ALLGATHER:
        return (struct blocking_layout){one, all, rank, 1, 1, 1};
    case DO_GATHER:
        return (struct blocking_layout){one, all, rank, 1, root, root};
    case DO_SCATTER:
        return (struct blocking_layout){all, one, -1, root, 1, root};
    case DO_ALLTOALL:
        return (struct blocking_layout){all, all, -1, 1, 1, 1};
    case DO_NEIGHBOUR_EXCHANGE:
        return (struct blocking_layout){one, 2 * one, -1, 1, 1, 0};
    default:
        return (struct blocking_layout){0, 0, -1, 0, 0, 0};
    }
}

/* What a rank is to get. */
static inline void blocking_expect(const struct blocking_cell *cell, int rank, int size, char *to)
{
    size_t element = weft_dtype_size(cell->dtype), block = cell->count * element;
    size_t largest = cell->count * (size_t)size;
    char *theirs = malloc(largest * element + 1);
    switch (cell->function) {
    case DO_BROADCAST:
        blocking_fill(cell, cell->root, cell->count, to);
        break;
    case DO_REDUCE:
    case DO_ALLREDUCE:
        blocking_combine(cell, size, 0, to);
        break;
    case DO_SCAN:
        blocking_combine(cell, rank + 1, 0, to);
        break;
    case DO_EXSCAN:
        blocking_combine(cell, rank, 0, to);
        break;
    case DO_REDUCE_SCATTER:
        blocking_combine(cell, size, (size_t)rank * cell->count, to);
        break;
    case DO_SCATTER:
        blocking_fill(cell, cell->root, largest, theirs);
        memcpy(to, theirs + (size_t)rank * block, block);
        break;
    case DO_NEIGHBOUR_EXCHANGE:
        blocking_fill(cell, (rank + size - 1) % size, cell->count, to);
        blocking_fill(cell, (rank + 1) % size, cell->count, to + block);
        break;
    case DO_ALLGATHER:
    case DO_GATHER:
        for (int r = 0; r < size; r++)
            blocking_fill(cell, r, cell->count, to + (size_t)r * block);
        break;
    case DO_ALLTOALL:
        for (int r = 0; r < size; r++) {
            blocking_fill(cell, r, largest, theirs);
            memcpy(to + (size_t)r * block, theirs + (size_t)rank * block, block);
        }
        break;
    default:
        break;
    }
    free(theirs);
}

/* A call in its blocking form or the other one. */
#define BLOCKING_CALL(request, name, ...)                                                          \
    ((request) ? weft_i##name(__VA_ARGS__, (request)) : weft_##name(__VA_ARGS__))

static inline int blocking_call(struct weft_context *context, const struct blocking_cell *cell,
                                const void *send, void *recv, struct weft_request **request)
{
    size_t count = cell->count;
    weft_dtype_t dtype = cell->dtype;
    const struct weft_op *op = cell->op;
    switch (cell->function) {
    case DO_BARRIER:
        return BLOCKING_CALL(request, barrier, context);
    case DO_BROADCAST:
        return BLOCKING_CALL(request, broadcast, context, recv, count, dtype, cell->root);
    case DO_REDUCE:
        return BLOCKING_CALL(request, reduce, context, send, recv, count, dtype, op, cell->root);
    case DO_ALLREDUCE:
        return BLOCKING_CALL(request, allreduce, context, send, recv, count, dtype, op);
    case DO_REDUCE_SCATTER:
        return BLOCKING_CALL(request, reduce_scatter, context, send, recv, count, dtype, op);
    case DO_ALLGATHER:
        return BLOCKING_CALL(request, allgather, context, send, recv, count, dtype);
    case DO_GATHER:
        return BLOCKING_CALL(request, gather, context, send, recv, count, dtype, cell->root);
    case DO_SCATTER:
        return BLOCKING_CALL(request, scatter, context, send, recv, count, dtype, cell->root);
    case DO_SCAN:
        return BLOCKING_CALL(request, scan, context, send, recv, count, dtype, op);
    case DO_EXSCAN:
        return BLOCKING_CALL(request, exscan, context, send, recv, count, dtype, op);
    case DO_ALLTOALL:
        return BLOCKING_CALL(request, alltoall, context, send, recv, count, dtype);
    default:
        return BLOCKING_CALL(request, neighbour_exchange, context, send, recv, count, dtype);
    }
}

static inline struct weft_request **blocking_request(struct blocking_job *job)
{
    return job->cell.way == DO_BLOCK ? NULL : &job->request;
}

static inline void blocking_begin_even(struct weft_context *context, struct blocking_job *job)
{
    const struct blocking_cell *cell = &job->cell;
    int rank = job->rank, size = job->size;
    struct blocking_layout at = blocking_lay_out(cell, rank, size);
    size_t element = weft_dtype_size(cell->dtype);
    size_t room = (cell->count * (size_t)size + 2 * cell->count) * element;
    char *send = calloc(room + 1, 1), *recv = calloc(room + 1, 1), *expected = calloc(room + 1, 1);
    int in_place = cell->in_place && at.may_in_place, keeps = cell->function == DO_SCATTER;
    job->memory[0] = send;
    job->memory[1] = recv;
    job->memory[2] = expected;
    job->result = recv;
    job->expected = expected;
    job->bytes = at.gets ? at.got * element : 0;
    blocking_fill(cell, rank, at.sent, send);
    if (cell->function == DO_BROADCAST && rank == cell->root)
        blocking_fill(cell, rank, at.got, recv);
    blocking_expect(cell, rank, size, expected);
    if (in_place && keeps)
        job->result = send + (size_t)rank * cell->count * element;
    else if (in_place)
        memcpy(recv + (at.own_block < 0 ? 0 : (size_t)at.own_block * cell->count * element), send,
               at.sent * element);
    const void *from = !at.sends ? NULL : in_place && !keeps ? WEFT_IN_PLACE : send;
    void *to = !at.gets ? NULL : in_place && keeps ? WEFT_IN_PLACE : recv;
    /* Without elements there need be no buffers. */
    if (cell->count == 0 && cell->salt % 2) {
        from = from == WEFT_IN_PLACE ? from : NULL;
        to = to == WEFT_IN_PLACE ? to : NULL;
    }
    job->status = blocking_call(context, cell, from, to, blocking_request(job));
}

/* ---- blocks with counts of their own ---- */

/* Elements that go from one rank to another, or that are the block of a rank; some have none. */
static inline size_t blocking_pair(const struct blocking_cell *cell, int from, int to)
{
    int sum = cell->in_place ? from + to : from + 2 * to;
    return cell->count == 0 || sum % 3 == 1 ? 0 : cell->count + (size_t)(from * to) % 3;
}

static inline size_t blocking_block(const struct blocking_cell *cell, int rank)
{
    return cell->count == 0 || rank % 3 == 1 ? 0 : cell->count + (size_t)rank % 4;
}

/* One side of a call: blocks behind each other, or the last first and with gaps. */
struct blocking_side {
    size_t *counts, *places, total;
    char *data;
    int apart;
};

static inline struct blocking_side blocking_side(size_t element, int size, int apart)
{
    struct blocking_side side = {.apart = apart};
    side.counts = calloc((size_t)size, sizeof *side.counts);
    side.places = calloc((size_t)size, sizeof *side.places);
    side.data = calloc((size_t)size * 64 + 64, element);
    memset(side.data, 0x55, ((size_t)size * 64 + 64) * element);
    return side;
}

static inline void blocking_side_place(struct blocking_side *side, int size)
{
    for (int i = 0; i < size; i++) {
        int r = side->apart ? size - 1 - i : i;
        side->places[r] = side->total;
        side->total += side->counts[r] + (size_t)side->apart;
    }
}

/* Its lists, not its data. */
static inline void blocking_side_free(struct blocking_side *side, int size)
{
    memset(side->counts, 0x77, (size_t)size * sizeof *side->counts);
    memset(side->places, 0x77, (size_t)size * sizeof *side->places);
    free(side->counts);
    free(side->places);
}

/* What rank `from` has for block `block`. */
static inline void blocking_fill_block(const struct blocking_cell *cell, int from, int block,
                                       size_t count, char *to)
{
    for (size_t i = 0; i < count; i++)
        blocking_element(cell, from, (size_t)block * 100 + i,
                         to + i * weft_dtype_size(cell->dtype));
}

static inline void blocking_combine_block(const struct blocking_cell *cell, int size, int block,
                                          size_t count, char *to)
{
    size_t element = weft_dtype_size(cell->dtype);
    char *next = calloc(count + 1, element);
    blocking_fill_block(cell, 0, block, count, to);
    for (int r = 1; r < size && count > 0; r++) {
        blocking_fill_block(cell, r, block, count, next);
        weft_op_reduce(cell->op, cell->dtype, to, to, next, count);
    }
    free(next);
}

static inline int blocking_call_ragged(struct weft_context *context,
                                       const struct blocking_cell *cell,
                                       const struct blocking_side *send, struct blocking_side *recv,
                                       struct weft_request **request)
{
    int rank = weft_context_rank(context), root = rank == cell->root, in_place = cell->in_place;
    const size_t *from = send->apart ? send->places : NULL, *to = recv->apart ? recv->places : NULL;
    size_t own = blocking_block(cell, rank);
    switch (cell->function) {
    case DO_ALLGATHERV:
        return BLOCKING_CALL(request, allgatherv, context, in_place ? WEFT_IN_PLACE : send->data,
                             recv->data, recv->counts, to, cell->dtype);
    case DO_GATHERV:
        return BLOCKING_CALL(request, gatherv, context,
                             in_place && root ? WEFT_IN_PLACE : send->data,
                             in_place && root ? 77 : own, root ? recv->data : NULL,
                             root ? recv->counts : NULL, root ? to : NULL, cell->dtype, cell->root);
    case DO_SCATTERV:
        return BLOCKING_CALL(request, scatterv, context, root ? send->data : NULL,
                             root ? send->counts : NULL, root ? from : NULL,
                             in_place && root ? WEFT_IN_PLACE : recv->data,
                             in_place && root ? 77 : own, cell->dtype, cell->root);
    case DO_ALLTOALLV:
        return BLOCKING_CALL(request, alltoallv, context, in_place ? WEFT_IN_PLACE : send->data,
                             in_place ? NULL : send->counts, from, recv->data, recv->counts, to,
                             cell->dtype);
    default:
        return BLOCKING_CALL(request, reduce_scatterv, context,
                             in_place ? WEFT_IN_PLACE : send->data, recv->data, recv->counts,
                             cell->dtype, cell->op);
    }
}

static inline void blocking_begin_ragged(struct weft_context *context, struct blocking_job *job)
{
    const struct blocking_cell *cell = &job->cell;
    int rank = job->rank, size = job->size;
    int root = rank == cell->root, f = (int)cell->function, apart = cell->salt == 0;
    size_t element = weft_dtype_size(cell->dtype);
    int pairs = f == DO_ALLTOALLV, reduces = f == DO_REDUCE_SCATTERV;
    int sends_blocks = f == DO_SCATTERV || pairs || reduces;
    int gets_blocks = f == DO_ALLGATHERV || f == DO_GATHERV || pairs;
    struct blocking_side send = blocking_side(element, size, apart && !reduces);
    struct blocking_side recv = blocking_side(element, size, apart && !reduces);
    struct blocking_side expected = blocking_side(element, size, apart && !reduces);
    for (int r = 0; r < size; r++) {
        send.counts[r] = pairs ? blocking_pair(cell, rank, r) : blocking_block(cell, r);
        recv.counts[r] = expected.counts[r] =
            pairs ? blocking_pair(cell, r, rank) : blocking_block(cell, r);
    }
    blocking_side_place(&send, size);
    blocking_side_place(&recv, size);
    blocking_side_place(&expected, size);
    for (int r = 0; sends_blocks && r < size; r++)
        blocking_fill_block(cell, rank, r, send.counts[r], send.data + send.places[r] * element);
    if (!sends_blocks)
        blocking_fill_block(cell, rank, rank, send.counts[rank], send.data);
    if (cell->in_place && (pairs || reduces))
        memcpy(recv.data, send.data, send.total * element);
    if (cell->in_place && gets_blocks && !pairs)
        memcpy(recv.data + recv.places[rank] * element, send.data, send.counts[rank] * element);
    for (int r = 0; gets_blocks && r < size; r++)
        blocking_fill_block(cell, r, pairs ? rank : r, recv.counts[r],
                            expected.data + recv.places[r] * element);
    if (f == DO_SCATTERV)
        blocking_fill_block(cell, cell->root, rank, recv.counts[rank], expected.data);
    if (reduces)
        blocking_combine_block(cell, size, rank, recv.counts[rank], expected.data);
    /* Gaps, too; what is behind a result that was reduced in place is as may be. */
    size_t bytes = (reduces ? recv.counts[rank] : recv.total) * element;
    int looked_at = !(f == DO_GATHERV && !root) && !(f == DO_SCATTERV && root && cell->in_place);
    job->memory[0] = send.data;
    job->memory[1] = recv.data;
    job->memory[2] = expected.data;
    job->result = recv.data;
    job->expected = expected.data;
    job->bytes = looked_at ? bytes : 0;
    job->status = blocking_call_ragged(context, cell, &send, &recv, blocking_request(job));
    /* The lists may go at once. */
    blocking_side_free(&send, size);
    blocking_side_free(&recv, size);
    blocking_side_free(&expected, size);
}

/* ---- any of them ---- */

static inline void blocking_begin(struct weft_context *context, const struct blocking_cell *cell,
                                  struct blocking_job *job)
{
    *job = (struct blocking_job){
        .cell = *cell, .rank = weft_context_rank(context), .size = weft_context_size(context)};
    if (cell->function < DO_ALLGATHERV)
        blocking_begin_even(context, job);
    else
        blocking_begin_ragged(context, job);
}

/* Waits and compares. 0; -1: it is wrong, and said so. */
static inline int blocking_finish(struct blocking_job *job)
{
    const struct blocking_cell *cell = &job->cell;
    if (job->request && cell->way == DO_TEST)
        while ((job->status = weft_request_test(job->request)) == WEFT_IN_PROGRESS)
            sched_yield();
    else if (job->request)
        job->status = weft_request_wait(job->request, WEFT_NEVER);
    int wrong = job->status || (cell->way != DO_BLOCK && !job->request) ||
                memcmp(job->result, job->expected, job->bytes) != 0;
    if (wrong)
        fprintf(stderr,
                "function %d, way %d, rank %d of %d, %zu %s, op %s, root %d, in place %d: %s "
                "(%s)\n",
                (int)cell->function, (int)cell->way, job->rank, job->size, cell->count,
                weft_dtype_name(cell->dtype), cell->op ? weft_op_name(cell->op) : "none",
                cell->root, cell->in_place,
                job->status ? weft_status_name(job->status) : "wrong result", weft_error_text());
    weft_request_destroy(job->request);
    for (int i = 0; i < 3; i++)
        free(job->memory[i]);
    *job = (struct blocking_job){0};
    return wrong ? -1 : 0;
}

/* Calls and compares, as blocking_finish(). */
static inline int blocking_do(struct weft_context *context, const struct blocking_cell *cell)
{
    struct blocking_job job;
    blocking_begin(context, cell, &job);
    return blocking_finish(&job);
}

/* Calls that are under way at a time. */
enum { BLOCKING_JOBS = 16 };

/* Every function, datatype, operation, in place and not, with every count; each twice, with other
 * data and buffers. One in `stride` of these, another for every seed. Up to `depth` are under way
 * at a time. */
static inline int blocking_sweep_as(struct weft_context *context, unsigned stride, unsigned seed,
                                    enum blocking_way way, unsigned depth)
{
    static const size_t counts[] = {0, 1, 37};
    int size = weft_context_size(context);
    struct weft_op *affine = affine_op();
    struct blocking_job jobs[BLOCKING_JOBS] = {{.status = 0}};
    unsigned number = 0, calls = 0;
    int status = affine ? 0 : -1;
    for (int f = 0; f < DO_COUNT; f++)
        for (int d = 0; d < WEFT_DTYPE_COUNT + 3; d++)
            for (int o = 0; o < (blocking_reduces(f) && d < WEFT_DTYPE_COUNT ? WEFT_OP_COUNT : 1);
                 o++)
                for (int c = 0; c < 6 && !status; c++) {
                    static const size_t bytes[] = {sizeof(struct affine), 3, 24};
                    struct blocking_cell cell = {.function = (enum blocking_function)f,
                                                 .dtype = (weft_dtype_t)d,
                                                 .count = counts[c / 2],
                                                 .in_place = c % 2};
                    if (d >= WEFT_DTYPE_COUNT)
                        cell.dtype = weft_dtype_opaque(bytes[d - WEFT_DTYPE_COUNT]);
                    if (blocking_reduces(f))
                        cell.op =
                            d < WEFT_DTYPE_COUNT ? weft_op_builtin((weft_op_kind_t)o) : affine;
                    if (cell.op && (!weft_op_supports(cell.op, cell.dtype) || d > WEFT_DTYPE_COUNT))
                        continue;
                    if ((number++ + seed) % stride != 0)
                        continue;
                    cell.root = (int)((number + seed) % (unsigned)size);
                    for (cell.salt = 0; cell.salt < 2 && !status; cell.salt++) {
                        struct blocking_job *job = &jobs[calls++ % depth];
                        cell.way = way;
                        if (way == DO_ANY)
                            cell.way = (enum blocking_way)(
                                (calls + (unsigned)weft_context_rank(context)) % DO_ANY);
                        status = job->size ? blocking_finish(job) : 0;
                        blocking_begin(context, &cell, job);
                    }
                }
    for (unsigned i = 0; i < depth; i++) {
        struct blocking_job *job = &jobs[calls++ % depth];
        if (job->size && blocking_finish(job))
            status = -1;
    }
    weft_op_destroy(affine);
    return status;
}

static inline int blocking_sweep(struct weft_context *context, unsigned stride, unsigned seed)
{
    return blocking_sweep_as(context, stride, seed, DO_BLOCK, 1);
}

#endif
