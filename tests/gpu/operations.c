/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/gpu/operations.h"

/* ---- operations ---- */

static size_t bytes_of(const struct operand *operand)
{
    return operand->count * weft_dtype_size(operand->dtype);
}

void *operand_add(struct operation *operation, weft_dtype_t dtype, weft_access_t access,
                  enum compared compared, size_t count)
{
    struct operand *operand = &operation->operands[operation->count++];

    *operand = (struct operand){.dtype = dtype,
                                .access = access,
                                .compared = compared,
                                .count = count,
                                .length = count,
                                .place = ON_DEVICE};
    operand->data = calloc(1, bytes_of(operand) + 1);
    CHECK(operand->data);
    return operand->data;
}

void operand_shorten(struct operation *operation, size_t index, size_t length)
{
    operation->operands[index].length = length;
}

void draw_places(struct operation *operation, struct draw *draw)
{
    const int mixed = draw_below(draw, 3) == 0;

    for (size_t i = 0; i < operation->count; i++)
        operation->operands[i].place = mixed && draw_below(draw, 2) ? ON_HOST : ON_DEVICE;
}

void operation_free(struct operation *operation)
{
    for (size_t i = 0; i < operation->count; i++)
        free(operation->operands[i].data);
    weft_op_destroy(operation->op);
}

void outcome_free(const struct operation *operation, struct outcome *outcome)
{
    for (size_t i = 0; i < operation->count; i++)
        free(outcome->data[i]);
}

/* ---- running one ---- */

struct built {
    struct weft_plan *plan;
    weft_value_t lengths[MOST_REGIONS];
    weft_value_t value;
};

static struct built build(const struct operation *operation, int there)
{
    struct weft_compute_argument arguments[MOST_REGIONS];
    struct weft_schedule *s = new_schedule(0, 1);
    struct built built = {0};
    char name[16];

    for (size_t i = 0; i < operation->count; i++) {
        const struct operand *operand = &operation->operands[i];

        snprintf(name, sizeof name, "s%zu", i);
        weft_slot_t slot =
            weft_schedule_add_slot(s, name, operand->dtype, operand->count, WEFT_SLOT_INOUT);
        arguments[i] = (struct weft_compute_argument){
            .region = weft_region_at(slot, 0, operand->count), .access = operand->access};
        snprintf(name, sizeof name, "n%zu", i);
        if (operand->length < operand->count)
            arguments[i].region.value = built.lengths[i] =
                weft_schedule_add_value(s, name, operand->count);
        if (there && operand->place == ON_DEVICE)
            OK(weft_schedule_set_memory(s, slot, WEFT_MEMORY_DEVICE));
    }
    if (operation->produces)
        built.value = weft_schedule_add_value(s, "produced", UINT32_MAX);
    CHECK(weft_schedule_add_compute(s, operation->op, arguments, operation->count, built.value) >=
          0);
    built.plan = commit(s);
    return built;
}

/* Copies that follow a node on the stream may be there when it is found to have failed. */
static void take_text(struct outcome *outcome)
{
    char *end;

    snprintf(outcome->text, sizeof outcome->text, "%s", weft_error_text());
    end = strstr(outcome->text, "; buffers are borrowed");
    if (end)
        *end = 0;
}

static void execute(struct weft_context *context, const struct operation *operation, int there,
                    struct outcome *outcome)
{
    struct built built = build(operation, there);
    struct weft_run *run = make_run(context, built.plan, NULL);
    void *bound[MOST_REGIONS];
    const uint64_t nans = operation->nans ? *operation->nans : 0;

    *outcome = (struct outcome){0};
    for (size_t i = 0; i < operation->count; i++) {
        const struct operand *operand = &operation->operands[i];
        enum placed place = there ? operand->place : ON_HOST;

        bound[i] = placed_alloc(place, bytes_of(operand));
        placed_put(place, bound[i], operand->data, bytes_of(operand));
        OK(bind_slot(run, (weft_slot_t)i, bound[i]));
        if (built.lengths[i])
            OK(weft_run_bind_value(run, built.lengths[i], operand->length));
    }
    for (int i = 0; i <= operation->again && outcome->status == WEFT_OK; i++)
        outcome->status = weft_run_execute(run);
    if (outcome->status != WEFT_OK)
        take_text(outcome);
    else if (built.value)
        outcome->value = weft_run_get_value(run, built.value);
    while (weft_run_reclaim(run) == WEFT_IN_PROGRESS)
        sched_yield();
    outcome->nans = operation->nans ? *operation->nans - nans : 0;
    for (size_t i = 0; i < operation->count; i++) {
        const struct operand *operand = &operation->operands[i];
        enum placed place = there ? operand->place : ON_HOST;

        outcome->data[i] = malloc(bytes_of(operand) + 1);
        CHECK(outcome->data[i]);
        placed_get(place, outcome->data[i], bound[i], bytes_of(operand));
        placed_free(place, bound[i]);
    }
    weft_run_destroy(run);
}

void execute_placed(struct weft_context *context, const struct operation *operation,
                    struct outcome *outcome)
{
    execute(context, operation, 1, outcome);
}

/* ---- comparing ---- */

static int same_floats(const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(a + i, b + i, sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            return 0;
    return 1;
}

static int same_doubles(const double *a, const double *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(a + i, b + i, sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            return 0;
    return 1;
}

static int same(const struct operand *operand, const void *a, const void *b, uint64_t value)
{
    const size_t pairs = value < operand->count ? (size_t)value : operand->count;

    switch (operand->compared) {
    case AS_LIST:
        return memcmp(a, b, pairs * sizeof(uint32_t)) == 0 &&
               same_floats((const float *)a + pairs, (const float *)b + pairs, pairs);
    case AS_SUMS:
        return same_floats(a, b, operand->count);
    case AS_DOUBLES:
        return same_doubles(a, b, operand->count);
    case AS_BYTES:
        return memcmp(a, b, bytes_of(operand)) == 0;
    case AS_WORK:
    default:
        return 1;
    }
}

int compare_sides(struct weft_context *context, struct operation *operation, const char *what)
{
    struct outcome host, device;

    execute(context, operation, 0, &host);
    execute(context, operation, 1, &device);
    if (host.status != device.status || strcmp(host.text, device.text) != 0 ||
        host.value != device.value || host.nans != device.nans) {
        fprintf(stderr, "%s: host %d, %llu, %s; device %d, %llu, %s\n", what, host.status,
                (unsigned long long)host.value, host.text, device.status,
                (unsigned long long)device.value, device.text);
        abort();
    }
    for (size_t i = 0; i < operation->count && host.status == WEFT_OK; i++)
        if (!same(&operation->operands[i], host.data[i], device.data[i], host.value)) {
            fprintf(stderr, "%s: region %zu differs\n", what, i);
            abort();
        }
    outcome_free(operation, &host);
    outcome_free(operation, &device);
    return host.status;
}
