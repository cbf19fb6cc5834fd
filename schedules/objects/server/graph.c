/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parameter servers: their graphs.
 *
 * Rank 0 of an exchange is the worker, rank 1 + k server k. Where the worker is a server as well
 * its one run has both sides, and what they send to each other is from rank 0 to itself.
 */
#include <stdio.h>

#include "schedules/objects/server/server.h"

enum { SLICE_BYTES = 256 * 1024 };
enum { TAG_REPORT, TAG_REPLY, TAG_WANT, TAG_GO, TAG_ORDER, TAG_RELEASE, TAG_UNITS = 8 };
enum { PUSH, PULL, ACKNOWLEDGE, TAGS_PER_UNIT };

struct builder {
    struct weft_server *server;
    struct weft_schedule *schedule;
    int worker, host;
    weft_slot_t index, nothing;
};

static uint32_t tag_of(size_t unit, int what)
{
    return (uint32_t)(TAG_UNITS + TAGS_PER_UNIT * unit + (size_t)what);
}

size_t weft__server_most_units(void)
{
    return (UINT32_MAX - TAG_UNITS) / TAGS_PER_UNIT;
}

size_t weft__server_holders(const struct weft_server *server)
{
    size_t holders = 0;
    for (size_t p = 0; p < server->part_count; p++)
        if ((size_t)server->parts[p].is.server >= holders)
            holders = (size_t)server->parts[p].is.server + 1;
    return holders;
}

/* Server 0 answers workers in any case. */
size_t weft__server_takers(const struct weft_server *server)
{
    size_t holders = weft__server_holders(server);
    return holders ? holders : 1;
}

int weft__server_takes(const struct weft_server *server)
{
    return weft__server_hosts(server) && (size_t)server->host.index < weft__server_takers(server);
}

/* The rank of a server in an exchange, as this rank sees it. */
static int peer_of(const struct builder *b, int index)
{
    return b->worker && b->host && index == b->server->host.index ? 0 : 1 + index;
}

static void order(struct builder *b, weft_node_t before, weft_node_t after)
{
    if (before != WEFT_NODE_NONE)
        weft_schedule_add_order(b->schedule, before, after);
}

/* A number that is known beforehand: of a layer, of a part of this server. */
static struct weft_compute_argument id_of(const struct builder *b, size_t number)
{
    return (struct weft_compute_argument){weft_region_at(b->index, number, 1), WEFT_READ};
}

static weft_node_t call(struct builder *b, int op, const struct weft_compute_argument *arguments,
                        size_t count)
{
    return weft_schedule_add_compute(b->schedule, b->server->ops[op], arguments, count, 0);
}

static weft_node_t call_layer(struct builder *b, int op, size_t number, const char *name)
{
    struct weft_compute_argument argument = id_of(b, number);
    weft_node_t node = call(b, op, &argument, 1);
    char text[64];
    snprintf(text, sizeof text, "%s %zu", name, number);
    weft_schedule_set_label(b->schedule, node, text);
    return node;
}

static weft_slot_t add_numbered(struct builder *b, const char *name, size_t number, size_t count,
                                weft_slot_kind_t kind)
{
    char text[48];
    snprintf(text, sizeof text, "%s.%zu", name, number);
    return weft_schedule_add_slot(b->schedule, text, b->server->model.dtype, count, kind);
}

static weft_slot_t add_words(struct builder *b, const char *name, size_t count,
                             weft_slot_kind_t kind)
{
    return weft_schedule_add_slot(b->schedule, name, WEFT_U64, count, kind);
}

static int begin(struct builder *b, int rank, int size, const char *name)
{
    int status = weft_schedule_create(&b->schedule, rank, size);
    if (status)
        return status;
    weft_schedule_set_name(b->schedule, name);
    b->index = add_words(b, "index", b->server->id_count, WEFT_SLOT_INPUT);
    return WEFT_OK;
}

static int end(struct builder *b, struct weft_schedule **schedule)
{
    int status = weft_schedule_status(b->schedule);
    if (status)
        weft_schedule_destroy(b->schedule);
    else
        *schedule = b->schedule;
    return status;
}

static size_t unit_count(const struct part *part, size_t unit, size_t unit_elements)
{
    size_t left = part->is.count - unit * unit_elements;
    return left < unit_elements ? left : unit_elements;
}

/* ---- the worker ---- */

