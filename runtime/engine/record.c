/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The recorder of an engine: a ring of records that its driver fills.
 *
 * The ring is allocated when tracing starts; names of plans and labels of nodes are copied when a
 * run is created. So nothing is allocated while a plan runs. When the ring is full the oldest
 * records go: what one wants to see of a long program, or of one that hangs, is its end.
 */
#include "runtime/engine/record.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include <string.h>

/* ---- notes ---- */

static struct weft__record *note(struct weft__engine *engine)
{
    struct weft__recorder *recorder = engine->recorder;
    struct weft__record *record = &recorder->records[recorder->count++ & recorder->mask];
    record->time = weft__engine_clock(engine);
    record->helper = (uint8_t)engine->host->helps(engine->context);
    return record;
}

/* Records and traces have 32 bits: member m of object N is N + m * 2^20, all modulo UINT32_MAX. Two
 * with the same ones are never near, but for a program that keeps an object while it makes a
 * million others. */
static uint32_t traced(uint64_t object)
{
    uint64_t member = object >> WEFT__NUMBER_BITS;
    return (uint32_t)((WEFT__NUMBER(object) + (member << 20)) % UINT32_MAX);
}

static uint32_t object_of(const struct weft_run *run)
{
    return run->object ? traced(run->object->id) : UINT32_MAX;
}

void weft__note_run(struct weft__engine *engine, const struct weft_run *run, int what)
{
    struct weft__record *record = note(engine);
    record->version = run->version;
    record->bytes = 0;
    record->object = object_of(run);
    record->plan = run->trace_plan;
    record->run = run->trace_run;
    record->node = WEFT__NONE;
    record->tag = 0;
    record->peer = -1;
    record->what = (uint8_t)what;
    record->kind = 0;
    record->status = (int8_t)(what == WEFT__NOTE_RUN_END ? run->status : 0);
}

/* Bytes of a node: its payload, or what it writes. A receive's come with its end. */
static uint64_t bytes_of(const struct weft_run *run, const struct weft__node *node, int what)
{
    const struct weft_plan *plan = run->plan;
    if (node->kind == WEFT_NODE_COMPUTE) {
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < node->region_count; i++)
            bytes += weft__region_bytes(run, &plan->regions[node->regions + i]);
        return bytes;
    }
    if (node->region_count == 0)
        return 0;
    if (node->kind == WEFT_NODE_RECV && what == WEFT__NOTE_END && node->produces != 0)
        return run->values[node->produces - 1] * weft__node_element(plan, node);
    return weft__region_bytes(run, &plan->regions[node->regions]);
}

void weft__note_node(struct weft__engine *engine, const struct weft_run *run, uint32_t n, int what)
{
    const struct weft__node *node = &run->plan->nodes[n];
    struct weft__record *record = note(engine);
    int exchanges = node->kind == WEFT_NODE_SEND || node->kind == WEFT_NODE_RECV ||
                    node->kind == WEFT_NODE_SIGNAL;
    record->version = run->version;
    record->bytes = bytes_of(run, node, what);
    record->object = object_of(run);
    record->plan = run->trace_plan;
    record->run = run->trace_run;
    record->node = n;
    record->tag = node->tag;
    record->peer = exchanges ? weft__peer(run, node->peer) : -1;
    record->what = (uint8_t)what;
    record->kind = node->kind;
    record->status = 0;
}

void weft__note_message(struct weft__engine *engine, const struct weft__message *message)
{
    struct weft__record *record = note(engine);
    record->version = message->version;
    record->bytes = message->bytes;
    record->object = traced(message->object);
    record->plan = 0;
    record->run = 0;
    record->node = WEFT__NONE;
    record->tag = message->tag;
    record->peer = message->from;
    record->what = WEFT__NOTE_ARRIVED;
    record->kind = message->kind;
    record->status = 0;
}

/* ---- plans ---- */

static uint64_t hash_plan(const struct weft_plan *plan)
{
    uint64_t hash = weft__hash_bytes(WEFT__HASH_EMPTY, plan->name, strlen(plan->name));
    for (uint32_t i = 0; i < plan->label_count; i++) {
        const char *text = plan->labels[i].text;
        hash = weft__hash_word(hash, plan->labels[i].node);
        hash = weft__hash_bytes(hash, text, strlen(text));
    }
    return hash;
}

static int same_plan(const struct weft__kept_plan *kept, const struct weft_plan *plan)
{
    if (kept->label_count != plan->label_count || strcmp(kept->name, plan->name) != 0)
        return 0;
    for (uint32_t i = 0; i < plan->label_count; i++)
        if (kept->labels[i].node != plan->labels[i].node ||
            strcmp(kept->labels[i].text, plan->labels[i].text) != 0)
            return 0;
    return 1;
}

static void free_plan(struct weft__kept_plan *kept)
{
    for (uint32_t i = 0; i < kept->label_count; i++)
        weft__free(kept->labels[i].text);
    weft__free(kept->labels);
    weft__free(kept->name);
}

static int keep_plan(struct weft__kept_plan *kept, const struct weft_plan *plan)
{
    *kept = (struct weft__kept_plan){.name = weft__strdup(plan->name)};
    kept->labels = weft__calloc(plan->label_count, sizeof *kept->labels);
    int failed = !kept->name || !kept->labels;
    for (uint32_t i = 0; i < plan->label_count && !failed; i++) {
        kept->labels[i].node = plan->labels[i].node;
        kept->labels[i].text = weft__strdup(plan->labels[i].text);
        kept->label_count++;
        failed = !kept->labels[i].text;
    }
    if (failed)
        free_plan(kept);
    return failed ? weft__error_memory("recording a plan") : WEFT_OK;
}

int weft__recorder_register(struct weft_run *run)
{
    struct weft__recorder *recorder = run->engine->recorder;
    if (!recorder)
        return WEFT_OK;
    uint64_t hash = hash_plan(run->plan);
    size_t p = 0;
    while (p < recorder->plan_count &&
           !(recorder->plans[p].hash == hash && same_plan(&recorder->plans[p], run->plan)))
        p++;
    if (p == recorder->plan_count) {
        if (weft__grow((void **)&recorder->plans, &recorder->plan_capacity, p + 1,
                       sizeof *recorder->plans) != 0)
            return weft__error_memory("recording a plan");
        int status = keep_plan(&recorder->plans[p], run->plan);
        if (status != WEFT_OK)
            return status;
        recorder->plans[p].hash = hash;
        recorder->plan_count++;
    }
    run->trace_plan = (uint32_t)p;
    run->trace_run = recorder->runs++;
    return WEFT_OK;
}

/* ---- the recorder ---- */

struct weft__recorder *weft__recorder_create(size_t records)
{
    struct weft__recorder *recorder = weft__calloc(1, sizeof *recorder);
    size_t size = 16;
    while (size < records && size <= SIZE_MAX / 2)
        size *= 2;
    if (recorder)
        recorder->records = weft__malloc(size, sizeof *recorder->records);
    if (!recorder || !recorder->records) {
        weft__error(WEFT_ERR_MEMORY, "out of memory for %zu records of a trace", size);
        weft__recorder_destroy(recorder);
        return NULL;
    }
    recorder->mask = size - 1;
    return recorder;
}

void weft__recorder_destroy(struct weft__recorder *recorder)
{
    if (!recorder)
        return;
    for (size_t p = 0; p < recorder->plan_count; p++)
        free_plan(&recorder->plans[p]);
    weft__free(recorder->plans);
    weft__free(recorder->directory);
    weft__free(recorder->path);
    weft__free(recorder->records);
    weft__free(recorder);
}
