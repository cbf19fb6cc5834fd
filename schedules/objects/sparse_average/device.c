/* SPDX-License-Identifier: BSD-3-Clause */
/* Sparse averaging on a device: device.h says how. */
#include <float.h>
#include <string.h>

#include "schedules/objects/sparse_average/device.h"
#include "schedules/objects/sparse_average/sparse_average.h"

#define LOOK_AGAIN_NS UINT64_C(20000)

/* What fails here fails the object: the others wait for what this rank cannot send. */
static int end(struct weft_sparse_average *average, int status)
{
    if (status)
        weft_object_fail(average->object, status, weft_error_text());
    return status;
}

static struct weft_argument residual_of(const struct weft__sparse_unit *unit)
{
    return weft__vector(unit->average->device->residual + unit->there, unit->count, WEFT_F32);
}

static struct weft_argument velocity_of(const struct weft__sparse_unit *unit)
{
    return weft__vector(unit->average->device->velocity + unit->there, unit->count, WEFT_F32);
}

/* The tensors of a unit. */
static struct weft__model gradient_of(const struct weft__sparse_unit *unit)
{
    const struct weft__model *model = &unit->average->model;
    return (struct weft__model){.dtype = model->dtype,
                                .memory = model->memory,
                                .tensors = model->tensors + unit->first,
                                .tensor_count = unit->tensor_count,
                                .count = unit->count};
}

static int put_zeros(const struct weft_argument *to, void *stream)
{
    static const double zero;
    return weft_device_fill(to, &zero, stream);
}

/* ---- gradients ---- */

int weft__sparse_device_look(struct weft__sparse_unit *unit, struct weft__bad *bad)
{
    struct weft_sparse_average *average = unit->average;
    const struct weft__model gradient = gradient_of(unit);
    *bad = (struct weft__bad){0};
    int status = weft__device_look(&average->device->work, &gradient, bad);
    bad->tensor += unit->first;
    return end(average, status);
}

static int put_squares(void *user, void *stream)
{
    const struct weft__sparse_unit *unit = user;
    const struct weft__model model = gradient_of(unit);
    struct weft_argument gradient =
        weft__vector_of(model.tensors, model.tensor_count, model.count, model.dtype);
    return weft_device_squares(&gradient, WEFT_DEVICE_CLEAR, unit->average->device->squares,
                               stream);
}

int weft__sparse_device_square(struct weft__sparse_unit *unit, double *sum)
{
    struct weft_sparse_average *average = unit->average;
    double *squares = average->device->squares;
    memset(squares, 0, WEFT_DEVICE_SQUARES * sizeof *squares);
    int status = weft__device_do(&average->device->work, put_squares, unit);
    *sum = 0;
    for (size_t i = 0; i < WEFT_DEVICE_SQUARES; i++)
        *sum += squares[i];
    return end(average, status);
}

/* to = terms, or to + terms */
static int put_sum(const struct weft_argument *to, const struct weft_device_term *terms,
                   size_t count, int adds, void *stream)
{
    struct weft_device_sum sum;
    weft_device_sum_init(&sum);
    sum.to = to;
    sum.terms = terms;
    sum.term_count = count;
    sum.adds = adds;
    return weft_device_combine(&sum, stream);
}

/* A factor of 0 would be none. */
static double factor_of(double factor)
{
    return factor == 0 ? DBL_MIN : factor; /* 0 in f32 */
}

/* As accumulate() of select.c, in its order. */
static int accumulate(struct weft_call *call, void *stream)
{
    const struct weft__sparse_device *device = call->user;
    const struct weft__sparse_unit *unit = device->unit;
    const struct weft__model model = gradient_of(unit);
    struct weft_argument hint =
        weft__vector(device->hints + (unit - unit->average->units), 1, WEFT_F32);
    struct weft_argument residual = residual_of(unit), velocity = velocity_of(unit);
    struct weft_argument gradient =
        weft__vector_of(model.tensors, model.tensor_count, model.count, model.dtype);
    const struct weft_device_term added = {&gradient, factor_of((double)device->scale),
                                           unit->bad ? WEFT_DEVICE_CLEAR : 0};
    const struct weft_device_term terms[] = {{&velocity, unit->average->config.momentum, 0}, added};
    const struct weft_device_term whole = {.vector = &velocity};
    int status = unit->hint_k == unit->k ? WEFT_OK : put_zeros(&hint, stream);
    if (status || device->fused)
        return status;
    if (!device->velocity)
        return put_sum(&residual, &added, 1, 1, stream);
    status = put_sum(&velocity, terms, 2, 0, stream);
    return status ? status : put_sum(&residual, &whole, 1, 1, stream);
}