/* A unit of a part is pushed once the layer may be, and there is room on the way. */
static void add_push(struct builder *b, const struct part *part, size_t unit, weft_node_t may,
                     weft_node_t go)
{
    struct weft_server *server = b->server;
    size_t number = part->first_unit + unit;
    char name[48];
    snprintf(name, sizeof name, "size.%zu", number);
    struct weft_region region = weft_region_at(server->worker.layers[part->is.layer].push,
                                               part->is.offset + unit * server->unit_elements,
                                               unit_count(part, unit, server->unit_elements));
    struct weft_compute_argument arguments[2] = {id_of(b, part->is.layer), {region, WEFT_READ}};
    region.value = weft_schedule_add_value(b->schedule, name, region.count);
    weft_node_t size =
        weft_schedule_add_compute(b->schedule, server->ops[OP_SIZE], arguments, 2, region.value);
    order(b, may, size);
    may = size;
    int peer = peer_of(b, part->is.server), paced = server->config.flow == WEFT_SERVER_PACED;
    if (paced) {
        weft_node_t pace = call_layer(b, OP_PACE, (size_t)part->is.server, "pace");
        order(b, may, pace);
        may = pace;
    }
    weft_node_t send = weft_schedule_add_send(b->schedule, region, peer, tag_of(number, PUSH));
    order(b, may, send);
    order(b, go, send);
    if (paced) {
        weft_node_t came = weft_schedule_add_recv(b->schedule, weft_region_at(b->nothing, 0, 0),
                                                  peer, tag_of(number, ACKNOWLEDGE));
        order(b, came, call_layer(b, OP_ACKNOWLEDGED, (size_t)part->is.server, "acknowledged by"));
    }
}

static void add_pull(struct builder *b, size_t l)
{
    struct weft_server *server = b->server;
    const struct layer *layer = &server->layers[l];
    struct worker_layer *mine = &server->worker.layers[l];
    weft_node_t join = weft_schedule_add_join(b->schedule);
    char text[48];
    snprintf(text, sizeof text, "layer %zu is here", l);
    weft_schedule_set_label(b->schedule, join, text);
    weft_node_t landed = call_layer(b, OP_LANDED, l, "landed");
    order(b, landed, join);
    for (size_t p = layer->first_part; p < layer->first_part + layer->part_count; p++) {
        const struct part *part = &server->parts[p];
        weft_node_t recv = weft_schedule_add_recv(
            b->schedule, weft_region_at(mine->pull, part->is.offset, part->is.count),
            peer_of(b, part->is.server), tag_of(part->first_unit, PULL));
        order(b, recv, landed);
    }
    mine->landed = join;
}

/* The pieces of a layer to one server after the other, and each worker begins with another: the
 * links of all servers are busy. Parts lie server after server. */
static void add_layer(struct builder *b, const struct layer *layer, weft_node_t may,
                      const weft_node_t *go)
{
    struct weft_server *server = b->server;
    const struct part *parts = &server->parts[layer->first_part];
    size_t left = layer->part_count;
    for (size_t i = 0; left; i++) {
        size_t k = ((size_t)server->rank + i) % server->servers;
        size_t piece = i / server->servers, p = 0;
        while (p < layer->part_count && (size_t)parts[p].is.server != k)
            p++;
        p += piece;
        if (p >= layer->part_count || (size_t)parts[p].is.server != k)
            continue;
        for (size_t u = 0; u < parts[p].units; u++)
            add_push(b, &parts[p], u, may, go ? go[k] : WEFT_NODE_NONE);
        left--;
    }
}

/* Turns are asked for when all layers are there: nobody computes in its turn. */
static void add_wants(struct builder *b, int holders)
{
    struct weft_server *server = b->server;
    weft_node_t all = weft_schedule_add_join(b->schedule);
    weft_schedule_set_label(b->schedule, all, "all are ready");
    for (size_t l = 0; l < server->layer_count; l++)
        order(b, server->worker.layers[l].ready, all);
    for (int k = 0; k < holders; k++) {
        weft_node_t send = weft_schedule_add_send(b->schedule, weft_region_at(b->nothing, 0, 0),
                                                  peer_of(b, k), TAG_WANT);
        order(b, all, send);
    }
}

