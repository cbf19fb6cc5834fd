/* SPDX-License-Identifier: BSD-3-Clause */
/* What sparse_reference.h promises. */
#include "support/sparse_reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *take(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    if (!memory)
        abort();
    return memory;
}

static void list_init(struct reference_list *list, size_t count)
{
    list->value = take(count, sizeof(float));
    list->present = take(count, 1);
}

static void list_free(struct reference_list *list)
{
    free(list->value);
    free(list->present);
}

void sparse_reference_init(struct sparse_reference *reference, int ranks,
                           const struct weft_sparse_average_config *config)
{
    memset(reference, 0, sizeof *reference);
    reference->ranks = ranks;
    reference->config = *config;
    for (size_t t = 0; t < config->tensor_count; t++)
        reference->count += config->tensors[t].count;
    list_init(&reference->sum, reference->count);
    reference->regions = take(config->tensor_count, sizeof *reference->regions);
    for (size_t u = 0; u < config->tensor_count; u++) {
        size_t count =
            config->scope == WEFT_SPARSE_MODEL ? reference->count : config->tensors[u].count;
        for (int j = 0; j <= ranks; j++)
            reference->regions[u].bounds[j] = count * (uint64_t)j / (uint64_t)ranks;
    }
    for (int r = 0; r < ranks; r++) {
        reference->residual[r] = take(reference->count, sizeof(float));
        reference->velocity[r] = take(reference->count, sizeof(float));
        list_init(&reference->list[r], reference->count);
        list_init(&reference->own[r], reference->count);
    }
}

void sparse_reference_free(struct sparse_reference *reference)
{
    list_free(&reference->sum);
    free(reference->regions);
    for (int r = 0; r < reference->ranks; r++) {
        free(reference->residual[r]);
        free(reference->velocity[r]);
        list_free(&reference->list[r]);
        list_free(&reference->own[r]);
    }
}

/* ---- a unit ---- */

struct unit {
    struct sparse_reference *reference;
    size_t offset, count, k;
    int root;
    struct reference_regions *regions;
};

struct entry {
    float magnitude;
    size_t i;
};

/* The larger magnitude first, of equal ones the lower index. */
static int compare(const void *a, const void *b)
{
    const struct entry *p = a, *q = b;
    if (p->magnitude != q->magnitude)
        return p->magnitude < q->magnitude ? 1 : -1;
    return p->i < q->i ? -1 : 1;
}

/* The k entries of largest magnitude stay, others go to `drop`. */
static void keep(const struct unit *unit, struct reference_list *list, size_t k,
                 void (*drop)(const struct unit *unit, int rank, size_t i, float value), int rank)
{
    struct entry *entries = take(unit->count, sizeof *entries);
    size_t present = 0;
    for (size_t i = unit->offset; i < unit->offset + unit->count; i++)
        if (list->present[i])
            entries[present++] = (struct entry){fabsf(list->value[i]), i};
    qsort(entries, present, sizeof *entries, compare);
    for (; present > k; present--) {
        size_t least = entries[present - 1].i;
        list->present[least] = 0;
        if (drop)
            drop(unit, rank, least, list->value[least]);
    }
    free(entries);
}

static void dropped(const struct unit *unit, int rank, size_t i, float value)
{
    struct sparse_reference *reference = unit->reference;
    reference->dropped[rank]++;
    reference->dropped_mass[rank] += fabs((double)value);
    if (reference->config.residual == WEFT_SPARSE_CONSERVING)
        reference->residual[rank][i] += value;
}

/* The list of a place becomes that T the list of another; the first owns the merge. */
static void merge(const struct unit *unit, int place, int other)
{
    struct sparse_reference *reference = unit->reference;
    int rank = (place + unit->root) % reference->ranks;
    struct reference_list *a = &reference->list[rank];
    const struct reference_list *b = &reference->list[(other + unit->root) % reference->ranks];
    for (size_t i = unit->offset; i < unit->offset + unit->count; i++) {
        if (!b->present[i])
            continue;
        a->value[i] = a->present[i] ? a->value[i] + b->value[i] : b->value[i];
        a->present[i] = 1;
    }
    if (reference->config.method != WEFT_SPARSE_ALLGATHER)
        keep(unit, a, unit->k, dropped, rank);
}