/* ---- selections ---- */

/* The gradient, if the selection can add it: f32 in one piece, as it is. Else NULL. */
static void *plain_gradient(const struct weft__sparse_unit *unit, float scale)
{
    const struct weft__sparse_device *device = unit->average->device;
    const struct weft_piece *tensor = unit->average->model.tensors + unit->first;
    if (!device->fuses || scale != 1 || unit->bad)
        return NULL;
    while (!tensor->count)
        tensor++;
    return tensor->data;
}

static int bind(struct weft__sparse_unit *unit, void *gradient)
{
    struct weft__sparse_device *device = unit->average->device;
    struct weft_run *run = device->run;
    size_t most = device->most_elements;
    int status =
        weft_run_bind(run, device->residual_slot, device->residual + unit->there, most, WEFT_F32);
    if (!status)
        status = weft_run_bind(run, device->hint_slot,
                               device->hints + (unit - unit->average->units), 1, WEFT_F32);
    if (!status)
        status = weft_run_bind_value(run, device->elements, unit->count);
    if (!status)
        status = weft_run_bind_value(run, device->k, unit->k);
    if (!status && device->fuses)
        status = weft_run_bind_value(run, device->gradients, gradient ? most : 0);
    return status;
}

int weft__sparse_device_select(struct weft__sparse_unit *unit, float scale, size_t *count)
{
    struct weft_sparse_average *average = unit->average;
    struct weft__sparse_device *device = average->device;
    void *gradient = plain_gradient(unit, scale);
    device->unit = unit;
    device->scale = scale;
    device->fused = gradient != NULL;
    device->nans = 0;
    int status = bind(unit, gradient);
    if (!status)
        status = weft__device_execute(average->context, device->run);
    if (status)
        return end(average, status);
    unit->hint_k = unit->k;
    average->stats.nans += device->nans;
    *count = (size_t)weft_run_get_value(device->run, device->found);
    memcpy(unit->list, device->pairs, *count * sizeof *unit->list);
    return WEFT_OK;
}

static int put_mask(void *user, void *stream)
{
    const struct weft__sparse_unit *unit = user;
    struct weft_sparse list = weft__sparse_list(unit->average->device->pairs, unit->selected);
    struct weft_argument velocity = velocity_of(unit);
    list.values = NULL;
    return weft_device_scatter(&list, &velocity, stream);
}

int weft__sparse_device_mask(struct weft__sparse_unit *unit)
{
    struct weft__sparse_device *device = unit->average->device;
    if (!device->velocity || !unit->selected)
        return WEFT_OK;
    memcpy(device->pairs, unit->list, unit->selected * sizeof(uint32_t));
    return end(unit->average, weft__device_do(&device->work, put_mask, unit));
}

/* ---- what goes back to the residual ---- */

int weft__sparse_pend(struct weft__sparse_unit *unit, const struct weft_sparse *list)
{
    struct weft__sparse_pending *pending = &unit->pending;
    if (!list->count)
        return WEFT_OK;
    if (list->count > pending->room - pending->used || pending->count == pending->most)
        return weft_error_set(WEFT_ERR_STATE, "%zu pairs are dropped, expected at most %zu",
                              list->count, pending->room - pending->used);
    struct weft_sparse to = weft__sparse_list(pending->pairs + pending->used, list->count);
    memcpy(to.indices, list->indices, list->count * sizeof(uint32_t));
    memcpy(to.values, list->values, list->count * sizeof(float));
    pending->counts[pending->count++] = list->count;
    pending->used += list->count;
    return WEFT_OK;
}

/* The next list that is not in the residual yet. */
static struct weft_sparse next_of(const struct weft__sparse_pending *pending)
{
    return weft__sparse_list(pending->pairs + pending->added_used, pending->counts[pending->added]);
}

