/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/support/imagined_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/types.h>

#include "runtime/device/library.h"
#include "tests/gpu/support/device_memory.h"
#include "tests/support/draw.h"

enum { DEVICES = 16, MOST_RANKS = 16, QUEUE = 4096, STREAMS = 512, COMMS = 1024, BLOCKS = 65536 };

#define REQUIRE(condition, ...)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "imagined device: " __VA_ARGS__);                                      \
            fprintf(stderr, "\n");                                                                 \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* ---- what there is ---- */

enum kind { COPY, REDUCE, WRITE, FOLLOW, CALL, GROUP };

struct group {
    struct comm *comm;
    struct weft__comm_item *items;
    unsigned char *done;
    size_t count, left;
};

struct operation {
    enum kind kind;
    void *to;
    const void *from, *also;
    size_t bytes;
    weft_op_kind_t op;
    weft_dtype_t dtype;
    uint32_t value;
    struct stream *first; /* FOLLOW: until it has done so many */
    uint64_t done;
    void (*function)(void *);
    struct group *group;
};

struct stream {
    struct weft__stream stream; /* first */
    _Atomic uint32_t reached;
    struct operation queue[QUEUE];
    uint64_t put, done;
    struct comm *busy; /* the communicator that is in progress on it */
    int open;
};

/* A rank's end of a communicator. */
struct comm {
    struct weft__comm comm; /* first */
    int number;             /* which one it is, of all ranks */
    int polls;              /* until what was begun is over */
    struct stream *stream;  /* on which that is */
    struct operation held;  /* that then gets there */
    int holding, joined, aborting, closed;
    int live;
};

struct block {
    char *memory;
    size_t bytes;
    int pinned, live;
};

static struct {
    struct weft__device devices[DEVICES];
    char names[DEVICES][16];
    unsigned users[DEVICES];
    struct stream *streams[STREAMS];
    size_t stream_count;
    struct comm *comms[COMMS];
    size_t comm_count;
    struct block blocks[BLOCKS];
    size_t block_count;
    struct draw random;
    int numbers;
} world;

static uint64_t groups, waits; /* of all plays */

static unsigned draw(unsigned below)
{
    return draw_below(&world.random, below);
}

static struct stream *stream_of(struct weft__stream *stream)
{
    return (struct stream *)stream;
}

static struct comm *comm_of(struct weft__comm *comm)
{
    return (struct comm *)comm;
}

/* ---- memory ---- */

static void *add_block(size_t bytes, int pinned)
{
    char *memory = malloc(bytes ? bytes : 1);

    REQUIRE(memory && world.block_count < BLOCKS, "no memory");
    world.blocks[world.block_count++] = (struct block){memory, bytes ? bytes : 1, pinned, 1};
    return memory;
}

static const struct block *find_block(const void *address, size_t bytes)
{
    for (size_t i = 0; i < world.block_count; i++) {
        const struct block *block = &world.blocks[i];
        uintptr_t offset = (uintptr_t)address - (uintptr_t)block->memory;

        if (block->live && offset <= block->bytes && bytes <= block->bytes - offset)
            return block;
    }
    return NULL;
}

static void free_block(void *memory, int pinned)
{
    for (size_t i = 0; memory && i < world.block_count; i++)
        if (world.blocks[i].live && world.blocks[i].memory == memory) {
            REQUIRE(world.blocks[i].pinned == pinned, "memory of another kind is freed");
            world.blocks[i].live = 0;
            free(memory);
            return;
        }
    REQUIRE(!memory, "what is freed was not allocated");
}

static int where(struct weft__device *device, const void *address, size_t bytes)
{
    const struct block *block = find_block(address, bytes);
    (void)device;

    return !block ? WEFT__ON_HOST : block->pinned ? WEFT__ON_HOST_PINNED : WEFT__ON_DEVICE;
}

static void *alloc_memory(struct weft__device *device, size_t bytes)
{
    (void)device;
    return add_block(bytes, 0);
}

static void free_memory(struct weft__device *device, void *memory)
{
    (void)device;
    free_block(memory, 0);
}

static void *pin(struct weft__device *device, size_t bytes)
{
    (void)device;
    return add_block(bytes, 1);
}

