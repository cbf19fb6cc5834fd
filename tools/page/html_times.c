/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When each node of a page began and ended: in a simulation, or in one run of a trace. A trace does
 * not say why a node did not start earlier; the critical path is found by going back from the last
 * node to what ended last before it could start.
 */
#include "tools/page/html.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int out_of_memory(void)
{
    return weft_error_set(WEFT_ERR_MEMORY, "out of memory for the nodes of a page");
}

static int number_nodes(struct html_page *page)
{
    page->first = weft_memory_alloc(page->ranks + 1, sizeof *page->first);
    if (!page->first)
        return out_of_memory();
    for (size_t r = 0; r < page->ranks; r++)
        page->first[r + 1] = page->first[r] + weft_schedule_node_count(page->schedules[r]);
    page->nodes = weft_memory_alloc(page->first[page->ranks] + 1, sizeof *page->nodes);
    return page->nodes ? WEFT_OK : out_of_memory();
}

/* ---- a simulation ---- */

static void take_faults(struct html_page *page, const struct weft_sim_result *result)
{
    size_t used = 0;

    for (size_t i = 0; i < result->fault_count && used < sizeof page->faults - 1; i++) {
        used += (size_t)snprintf(page->faults + used, sizeof page->faults - used, "%s%s",
                                 i ? "; " : "", result->faults[i].text);
    }
}

static int take_result(struct html_page *page, const struct weft_sim_result *result)
{
    size_t total = page->first[page->ranks];

    for (size_t n = 0; n < total; n++) {
        const struct weft_sim_node *did = &result->nodes_at[n];
        page->nodes[n] =
            (struct html_node){.start_us = did->end_us < 0 ? -1 : did->start_us,
                               .end_us = did->end_us,
                               .peer = did->peer >= 0 && did->peer_node >= 0
                                           ? (int64_t)page->first[did->peer] + did->peer_node
                                           : -1,
                               .retired = did->retired};
    }
    page->time_us = result->time_us;
    page->complete = result->complete;
    take_faults(page, result);
    page->path = weft_memory_alloc(result->path_length + 1, sizeof *page->path);
    if (!page->path)
        return out_of_memory();
    for (size_t i = 0; i < result->path_length; i++) {
        const struct weft_sim_step *step = &result->path[i];
        page->path[i] = (struct html_step){.node = page->first[step->rank] + (size_t)step->node,
                                           .start_us = step->start_us,
                                           .end_us = step->end_us,
                                           .reason = weft_sim_reason_name(step->reason)};
    }
    page->path_length = result->path_length;
    return WEFT_OK;
}

int html_simulate(struct html_page *page, const struct weft_sim_config *config, const char *net)
{
    struct weft_sim_config all = *config;
    struct weft_sim_result *result = NULL;
    int status = number_nodes(page);

    if (status)
        return status;
    all.ranks = (int)page->ranks;
    all.schedules = page->schedules;
    all.flags |= WEFT_SIM_KEEP_NODES;
    status = weft_simulate(&all, &result);
    if (status == WEFT_OK) {
        snprintf(page->source, sizeof page->source, "simulated, %s", net);
        status = take_result(page, result);
    }
    weft_sim_result_destroy(result);
    return status;
}

/* ---- a trace ---- */

/* One run of the plan: all ranks have it. */
struct run {
    uint32_t object;
    uint64_t version;
    uint64_t begin;
    size_t ranks;
};

struct runs {
    struct run *at;
    size_t count, capacity;
};

static int is_ours(const struct html_page *page, const struct weft_trace_span *span)
{
    return span->plan && strcmp(span->plan, weft_schedule_name(page->schedules[0])) == 0 &&
           (size_t)span->rank < page->ranks;
}

static int note_run(struct runs *runs, const struct weft_trace_span *span)
{
    if (runs->count == runs->capacity) {
        size_t capacity = runs->capacity ? runs->capacity * 2 : 64;
        struct run *at = weft_memory_alloc(capacity, sizeof *at);
        if (!at)
            return out_of_memory();
        if (runs->count)
            memcpy(at, runs->at, runs->count * sizeof *at);
        weft_memory_free(runs->at);
        runs->at = at;
        runs->capacity = capacity;
    }
    runs->at[runs->count++] = (struct run){span->object, span->version, span->start_ns, 1};
    return WEFT_OK;
}

static int by_version(const void *left, const void *right)
{
    const struct run *a = left;
    const struct run *b = right;

    if (a->object != b->object)
        return a->object < b->object ? -1 : 1;
    return (a->version > b->version) - (a->version < b->version);
}

static int by_begin(const void *left, const void *right)
{
    const struct run *a = left;
    const struct run *b = right;

    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return by_version(left, right);
}