/* Counts on the way: whatever fails, what has been put there has been added when all is over. */
static int put_pending(void *user, void *stream)
{
    struct weft__sparse_unit *unit = user;
    struct weft__sparse_pending *pending = &unit->pending;
    struct weft_argument residual = residual_of(unit);
    while (pending->added < pending->count) {
        struct weft_sparse list = next_of(pending);
        int status = weft_device_scatter_add(&list, 1, &residual, stream);
        if (status)
            return status;
        pending->added++;
        pending->added_used += list.count;
    }
    return WEFT_OK;
}

int weft__sparse_device_settle(struct weft__sparse_unit *unit)
{
    struct weft__sparse_pending *pending = &unit->pending;
    if (!pending->count)
        return WEFT_OK;
    int status = weft__device_do(&unit->average->device->work, put_pending, unit);
    if (!status) {
        pending->used = pending->added_used = 0;
        pending->count = pending->added = 0;
    }
    return end(unit->average, status);
}

/* ---- sums ---- */

/* A sum on its way to tensors: pairs in pinned memory, whose indices count from each tensor on. */
struct spreading {
    const struct weft__sparse_unit *unit;
    const struct weft_piece *tensors;
    weft_dtype_t dtype;
    double scale;
    int adds;
};

static int spread(void *user, void *stream)
{
    const struct spreading *of = user;
    const struct weft__sparse_unit *unit = of->unit;
    const struct weft_sparse all = weft__sparse_list(unit->average->device->pairs, unit->kept);
    struct weft_argument tensors =
        weft__vector_of(of->tensors, unit->tensor_count, unit->count, of->dtype);
    int status = of->adds ? WEFT_OK : put_zeros(&tensors, stream);
    for (size_t t = 0; t < unit->tensor_count && !status; t++) {
        struct weft__sparse_range range = weft__sparse_range_of(unit, unit->first + t);
        struct weft_argument to =
            weft__vector(of->tensors[t].data, of->tensors[t].count, of->dtype);
        struct weft_sparse part = all;
        part.indices = (uint32_t *)all.indices + range.from;
        part.values = (float *)all.values + range.from;
        part.count = range.to - range.from;
        if (part.count)
            status = of->adds ? weft_device_scatter_add(&part, of->scale, &to, stream)
                              : weft_device_scatter(&part, &to, stream);
    }
    return status;
}

/* Puts the sum where the device reads it. */
static void lay_out(const struct weft__sparse_unit *unit, float divisor)
{
    const uint32_t *index = (const uint32_t *)unit->list;
    const float *sum = (const float *)(index + unit->kept);
    struct weft_sparse there = weft__sparse_list(unit->average->device->pairs, unit->kept);
    for (size_t t = unit->first; t < unit->first + unit->tensor_count; t++) {
        struct weft__sparse_range range = weft__sparse_range_of(unit, t);
        for (size_t i = range.from; i < range.to; i++) {
            ((uint32_t *)there.indices)[i] = index[i] - (uint32_t)range.base;
            ((float *)there.values)[i] = sum[i] / divisor;
        }
    }
}

int weft__sparse_device_apply(const struct weft__sparse_unit *unit, double scale,
                              weft_dtype_t dtype, const struct weft_piece *tensors)
{
    struct weft_sparse_average *average = unit->average;
    struct spreading of = {unit, tensors, dtype, scale, 1};
    if (!unit->kept)
        return WEFT_OK;
    lay_out(unit, 1);
    return end(average, weft__device_do(&average->device->work, spread, &of));
}

int weft__sparse_device_write(const struct weft__sparse_unit *unit, float divisor)
{
    struct weft_sparse_average *average = unit->average;
    const struct weft__model gradient = gradient_of(unit);
    struct spreading of = {unit, gradient.tensors, gradient.dtype, 1, 0};
    if (!unit->count)
        return WEFT_OK;
    lay_out(unit, divisor);
    return end(average, weft__device_do(&average->device->work, spread, &of));
}

/* ---- states ---- */