/* Late to early, as the backward pass has it. */
static void add_pushes(struct builder *b, const weft_node_t *go)
{
    struct weft_server *server = b->server;
    for (size_t l = server->layer_count; l-- > 0;) {
        const struct layer *layer = &server->layers[l];
        struct worker_layer *mine = &server->worker.layers[l];
        mine->ready = WEFT_NODE_NONE;
        if (!layer->part_count)
            continue;
        weft_node_t may = weft_schedule_add_event(b->schedule, WEFT_CHANNEL_NONE);
        char text[48];
        snprintf(text, sizeof text, "ready %zu", l);
        weft_schedule_set_label(b->schedule, may, text);
        mine->ready = may;
        if (weft__server_is_osp(server)) {
            weft_node_t hold = call_layer(b, OP_HOLD, l, "hold");
            order(b, may, hold);
            may = hold;
        }
        add_layer(b, layer, may, go);
    }
}

static int build_worker(struct builder *b)
{
    struct weft_server *server = b->server;
    struct worker *worker = &server->worker;
    int takers = (int)weft__server_takers(server), holders = (int)weft__server_holders(server);
    weft_node_t *go = NULL;
    if (weft__server_has_turns(server) && holders) {
        go = weft_memory_alloc((size_t)holders, sizeof *go);
        if (!go)
            return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %d servers", holders);
    }
    weft_slot_t report = add_words(b, "report", REPORT_WORDS + server->words, WEFT_SLOT_INPUT);
    weft_slot_t reply = add_words(b, "reply", REPLY_WORDS + server->words, WEFT_SLOT_OUTPUT);
    for (size_t l = 0; l < server->layer_count; l++) {
        worker->layers[l].push =
            add_numbered(b, "push", l, server->layers[l].count, WEFT_SLOT_INPUT);
        worker->layers[l].pull =
            add_numbered(b, "pull", l, server->layers[l].count, WEFT_SLOT_OUTPUT);
    }
    for (int k = 0; k < takers; k++)
        if (peer_of(b, k) != 0) /* the own server starts with this rank */
            weft_schedule_add_signal(b->schedule, peer_of(b, k), WEFT__SERVER_ASK);
    for (int k = 0; k < takers; k++)
        weft_schedule_add_send(b->schedule, weft_region_at(report, 0, REPORT_WORDS + server->words),
                               peer_of(b, k), TAG_REPORT);
    for (int k = 0; go && k < holders; k++)
        go[k] = weft_schedule_add_recv(b->schedule, weft_region_at(b->nothing, 0, 0), peer_of(b, k),
                                       TAG_GO);
    add_pushes(b, go);
    if (go)
        add_wants(b, holders);
    for (size_t l = 0; l < server->layer_count; l++)
        if (server->layers[l].part_count)
            add_pull(b, l);
    weft_schedule_add_recv(b->schedule, weft_region_at(reply, 0, REPLY_WORDS + server->words),
                           peer_of(b, 0), TAG_REPLY);
    weft_memory_free(go);
    return weft_schedule_status(b->schedule);
}

/* ---- the server ---- */

struct host_slots {
    weft_slot_t worker, report, room, parameters, place, release, answer;
};

static struct weft_compute_argument who(const struct host_slots *slots)
{
    return (struct weft_compute_argument){weft_region_at(slots->worker, 0, 1), WEFT_READ};
}

static weft_node_t call_guest(struct builder *b, int op, const struct host_slots *slots,
                              const char *label)
{
    struct weft_compute_argument argument = who(slots);
    weft_node_t node = call(b, op, &argument, 1);
    weft_schedule_set_label(b->schedule, node, label);
    return node;
}

/* A part of a push comes to the room. Returns `came`. */
static weft_node_t add_came(struct builder *b, const struct host_slots *slots, size_t mine,
                            weft_node_t reported)
{
    struct weft_server *server = b->server;
    const struct part *part = &server->parts[server->host.parts[mine].part];
    struct weft_compute_argument arguments[3] = {who(slots), id_of(b, mine)};
    char name[48];
    snprintf(name, sizeof name, "came.%zu", mine);
    weft_value_t size = weft_schedule_add_value(b->schedule, name, part->is.count);
    weft_node_t recvs[2] = {WEFT_NODE_NONE, WEFT_NODE_NONE}; /* the first, a join of the others */
    if (part->units > 1)
        recvs[1] = weft_schedule_add_join(b->schedule);
    for (size_t u = 0; u < part->units; u++) {
        struct weft_region region =
            weft_region_at(slots->room, part->at + u * server->unit_elements,
                           unit_count(part, u, server->unit_elements));
        uint32_t tag = tag_of(part->first_unit + u, PUSH);
        weft_node_t recv =
            weft_schedule_add_recv_up_to(b->schedule, region, 0, tag, u == 0 ? size : 0);
        if (u == 0)
            recvs[0] = recv;
        else
            order(b, recv, recvs[1]);
        if (server->config.flow == WEFT_SERVER_PACED) {
            weft_node_t send = weft_schedule_add_send(b->schedule, weft_region_at(b->nothing, 0, 0),
                                                      0, tag_of(part->first_unit + u, ACKNOWLEDGE));
            order(b, recv, send);
        }
    }
    arguments[2].region = weft_region_at(slots->room, part->at, part->is.count);
    arguments[2].region.value = size;
    arguments[2].access = WEFT_READ;
    weft_node_t came = call(b, OP_CAME, arguments, 3);
    snprintf(name, sizeof name, "came %zu", mine);
    weft_schedule_set_label(b->schedule, came, name);
    order(b, recvs[0], came);
    order(b, recvs[1], came);
    order(b, reported, came);
    return came;
}