static void unpin(struct weft__device *device, void *memory)
{
    (void)device;
    free_block(memory, 1);
}

/* No stream of a program waits for them. */
static void *pin_words(struct weft__device *device, size_t bytes)
{
    void *memory = pin(device, bytes);

    memset(memory, 0, bytes);
    return memory;
}

/* ---- streams ---- */

static struct operation *put(struct stream *stream, enum kind kind)
{
    struct operation *operation = &stream->queue[stream->put++ % QUEUE];

    REQUIRE(stream->open, "a stream that was closed is used");
    REQUIRE(!stream->busy, "a stream is used while a communicator is in progress on it");
    REQUIRE(stream->put - stream->done <= QUEUE, "a stream has too much to do");
    memset(operation, 0, sizeof *operation);
    operation->kind = kind;
    return operation;
}

static int open_stream(struct weft__device *device, struct weft__stream **out)
{
    struct stream *stream = calloc(1, sizeof *stream);

    REQUIRE(stream && world.stream_count < STREAMS, "no stream");
    stream->open = 1;
    stream->stream.device = device;
    stream->stream.reached = &stream->reached;
    world.streams[world.stream_count++] = stream;
    *out = &stream->stream;
    return WEFT_OK;
}

static void close_stream(struct weft__stream *closed)
{
    struct stream *stream = stream_of(closed);

    while (stream->done != stream->put)
        imagined_step();
    stream->open = 0;
}

static int copy(struct weft__stream *on, void *to, const void *from, size_t bytes)
{
    struct operation *operation;

    if (bytes == 0 || to == from)
        return WEFT_OK;
    operation = put(stream_of(on), COPY);
    operation->to = to;
    operation->from = from;
    operation->bytes = bytes;
    REQUIRE(find_block(to, bytes) && find_block(from, bytes), "a copy of memory that is not there");
    return WEFT_OK;
}

static int reduce(struct weft__stream *on, weft_op_kind_t op, weft_dtype_t dtype, void *to,
                  const void *a, const void *b, size_t count)
{
    struct operation *operation = put(stream_of(on), REDUCE);

    operation->to = to;
    operation->from = a;
    operation->also = b;
    operation->bytes = count;
    operation->op = op;
    operation->dtype = dtype;
    return WEFT_OK;
}

static int reduce_n(struct weft__stream *on, weft_op_kind_t op, weft_dtype_t dtype, void *to,
                    const void *const *inputs, unsigned n, size_t count)
{
    for (unsigned i = 1; i < n; i++)
        reduce(on, op, dtype, to, i == 1 ? inputs[0] : to, inputs[i], count);
    return WEFT_OK;
}

static int mark(struct weft__stream *on)
{
    struct operation *operation = put(stream_of(on), WRITE);

    operation->to = &stream_of(on)->reached;
    operation->value = ++on->issued;
    return WEFT_OK;
}

static int follow(struct weft__stream *on, const struct weft__stream *first)
{
    struct operation *operation = put(stream_of(on), FOLLOW);
    struct stream *before = (struct stream *)(uintptr_t)first;

    REQUIRE(!before->busy, "a stream is followed while a communicator is in progress on it");
    operation->first = before;
    operation->done = before->put;
    return WEFT_OK;
}

static int call(struct weft__stream *on, weft_device_fn function, struct weft_call *arguments)
{
    return function(arguments, on);
}

static int failed(struct weft__stream *stream)
{
    (void)stream;
    imagined_step(); /* who waits in a loop waits for something */
    return WEFT_OK;
}

static int write_word(struct weft__device *device, void *on, _Atomic uint32_t *word, uint32_t value)
{
    struct operation *operation = put(on, WRITE);
    (void)device;

    operation->to = word;
    operation->value = value;
    return WEFT_OK;
}

static int hold(struct weft__device *device, void *on, _Atomic uint32_t *word, uint32_t value)
{
    (void)device;
    (void)on;
    (void)word;
    (void)value;
    REQUIRE(0, "streams of users do not wait here");
    return WEFT_ERR_UNSUPPORTED;
}

static void retain(struct weft__device *device)
{
    world.users[device - world.devices]++;
}