static int move(struct weft_sparse_average *average, float *there, float *here, int out)
{
    int status = WEFT_OK;
    for (size_t u = 0; u < average->unit_count && !status; u++) {
        const struct weft__sparse_unit *unit = &average->units[u];
        float *on_device = there + unit->there, *on_host = here + unit->offset;
        if (unit->count)
            status =
                weft_context_device_copy(average->context, out ? on_device : on_host,
                                         out ? on_host : on_device, unit->count * sizeof(float));
    }
    return status;
}

/* What a step that has failed has left to be added. */
static int add_pending(const struct weft__sparse_unit *unit, float *residual)
{
    struct weft__sparse_pending rest = unit->pending;
    int status = WEFT_OK;
    while (rest.added < rest.count && !status) {
        struct weft_sparse list = next_of(&rest);
        status = weft_sparse_scatter_add(&list, 1, residual + unit->offset, unit->count);
        rest.added++;
        rest.added_used += list.count;
    }
    return status;
}

/* A run that has failed may still have something on the device that adds to the residual. */
static void let_go(const struct weft__sparse_unit *unit)
{
    if (!unit->failed || !unit->run || unit->average->config.method != WEFT_SPARSE_OKTOPK)
        return;
    while (weft_run_reclaim(unit->run) == WEFT_IN_PROGRESS)
        weft_context_sleep(unit->average->context, LOOK_AGAIN_NS);
}

int weft__sparse_device_copy(struct weft_sparse_average *average, int which, const float **copy)
{
    struct weft__sparse_device *device = average->device;
    float *there = which ? device->velocity : device->residual;
    float **here = &device->copies[which];
    size_t count = average->model.count;
    int status = WEFT_OK;
    if (which && !average->config.momentum) {
        *copy = NULL;
        return WEFT_OK;
    }
    if (!*here && !(*here = weft_memory_alloc(count + 1, sizeof **here)))
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for a copy of %zu elements", count);
    for (size_t u = 0; u < average->unit_count && !which; u++)
        let_go(&average->units[u]);
    status = move(average, there, *here, 0);
    for (size_t u = 0; u < average->unit_count && !which && !status; u++)
        status = add_pending(&average->units[u], *here);
    if (!status)
        *copy = *here;
    return status;
}

int weft__sparse_device_replace(struct weft_sparse_average *average, const float *residual)
{
    return end(average, move(average, average->device->residual, (float *)(uintptr_t)residual, 1));
}

/* ---- making ---- */

/* The longest unit comes last. Returns its number of elements. */
static size_t lay_units(struct weft_sparse_average *average)
{
    size_t longest = 0, at = 0;
    for (size_t u = 1; u < average->unit_count; u++)
        if (average->units[u].count > average->units[longest].count)
            longest = u;
    for (size_t u = 0; u < average->unit_count; u++) {
        average->units[u].there = at;
        at += u == longest ? 0 : average->units[u].count;
    }
    average->units[longest].there = at;
    return average->units[longest].count;
}

static int clear_vectors(void *user, void *stream)
{
    const struct weft_sparse_average *average = user;
    const struct weft__sparse_device *device = average->device;
    size_t vectors = device->velocity ? 2 : 1;
    struct weft_argument all = weft__vector(
        device->residual, vectors * average->model.count + average->unit_count, WEFT_F32);
    return put_zeros(&all, stream);
}

static int allocate(struct weft_sparse_average *average)
{
    struct weft__sparse_device *device = average->device;
    struct weft_context *context = average->context;
    size_t count = average->model.count, vectors = average->config.momentum != 0 ? 2 : 1;
    size_t pairs = 0;
    void *made = NULL;
    for (size_t u = 0; u < average->unit_count; u++) {
        const struct weft__sparse_unit *unit = &average->units[u];
        pairs = unit->capacity > pairs ? unit->capacity : pairs;
        device->most = unit->most > device->most ? unit->most : device->most;
    }
    int status =
        weft_context_device_alloc(context, WEFT_MEMORY_DEVICE,
                                  (vectors * count + average->unit_count) * sizeof(float), &made);
    if (status)
        return status;
    device->residual = made;
    device->velocity = vectors > 1 ? device->residual + count : NULL;
    device->hints = device->residual + vectors * count;
    status =
        weft_context_device_alloc(context, WEFT_MEMORY_HOST, pairs * sizeof *device->pairs, &made);
    if (status)
        return status;
    device->pairs = made;
    if (average->config.clip_norm == 0)
        return WEFT_OK;
    status = weft_context_device_alloc(context, WEFT_MEMORY_HOST,
                                       WEFT_DEVICE_SQUARES * sizeof *device->squares, &made);
    device->squares = status ? NULL : made;
    return status;
}