/* Those that all ranks have, in the order of their beginnings. */
static void merge_runs(struct runs *runs, size_t ranks)
{
    size_t kept = 0;

    if (!runs->count)
        return;
    qsort(runs->at, runs->count, sizeof *runs->at, by_version);
    for (size_t i = 0, next = 0; i < runs->count; i = next) {
        struct run run = runs->at[i];
        for (next = i + 1; next < runs->count && by_version(&runs->at[next], &run) == 0; next++) {
            run.ranks++;
            run.begin = runs->at[next].begin < run.begin ? runs->at[next].begin : run.begin;
        }
        if (run.ranks >= ranks)
            runs->at[kept++] = run;
    }
    runs->count = kept;
    qsort(runs->at, kept, sizeof *runs->at, by_begin);
}

/* The run that is wanted. */
static int choose_run(const struct html_page *page, struct runs *runs, long long wanted,
                      struct run *chosen, size_t *number, size_t *whole)
{
    merge_runs(runs, page->ranks);
    if (!runs->count) {
        return weft_error_set(WEFT_ERR_NOT_FOUND,
                              "the trace has no run of \"%s\" on all of %zu ranks",
                              weft_schedule_name(page->schedules[0]), page->ranks);
    }
    if (wanted >= (long long)runs->count) {
        return weft_error_set(WEFT_ERR_NOT_FOUND,
                              "the trace has %zu runs of \"%s\", expected a run from 0 to %zu",
                              runs->count, weft_schedule_name(page->schedules[0]), runs->count - 1);
    }
    *number = wanted < 0 ? runs->count - 1 : (size_t)wanted;
    *chosen = runs->at[*number];
    *whole = runs->count;
    return WEFT_OK;
}

static int find_run(const struct html_page *page, struct weft_trace *trace, long long wanted,
                    struct run *chosen, size_t *number, size_t *whole)
{
    struct runs runs = {0};
    struct weft_trace_span span = {.struct_size = sizeof span};
    int status = WEFT_OK;

    weft_trace_span_init(&span);
    for (size_t i = 0; i < weft_trace_span_count(trace) && status == WEFT_OK; i++) {
        status = weft_trace_get_span(trace, i, &span);
        if (status == WEFT_OK && span.kind == WEFT_TRACE_RUN && is_ours(page, &span))
            status = note_run(&runs, &span);
    }
    if (status == WEFT_OK)
        status = choose_run(page, &runs, wanted, chosen, number, whole);
    weft_memory_free(runs.at);
    return status;
}

/* Takes a node's times; the trace must be of this schedule. */
static int take_span(struct html_page *page, const struct weft_trace_span *span, uint64_t begin)
{
    const struct weft_schedule *schedule = page->schedules[span->rank];
    struct weft_node_info info = {.struct_size = sizeof info};

    if (span->kind == WEFT_TRACE_RUN) {
        double end = (double)(span->end_ns - begin) / 1000;
        page->time_us = end > page->time_us ? end : page->time_us;
        return WEFT_OK;
    }
    if (weft_schedule_get_node(schedule, span->node, &info) != WEFT_OK ||
        (int)info.kind != span->kind) {
        return weft_error_set(WEFT_ERR_FORMAT,
                              "rank %d, node %d: the trace is of another schedule than this \"%s\" "
                              "(other parameters?)",
                              span->rank, (int)span->node, weft_schedule_name(schedule));
    }
    struct html_node *node = &page->nodes[page->first[span->rank] + (size_t)span->node];
    node->retired = span->end == WEFT_TRACE_RETIRED;
    if (span->end == WEFT_TRACE_ENDED) {
        node->start_us = (double)(int64_t)(span->start_ns - begin) / 1000;
        node->end_us = (double)(int64_t)(span->end_ns - begin) / 1000;
    }
    return WEFT_OK;
}

static int take_spans(struct html_page *page, struct weft_trace *trace, const struct run *run)
{
    struct weft_trace_span span = {.struct_size = sizeof span};
    int status = WEFT_OK;

    for (size_t n = 0; n < page->first[page->ranks]; n++) {
        page->nodes[n].start_us = page->nodes[n].end_us = -1;
        page->nodes[n].retired = 0;
    }
    weft_trace_span_init(&span);
    for (size_t i = 0; i < weft_trace_span_count(trace) && status == WEFT_OK; i++) {
        status = weft_trace_get_span(trace, i, &span);
        if (status == WEFT_OK && is_ours(page, &span) && span.object == run->object &&
            span.version == run->version)
            status = take_span(page, &span, run->begin);
    }
    page->complete = 1;
    for (size_t n = 0; n < page->first[page->ranks]; n++)
        page->complete &= page->nodes[n].end_us >= 0 || page->nodes[n].retired;
    return status;
}

/* ---- the critical path of a trace ---- */

/* Predecessors: a list a node, as links. */
struct links {
    size_t *last; /* of a node: link + 1, or 0 */
    size_t *before;
    size_t *next;
    size_t count;
};

