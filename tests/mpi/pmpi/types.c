/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Derived datatypes: each rank sends and receives in a layout of its own, in counts that differ
 * while the signature is the same. Every byte is compared, so that gaps have to stay as they were.
 */
#include <stdio.h>
#include <string.h>

#include "compare.h"

struct exchange {
    enum collective which;
    enum family family;
    enum form form;
    unsigned number; /* of the case: what differs between cases depends on it */
    int scale;       /* a block has this often UNITS_MULTIPLE units */
    unsigned among;  /* the first layouts alone; 0: all */
    bool in_place;
    int root;
    const struct layout *send, *recv;
    const struct layout *reduced; /* by `op`; `scale` elements */
    MPI_Op op;
    struct part out, in;
    struct call call;
    ptrdiff_t out_low, out_high, in_low, in_high;
    struct buffer sent, sending, found, expected;
};

/* What differs between cases, apart from which call it is. */
static unsigned varied(unsigned number, unsigned count)
{
    return (unsigned)(test_random(number, 1000, count) % count);
}

static unsigned pick(const struct exchange *x, int rank, int peer, int side)
{
    uint64_t random = test_random(x->number, (uint64_t)(rank * 64 + peer), (uint64_t)side) >> 40;

    return (unsigned)(x->among ? random % x->among : random);
}

static int units_regular(const struct exchange *x)
{
    return UNITS_MULTIPLE * x->scale;
}

/* Blocks of irregular collectives; some are empty. */
static int units_between(const struct exchange *x, int from, int to)
{
    int number = x->in_place ? from + to : from + 2 * to;

    return UNITS_MULTIPLE * x->scale * ((number + (int)varied(x->number, 3)) % 3);
}

static void widen(ptrdiff_t *low, ptrdiff_t *high, const struct layout *layout, int first,
                  int count)
{
    ptrdiff_t from, to;

    if (count == 0)
        return;
    layout_span(layout, count, &from, &to);
    from += first * layout->extent;
    to += first * layout->extent;
    *low = from < *low ? from : *low;
    *high = to > *high ? to : *high;
}

/* ---- arguments ---- */

static void lay_regular(struct exchange *x)
{
    bool all_out = x->which == SCATTER || x->which == ALLTOALL;
    bool all_in = x->which == ALLGATHER || x->which == GATHER || x->which == ALLTOALL;

    x->out.count = units_regular(x) / x->send->units;
    x->in.count = units_regular(x) / x->recv->units;
    widen(&x->out_low, &x->out_high, x->send, 0, x->out.count * (all_out ? test_size : 1));
    widen(&x->in_low, &x->in_high, x->recv, 0, x->in.count * (all_in ? test_size : 1));
}

/* In the order of falling ranks, one element apart. */
static void place(struct part *part, const struct layout *layout, ptrdiff_t *low, ptrdiff_t *high)
{
    int at = 0;

    for (int i = test_size - 1; i >= 0; i--) {
        part->displs[i] = at;
        widen(low, high, layout, at, part->counts[i]);
        at += part->counts[i] + 1;
    }
}

static void lay_blocks(struct exchange *x)
{
    bool scatters = x->which == SCATTERV;
    struct part *blocks = scatters ? &x->out : &x->in, *own = scatters ? &x->in : &x->out;
    const struct layout *layout = scatters ? x->send : x->recv,
                        *mine = scatters ? x->recv : x->send;

    for (int i = 0; i < test_size; i++)
        blocks->counts[i] = units_between(x, i, 0) / layout->units;
    own->count = units_between(x, test_rank, 0) / mine->units;
    if (scatters) {
        place(blocks, layout, &x->out_low, &x->out_high);
        widen(&x->in_low, &x->in_high, mine, 0, own->count);
    } else {
        place(blocks, layout, &x->in_low, &x->in_high);
        widen(&x->out_low, &x->out_high, mine, 0, own->count);
    }
}

static void lay_exchange(struct exchange *x)
{
    for (int i = 0; i < test_size; i++) {
        x->out.counts[i] = units_between(x, test_rank, i) / x->send->units;
        x->in.counts[i] = units_between(x, i, test_rank) / x->recv->units;
    }
    place(&x->out, x->send, &x->out_low, &x->out_high);
    place(&x->in, x->recv, &x->in_low, &x->in_high);
}