/* What server 0 says of the order goes to the others, or comes from it. */
static weft_node_t add_place(struct builder *b, int op, const struct host_slots *slots,
                             weft_slot_t words, uint32_t tag, weft_node_t after, const char *label)
{
    struct weft_server *server = b->server;
    struct weft_compute_argument arguments[2] = {
        who(slots), {weft_region_at(words, 0, PLACE_WORDS), WEFT_UPDATE}};
    weft_node_t recv = WEFT_NODE_NONE;
    if (server->host.index > 0)
        recv = weft_schedule_add_recv(b->schedule, weft_region_at(words, 0, PLACE_WORDS), 1, tag);
    weft_node_t node = call(b, op, arguments, 2);
    weft_schedule_set_label(b->schedule, node, label);
    order(b, after, node);
    order(b, recv, node);
    size_t takers = weft__server_takers(server);
    for (int k = 1; server->host.index == 0 && k < (int)takers; k++) {
        weft_node_t send =
            weft_schedule_add_send(b->schedule, weft_region_at(words, 0, PLACE_WORDS), 1 + k, tag);
        order(b, node, send);
    }
    return node;
}

/* From all that has come until it is due to be answered. */
static weft_node_t add_order(struct builder *b, const struct host_slots *slots, weft_node_t all)
{
    weft_node_t node =
        add_place(b, OP_PLACE, slots, slots->place, TAG_ORDER, all, "a place in the order");
    if (weft__server_has_gates(b->server))
        node = add_place(b, OP_GATE, slots, slots->release, TAG_RELEASE, node,
                         "the others are near enough");
    weft_node_t due = call_guest(b, OP_DUE, slots, "due");
    order(b, node, due);
    return due;
}

static void add_host_slots(struct builder *b, struct host_slots *slots)
{
    const struct weft_server *server = b->server;
    slots->worker = add_words(b, "worker", 1, WEFT_SLOT_INPUT);
    slots->report = add_words(b, "reported", REPORT_WORDS + server->words, WEFT_SLOT_OUTPUT);
    slots->answer = add_words(b, "answer", REPLY_WORDS + server->words, WEFT_SLOT_INOUT);
    slots->place = add_words(b, "order", PLACE_WORDS, WEFT_SLOT_INOUT);
    slots->release = add_words(b, "release", PLACE_WORDS, WEFT_SLOT_INOUT);
    slots->room = weft_schedule_add_slot(b->schedule, "room", server->model.dtype,
                                         server->host.count, WEFT_SLOT_INOUT);
    slots->parameters = weft_schedule_add_slot(b->schedule, "parameters", server->model.dtype,
                                               server->host.count, WEFT_SLOT_INPUT);
}