static void end_device(struct weft__device *device)
{
    REQUIRE(world.users[device - world.devices]-- > 0, "a device ends twice");
}

/* ---- communicators ---- */

static int comm_id(struct weft__device *device, unsigned char id[WEFT__COMM_ID_BYTES])
{
    (void)device;
    memset(id, 0, WEFT__COMM_ID_BYTES);
    world.numbers++;
    memcpy(id, &world.numbers, sizeof world.numbers);
    return WEFT_OK;
}

static struct comm *peer_of(const struct comm *comm, int rank)
{
    for (size_t i = 0; i < world.comm_count; i++)
        if (world.comms[i]->number == comm->number && world.comms[i]->comm.rank == rank)
            return world.comms[i];
    return NULL;
}

static int comm_open(struct weft__device *device, const unsigned char id[WEFT__COMM_ID_BYTES],
                     int rank, int size, struct weft__comm **out)
{
    struct comm *comm = calloc(1, sizeof *comm);

    REQUIRE(comm && world.comm_count < COMMS && size <= MOST_RANKS, "no communicator");
    memcpy(&comm->number, id, sizeof comm->number);
    REQUIRE(comm->number > 0 && comm->number <= world.numbers, "an id that nobody has made");
    comm->comm = (struct weft__comm){.device = device, .rank = rank, .size = size};
    comm->live = 1;
    world.comms[world.comm_count++] = comm;
    *out = &comm->comm;
    return WEFT_IN_PROGRESS;
}

static int comm_poll(struct weft__comm *asked)
{
    struct comm *comm = comm_of(asked);

    imagined_step();
    REQUIRE(comm->live && !comm->aborting, "a communicator that has been ended is asked");
    if (comm->polls > 0 && comm->polls--)
        return WEFT_IN_PROGRESS;
    for (int r = 0; !comm->joined && r < comm->comm.size; r++)
        if (!peer_of(comm, r))
            return WEFT_IN_PROGRESS;
    comm->joined = 1;
    if (comm->holding) {
        comm->holding = 0;
        comm->stream->busy = NULL;
        *put(comm->stream, GROUP) = comm->held;
    }
    return WEFT_OK;
}

static int comm_exchange(struct weft__comm *with, struct weft__stream *on,
                         const struct weft__comm_item *items, size_t count)
{
    struct comm *comm = comm_of(with);
    struct stream *stream = stream_of(on);
    struct group *group = calloc(1, sizeof *group);
    struct operation operation = {.kind = GROUP, .group = group};

    REQUIRE(group, "no memory");
    REQUIRE(comm->live && comm->joined && !comm->aborting && !comm->holding,
            "a communicator is used that cannot be");
    *group = (struct group){.comm = comm, .count = count, .left = count};
    group->items = malloc(count * sizeof *items);
    group->done = calloc(count, 1);
    REQUIRE(group->items && group->done && count > 0, "a group of nothing");
    memcpy(group->items, items, count * sizeof *items);
    for (size_t i = 0; i < count; i++)
        REQUIRE(items[i].bytes > 0 && find_block(items[i].data, items[i].bytes),
                "a message of memory that is not there");
    if (draw(3) == 0) {
        *put(stream, GROUP) = operation;
        return WEFT_OK;
    }
    REQUIRE(!stream->busy, "two communicators are in progress on a stream");
    comm->held = operation;
    comm->holding = 1;
    comm->polls = (int)draw(4);
    comm->stream = stream;
    stream->busy = comm;
    return WEFT_IN_PROGRESS;
}

static void comm_abort(struct weft__comm *ended)
{
    struct comm *comm = comm_of(ended);

    REQUIRE(comm->live && !comm->aborting, "a communicator is ended twice");
    comm->aborting = 1;
}

static void comm_close(struct weft__comm *closed)
{
    if (closed)
        comm_of(closed)->closed = 1;
}

/* ---- what happens ---- */

static void free_group(struct group *group)
{
    free(group->items);
    free(group->done);
    free(group);
}

/* The group at the head of the stream on which a rank's end of a communicator has one. */
static struct group *head_of(const struct comm *comm)
{
    for (size_t s = 0; s < world.stream_count; s++) {
        struct stream *stream = world.streams[s];
        struct operation *head = &stream->queue[stream->done % QUEUE];

        if (stream->done != stream->put && head->kind == GROUP && head->group->comm == comm)
            return head->group;
    }
    return NULL;
}

