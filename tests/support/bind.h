/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Binding as tests mostly need it: the count and the datatype are those that the plan has, so that
 * only tests of binding itself spell them out.
 */
#ifndef WEFT_TESTS_BIND_H
#define WEFT_TESTS_BIND_H

#include <stdint.h>
#include <weft/run.h>

static inline int bind_slot(struct weft_run *run, weft_slot_t slot, const void *data)
{
    struct weft_slot_info info = {.struct_size = sizeof info};
    int status = weft_plan_get_slot(weft_run_plan(run), slot, &info);

    if (status)
        return status;
    if (info.kind == WEFT_SLOT_INPUT)
        return weft_run_bind_input(run, slot, data, info.count, info.dtype);
    return weft_run_bind(run, slot, (void *)(uintptr_t)data, info.count, info.dtype);
}

static inline int bind_name(struct weft_run *run, const char *name, const void *data)
{
    weft_slot_t slot = weft_plan_find_slot(weft_run_plan(run), name);

    return slot < 0 ? slot : bind_slot(run, slot, data);
}

static inline int bind_list(struct weft_run *run, weft_slot_t slot, const struct weft_piece *pieces,
                            size_t piece_count)
{
    struct weft_slot_info info = {.struct_size = sizeof info};
    int status = weft_plan_get_slot(weft_run_plan(run), slot, &info);

    return status ? status : weft_run_bind_list(run, slot, pieces, piece_count, info.dtype);
}

#endif