static void merge_all(const struct unit *unit)
{
    int size = unit->reference->ranks, power = size;
    if (unit->reference->config.method != WEFT_SPARSE_GTOPK) {
        for (power = 1; 2 * power <= size;)
            power *= 2;
        for (int place = 0; place + power < size; place++)
            merge(unit, place, place + power);
    }
    for (int span = 1; span < power; span *= 2)
        for (int place = 0; place + span < power; place += 2 * span)
            merge(unit, place, place + span);
}

/* ---- regions ---- */

/* The lists of ranks [first, first + count), added along a balanced tree, to that of the first. */
static void add_lists(const struct unit *region, struct reference_list *lists, int first, int count)
{
    int left = (count + 1) / 2;
    if (count < 2)
        return;
    add_lists(region, lists, first, left);
    add_lists(region, lists, first + left, count - left);
    for (size_t i = region->offset; i < region->offset + region->count; i++) {
        struct reference_list *a = &lists[first], *b = &lists[first + left];
        if (!b->present[i])
            continue;
        a->value[i] = a->present[i] ? a->value[i] + b->value[i] : b->value[i];
        a->present[i] = 1;
    }
}

static void sum_region(const struct unit *region, int owner, float threshold)
{
    struct sparse_reference *reference = region->reference;
    struct reference_list *sum = &reference->list[0];
    size_t share, quota;
    if (weft_sparse_region_limits(region->k, reference->ranks, &share, &quota))
        abort();
    for (int r = 0; r < reference->ranks; r++)
        if (r != owner)
            keep(region, &reference->list[r], share, dropped, r);
    add_lists(region, reference->list, 0, reference->ranks);
    for (size_t i = region->offset; i < region->offset + region->count; i++)
        if (sum->present[i] && fabsf(sum->value[i]) < threshold) {
            sum->present[i] = 0;
            dropped(region, owner, i, sum->value[i]);
        }
    keep(region, sum, quota, dropped, owner);
}

/* Where pairs number j count / ranks are, on the mean over ranks. */
static void balance(const struct unit *unit)
{
    struct sparse_reference *reference = unit->reference;
    uint64_t ranks = (uint64_t)reference->ranks, *bounds = unit->regions->bounds;
    memset(bounds, 0, sizeof unit->regions->bounds);
    for (int r = 0; r < reference->ranks; r++) {
        const char *present = reference->own[r].present + unit->offset;
        uint64_t pairs = 0;
        for (size_t i = 0; i < unit->count; i++)
            pairs += (uint64_t)present[i];
        for (uint64_t j = 1; j < ranks; j++) {
            uint64_t before = 0, at = 0;
            for (; pairs && (!present[at] || before < j * pairs / ranks); at++)
                before += (uint64_t)present[at];
            bounds[j] += pairs ? at : j * unit->count / ranks;
        }
    }
    for (uint64_t j = 1; j < ranks; j++)
        bounds[j] /= ranks;
    bounds[ranks] = unit->count;
}

/* The k-th largest of the sum; 0 if there are fewer. */
static float kth(const struct unit *unit)
{
    const struct reference_list *sum = &unit->reference->list[0];
    struct entry *entries = take(unit->count, sizeof *entries);
    size_t present = 0;
    for (size_t i = unit->offset; i < unit->offset + unit->count; i++)
        if (sum->present[i])
            entries[present++] = (struct entry){fabsf(sum->value[i]), i};
    qsort(entries, present, sizeof *entries, compare);
    float value = unit->k && unit->k <= present ? entries[unit->k - 1].magnitude : 0;
    free(entries);
    return value;
}

/* Region after region, to the list of rank 0. */
static void sum_regions(const struct unit *unit, uint64_t step)
{
    const struct weft_sparse_average_config *config = &unit->reference->config;
    struct reference_regions *regions = unit->regions;
    int estimates = regions->threshold == 0 ||
                    step % (config->threshold_steps ? config->threshold_steps : 32) == 0 ||
                    regions->k != unit->k;
    for (int j = 0; j < unit->reference->ranks; j++) {
        struct unit region = *unit;
        region.offset += regions->bounds[j];
        region.count = regions->bounds[j + 1] - regions->bounds[j];
        sum_region(&region, j, estimates ? 0 : regions->threshold);
    }
    if (step % (config->balance_steps ? config->balance_steps : 64) == 0)
        balance(unit);
    if (estimates)
        regions->threshold = kth(unit);
    regions->k = unit->k;
}