/* The first one of a group that goes to, or comes from, a rank and is not done. */
static size_t first_of(const struct group *group, int peer, int receives)
{
    size_t i = 0;

    while (i < group->count &&
           (group->done[i] || group->items[i].peer != peer || group->items[i].receives != receives))
        i++;
    return i;
}

/* What both ends have at the head of their streams happens. */
static void exchange(struct group *group)
{
    for (size_t i = 0; i < group->count; i++) {
        struct weft__comm_item *item = &group->items[i];
        struct comm *peer = peer_of(group->comm, item->peer);
        struct group *other = peer && !peer->aborting ? head_of(peer) : NULL;
        size_t at = other ? first_of(other, group->comm->comm.rank, !item->receives) : 0;

        if (group->done[i] || !other || at == other->count ||
            first_of(group, item->peer, item->receives) != i)
            continue;
        REQUIRE(other->items[at].bytes == item->bytes,
                "rank %d %s %zu bytes, rank %d has %zu for it", group->comm->comm.rank,
                item->receives ? "receives" : "sends", item->bytes, item->peer,
                other->items[at].bytes);
        REQUIRE(find_block(item->data, item->bytes) &&
                    find_block(other->items[at].data, item->bytes),
                "a message of memory that is not there any more");
        memmove(item->receives ? item->data : other->items[at].data,
                item->receives ? other->items[at].data : item->data, item->bytes);
        group->done[i] = other->done[at] = 1;
        group->left--;
        other->left--;
    }
}

/* 1: the operation at the head of a stream is over. */
static int execute(struct stream *stream)
{
    struct operation *head = &stream->queue[stream->done % QUEUE];

    switch (head->kind) {
    case COPY:
        memcpy(head->to, head->from, head->bytes);
        return 1;
    case REDUCE:
        REQUIRE(weft_op_reduce(weft_op_builtin(head->op), head->dtype, head->to, head->from,
                               head->also, head->bytes) == WEFT_OK,
                "%s", weft_error_text());
        return 1;
    case WRITE:
        atomic_store((_Atomic uint32_t *)head->to, head->value);
        return 1;
    case FOLLOW:
        return head->first->done >= head->done;
    case CALL:
        head->function(head->to);
        return 1;
    case GROUP:
    default:
        if (head->group->comm->aborting)
            head->group->left = 0;
        else if (head->group->left > 0)
            exchange(head->group);
        waits += head->group->left > 0;
        if (head->group->left > 0)
            return 0;
        groups += !head->group->comm->aborting;
        free_group(head->group);
        return 1;
    }
}

/* One that is ended lets go of its stream, at some time. */
static void end_comm(struct comm *comm)
{
    if (comm->aborting && comm->live && draw(4) == 0) {
        if (comm->holding) {
            free_group(comm->held.group);
            comm->stream->busy = NULL;
        }
        comm->holding = 0;
        comm->live = 0;
        atomic_store(&comm->comm.gone, 1);
    }
    if (comm->closed && !comm->aborting)
        comm->live = 0;
}

void imagined_step(void)
{
    if (world.comm_count > 0)
        end_comm(world.comms[draw((unsigned)world.comm_count)]);
    for (int i = 0; i < 4 && world.stream_count > 0; i++) {
        struct stream *stream = world.streams[draw((unsigned)world.stream_count)];

        if (stream->done != stream->put && execute(stream))
            stream->done++;
    }
}

/* ---- in the place of libweft-cuda ---- */

static const struct weft__device_ops ops = {
    .where = where,
    .alloc = alloc_memory,
    .free = free_memory,
    .pin = pin,
    .unpin = unpin,
    .pin_words = pin_words,
    .unpin_words = unpin,
    .open = open_stream,
    .close = close_stream,
    .reduce = reduce,
    .reduce_n = reduce_n,
    .copy = copy,
    .call = call,
    .mark = mark,
    .failed = failed,
    .write = write_word,
    .hold = hold,
    .follow = follow,
    .comm_id = comm_id,
    .comm_open = comm_open,
    .comm_poll = comm_poll,
    .comm_exchange = comm_exchange,
    .comm_abort = comm_abort,
    .comm_close = comm_close,
    .retain = retain,
    .end = end_device,
};

