/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One synchronous step through parameter servers: workers push their contributions, a server
 * combines those to its block of the vector, segment by segment, and sends each segment to all
 * workers as soon as it is there. So while one segment goes out the next ones come in.
 *
 *     all     worker 0  ==0==|==1==|==2==          segment i, of all workers at once: what the
 *             worker 1  ==0==|==1==|==2==          server's link cannot take waits in a queue
 *             server          --0--|--1--|--2--
 *
 *     turns   worker 0  ==0==1==2==|               one worker at a time
 *             worker 1             |==0==1==2==
 *             server                     --0--1--2--
 *
 *     paced   as `all`, but segment i + window of a worker waits until its segment i has been added
 *
 * A server adds in the order of workers. What comes before its turn lies in a room; the first
 * contribution comes into the sum itself. There is a room of a block for each worker in `all`, of
 * `window` segments in `paced`, and in `turns`, where nothing overtakes, two for all. With several
 * servers turns begin with another worker on each, or they would all wait for the link of one. What
 * comes from the workers before that one is a sum of its own then, in front of the other: the order
 * of ranks is kept.
 */
#include <math.h>

#include "schedules/common/template.h"

enum pushes { ALL, TURNS, PACED };
enum { PUSH, SUM, TOKEN }; /* messages between two ranks */

/* Nodes that a segment takes, at most, for each rank that it comes from or goes to. */
enum { NODES_OF_A_SEGMENT = 4 };

/* A server's block, as workers and that server see it. */
struct block {
    struct weft__build *build;
    weft_slot_t tokens; /* of no elements */
    int rank;           /* of the server */
    int first;          /* worker that its turns begin with */
    size_t begin, count;
    size_t segments;
};

/* ---- who and what ---- */

static struct block block_of(struct weft__build *build, int server, weft_slot_t tokens)
{
    const struct weft__servers *servers = &build->servers;
    struct block b = {.build = build, .tokens = tokens};
    b.rank = servers->first + server;
    b.first = (int)((int64_t)server * servers->workers / servers->count);
    b.begin = weft__block_offset(build->count, servers->count, server);
    b.count = weft__block_offset(build->count, servers->count, server + 1) - b.begin;
    b.segments = weft__segment_count(build, b.count);
    return b;
}

/* All nodes of a rank must have numbers. */
static int refuse_segments(struct weft__build *build)
{
    const struct weft__servers *servers = &build->servers;
    size_t ranks = (size_t)(servers->workers + servers->count);
    size_t most = INT32_MAX / NODES_OF_A_SEGMENT / ranks, element = weft_dtype_size(build->dtype);
    size_t count = weft__block_offset(build->count, servers->count, 1);
    size_t segments = count / build->segment + (count % build->segment != 0);
    if (segments > 1 && segments > most)
        build->status = weft_error_set(
            WEFT_ERR_UNSUPPORTED,
            "segment is %zu bytes: the %zu elements of a server have %zu segments; expected "
            "segments of at least %zu bytes on %d ranks, for at most %zu of them",
            build->segment * element, count, segments, (count / (most ? most : 1) + 1) * element,
            build->size, most);
    return build->status;
}

static int works(const struct weft__build *build)
{
    return build->rank < build->servers.workers;
}

/* The number of this rank among servers, or -1. */
static int server_of(const struct weft__build *build)
{
    int server = build->rank - build->servers.first;
    return server >= 0 && server < build->servers.count ? server : -1;
}

/* This worker's contribution to a block, and what it becomes. */
static struct weft_region given(const struct block *b)
{
    const struct weft__build *build = b->build;
    return weft_region_at(build->in_place ? build->recv : build->send, b->begin, b->count);
}

static struct weft_region result(const struct block *b)
{
    return weft_region_at(b->build->recv, b->begin, b->count);
}

static struct weft_region nothing(const struct block *b)
{
    return weft_region_at(b->tokens, 0, 0);
}

/* Worker number `turn` in the order of a server's turns. */
static int worker_at(const struct block *b, int turn)
{
    return (b->first + turn) % b->build->servers.workers;
}

