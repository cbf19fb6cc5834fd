/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One collective of a predefined datatype: buffers and arguments for it, what PMPI makes of them,
 * and what MPI made. Blocks of irregular collectives lie in the order of falling ranks, with gaps;
 * some are empty.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"

enum { TEXT_BYTES = 300, ELEMENTS_SAID = 2 };

static int irregular(const struct shape *shape, int number)
{
    return shape->count * ((number * 7 + 3) % 4) / 2;
}

/* What `from` sends `to`; of an exchange in place, both send as much. */
static int between(const struct shape *shape, int from, int to)
{
    return irregular(shape, shape->in_place ? from + to : 3 * from + 5 * to);
}

/* The end of the last block. */
static int place(struct part *part, int ranks)
{
    int at = 0;

    for (int i = ranks - 1; i >= 0; i--) {
        part->displs[i] = at;
        at += part->counts[i] + i % 3;
    }
    return at;
}

static void lay_regular(struct trial *t)
{
    int n = t->shape.count, all = n * t->ranks;
    enum collective which = t->shape.which;

    t->out.count = t->in.count = n;
    t->out_elements = which == SCATTER || which == ALLTOALL || which == REDUCE_SCATTER_BLOCK ? all
                      : which == BCAST || which == BARRIER                                   ? 0
                                                                                             : n;
    t->in_elements = which == ALLGATHER || which == GATHER || which == ALLTOALL ||
                             (which == REDUCE_SCATTER_BLOCK && t->shape.in_place)
                         ? all
                     : which == BARRIER ? 0
                                        : n;
}

static void lay_exchange(struct trial *t)
{
    for (int i = 0; i < t->ranks; i++) {
        t->out.counts[i] = between(&t->shape, t->rank, i);
        t->in.counts[i] = between(&t->shape, i, t->rank);
        t->out.types[i] = t->in.types[i] = t->shape.kind->type;
    }
    t->out_elements = place(&t->out, t->ranks);
    t->in_elements = place(&t->in, t->ranks);
    for (int i = 0; t->shape.which == ALLTOALLW && i < t->ranks; i++) {
        t->out.displs[i] *= (int)t->shape.kind->extent;
        t->in.displs[i] *= (int)t->shape.kind->extent;
    }
}

static void lay_blocks(struct trial *t)
{
    struct part *blocks = t->shape.which == SCATTERV ? &t->out : &t->in;
    int mine, end, sum = 0;

    for (int i = 0; i < t->ranks; i++)
        sum += blocks->counts[i] = irregular(&t->shape, i);
    mine = blocks->counts[t->rank];
    end = place(blocks, t->ranks);
    t->out.count = t->in.count = mine;
    t->out_elements = t->shape.which == SCATTERV         ? end
                      : t->shape.which == REDUCE_SCATTER ? sum
                                                         : mine;
    t->in_elements = t->shape.which == SCATTERV         ? mine
                     : t->shape.which != REDUCE_SCATTER ? end
                     : t->shape.in_place                ? sum
                                                        : mine;
}

static void lay(struct trial *t)
{
    t->out.type = t->in.type = t->shape.kind->type;
    if (!call_irregular(t->shape.which))
        lay_regular(t);
    else if (t->shape.which == ALLTOALLV || t->shape.which == ALLTOALLW)
        lay_exchange(t);
    else
        lay_blocks(t);
    part_widen(&t->out, t->ranks);
    part_widen(&t->in, t->ranks);
    t->compared = t->in_elements;
    if (t->shape.which == REDUCE_SCATTER || t->shape.which == REDUCE_SCATTER_BLOCK)
        t->compared = t->in.count;
    if (t->shape.which == EXSCAN && t->rank == 0 && !t->shape.in_place)
        t->compared = 0;
}

static bool scatters(const struct trial *t)
{
    return t->shape.which == SCATTER || t->shape.which == SCATTERV;
}

/* Where rooted collectives are in place, that is the root's part. */
static bool in_place_here(const struct trial *t)
{
    return t->shape.in_place && (!call_has_root(t->shape.which) || t->rank == t->shape.root);
}

static bool sends_here(const struct trial *t)
{
    if (t->shape.which == BCAST || t->shape.which == BARRIER)
        return false;
    return scatters(t) ? t->rank == t->shape.root : !in_place_here(t);
}

static bool receives_here(const struct trial *t)
{
    if (scatters(t))
        return !in_place_here(t);
    return t->shape.which == BCAST || !call_has_root(t->shape.which) || t->rank == t->shape.root;
}