int weft__cuda_open(int ordinal, int otherwise, struct weft__device **device)
{
    int number = (ordinal >= 0 ? ordinal : otherwise) % DEVICES;

    snprintf(world.names[number], sizeof world.names[number], "imagined:%d", number);
    world.devices[number] = (struct weft__device){&ops, world.names[number]};
    world.users[number]++;
    *device = &world.devices[number];
    return WEFT_OK;
}

/* ---- plays ---- */

static void clear(void)
{
    for (size_t s = 0; s < world.stream_count; s++) {
        struct stream *stream = world.streams[s];

        for (; stream->done != stream->put; stream->done++)
            if (stream->queue[stream->done % QUEUE].kind == GROUP)
                free_group(stream->queue[stream->done % QUEUE].group);
        free(stream);
    }
    for (size_t c = 0; c < world.comm_count; c++) {
        if (world.comms[c]->holding)
            free_group(world.comms[c]->held.group);
        free(world.comms[c]);
    }
    for (size_t b = 0; b < world.block_count; b++)
        if (world.blocks[b].live)
            free(world.blocks[b].memory);
    memset(&world, 0, sizeof world);
}

void imagined_begin(uint64_t seed)
{
    clear();
    world.random.state = seed;
}

void imagined_end(void)
{
    for (size_t s = 0; s < world.stream_count; s++)
        REQUIRE(!world.streams[s]->open, "a stream is left");
    for (size_t c = 0; c < world.comm_count; c++)
        REQUIRE(world.comms[c]->closed, "a communicator is left");
    for (size_t b = 0; b < world.block_count; b++)
        REQUIRE(!world.blocks[b].live, "memory is left: %zu bytes", world.blocks[b].bytes);
    for (int d = 0; d < DEVICES; d++)
        REQUIRE(world.users[d] == 0, "a device is left");
    clear();
}

uint64_t imagined_groups(void)
{
    return groups;
}

uint64_t imagined_waits(void)
{
    return waits;
}

void imagined_report(void)
{
    for (size_t s = 0; s < world.stream_count; s++) {
        const struct stream *stream = world.streams[s];
        const struct operation *head = &stream->queue[stream->done % QUEUE];

        if (stream->done == stream->put)
            continue;
        fprintf(stderr, "stream %zu of %s, operation %d", s, stream->stream.device->name,
                (int)head->kind);
        for (size_t i = 0; head->kind == GROUP && i < head->group->count; i++)
            if (!head->group->done[i])
                fprintf(stderr, ", communicator %d, rank %d %s %d", head->group->comm->number,
                        head->group->comm->comm.rank,
                        head->group->items[i].receives ? "receives from" : "sends to",
                        head->group->items[i].peer);
        fprintf(stderr, "\n");
    }
}

/* ---- in the place of device_memory.c ---- */

int device_count(void)
{
    return DEVICES;
}

void device_use(int ordinal)
{
    (void)ordinal; /* memory is reached from all */
}

void *device_alloc(size_t bytes)
{
    return add_block(bytes, 0);
}

void device_free(void *memory)
{
    free_block(memory, 0);
}

void *device_pin(size_t bytes)
{
    return add_block(bytes, 1);
}

void device_unpin(void *memory)
{
    free_block(memory, 1);
}

void device_put(void *to, const void *from, size_t bytes)
{
    if (bytes > 0)
        memcpy(to, from, bytes);
}

void device_get(void *to, const void *from, size_t bytes)
{
    device_put(to, from, bytes);
}

void device_stream_get(void *stream, void *host, const void *from, size_t bytes)
{
    copy(stream, host, from, bytes);
}

void device_stream_put(void *stream, void *to, const void *host, size_t bytes)
{
    copy(stream, to, host, bytes);
}

void device_stream_call(void *stream, void (*function)(void *), void *argument)
{
    struct operation *operation = put(stream, CALL);

    operation->function = function;
    operation->to = argument;
}

void device_check(void)
{
}