static int build_host(struct builder *b)
{
    struct weft_server *server = b->server;
    struct host_slots slots;
    size_t mine = server->host.part_count;
    int merges = weft__server_merges(server);
    weft_node_t turn = WEFT_NODE_NONE;
    add_host_slots(b, &slots);
    if (weft__server_has_turns(server) && mine) {
        weft_node_t want =
            weft_schedule_add_recv(b->schedule, weft_region_at(b->nothing, 0, 0), 0, TAG_WANT);
        turn = call_guest(b, OP_TURN, &slots, "turn");
        order(b, want, turn);
        order(b, turn,
              weft_schedule_add_send(b->schedule, weft_region_at(b->nothing, 0, 0), 0, TAG_GO));
    }
    weft_node_t recv = weft_schedule_add_recv(
        b->schedule, weft_region_at(slots.report, 0, REPORT_WORDS + server->words), 0, TAG_REPORT);
    weft_node_t reported = call_guest(b, OP_REPORTED, &slots, "reported");
    order(b, recv, reported);
    order(b, turn, reported);
    weft_node_t all = weft_schedule_add_join(b->schedule);
    order(b, reported, all);
    weft_node_t *came = weft_memory_alloc(mine + 1, sizeof *came);
    if (!came)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu parts", mine);
    for (size_t p = mine; p-- > 0;) {
        came[p] = add_came(b, &slots, p, reported);
        order(b, came[p], all);
    }
    weft_node_t due = merges ? all : add_order(b, &slots, all);
    for (size_t p = mine; p-- > 0;) {
        const struct part *part = &server->parts[server->host.parts[p].part];
        struct weft_region from =
            weft_region_at(merges ? slots.parameters : slots.room, part->at, part->is.count);
        order(b, merges ? came[p] : due,
              weft_schedule_add_send(b->schedule, from, 0, tag_of(part->first_unit, PULL)));
    }
    weft_memory_free(came);
    if (server->host.index == 0) {
        struct weft_compute_argument arguments[2] = {
            who(&slots),
            {weft_region_at(slots.answer, 0, REPLY_WORDS + server->words), WEFT_UPDATE}};
        weft_node_t answer = call(b, OP_ANSWER, arguments, 2);
        order(b, due, answer);
        order(b, answer, weft_schedule_add_send(b->schedule, arguments[1].region, 0, TAG_REPLY));
    }
    return weft_schedule_status(b->schedule);
}

int weft__server_build_exchange(struct weft_schedule **schedule, struct weft_server *server,
                                int worker, int host)
{
    struct builder b = {.server = server, .worker = worker, .host = host};
    int status = begin(&b, worker ? 0 : 1 + server->host.index, 1 + (int)server->servers,
                       worker ? "push-pull" : "serve");
    if (status)
        return status;
    b.nothing = weft_schedule_add_slot(b.schedule, "nothing", WEFT_U8, 0, WEFT_SLOT_INOUT);
    if (worker)
        status = build_worker(&b);
    if (!status && host)
        status = build_host(&b);
    if (status) {
        weft_schedule_destroy(b.schedule);
        return status;
    }
    return end(&b, schedule);
}

/* ---- what is made of pushes ---- */

/* A chain of calls, a slice of all regions each, behind `before`. The first argument is a number.
 * Returns the last node. */
static weft_node_t add_slices(struct builder *b, int op, size_t number,
                              const struct weft_compute_argument *arguments, size_t count,
                              weft_node_t before)
{
    size_t slice = SLICE_BYTES / b->server->element;
    struct weft_compute_argument *cut = weft_memory_alloc(count + 1, sizeof *cut);
    if (!cut)
        return WEFT_ERR_MEMORY;
    cut[0] = id_of(b, number);
    for (size_t at = 0; at < arguments[0].region.count; at += slice) {
        size_t left = arguments[0].region.count - at;
        for (size_t i = 0; i < count; i++) {
            cut[1 + i] = arguments[i];
            cut[1 + i].region.offset += at;
            cut[1 + i].region.count = left < slice ? left : slice;
        }
        weft_node_t node = call(b, op, cut, 1 + count);
        order(b, before, node);
        before = node;
    }
    weft_memory_free(cut);
    return before;
}

static struct weft_compute_argument whole(weft_slot_t slot, size_t count, weft_access_t access)
{
    return (struct weft_compute_argument){weft_region_at(slot, 0, count), access};
}

