/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Placement of layers on servers, balanced by elements.
 *
 * The elements that are left over when a layer is cut go to the next servers in turn, from layer to
 * layer:
 *
 *     5 elements    server 0: 2   server 1: 2   server 2: 1
 *     4             server 0: 1   server 1: 1   server 2: 2
 *
 * So all layers that are cut leave the servers equal up to one element. Whoever has least then has
 * no more than the mean, and gets one whole layer on top.
 */
#include <stdint.h>
#include <stdlib.h>

#include <weft/memory.h>
#include <weft/status.h>

#include "weft/server.h"

struct whole {
    size_t count;
    size_t layer;
};

struct load {
    size_t elements;
    int server;
};

struct placement {
    struct whole *wholes; /* layers that are not split */
    int *owners;          /* a layer each: of those */
    struct load *heap;    /* servers, the one that has least on top */
    int servers;
    size_t whole_count;
};

static int check(const char *who, const size_t *counts, size_t layers, int servers,
                 const struct weft_server_part *parts, const size_t *part_count)
{
    size_t sum = 0;
    if (servers < 1)
        return weft_error_set(WEFT_ERR_INVALID, "%s: servers is %d, expected at least 1", who,
                              servers);
    if (!part_count)
        return weft_error_set(WEFT_ERR_INVALID, "%s: part_count is NULL", who);
    if (layers && (!counts || !parts))
        return weft_error_set(WEFT_ERR_INVALID, "%s: %s is NULL, expected %zu layers", who,
                              counts ? "parts" : "counts", layers);
    for (size_t i = 0; i < layers; i++) {
        if (counts[i] > SIZE_MAX - sum)
            return weft_error_set(WEFT_ERR_INVALID,
                                  "%s: counts[%zu] is %zu, expected at most %zu elements in all "
                                  "layers",
                                  who, i, counts[i], SIZE_MAX);
        sum += counts[i];
    }
    return WEFT_OK;
}

/* The largest first; of equal ones the first. */
static int by_size(const void *a, const void *b)
{
    const struct whole *x = a, *y = b;
    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    return x->layer < y->layer ? -1 : 1;
}

static int has_less(const struct load *a, const struct load *b)
{
    return a->elements != b->elements ? a->elements < b->elements : a->server < b->server;
}

static void sift_down(struct load *heap, size_t count, size_t at)
{
    const struct load moved = heap[at];
    for (size_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && has_less(&heap[child + 1], &heap[child]))
            child++;
        if (!has_less(&heap[child], &moved))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

/* How many elements of a layer that is cut are a server's, where `turn` is the first server that
 * gets one of those left over. */
static size_t range_of(size_t count, int servers, int server, int turn)
{
    int behind = server >= turn ? server - turn : server - turn + servers;
    return count / (size_t)servers + ((size_t)behind < count % (size_t)servers);
}

static int turn_after(size_t count, int servers, int turn)
{
    return (int)(((size_t)turn + count % (size_t)servers) % (size_t)servers);
}

static int is_cut(size_t count, size_t split_elements)
{
    return count && count >= split_elements;
}

/* Fills the list of layers that stay whole, and the heap with what servers have of the others. */
static void divide(struct placement *p, const size_t *counts, size_t layers, size_t split_elements)
{
    size_t each = 0;
    int turn = 0;
    for (size_t i = 0; i < layers; i++)
        if (is_cut(counts[i], split_elements)) {
            /* Full rounds of those left over count for all. */
            size_t left = (size_t)turn + counts[i] % (size_t)p->servers;
            each += counts[i] / (size_t)p->servers + left / (size_t)p->servers;
            turn = turn_after(counts[i], p->servers, turn);
        } else if (counts[i]) {
            p->wholes[p->whole_count++] = (struct whole){counts[i], i};
        }
    for (int i = 0; i < p->servers; i++)
        p->heap[i] = (struct load){each + (i < turn), i};
    for (size_t i = (size_t)p->servers / 2; i-- > 0;)
        sift_down(p->heap, (size_t)p->servers, i);
}

static void give_wholes(struct placement *p)
{
    if (p->whole_count)
        qsort(p->wholes, p->whole_count, sizeof *p->wholes, by_size);
    for (size_t i = 0; i < p->whole_count; i++) {
        p->owners[p->wholes[i].layer] = p->heap[0].server;
        p->heap[0].elements += p->wholes[i].count;
        sift_down(p->heap, (size_t)p->servers, 0);
    }
}

static size_t list_parts(const struct placement *p, const size_t *counts, size_t layers,
                         size_t split_elements, struct weft_server_part *parts)
{
    size_t used = 0;
    int turn = 0;
    for (size_t i = 0; i < layers; i++) {
        if (!is_cut(counts[i], split_elements)) {
            if (counts[i])
                parts[used++] = (struct weft_server_part){i, 0, counts[i], p->owners[i]};
            continue;
        }
        for (size_t server = 0, offset = 0; server < (size_t)p->servers; server++) {
            size_t count = range_of(counts[i], p->servers, (int)server, turn);
            if (count)
                parts[used++] = (struct weft_server_part){i, offset, count, (int)server};
            offset += count;
        }
        turn = turn_after(counts[i], p->servers, turn);
    }
    return used;
}

int weft_server_place_layers(const size_t *counts, size_t layers, int servers,
                             size_t split_elements, struct weft_server_part *parts,
                             size_t *part_count)
{
    int status = check(__func__, counts, layers, servers, parts, part_count);
    if (status)
        return status;
    struct placement p = {.servers = servers};
    size_t room = layers ? layers : 1;
    p.wholes = weft_memory_alloc(room, sizeof *p.wholes);
    p.owners = weft_memory_alloc(room, sizeof *p.owners);
    p.heap = weft_memory_alloc((size_t)servers, sizeof *p.heap);
    if (p.wholes && p.owners && p.heap) {
        divide(&p, counts, layers, split_elements);
        give_wholes(&p);
        *part_count = list_parts(&p, counts, layers, split_elements, parts);
    } else {
        status = weft_error_set(WEFT_ERR_MEMORY, "%s: no memory for %zu layers on %d servers",
                                __func__, layers, servers);
    }
    weft_memory_free(p.heap);
    weft_memory_free(p.owners);
    weft_memory_free(p.wholes);
    return status;
}