/* Nothing may be read of a part that is not significant. */
static void forget(struct part *part, bool reduces)
{
    if (!reduces)
        part->count = -1;
    if (!reduces)
        part->type = MPI_DATATYPE_NULL;
    part->counts = part->displs = NULL;
    part->types = NULL;
    part->wide_counts = NULL;
    part->wide_displs = NULL;
}

static void prepare_call(struct trial *t)
{
    struct call *call = &t->call;
    const struct shape *shape = &t->shape;

    *call = (struct call){
        .which = shape->which,
        .send = t->send.data,
        .recv = t->recv.data,
        .out = t->out,
        .in = t->in,
        .op = shape->operation ? shape->operation->op : MPI_OP_NULL,
        .root = shape->root,
        .comm = shape->comm,
    };
    if (shape->absent && !sends_here(t)) {
        call->send = NULL;
        forget(&call->out, call_reduces(shape->which));
    }
    if (shape->absent && !receives_here(t)) {
        call->recv = NULL;
        forget(&call->in, call_reduces(shape->which));
    }
    if (in_place_here(t) && scatters(t))
        call->recv = MPI_IN_PLACE;
    else if (in_place_here(t) && shape->which != BCAST)
        call->send = MPI_IN_PLACE;
}

static void fill(struct trial *t, struct buffer *buffer, int first, int elements)
{
    const struct shape *shape = &t->shape;
    enum fill how = shape->operation ? shape->operation->fill : FILL_ANY;

    for (int i = first; i < first + elements; i++)
        kind_fill(shape->kind, how, t->ranks, buffer->data + (size_t)i * shape->kind->extent,
                  test_random(shape->seed, (uint64_t)t->rank, (uint64_t)i));
}

static void fill_in_place(struct trial *t)
{
    bool gathers = t->shape.which == ALLGATHER || t->shape.which == GATHER;

    if (gathers)
        fill(t, &t->recv, t->rank * t->shape.count, t->shape.count);
    else if (t->shape.which == ALLGATHERV || t->shape.which == GATHERV)
        fill(t, &t->recv, t->in.displs[t->rank], t->in.counts[t->rank]);
    else
        fill(t, &t->recv, 0, t->in_elements);
}

static void fill_all(struct trial *t)
{
    if (sends_here(t))
        fill(t, &t->send, 0, t->out_elements);
    if (t->shape.which == BCAST ? t->rank == t->shape.root : in_place_here(t) && !scatters(t))
        fill_in_place(t);
}

void trial_make(struct trial *t, const struct shape *shape, enum form form)
{
    ptrdiff_t extent = (ptrdiff_t)shape->kind->extent;
    size_t shift = test_random(shape->seed, 0, 1) % 2 && extent <= 16 ? (size_t)extent : 0;

    memset(t, 0, sizeof *t);
    t->shape = *shape;
    t->form = form;
    MUST(PMPI_Comm_rank(shape->comm, &t->rank));
    MUST(PMPI_Comm_size(shape->comm, &t->ranks));
    part_alloc(&t->out, t->ranks);
    part_alloc(&t->in, t->ranks);
    lay(t);
    t->receives = receives_here(t);
    buffer_make(&t->send, 0, extent * t->out_elements, shift);
    buffer_make(&t->recv, 0, extent * t->in_elements, shift);
    fill_all(t);
    buffer_copy(&t->sent, &t->send);
    buffer_copy(&t->expected, &t->recv);
    prepare_call(t);
}

void trial_refill(struct trial *t, uint64_t seed)
{
    t->shape.seed = seed;
    buffer_reset(&t->send);
    buffer_reset(&t->recv);
    fill_all(t);
    trial_changed(t);
}

void trial_changed(struct trial *t)
{
    memcpy(t->sent.memory, t->send.memory, t->send.bytes);
    memcpy(t->expected.memory, t->recv.memory, t->recv.bytes);
}

struct buffer *trial_input(struct trial *t, int *elements)
{
    bool sends = sends_here(t);

    *elements = sends ? t->out_elements : t->in_elements;
    return sends ? &t->send : &t->recv;
}

void trial_expect(struct trial *t)
{
    struct call call = t->call;

    if (call.recv == t->recv.data)
        call.recv = t->expected.data;
    MUST(call_expected(&call));
}

void trial_start(struct trial *t, MPI_Request *request)
{
    char text[TEXT_BYTES];

    trial_describe(t, text, sizeof text);
    test_doing("%s", text);
    test_must(__FILE__, __LINE__, text, call_mpi(&t->call, t->form, request));
}