static int make_ops(struct weft__sparse_device *device)
{
    struct weft_op_config op;
    struct weft_sparse_op_config selecting;
    weft_op_config_init(&op);
    op.name = "accumulate";
    op.device = accumulate;
    op.user = device;
    weft_sparse_op_config_init(&selecting);
    selecting.kind = WEFT_SPARSE_SELECT;
    selecting.nan = WEFT_NAN_ZERO; /* a residual may come to be one, from sums of infinities */
    selecting.nans = &device->nans;
    int status = weft_op_create(&device->accumulate, &op);
    return status ? status : weft_sparse_op_create(&device->select, &selecting);
}

static struct weft_region part(weft_slot_t slot, size_t count, weft_value_t value)
{
    struct weft_region region = weft_region_at(slot, 0, count);
    region.value = value;
    return region;
}

/* accumulate -> topk-select -> the list to the host */
static void build(struct weft__sparse_device *device, const struct weft__model *model,
                  struct weft_schedule *s)
{
    const size_t elements = device->most_elements, most = device->most;
    const size_t gradients = device->fuses ? elements : 0;
    device->residual_slot =
        weft_schedule_add_slot(s, "residual", WEFT_F32, elements, WEFT_SLOT_INOUT);
    device->gradient_slot =
        weft_schedule_add_slot(s, "gradient", WEFT_F32, gradients, WEFT_SLOT_INPUT);
    device->hint_slot = weft_schedule_add_slot(s, "hint", WEFT_F32, 1, WEFT_SLOT_INOUT);
    weft_slot_t list = weft_schedule_add_slot(s, "list", WEFT_U64, most, WEFT_SLOT_SCRATCH);
    weft_slot_t work = weft_schedule_add_slot(s, "work", WEFT_U64, 0, WEFT_SLOT_SCRATCH);
    weft_slot_t limit = weft_schedule_add_slot(s, "limit", WEFT_U8, most, WEFT_SLOT_SCRATCH);
    weft_slot_t tensors =
        weft_schedule_add_slot(s, "tensors", model->dtype, model->count, WEFT_SLOT_INPUT);
    weft_schedule_set_memory(s, WEFT_SLOT_ALL, WEFT_MEMORY_DEVICE);
    weft_slot_t pairs = weft_schedule_add_slot(s, "pairs", WEFT_U64, most, WEFT_SLOT_OUTPUT);
    device->elements = weft_schedule_add_value(s, "elements", elements);
    device->gradients = device->fuses ? weft_schedule_add_value(s, "gradients", gradients) : 0;
    device->k = weft_schedule_add_value(s, "k", most);
    device->found = weft_schedule_add_value(s, "found", most);
    const struct weft_compute_argument accumulated[] = {
        {part(device->residual_slot, elements, device->elements), WEFT_UPDATE},
        {weft_region_at(tensors, 0, model->count), WEFT_READ},
        {weft_region_at(device->hint_slot, 0, 1), WEFT_UPDATE}};
    const struct weft_compute_argument selected[] = {
        {part(list, most, device->k), WEFT_WRITE},
        accumulated[0],
        {part(device->gradient_slot, gradients, device->gradients), WEFT_READ},
        {weft_region_at(work, 0, 0), WEFT_WRITE},
        {part(limit, most, device->k), WEFT_WRITE},
        accumulated[2]};
    weft_node_t first = weft_schedule_add_compute(s, device->accumulate, accumulated, 3, 0);
    weft_node_t second = weft_schedule_add_compute(s, device->select, selected, 6, device->found);
    weft_node_t third =
        weft_schedule_add_copy(s, part(pairs, most, device->k), part(list, most, device->k));
    weft_schedule_add_order(s, first, second);
    weft_schedule_add_order(s, second, third);
}