static float or_zero(float value)
{
    return isfinite(value) ? value : 0;
}

static float scale_of(const struct unit *unit, const float *gradient)
{
    double sum = 0, most = unit->reference->config.clip_norm / sqrt(unit->reference->ranks);
    for (size_t i = unit->offset; i < unit->offset + unit->count; i++)
        sum += (double)or_zero(gradient[i]) * (double)or_zero(gradient[i]);
    return unit->reference->config.clip_norm > 0 && sqrt(sum) > most ? (float)(most / sqrt(sum))
                                                                     : 1;
}

static void contribute(const struct unit *unit, int rank, const float *gradient)
{
    struct sparse_reference *reference = unit->reference;
    struct reference_list *list = &reference->list[rank];
    float *residual = reference->residual[rank], *velocity = reference->velocity[rank];
    float momentum = (float)reference->config.momentum, scale;
    size_t end = unit->offset + unit->count, bad = 0;
    for (size_t i = unit->offset; i < end; i++)
        bad += !isfinite(gradient[i]);
    memset(list->present + unit->offset, 0, unit->count);
    if (bad && reference->config.nan == WEFT_NAN_ERROR)
        return;
    scale = scale_of(unit, gradient);
    for (size_t i = unit->offset; i < end; i++) {
        velocity[i] = momentum * velocity[i] + scale * or_zero(gradient[i]);
        residual[i] += velocity[i];
        list->value[i] = residual[i];
        list->present[i] = residual[i] != 0;
    }
    keep(unit, list, unit->k, NULL, rank);
    for (size_t i = unit->offset; i < end; i++) {
        if (!list->present[i])
            continue;
        reference->selected[rank]++;
        residual[i] = velocity[i] = 0;
    }
}

static void put_back(const struct unit *unit, int rank)
{
    struct sparse_reference *reference = unit->reference;
    const struct reference_list *own = &reference->own[rank];
    for (size_t i = unit->offset; i < unit->offset + unit->count; i++) {
        if (!own->present[i] || reference->sum.present[i])
            continue;
        reference->residual[rank][i] += own->value[i];
        reference->returned[rank]++;
        reference->returned_mass[rank] += fabs((double)own->value[i]);
    }
}

static void copy_unit(const struct unit *unit, struct reference_list *to,
                      const struct reference_list *from)
{
    memcpy(to->value + unit->offset, from->value + unit->offset, unit->count * sizeof(float));
    memcpy(to->present + unit->offset, from->present + unit->offset, unit->count);
}

static void step_unit(const struct unit *unit, uint64_t step, float *const *gradients)
{
    struct sparse_reference *reference = unit->reference;
    for (int r = 0; r < reference->ranks; r++) {
        contribute(unit, r, gradients[r]);
        copy_unit(unit, &reference->own[r], &reference->list[r]);
    }
    if (reference->config.method == WEFT_SPARSE_OKTOPK)
        sum_regions(unit, step);
    else
        merge_all(unit);
    copy_unit(unit, &reference->sum, &reference->list[unit->root]);
    for (int r = 0; r < reference->ranks; r++)
        if (reference->config.residual == WEFT_SPARSE_PAPER &&
            reference->config.method != WEFT_SPARSE_ALLGATHER)
            put_back(unit, r);
}

void sparse_reference_step(struct sparse_reference *reference, uint64_t step,
                           size_t (*k)(void *user, uint64_t step, size_t count), void *user,
                           float *const *gradients)
{
    const struct weft_sparse_average_config *config = &reference->config;
    int whole = config->scope == WEFT_SPARSE_MODEL;
    struct unit unit = {.reference = reference};
    memset(reference->selected, 0, sizeof reference->selected);
    for (size_t u = 0; u < (whole ? 1 : config->tensor_count); u++) {
        unit.count = whole ? reference->count : config->tensors[u].count;
        unit.k = k(user, step, unit.count);
        unit.root = (int)((step + u) % (uint64_t)reference->ranks);
        if (config->method == WEFT_SPARSE_ALLGATHER || config->method == WEFT_SPARSE_OKTOPK)
            unit.root = 0;
        unit.regions = &reference->regions[u];
        step_unit(&unit, step, gradients);
        unit.offset += unit.count;
    }
}