/* ---- the worker's side ---- */

/* Its first turn there is nobody's to give. */
static int begins(const struct block *b, int worker)
{
    return worker == worker_at(b, worker_at(b, 0) == b->rank ? 1 : 0);
}

/* Segments [from, end) of a block; after @before, if that is a node. */
static void push(const struct block *b, size_t from, size_t end, weft_node_t before)
{
    struct weft__build *build = b->build;
    for (size_t i = from; i < end && !build->status; i++) {
        struct weft_region part = weft__segment_at(build, given(b), i);
        weft_node_t node = weft__build_send_part(build, part, i, b->rank, PUSH);
        if (before != WEFT_NODE_NONE)
            weft_schedule_add_order(build->schedule, before, node);
    }
}

/* Segment `index` of a block, as soon as there is room for it. */
static void push_paced(const struct block *b, size_t index)
{
    size_t window = b->build->servers.window;
    weft_node_t room = WEFT_NODE_NONE;
    if (index >= window)
        room = weft__build_recv_part(b->build, nothing(b), index - window, b->rank, TOKEN);
    push(b, index, index + 1, room);
}

/* Each worker begins with another server. */
static struct block next_block(struct weft__build *build, int index, weft_slot_t tokens)
{
    const struct weft__servers *servers = &build->servers;
    int first = (int)((int64_t)build->rank * servers->count / servers->workers);
    return block_of(build, (first + index) % servers->count, tokens);
}

/* One segment after the other, to all servers. */
static void push_segments(struct weft__build *build, enum pushes pushes, weft_slot_t tokens)
{
    size_t most = 1;
    for (size_t i = 0; i < most && !build->status; i++)
        for (int j = 0; j < build->servers.count; j++) {
            struct block b = next_block(build, j, tokens);
            most = b.segments > most ? b.segments : most;
            if (b.rank == build->rank || i >= b.segments)
                continue;
            if (pushes == PACED)
                push_paced(&b, i);
            else
                push(&b, i, i + 1, WEFT_NODE_NONE);
        }
}

static void push_in_turns(struct weft__build *build, weft_slot_t tokens)
{
    for (int j = 0; j < build->servers.count && !build->status; j++) {
        struct block b = next_block(build, j, tokens);
        weft_node_t turn = WEFT_NODE_NONE;
        if (b.rank == build->rank || !b.segments)
            continue;
        if (!begins(&b, build->rank))
            turn = weft__build_recv_part(build, nothing(&b), 0, b.rank, TOKEN);
        push(&b, 0, b.segments, turn);
    }
}

static void pull(struct weft__build *build, weft_slot_t tokens)
{
    for (int j = 0; j < build->servers.count && !build->status; j++) {
        struct block b = next_block(build, j, tokens);
        if (b.rank != build->rank)
            weft__build_recv(build, result(&b), b.rank, SUM);
    }
}

/* ---- the server's side ---- */

/* What has been added, of a segment or of the block. */
struct sum {
    struct weft_region acc; /* scratch, unless it begins with the own contribution */
    struct weft_region at;  /* where it is, of the block */
    int count;              /* contributions */
    int own;                /* the server's own is among them: it is in "recv" */
};

struct server {
    struct block b;
    enum pushes pushes;
    struct sum parts[2];       /* in turns: of the workers before `first`, and of the others */
    struct weft_region *rooms; /* of each place in the order; owned */
    size_t ring;               /* paced: whole segments of a room */
};

/* Worker number `place` in the order in which they are added. */
static int added_at(const struct server *s, int place)
{
    return s->pushes == TURNS ? worker_at(&s->b, place) : place;
}

static struct sum *sum_of(struct server *s, int worker)
{
    return &s->parts[s->pushes != TURNS || worker >= s->b.first];
}