/* Another layout for each peer, one behind the other. */
static void place_each(struct part *part, int peer, const struct layout *layout, ptrdiff_t *high)
{
    ptrdiff_t from, to;
    ptrdiff_t at = (*high + 15) / 8 * 8;

    layout_span(layout, part->counts[peer], &from, &to);
    part->types[peer] = layout->type;
    part->displs[peer] = (int)(at - from / 8 * 8);
    *high = part->displs[peer] + to;
}

static void lay_each(struct exchange *x)
{
    for (int i = 0; i < test_size; i++) {
        const struct layout *send = layouts_get(x->family, pick(x, test_rank, i, 0));
        const struct layout *recv = layouts_to_receive(x->family, pick(x, i, test_rank, 1));

        x->out.counts[i] = units_between(x, test_rank, i) / send->units;
        x->in.counts[i] = units_between(x, i, test_rank) / recv->units;
        place_each(&x->out, i, send, &x->out_high);
        place_each(&x->in, i, recv, &x->in_high);
    }
}

/* All ranks have the same. */
static void lay_reduction(struct exchange *x)
{
    int all = x->scale * test_size, mine = x->scale;

    x->send = x->recv = x->reduced;
    if (x->which == REDUCE_SCATTER) {
        all = 0;
        for (int i = 0; i < test_size; i++)
            all += x->in.counts[i] = x->scale * ((i + (int)varied(x->number, 3)) % 3);
        mine = x->in.counts[test_rank];
    } else if (x->which != REDUCE_SCATTER_BLOCK) {
        all = x->scale;
    }
    x->out.count = x->in.count = mine;
    widen(&x->out_low, &x->out_high, x->send, 0, all);
    widen(&x->in_low, &x->in_high, x->recv, 0, mine);
}

static bool in_place_here(const struct exchange *x)
{
    return x->in_place && x->which != BCAST && (!call_has_root(x->which) || x->root == test_rank);
}

static void lay(struct exchange *x)
{
    x->send = layouts_get(x->family, pick(x, test_rank, 0, 2));
    /* MPICH 4.0.2 cuts what Allgatherv passes on by the receiver's datatype, if it is much. */
    x->recv = layouts_to_receive(x->family, pick(x, x->among ? 0 : test_rank, 0, 3));
    if (x->reduced)
        lay_reduction(x);
    x->out.type = x->send->type;
    x->in.type = x->recv->type;
    if (x->which == ALLTOALLW)
        lay_each(x);
    else if (x->which == ALLTOALLV)
        lay_exchange(x);
    else if (call_irregular(x->which) && !x->reduced)
        lay_blocks(x);
    else if (!x->reduced)
        lay_regular(x);
    part_widen(&x->out, test_size);
    part_widen(&x->in, test_size);
}

static void prepare_call(struct exchange *x)
{
    bool scatters = x->which == SCATTER || x->which == SCATTERV;

    x->call = (struct call){
        .which = x->which,
        .send = x->sending.data,
        .recv = x->found.data,
        .out = x->out,
        .in = x->in,
        .op = x->op,
        .root = x->root,
        .comm = MPI_COMM_WORLD,
    };
    if (in_place_here(x) && scatters)
        x->call.recv = MPI_IN_PLACE;
    else if (in_place_here(x))
        x->call.send = MPI_IN_PLACE;
}

static void describe(const struct exchange *x, char *text, size_t bytes)
{
    snprintf(text, bytes,
             "%s of case %u: rank %d of %d sends %d of \"%s\" and receives %d of \"%s\", root %d%s",
             call_name(x->which, x->form), x->number, test_rank, test_size, x->out.count,
             x->which == ALLTOALLW ? "several" : x->send->name, x->in.count,
             x->which == ALLTOALLW ? "several" : x->recv->name, x->root,
             x->in_place ? ", in place" : "");
}