static int make_run(struct weft_sparse_average *average)
{
    struct weft__sparse_device *device = average->device;
    struct weft_run_config config;
    struct weft_schedule *schedule;
    struct weft_plan *plan = NULL;
    int status = weft_schedule_create(&schedule, 0, 1);
    if (status)
        return status;
    weft_run_config_init(&config);
    config.local_only = 1;
    weft_schedule_set_name(schedule, "sparse-average-select");
    build(device, &average->model, schedule);
    status = weft_schedule_commit(schedule, &plan);
    weft_schedule_destroy(schedule);
    if (!status)
        status = weft_run_create(&device->run, average->context, plan, &config);
    if (!status)
        status = weft_run_bind_name(device->run, "pairs", device->pairs, device->most, WEFT_U64);
    weft_plan_destroy(plan);
    return status;
}

/* What gradients are bound to does not change. Tensors that kernels do not reach are refused. */
static int bind_gradients(struct weft_sparse_average *average)
{
    struct weft__sparse_device *device = average->device;
    const struct weft__model *model = &average->model;
    const void *gradient = plain_gradient(&average->units[0], 1);
    int status =
        weft_run_bind_list(device->run, weft_plan_find_slot(weft_run_plan(device->run), "tensors"),
                           model->tensors, model->tensor_count, model->dtype);
    if (status)
        return status;
    return weft_run_bind_input_name(device->run, "gradient", gradient,
                                    gradient ? device->most_elements : 0, WEFT_F32);
}

int weft__sparse_device_make(struct weft_sparse_average *average, const float *residual,
                             const float *velocity)
{
    if (!average->model.count)
        return WEFT_OK;
    struct weft__sparse_device *device = average->device =
        weft_memory_alloc(1, sizeof *average->device);
    if (!device)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for gradients on a device");
    device->most_elements = lay_units(average);
    device->fuses = average->unit_count == 1 && average->units[0].contiguous &&
                    average->model.dtype == WEFT_F32 && average->config.momentum == 0;
    int status = weft__device_work_make(&device->work, average->context, NULL);
    if (!status)
        status = allocate(average);
    if (!status)
        status = weft__device_do(&device->work, clear_vectors, average);
    if (!status)
        status = make_ops(device);
    if (!status)
        status = make_run(average);
    if (!status)
        status = bind_gradients(average);
    if (!status && residual)
        status = move(average, device->residual, (float *)(uintptr_t)residual, 1);
    if (!status && velocity)
        status = move(average, device->velocity, (float *)(uintptr_t)velocity, 1);
    return status;
}

int weft__sparse_pending_make(struct weft__sparse_unit *unit)
{
    const struct weft_sparse_average *average = unit->average;
    struct weft__sparse_pending *pending = &unit->pending;
    const int paper = average->config.residual == WEFT_SPARSE_PAPER;
    const int drops = average->config.method == WEFT_SPARSE_GTOPK ||
                      average->config.method == WEFT_SPARSE_GTOPK_BUTTERFLY;
    void *made = NULL;
    pending->most = paper ? 1 : drops ? unit->merge_count : 0;
    pending->room = (size_t)pending->most * unit->most; /* two lists of k pairs lose k at most */
    pending->counts = weft_memory_alloc((size_t)pending->most + 1, sizeof *pending->counts);
    if (!pending->counts)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %d lists", pending->most);
    int status = weft_context_device_alloc(average->context, WEFT_MEMORY_HOST,
                                           pending->room * sizeof *pending->pairs, &made);
    pending->pairs = status ? NULL : made;
    return status;
}

void weft__sparse_device_free(struct weft_sparse_average *average)
{
    struct weft__sparse_device *device = average->device;
    if (!device)
        return;
    for (size_t u = 0; u < average->unit_count; u++) {
        weft_context_device_free(average->context, average->units[u].pending.pairs);
        weft_memory_free(average->units[u].pending.counts);
    }
    weft_run_destroy(device->run);
    weft_op_destroy(device->accumulate);
    weft_op_destroy(device->select);
    weft__device_work_free(&device->work);
    weft_context_device_free(average->context, device->residual);
    weft_context_device_free(average->context, device->pairs);
    weft_context_device_free(average->context, device->squares);
    weft_memory_free(device->copies[0]);
    weft_memory_free(device->copies[1]);
    weft_memory_free(device);
    average->device = NULL;
}