/* Where segment `index` comes in of the worker at `place`. */
static struct weft_region room_of(const struct server *s, const struct sum *sum, int place,
                                  size_t index)
{
    const struct weft__build *build = s->b.build;
    size_t whole = s->b.count / build->segment;
    if (!sum->count)
        return weft__segment_at(build, sum->acc, index);
    if (s->pushes == ALL)
        return weft__segment_at(build, s->rooms[place], index);
    if (s->pushes == TURNS)
        return weft__segment_at(build, s->rooms[(place - 1) % 2], index);
    if (index == whole) /* the last one, shorter, has a place of its own */
        return weft__part(s->rooms[place], s->ring * (s->ring ? build->segment : 0),
                          s->b.count % build->segment);
    return weft__part(s->rooms[place], index % s->ring * build->segment, build->segment);
}

/* Puts segment `index` of one more contribution behind what there is. */
static void add(struct server *s, const struct sum *sum, size_t index, struct weft_region part,
                int own)
{
    struct weft__build *build = s->b.build;
    struct weft_region to = own || sum->own ? result(&s->b) : sum->acc;
    if (sum->count)
        weft__build_reduce(build, weft__segment_at(build, to, index),
                           weft__segment_at(build, sum->at, index), part);
}

/* So much of all segments that are looked at. */
static void added(const struct server *s, struct sum *sum, int own)
{
    sum->own |= own;
    if (!sum->count)
        sum->at = own ? given(&s->b) : sum->acc;
    else if (sum->own)
        sum->at = result(&s->b);
    sum->count++;
}

/* All have come to segment `index`: it goes to all workers, from each server to another one
 * first. */
static void answer(struct server *s, size_t index)
{
    struct weft__build *build = s->b.build;
    const struct sum *before = &s->parts[0], *sum = &s->parts[1];
    struct weft_region at = sum->at;
    if (before->count) {
        at = works(build) ? result(&s->b) : before->acc;
        weft__build_reduce(build, weft__segment_at(build, at, index),
                           weft__segment_at(build, before->at, index),
                           weft__segment_at(build, sum->at, index));
    }
    for (int i = 0; i < build->servers.workers; i++)
        if (worker_at(&s->b, i) != build->rank)
            weft__build_send_segment(build, at, index, worker_at(&s->b, i), SUM);
}

/* Workers side by side, segment by segment. */
static void serve_segments(struct server *s)
{
    struct weft__build *build = s->b.build;
    struct sum *sum = &s->parts[1];
    for (size_t i = 0; i < s->b.segments && !build->status; i++) {
        sum->count = sum->own = 0;
        for (int w = 0; w < build->servers.workers; w++) {
            int own = w == build->rank;
            struct weft_region part =
                own ? weft__segment_at(build, given(&s->b), i) : room_of(s, sum, w, i);
            if (!own)
                weft__build_recv_part(build, part, i, w, PUSH);
            add(s, sum, i, part, own);
            weft_node_t done = (weft_node_t)weft_schedule_node_count(build->schedule) - 1;
            if (s->pushes == PACED && !own && s->b.segments - i > build->servers.window)
                weft_schedule_add_order(build->schedule, done,
                                        weft__build_send_part(build, nothing(&s->b), i, w, TOKEN));
            added(s, sum, own);
        }
        answer(s, i);
    }
}

/* One worker after the other. The receives of one stand behind each other: all of them must have
 * ended before the next one gets its turn. */
static void serve_turns(struct server *s)
{
    struct weft__build *build = s->b.build;
    weft_node_t before = WEFT_NODE_NONE; /* first receive of the worker before */
    int workers = build->servers.workers;
    for (int t = 0; t < workers && !build->status; t++) {
        int worker = worker_at(&s->b, t), own = worker == build->rank;
        struct sum *sum = sum_of(s, worker);
        if (!own && before != WEFT_NODE_NONE) {
            weft_node_t turn = weft__build_send_part(build, nothing(&s->b), 0, worker, TOKEN);
            for (size_t i = 0; i < s->b.segments; i++)
                weft_schedule_add_order(build->schedule, before + (weft_node_t)i, turn);
        }
        if (!own)
            before = (weft_node_t)weft_schedule_node_count(build->schedule);
        for (size_t i = 0; i < s->b.segments && !own; i++)
            weft__build_recv_part(build, room_of(s, sum, t, i), i, worker, PUSH);
        for (size_t i = 0; i < s->b.segments; i++)
            add(s, sum, i, own ? weft__segment_at(build, given(&s->b), i) : room_of(s, sum, t, i),
                own);
        added(s, sum, own);
    }
    for (size_t i = 0; i < s->b.segments && !build->status; i++)
        answer(s, i);
}