static void call(struct exchange *x, const char *text)
{
    bool persistent = x->form == FORM_PERSISTENT || x->form == FORM_PERSISTENT_C;
    MPI_Request request = MPI_REQUEST_NULL;
    struct call expected;

    prepare_call(x);
    test_doing("%s", text);
    test_must(__FILE__, __LINE__, text, call_mpi(&x->call, x->form, &request));
    if (persistent)
        MUST(MPI_Start(&request));
    if (x->form != FORM_BLOCKING && x->form != FORM_BLOCKING_C)
        MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    if (persistent)
        MUST(MPI_Request_free(&request));
    expected = x->call;
    if (expected.recv == x->found.data)
        expected.recv = x->expected.data;
    test_doing("P%s", text);
    MUST(call_expected(&expected));
}

static void compare(struct exchange x)
{
    char text[400];

    part_alloc(&x.out, test_size);
    part_alloc(&x.in, test_size);
    lay(&x);
    buffer_make(&x.sending, x.out_low, x.out_high, 0);
    buffer_make(&x.found, x.in_low, x.in_high, 0);
    buffer_randomize(&x.sending, x.number * 1000 + (unsigned)test_rank);
    buffer_randomize(&x.found, x.number * 1000 + 500 + (unsigned)test_rank);
    buffer_copy(&x.sent, &x.sending);
    buffer_copy(&x.expected, &x.found);
    describe(&x, text, sizeof text - 20);
    call(&x, text);
    /* On rank 0, Exscan has no result. */
    if (x.which == EXSCAN && test_rank == 0 && !x.in_place)
        buffer_guarded(&x.found, text);
    else
        buffer_same(&x.found, &x.expected, text);
    strcat(text, ": what was sent");
    buffer_same(&x.sending, &x.sent, text);
    buffer_free(&x.sending);
    buffer_free(&x.found);
    buffer_free(&x.sent);
    buffer_free(&x.expected);
    part_free(&x.out);
    part_free(&x.in);
}

/* Every other one is blocking; all exchanges in place are (see call_expected()). */
static enum form form_of(unsigned number, bool exchange)
{
    return varied(number, 2) || exchange ? FORM_BLOCKING : (enum form)varied(number, FORMS_HERE);
}

static void movements(enum family family, int scale, unsigned among, int rounds)
{
    for (int round = 0; round < rounds; round++)
        for (int which = BCAST; which <= ALLTOALLW; which++) {
            unsigned number = test_next();
            bool in_place = round % 3 == 2;

            if (number)
                compare((struct exchange){
                    .which = (enum collective)which,
                    .family = family,
                    .number = number,
                    .form = form_of(number, in_place && which >= ALLTOALL),
                    .scale = scale + round % 2,
                    .in_place = in_place,
                    .among = among,
                    .root = (int)varied(number, (unsigned)test_size),
                });
        }
}

/* ---- reductions, by an operation of the program's own ---- */

/* The places of the units of the layout that is reduced. */
static ptrdiff_t places[UNITS_MULTIPLE];
static const struct layout *reduced;

static void add(void *in, void *out, int *len, MPI_Datatype *type)
{
    EXPECT(*type == reduced->type);
    for (int i = 0; i < *len; i++)
        for (int j = 0; j < reduced->units; j++) {
            ptrdiff_t at = i * reduced->extent + places[j];
            uint32_t a, b;

            memcpy(&a, (char *)in + at, sizeof a);
            memcpy(&b, (char *)out + at, sizeof b);
            a += b;
            memcpy((char *)out + at, &a, sizeof a);
        }
}

/* Unpacks the numbers of the units, from 1 on, and looks where they are. */
static void find_places(const struct layout *layout)
{
    int numbers[UNITS_MULTIPLE], position = 0, bytes = layout->units * (int)sizeof(int);
    struct buffer buffer;

    for (int i = 0; i < layout->units; i++)
        numbers[i] = i + 1;
    buffer_make(&buffer, layout->true_lower, layout->true_lower + layout->true_extent, 0);
    memset(buffer.memory, 0, buffer.bytes);
    MUST(PMPI_Unpack(numbers, bytes, &position, buffer.data, 1, layout->type, MPI_COMM_WORLD));
    for (size_t at = buffer.low; at < buffer.high; at += sizeof(int)) {
        int value;

        memcpy(&value, buffer.memory + at, sizeof value);
        if (value)
            places[value - 1] = buffer.memory + at - buffer.data;
    }
    buffer_free(&buffer);
    reduced = layout;
}

