/* SPDX-License-Identifier: BSD-3-Clause */
/* Averaging in pairs: its plans and runs. */
#include <string.h>

#include <weft/template.h>

#include "schedules/objects/agreement.h"
#include "schedules/objects/pair_average/pair_average.h"

enum { CHANNEL = 0, SLICE_BYTES = 256 * 1024 };

/* ---- plans ---- */

/* A compute node after another; a negative `before` is an error that the schedule keeps. */
static weft_node_t call_after(struct weft_schedule *schedule,
                              const struct weft_pair_average *average, int op,
                              const struct weft_compute_argument *arguments, size_t count,
                              weft_node_t before)
{
    weft_node_t node = weft_schedule_add_compute(schedule, average->ops[op], arguments, count, 0);
    if (before >= 0)
        weft_schedule_add_order(schedule, before, node);
    return node;
}

/* A chain of calls of `op`, a slice of all of the slots each. Returns its last node. */
static weft_node_t slices_after(struct weft_schedule *schedule,
                                const struct weft_pair_average *average, int op,
                                const weft_slot_t *slots, const weft_access_t *accesses,
                                size_t slot_count, weft_node_t before)
{
    size_t slice = SLICE_BYTES / weft_dtype_size(average->model.dtype);
    for (size_t at = 0; at < average->model.count; at += slice) {
        struct weft_compute_argument arguments[3];
        size_t left = average->model.count - at;
        for (size_t s = 0; s < slot_count; s++)
            arguments[s] = (struct weft_compute_argument){
                weft_region_at(slots[s], at, left < slice ? left : slice), accesses[s]};
        before = call_after(schedule, average, op, arguments, slot_count, before);
    }
    return before;
}

static weft_slot_t buffer(struct weft_schedule *schedule, const struct weft_pair_average *average,
                          const char *name, weft_slot_kind_t kind)
{
    return weft_schedule_add_slot(schedule, name, average->model.dtype, average->model.count, kind);
}

static void build_asking(struct weft_schedule *schedule, const struct weft_pair_average *average)
{
    struct weft_region whole = {.count = average->model.count};
    whole.slot = buffer(schedule, average, "published", WEFT_SLOT_INPUT);
    weft_schedule_add_signal(schedule, 1, CHANNEL);
    weft_schedule_add_send(schedule, whole, 1, 0);
    whole.slot = buffer(schedule, average, "added", WEFT_SLOT_OUTPUT);
    weft_schedule_add_recv(schedule, whole, 1, 0);
}

static void build_answering(struct weft_schedule *schedule, const struct weft_pair_average *average)
{
    weft_slot_t slots[] = {buffer(schedule, average, "room", WEFT_SLOT_INOUT),
                           buffer(schedule, average, "published", WEFT_SLOT_INPUT),
                           buffer(schedule, average, "added", WEFT_SLOT_INOUT)};
    static const weft_access_t accesses[] = {WEFT_UPDATE, WEFT_READ, WEFT_WRITE};
    struct weft_region room = weft_region_at(slots[0], 0, average->model.count);
    weft_node_t came = weft_schedule_add_recv(schedule, room, 0, 0);
    weft_node_t node = call_after(schedule, average, OP_TAKE_MODEL, NULL, 0, came);
    node = slices_after(schedule, average, OP_MIX, slots, accesses, 3, node);
    call_after(schedule, average, OP_LEAVE_MODEL, NULL, 0, node);
    weft_node_t went = weft_schedule_add_send(schedule, room, 0, 0);
    weft_schedule_add_order(schedule, node, went);
}

/* The application's turn at the model: OP_SETTLE or OP_PUBLISH. */
static void build_turn(struct weft_schedule *schedule, const struct weft_pair_average *average,
                       int op)
{
    static const weft_access_t settles[] = {WEFT_WRITE, WEFT_UPDATE, WEFT_UPDATE};
    static const weft_access_t publishes[] = {WEFT_WRITE, WEFT_READ};
    weft_slot_t slots[3] = {buffer(schedule, average, "published", WEFT_SLOT_OUTPUT)};
    size_t count = 1;
    if (op == OP_SETTLE)
        slots[count++] = buffer(schedule, average, "added", WEFT_SLOT_INOUT);
    slots[count++] =
        buffer(schedule, average, "tensors", op == OP_SETTLE ? WEFT_SLOT_INOUT : WEFT_SLOT_INPUT);
    weft_node_t node = call_after(schedule, average, OP_TAKE_MODEL, NULL, 0, -1);
    node = slices_after(schedule, average, op, slots, op == OP_SETTLE ? settles : publishes, count,
                        node);
    call_after(schedule, average, OP_LEAVE_MODEL, NULL, 0, node);
}
/* ---- runs ---- */