int weft__server_build_merge(struct weft_schedule **schedule, const struct weft_server *server,
                             size_t mine)
{
    struct builder b = {.server = (struct weft_server *)(uintptr_t)server};
    size_t elements = server->parts[server->host.parts[mine].part].is.count, count = 0;
    struct weft_compute_argument *arguments =
        weft_memory_alloc(server->workers + 2, sizeof *arguments);
    if (!arguments)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu workers", server->workers);
    int status = begin(&b, 0, 1, "merge");
    if (status) {
        weft_memory_free(arguments);
        return status;
    }
    weft_slot_t slot = weft_schedule_add_slot(b.schedule, "parameters", server->model.dtype,
                                              elements, WEFT_SLOT_INOUT);
    arguments[count++] = whole(slot, elements, WEFT_UPDATE);
    for (size_t w = 0; w < server->workers; w++) {
        slot = add_numbered(&b, "room", w, elements, WEFT_SLOT_INOUT);
        arguments[count++] = whole(slot, elements, WEFT_UPDATE);
    }
    if (server->host.velocity) {
        slot = weft_schedule_add_slot(b.schedule, "velocity", server->model.dtype, elements,
                                      WEFT_SLOT_INOUT);
        arguments[count++] = whole(slot, elements, WEFT_UPDATE);
    }
    weft_node_t node = call_layer(&b, OP_GATHER, mine, "gather");
    node = add_slices(&b, OP_MERGE, mine, arguments, count, node);
    if (weft__server_is_osp(server) && node != WEFT_ERR_MEMORY) {
        weft_node_t merged = call_layer(&b, OP_MERGED, mine, "merged");
        order(&b, node, merged);
        for (size_t i = 0; i < count; i++)
            arguments[i].access = WEFT_READ;
        node = add_slices(&b, OP_WEIGH, mine, arguments, 1 + server->workers, merged);
    }
    weft_memory_free(arguments);
    if (node == WEFT_ERR_MEMORY) {
        weft_schedule_destroy(b.schedule);
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for the merge of a part");
    }
    return end(&b, schedule);
}

int weft__server_build_work(struct weft_schedule **schedule, const struct weft_server *server)
{
    struct builder b = {.server = (struct weft_server *)(uintptr_t)server};
    const struct host *host = &server->host;
    int status = begin(&b, 0, 1, "apply");
    if (status)
        return status;
    weft_slot_t slots[3] = {weft_schedule_add_slot(b.schedule, "parameters", server->model.dtype,
                                                   host->count, WEFT_SLOT_INOUT),
                            weft_schedule_add_slot(b.schedule, "room", server->model.dtype,
                                                   host->count, WEFT_SLOT_INOUT)};
    size_t count = 2;
    if (host->velocity)
        slots[count++] = weft_schedule_add_slot(b.schedule, "velocity", server->model.dtype,
                                                host->count, WEFT_SLOT_INOUT);
    weft_node_t node = call(&b, OP_NEXT, NULL, 0);
    for (size_t p = 0; p < host->part_count && node >= 0; p++) {
        const struct part *part = &server->parts[host->parts[p].part];
        struct weft_compute_argument arguments[3];
        for (size_t i = 0; i < count; i++)
            arguments[i] = (struct weft_compute_argument){
                weft_region_at(slots[i], part->at, part->is.count), WEFT_UPDATE};
        node = add_slices(&b, OP_APPLY, p, arguments, count, node);
    }
    if (node == WEFT_ERR_MEMORY) {
        weft_schedule_destroy(b.schedule);
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for the update of a share");
    }
    return end(&b, schedule);
}

/* Rank 0 is server 0, which hears of all layers. */
int weft__server_build_tally(struct weft_schedule **schedule, const struct weft_server *server)
{
    struct builder b = {.server = (struct weft_server *)(uintptr_t)server};
    size_t layers = server->layer_count, holders = weft__server_holders(server);
    int status = begin(&b, server->host.index, (int)server->servers, "tally");
    if (status)
        return status;
    weft_slot_t slot = weft_schedule_add_slot(
        b.schedule, "importance", WEFT_F64,
        server->host.index ? layers : layers * (holders ? holders : 1), WEFT_SLOT_INOUT);
    if (server->host.index && server->host.part_count)
        weft_schedule_add_send(b.schedule, weft_region_at(slot, 0, layers), 0, 0);
    for (size_t k = 1; !server->host.index && k < holders; k++)
        weft_schedule_add_recv(b.schedule, weft_region_at(slot, k * layers, layers), (int)k, 0);
    return end(&b, schedule);
}

/* Rank 0 is this rank, rank 1 + k server k. */
int weft__server_build_door(struct weft_schedule **schedule, const struct weft_server *server)
{
    struct builder b = {.server = (struct weft_server *)(uintptr_t)server};
    int status = begin(&b, 0, 1 + (int)server->servers, "leave");
    if (status)
        return status;
    for (int k = 0; server->is_worker && k < (int)server->servers; k++)
        weft_schedule_add_signal(b.schedule, k == server->host.index ? 0 : 1 + k,
                                 WEFT__SERVER_LEFT);
    return end(&b, schedule);
}
