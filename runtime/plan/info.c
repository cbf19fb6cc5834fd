/* SPDX-License-Identifier: BSD-3-Clause */
/* What can be asked of a plan. */
#include "runtime/base/error.h"
#include "runtime/base/search.h"
#include "runtime/plan/plan.h"
#include <stdio.h>
#include <string.h>

const char *weft__label_of(const struct weft__plan_label *labels, uint32_t count, uint32_t node)
{
    uint32_t low = 0;
    uint32_t high = count;
    WEFT__SEARCH(low, high, middle, labels[middle].node < node)
    return low < count && labels[low].node == node ? labels[low].text : NULL;
}

const char *weft__plan_label(const struct weft_plan *plan, uint32_t node)
{
    return weft__label_of(plan->labels, plan->label_count, node);
}

uint32_t weft__plan_line(const struct weft_plan *plan, uint32_t node)
{
    return plan->lines ? plan->lines[node] : 0;
}

void weft__plan_node_text(const struct weft_plan *plan, uint32_t node, char *text, size_t size)
{
    const char *label = weft__plan_label(plan, node);
    uint32_t line = weft__plan_line(plan, node);
    char label_text[56] = "";
    char line_text[24] = "";
    if (label)
        snprintf(label_text, sizeof label_text, " `%.50s`", label);
    if (line)
        snprintf(line_text, sizeof line_text, ", line %u", line);
    snprintf(text, size, "node %u%s%s", node, label_text, line_text);
}

const char *weft_plan_name(const struct weft_plan *plan)
{
    return !plan ? "" : plan->name;
}

int weft_plan_rank(const struct weft_plan *plan)
{
    return !plan ? WEFT__INVALID("%s: argument `plan` is NULL", __func__) : plan->rank;
}

int weft_plan_size(const struct weft_plan *plan)
{
    return !plan ? WEFT__INVALID("%s: argument `plan` is NULL", __func__) : plan->size;
}

size_t weft_plan_node_count(const struct weft_plan *plan)
{
    return !plan ? 0 : plan->node_count;
}

size_t weft_plan_bytes(const struct weft_plan *plan)
{
    return !plan ? 0 : plan->bytes;
}

size_t weft_plan_slot_count(const struct weft_plan *plan)
{
    return plan ? plan->slot_count : 0;
}

int weft_plan_get_slot(const struct weft_plan *plan, weft_slot_t slot, struct weft_slot_info *info)
{
    if (!plan || !info)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__, plan ? "info" : "plan");
    if (slot < 0 || (uint32_t)slot >= plan->slot_count)
        return WEFT__INVALID("%s: argument `slot` is %d, expected 0..%d of plan `%s`", __func__,
                             (int)slot, (int)plan->slot_count - 1, plan->name);
    struct weft_slot_info seen = {.name = plan->slots[slot].name,
                                  .dtype = plan->slots[slot].dtype,
                                  .kind = (weft_slot_kind_t)plan->slots[slot].kind,
                                  .count = plan->slots[slot].count,
                                  .memory = (weft_memory_t)plan->slots[slot].memory};
    return weft_sized_fill(__func__, "info", info, &seen, sizeof seen);
}

weft_slot_t weft_plan_find_slot(const struct weft_plan *plan, const char *name)
{
    if (!plan || !name)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__, plan ? "name" : "plan");
    for (uint32_t i = 0; i < plan->slot_count; i++)
        if (strcmp(plan->slots[i].name, name) == 0)
            return (weft_slot_t)i;
    return weft__error(WEFT_ERR_NOT_FOUND, "%s: plan `%s` has no slot `%s`", __func__, plan->name,
                       name);
}

weft_value_t weft_plan_find_value(const struct weft_plan *plan, const char *name)
{
    if (!plan || !name)
        return WEFT__INVALID("%s: argument `%s` is NULL", __func__, plan ? "name" : "plan");
    for (uint32_t i = 0; i < plan->value_count; i++)
        if (strcmp(plan->values[i].name, name) == 0)
            return (weft_value_t)(i + 1);
    return weft__error(WEFT_ERR_NOT_FOUND, "%s: plan `%s` has no value `%s`", __func__, plan->name,
                       name);
}