/* All that follows on the thread that drives the engine. */

/* Where a rank is, or is to be. */
static struct visitor *find(const struct visitor *table, size_t capacity, int rank)
{
    size_t at = weft__scramble((uint64_t)rank) & (capacity - 1);
    while (table[at].asked && table[at].rank != rank)
        at = (at + 1) & (capacity - 1);
    return (struct visitor *)&table[at];
}

static struct visitor *visitor_of(const struct visitors *visitors, int rank)
{
    return find(visitors->table, visitors->capacity, rank);
}

/* For one more. At least half of the places are free. */
static int make_room(struct visitors *visitors)
{
    if (2 * visitors->count < visitors->capacity)
        return WEFT_OK;
    size_t capacity = 2 * visitors->capacity;
    struct visitor *table = weft_memory_alloc(capacity, sizeof *table);
    if (!table)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu ranks that ask",
                              visitors->count + 1);
    for (size_t i = 0; i < visitors->capacity; i++)
        if (visitors->table[i].asked)
            *find(table, capacity, visitors->table[i].rank) = visitors->table[i];
    weft_memory_free(visitors->table);
    visitors->table = table;
    visitors->capacity = capacity;
    return WEFT_OK;
}

/* Lets the first of those who wait in. */
static void admit(struct weft_pair_average *average)
{
    struct visitors *visitors = &average->visitors;
    if (visitors->visiting || visitors->first < 0)
        return;
    const struct visitor *visitor = visitor_of(visitors, visitors->first);
    visitors->first = visitor->next;
    if (visitors->first < 0)
        visitors->last = -1;
    visitors->visiting = 1;
    int peers[] = {visitor->rank, average->rank};
    int status = weft_run_bind_peers(average->exchange, peers);
    if (!status)
        status = weft_run_start_version(average->exchange, visitor->asked - 1);
    if (status)
        weft_object_fail(average->object, status, weft_error_text());
}

static void asked(void *user, struct weft_run *run, int from, uint32_t channel, uint64_t step)
{
    struct weft_pair_average *average = user;
    struct visitors *visitors = &average->visitors;
    (void)run;
    (void)channel;
    if (average->broken || visitor_of(visitors, from)->asked > step)
        return; /* who asks hears of the failure, or the signal has come twice */
    int status = make_room(visitors);
    if (status) {
        weft_object_fail(average->object, status, weft_error_text());
        return;
    }
    struct visitor *visitor = visitor_of(visitors, from);
    visitors->count += !visitor->asked;
    *visitor = (struct visitor){.asked = step + 1, .rank = from, .next = -1};
    if (visitors->last < 0)
        visitors->first = from;
    else
        visitor_of(visitors, visitors->last)->next = from;
    visitors->last = from;
    admit(average);
}

static void visit_ended(void *user, struct weft_run *run, int status)
{
    struct weft_pair_average *average = user;
    (void)run;
    if (status)
        return; /* the object has failed with it */
    atomic_fetch_add_explicit(&average->answered, 1, memory_order_relaxed);
    average->visitors.visiting = 0;
    if (average->resting)
        weft_object_done(average->object);
    else
        admit(average);
}

static void answer_came(void *user, struct weft_run *run, int status)
{
    struct weft_pair_average *average = user;
    (void)run;
    atomic_store_explicit(&average->asking, 0, memory_order_release);
    if (!status && average->all_left)
        weft_object_settle(average->object, 0);
}

void weft__pair_left(void *user, struct weft_object *object)
{
    struct weft_pair_average *average = user;
    average->all_left = 1;
    if (!atomic_load_explicit(&average->asking, memory_order_acquire))
        weft_object_settle(object, 0);
}