/* Elements of a worker's room. */
static size_t room_elements(const struct server *s)
{
    size_t segment = s->b.build->segment;
    return s->pushes == PACED && s->ring ? s->ring * segment + s->b.count % segment : s->b.count;
}

/* Whether the worker at `place` is the first of its sum: it comes in there. */
static int begins_sum(const struct server *s, int place)
{
    return !place || (s->pushes == TURNS && !added_at(s, place));
}

/* Room number `place`: in turns there are two, elsewhere one for each that is not the first. */
static int has_room(const struct server *s, int place)
{
    const struct weft__build *build = s->b.build;
    if (s->pushes == TURNS)
        return place < 2 && place < build->servers.workers - 1;
    return place > 0 && place != build->rank;
}

/* All of it in one slot. */
static int make_rooms(struct server *s)
{
    struct weft__build *build = s->b.build;
    int workers = build->servers.workers;
    size_t sums = 0, rooms = 0, whole = s->b.count / build->segment, window = build->servers.window;
    s->ring = whole < window ? whole : window;
    s->rooms = weft_memory_alloc((size_t)workers, sizeof *s->rooms);
    if (!s->rooms)
        return build->status = weft_error_set(WEFT_ERR_MEMORY,
                                              "out of memory for the rooms of %d workers", workers);
    for (int place = 0; place < workers; place++) {
        rooms += (size_t)has_room(s, place);
        sums += begins_sum(s, place) && added_at(s, place) != build->rank;
    }
    weft__build_reserve(build, sums * s->b.count + rooms * room_elements(s), sums + rooms);
    for (int place = 0; place < workers; place++) {
        int worker = added_at(s, place);
        if (begins_sum(s, place) && worker != build->rank)
            sum_of(s, worker)->acc = weft__build_scratch(build, s->b.count);
    }
    for (int place = 0; place < workers; place++)
        if (has_room(s, place))
            s->rooms[place] = weft__build_scratch(build, room_elements(s));
    return WEFT_OK;
}

static void serve(struct weft__build *build, enum pushes pushes, weft_slot_t tokens)
{
    struct server s = {.b = block_of(build, server_of(build), tokens), .pushes = pushes};
    if (s.b.segments && !make_rooms(&s)) {
        if (pushes == TURNS)
            serve_turns(&s);
        else
            serve_segments(&s);
    }
    weft_memory_free(s.rooms);
}

/* ---- both ---- */

static void build_step(struct weft__build *build, enum pushes pushes)
{
    weft_slot_t tokens = -1;
    if (build->size == 1) {
        struct block alone = {.build = build, .count = build->count};
        weft__build_copy(build, result(&alone), given(&alone));
        return;
    }
    if (!build->count || refuse_segments(build))
        return;
    if (pushes != ALL)
        tokens = weft_schedule_add_slot(build->schedule, "token", WEFT_U8, 0, WEFT_SLOT_SCRATCH);
    if (works(build) && pushes == TURNS)
        push_in_turns(build, tokens);
    else if (works(build))
        push_segments(build, pushes, tokens);
    if (server_of(build) >= 0 && !build->status)
        serve(build, pushes, tokens);
    if (works(build))
        pull(build, tokens);
}

static void all(struct weft__build *build)
{
    build_step(build, ALL);
}

static void turns(struct weft__build *build)
{
    build_step(build, TURNS);
}

static void paced(struct weft__build *build)
{
    build_step(build, PACED);
}

/* ---- costs ---- */

/* Bytes of a server's block, and of a segment of it. */
static double block_bytes(const struct weft__shape *shape)
{
    return (double)shape->bytes / shape->servers.count;
}