/* MPICH 4.0.2 allocates too little for these when the extent is more than the true one. */
static bool broken(enum collective which, const struct layout *layout)
{
    return (which == REDUCE_SCATTER || which == REDUCE_SCATTER_BLOCK) &&
           layout->extent != layout->true_extent;
}

static void reduce(enum collective which, unsigned layout, MPI_Op op)
{
    unsigned number = test_next();

    find_places(layouts_to_receive(FAMILY_INTS, layout));
    if (number && !broken(which, reduced))
        compare((struct exchange){
            .which = which,
            .number = number,
            .form = form_of(number, false),
            .scale = 1 + (int)varied(number, 20),
            .in_place =
                varied(number, 3) == 0 && which != REDUCE_SCATTER && which != REDUCE_SCATTER_BLOCK,
            .root = (int)varied(number, (unsigned)test_size),
            .reduced = reduced,
            .op = op,
        });
}

static void reductions(int rounds)
{
    MPI_Op op;

    MUST(MPI_Op_create(add, 1, &op));
    for (int i = 0; i < rounds * layouts_count(FAMILY_INTS); i++)
        for (int which = 0; which <= EXSCAN; which++)
            reduce((enum collective)which, (unsigned)i, op);
    MUST(MPI_Op_free(&op));
}

/* ---- datatypes of no size, and those that come and go ---- */

static void no_size(void)
{
    const MPI_Datatype none = MPI_DATATYPE_NULL;
    MPI_Datatype types[2];

    MUST(MPI_Type_contiguous(0, MPI_INT, &types[0]));
    MUST(MPI_Type_create_struct(0, (const int[]){0}, (const MPI_Aint[]){0}, &none, &types[1]));
    for (int i = 0; i < 2; i++) {
        MUST(MPI_Type_commit(&types[i]));
        for (int which = BCAST; which <= ALLTOALLW; which++) {
            const struct kind kind = {.name = "of no size", .type = types[i], .group = GROUP_RAW};
            unsigned number = test_next();

            if (number)
                trial_run(
                    &(struct shape){
                        .which = (enum collective)which,
                        .kind = &kind,
                        .count = 5,
                        .root = (int)varied(number, (unsigned)test_size),
                        .comm = MPI_COMM_WORLD,
                    },
                    form_of(number, false));
        }
        MUST(MPI_Type_free(&types[i]));
    }
}

/* The next one may have the handle of the last one, and lies elsewhere. */
static void come_and_go(void)
{
    enum { ROUNDS = 20 };

    for (int round = 0; round < ROUNDS; round++) {
        int found[ROUNDS * 4], expected[ROUNDS * 4], root = round % test_size;
        MPI_Datatype type;

        if (!test_next())
            continue;
        for (int i = 0; i < ROUNDS * 4; i++)
            expected[i] = found[i] = test_rank == root ? 1000 * round + i : -1;
        test_doing("datatypes that come and go, round %d", round);
        MUST(MPI_Type_vector(4, 1, 1 + round, MPI_INT, &type));
        MUST(MPI_Type_commit(&type));
        MUST(MPI_Bcast(found, 1, type, root, MPI_COMM_WORLD));
        MUST(MPI_Type_free(&type));
        for (int i = 0; i < 4; i++)
            expected[i * (1 + round)] = 1000 * round + i * (1 + round);
        if (memcmp(found, expected, sizeof found) != 0)
            test_mismatch("MPI_Bcast of a datatype that is new in round %d: not the same", round);
    }
}

int main(int argc, char **argv)
{
    test_begin(&argc, &argv, -1);
    test_part(2, 7);
    layouts_make();
    movements(FAMILY_INTS, 1, 0, 24);
    movements(FAMILY_RECORDS, 1, 0, 12);
    /* Of messages that do not go at once, MPICH 4.0.2 takes structs for truncated: see trials.c. */
    movements(FAMILY_INTS, 400, 6, 3);
    reductions(2);
    no_size();
    come_and_go();
    layouts_free();
    return test_end();
}