static int link_orders(const struct html_page *page, struct links *links)
{
    size_t edges = 0;

    for (size_t r = 0; r < page->ranks; r++)
        edges += weft_schedule_edge_count(page->schedules[r]);
    links->last = weft_memory_alloc(page->first[page->ranks] + 1, sizeof(size_t));
    links->before = weft_memory_alloc(edges + 1, sizeof(size_t));
    links->next = weft_memory_alloc(edges + 1, sizeof(size_t));
    if (!links->last || !links->before || !links->next)
        return out_of_memory();
    for (size_t r = 0; r < page->ranks; r++) {
        for (size_t e = 0; e < weft_schedule_edge_count(page->schedules[r]); e++) {
            weft_node_t before = 0;
            weft_node_t after = 0;
            if (weft_schedule_get_edge(page->schedules[r], e, &before, &after) != WEFT_OK)
                continue;
            size_t to = page->first[r] + (size_t)after;
            links->before[links->count] = page->first[r] + (size_t)before;
            links->next[links->count] = links->last[to];
            links->last[to] = ++links->count;
        }
    }
    return WEFT_OK;
}

static int is_receive(const struct html_page *page, size_t node)
{
    size_t low = 0;
    size_t high = page->ranks;
    struct weft_node_info info = {.struct_size = sizeof info};

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (page->first[middle] <= node)
            low = middle;
        else
            high = middle;
    }
    return weft_schedule_get_node(page->schedules[low], (weft_node_t)(node - page->first[low]),
                                  &info) == WEFT_OK &&
           info.kind == WEFT_NODE_RECV;
}

/* What held a node up: the predecessor that ended last, or the send of its message if that began
 * after the receive did. */
static int step_back(const struct html_page *page, const struct links *links, size_t node,
                     size_t *before, const char **reason)
{
    const struct html_node *nodes = page->nodes;
    int found = 0;

    if (nodes[node].peer >= 0 && is_receive(page, node)) {
        size_t send = (size_t)nodes[node].peer;
        if (nodes[send].end_us >= 0 && nodes[send].start_us > nodes[node].start_us &&
            nodes[send].start_us < nodes[node].end_us) {
            *before = send;
            *reason = weft_sim_reason_name(WEFT_SIM_MESSAGE);
            return 1;
        }
    }
    for (size_t link = links->last[node]; link; link = links->next[link - 1]) {
        size_t candidate = links->before[link - 1];
        if (nodes[candidate].end_us >= 0 &&
            (!found || nodes[candidate].end_us > nodes[*before].end_us)) {
            *before = candidate;
            *reason = weft_sim_reason_name(WEFT_SIM_ORDER);
            found = 1;
        }
    }
    return found;
}

static int trace_path(struct html_page *page)
{
    size_t total = page->first[page->ranks];
    struct links links = {0};
    size_t last = 0;
    int status = link_orders(page, &links);

    page->path_length = 0;
    weft_memory_free(page->path);
    page->path = weft_memory_alloc(total + 1, sizeof *page->path);
    if (status || !page->path || !total) {
        status = page->path ? status : out_of_memory();
        goto done;
    }
    for (size_t n = 0; n < total; n++)
        last = page->nodes[n].end_us > page->nodes[last].end_us ? n : last;
    /* Backwards; clocks that were aligned badly could make it turn, but not for ever. */
    for (size_t node = last; page->path_length < total;) {
        size_t before = 0;
        const char *reason = weft_sim_reason_name(WEFT_SIM_FIRST);
        int found = step_back(page, &links, node, &before, &reason);
        page->path[page->path_length++] =
            (struct html_step){node, page->nodes[node].start_us, page->nodes[node].end_us, reason};
        if (!found)
            break;
        node = before;
    }
    for (size_t i = 0; i < page->path_length / 2; i++) {
        struct html_step step = page->path[i];
        page->path[i] = page->path[page->path_length - 1 - i];
        page->path[page->path_length - 1 - i] = step;
    }
done:
    weft_memory_free(links.last);
    weft_memory_free(links.before);
    weft_memory_free(links.next);
    return status;
}

int html_read_trace(struct html_page *page, const char *path, long long run)
{
    struct weft_trace *trace = NULL;
    struct run chosen = {0};
    size_t number = 0;
    size_t whole = 0;
    int status = weft_trace_create(&trace);

    page->time_us = 0;
    page->faults[0] = '\0';
    status = status == WEFT_OK ? weft_trace_read(trace, path) : status;
    status = status == WEFT_OK ? find_run(page, trace, run, &chosen, &number, &whole) : status;
    status = status == WEFT_OK ? take_spans(page, trace, &chosen) : status;
    if (status == WEFT_OK) {
        snprintf(page->source, sizeof page->source, "traced, run %zu of %zu in %s", number, whole,
                 path);
        status = trace_path(page);
    }
    weft_trace_destroy(trace);
    return status;
}