void weft__pair_settled(void *user, struct weft_object *object, uint64_t largest)
{
    struct weft_pair_average *average = user;
    (void)largest;
    average->resting = 1;
    /* Nobody waits for an answer, but the last may still be on its way. */
    if (!average->visitors.visiting)
        weft_object_done(object);
}

/* What the slots of a schedule are called says what they are bound to; no schedule has all. */
static int bind_buffers(const struct weft_pair_average *average, struct weft_run *run,
                        const struct weft_schedule *schedule)
{
    const struct {
        const char *name;
        void *data;
    } buffers[] = {
        {"published", average->published}, {"added", average->added}, {"room", average->room}};
    const struct weft__model *model = &average->model;
    int status = WEFT_OK;
    for (size_t s = 0; s < weft_schedule_slot_count(schedule) && !status; s++) {
        struct weft_slot_info slot = {.struct_size = sizeof slot};
        status = weft_schedule_get_slot(schedule, (weft_slot_t)s, &slot);
        if (!status && strcmp(slot.name, "tensors") == 0)
            status = weft_run_bind_list(run, (weft_slot_t)s, model->tensors, model->tensor_count,
                                        model->dtype);
        for (size_t i = 0; i < sizeof buffers / sizeof buffers[0] && !status; i++)
            if (strcmp(slot.name, buffers[i].name) == 0)
                status =
                    weft_run_bind(run, (weft_slot_t)s, buffers[i].data, model->count, model->dtype);
    }
    return status;
}

/* Commits the schedule, which it takes, and makes a run of it. */
static int make_run(struct weft_pair_average *average, struct weft_run **run,
                    struct weft_schedule *schedule, const char *name)
{
    struct weft_run_config config;
    struct weft_plan *plan = NULL;
    weft_run_config_init(&config);
    config.local_only = run != &average->exchange;
    config.object = average->object;
    if (!config.local_only)
        config.ended = average->rank % 2 ? visit_ended : answer_came;
    config.unordered = !config.local_only && average->rank % 2;
    config.signalled = config.unordered ? asked : NULL;
    config.user = average;
    int status = weft_schedule_set_name(schedule, name);
    if (!status)
        status = weft_schedule_commit(schedule, &plan);
    if (!status)
        status = weft_run_create(run, average->context, plan, &config);
    if (!status)
        status = bind_buffers(average, *run, schedule);
    weft_plan_destroy(plan);
    weft_schedule_destroy(schedule);
    return status;
}

static int make_exchange(struct weft_pair_average *average)
{
    struct weft_schedule *schedule = NULL;
    int answers = average->rank % 2;
    int status = weft_schedule_create(&schedule, answers, 2);
    if (status)
        return status;
    if (answers)
        build_answering(schedule, average);
    else
        build_asking(schedule, average);
    return make_run(average, &average->exchange, schedule, answers ? "pair-answer" : "pair-ask");
}

static int make_local(struct weft_pair_average *average, struct weft_run **run, int op,
                      const char *name)
{
    struct weft_schedule *schedule = NULL;
    int status = weft_schedule_create(&schedule, 0, 1);
    if (status)
        return status;
    build_turn(schedule, average, op);
    return make_run(average, run, schedule, name);
}

static int make_collectives(struct weft_pair_average *average)
{
    struct weft_template_params params;
    weft_template_params_init(&params);
    params.count = average->model.count;
    params.dtype = average->model.dtype;
    params.in_place = 1;
    int status =
        weft__object_run(&average->barrier, average->context, average->object, "barrier", NULL);
    if (!status)
        status = weft__object_run(&average->sum, average->context, average->object, "allreduce",
                                  &params);
    if (status)
        return status;
    weft_slot_t slot = weft_plan_find_slot(weft_run_plan(average->sum), "recv");
    return slot < 0 ? slot
                    : weft_run_bind_list(average->sum, slot, average->model.tensors,
                                         average->model.tensor_count, average->model.dtype);
}

int weft__pair_make_runs(struct weft_pair_average *average)
{
    int status = make_collectives(average);
    if (!status)
        status = make_exchange(average);
    if (!status && average->rank % 2)
        status = make_local(average, &average->settle, OP_SETTLE, "pair-settle");
    if (!status && average->rank % 2)
        status = make_local(average, &average->publish, OP_PUBLISH, "pair-publish");
    return status;
}