static bool element_same(const struct trial *t, size_t index)
{
    const struct kind *kind = t->shape.kind;
    const unsigned char *found = t->recv.data + index * kind->extent;
    const unsigned char *expected = t->expected.data + index * kind->extent;

    if (!t->slack || kind_same(kind, found, expected))
        return kind_same(kind, found, expected);
    for (int i = 0; i < 2; i++)
        if (!(fabsl(kind_real(kind, found, i) - kind_real(kind, expected, i)) <=
              t->slack[2 * index + (size_t)i]))
            return false;
    return true;
}

static void say_element(const struct trial *t, const char *text, size_t index)
{
    char found[200], expected[200];
    const struct kind *kind = t->shape.kind;

    kind_print(kind, t->recv.data + index * kind->extent, found, sizeof found);
    kind_print(kind, t->expected.data + index * kind->extent, expected, sizeof expected);
    test_mismatch("%s: element %zu of %d: expected %s, found %s", text, index, t->in_elements,
                  expected, found);
}

static bool elements_same(const struct trial *t, const char *text)
{
    int differ = 0;

    for (int i = 0; i < t->compared; i++) {
        if (element_same(t, (size_t)i))
            continue;
        if (differ++ < ELEMENTS_SAID)
            say_element(t, text, (size_t)i);
    }
    if (differ > ELEMENTS_SAID)
        test_mismatch("%s: %d elements differ", text, differ);
    return !differ;
}

bool trial_check(const struct trial *t)
{
    char text[TEXT_BYTES + 20];
    bool good = true;

    trial_describe(t, text, sizeof text - 20);
    if (!t->receives)
        good = buffer_same(&t->recv, &t->expected, text);
    else if (memcmp(t->recv.memory, t->expected.memory, t->recv.bytes) != 0)
        good = elements_same(t, text);
    good &= buffer_guarded(&t->recv, text);
    strcat(text, ": what was sent");
    return good & buffer_same(&t->send, &t->sent, text);
}

void trial_free(struct trial *t)
{
    part_free(&t->out);
    part_free(&t->in);
    buffer_free(&t->send);
    buffer_free(&t->sent);
    buffer_free(&t->recv);
    buffer_free(&t->expected);
}

void trial_describe(const struct trial *t, char *text, size_t bytes)
{
    const struct shape *shape = &t->shape;
    char root[24] = "";

    if (call_has_root(shape->which))
        snprintf(root, sizeof root, ", root %d", shape->root);
    snprintf(text, bytes, "%s(%s, %s%scount %d%s%s%s) on rank %d of %d",
             call_name(shape->which, t->form), shape->kind->name,
             shape->operation ? shape->operation->name : "", shape->operation ? ", " : "",
             shape->count, root, shape->in_place ? ", in place" : "",
             shape->absent ? ", NULL where it may be" : "", t->rank, t->ranks);
}

/*
 * MPICH 4.0.2: MPI_Reduce dies when it is in place, the root is not rank 0 and 2 KiB are reduced;
 * what calls PMPI_Ireduce does not. Messages of more than 8 KiB that are received as members of
 * several sizes and were sent as bytes, as those of Scatter, Gather and exchanges in place are, are
 * said to be truncated.
 */
bool shape_broken(const struct shape *shape)
{
#ifdef MPICH
    const struct kind *kind = shape->kind;
    int ranks;
    size_t bytes = (size_t)shape->count * kind->extent;

    MUST(PMPI_Comm_size(shape->comm, &ranks));
    if (shape->which == REDUCE && !test_preloaded())
        return shape->in_place && shape->root && bytes >= 2048;
    if (shape->which == SCATTER || shape->which == GATHER)
        return kind->group == GROUP_PAIR && bytes * (size_t)ranks >= 8000;
    if (shape->which >= ALLTOALL && shape->which <= ALLTOALLW && shape->in_place)
        return kind->group == GROUP_PAIR && bytes >= 5000;
#endif
    (void)shape;
    return false;
}

bool trial_run(const struct shape *shape, enum form form)
{
    struct trial trial;
    MPI_Request request = MPI_REQUEST_NULL;
    bool good;

    if (shape_broken(shape))
        return true;
    trial_make(&trial, shape, form);
    trial_start(&trial, &request);
    if (form == FORM_PERSISTENT || form == FORM_PERSISTENT_C)
        MUST(MPI_Start(&request));
    if (form != FORM_BLOCKING && form != FORM_BLOCKING_C)
        MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    if (form == FORM_PERSISTENT || form == FORM_PERSISTENT_C)
        MUST(MPI_Request_free(&request));
    trial_expect(&trial);
    good = trial_check(&trial);
    trial_free(&trial);
    return good;
}