static double segment_bytes(const struct weft__shape *shape)
{
    double block = block_bytes(shape), segment = (double)shape->segment;
    return segment > 0 && segment < block ? segment : block;
}

/* Workers whose messages use a server's link. */
static int remote_workers(const struct weft__shape *shape)
{
    return shape->servers.workers - (shape->servers.first ? 0 : 1);
}

/* What servers that are workers push to others, and get from them, beside: as far as that does not
 * fall into the time in which only one direction is busy. */
static double beside(const struct weft__shape *shape)
{
    double block = block_bytes(shape), first = block > 0 ? segment_bytes(shape) / block : 1;
    if (shape->servers.first)
        return 0;
    return (shape->servers.count - 1) * weft__cost_message(shape, block) * (1 - first);
}

static double all_cost(const struct weft__shape *shape)
{
    return remote_workers(shape) * weft__cost_chain(shape, block_bytes(shape), 2, 1) +
           beside(shape);
}

static double turns_cost(const struct weft__shape *shape)
{
    double block = block_bytes(shape);
    int workers = remote_workers(shape);
    if (!workers)
        return 0;
    return (workers - 1) * (weft__cost_combine(shape, block) + weft__cost_message(shape, 0)) +
           weft__cost_combine(shape, segment_bytes(shape)) +
           workers * weft__cost_message(shape, block) + beside(shape);
}

static double paced_cost(const struct weft__shape *shape)
{
    double block = block_bytes(shape), segments = 1;
    if (block > 0)
        segments = ceil(block / segment_bytes(shape));
    double waits = fmax(segments - (double)shape->servers.window, 0);
    return all_cost(shape) + remote_workers(shape) * waits * weft__cost_message(shape, 0);
}

static size_t best_segment(const struct weft__shape *shape)
{
    return weft__segment_chain(shape, block_bytes(shape), remote_workers(shape) ? 2 : 0, 1);
}

/* ---- the template ---- */

static void slots(struct weft__build *build)
{
    if (!works(build))
        return;
    weft__build_pair(build, build->count, build->count);
    weft__build_result(build, weft_region_at(build->recv, 0, build->count),
                       build->in_place ? "recv" : "send", 0, 0, build->servers.workers);
}

static const struct weft_algorithm algorithms[] = {
    {.name = "all",
     .cost = "W (k + 1)(alpha + m/(N k) (beta + gamma)), W workers, N servers, k segments",
     .notes = "every worker pushes at once; every element: ((0 + 1) + 2) + ...; the same in every "
              "run. Parameter servers: Li et al., OSDI 2014",
     .ordered = 1},
    {.name = "turns",
     .cost = "(W - 1)(2 alpha + m/N (beta + gamma)) + (W + 1/k) m/N beta + (k W + 1) alpha",
     .notes = "a worker pushes when the one before it has; element of server s: ((0 + 1) + ...) + "
              "((f + f+1) + ...), f = floor(s W/N). As in R2SP, Chen et al., INFOCOM 2019",
     .ordered = 1},
    {.name = "paced",
     .cost = "as all, and W (k - window) alpha",
     .notes = "a worker has `window` segments on the way to a server, and sends the next one when "
              "one has been added; every element as in all",
     .ordered = 1},
};

static const struct weft__algorithm impl[] = {
    {.build = all, .cost = all_cost, .segment = best_segment},
    {.build = turns, .cost = turns_cost, .segment = best_segment},
    {.build = paced, .cost = paced_cost, .segment = best_segment},
};

const struct weft__template weft__server_step_template = {
    .public = {.name = "server-step",
               .summary = "workers get the combination of theirs through parameter servers",
               .parameters = "count dtype op algo segment servers co-located window",
               .result = "recv[i] on every worker: send[i] of all workers combined",
               .algorithms = algorithms,
               .algorithm_count = sizeof algorithms / sizeof algorithms[0]},
    .impl = impl,
    .flags = WEFT__USES_OP | WEFT__USES_DATA | WEFT__BLOCKS | WEFT__USES_SERVERS | WEFT__FIXED,
    .slots = slots,
};
