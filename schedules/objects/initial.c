/* SPDX-License-Identifier: BSD-3-Clause */
/* The first models of all ranks are compared by a hash, or are that of rank 0. */
#include <stdio.h>
#include <string.h>

#include <weft/device.h>
#include <weft/run.h>

#include "schedules/objects/initial.h"

static const char *const words[] = {"same", "broadcast", "any"};

int weft__initial_check(const char *who, weft_initial_t initial)
{
    return (unsigned)initial <= WEFT_INITIAL_ANY
               ? WEFT_OK
               : weft_error_set(WEFT_ERR_INVALID,
                                "%s: config->initial is %d, expected a weft_initial_t", who,
                                (int)initial);
}

/* Every element is scrambled with its position, and the results are added: so elements need not
 * wait for one another, nor does it matter how they are spread over tensors. */
static uint64_t hash_part(const char *at, size_t size, size_t count, uint64_t position)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++, at += size) {
        uint64_t bits = 0;
        if (size == 2)
            memcpy(&bits, at, 2);
        else if (size == 4)
            memcpy(&bits, at, 4);
        else
            memcpy(&bits, at, 8);
        sum += weft__scramble(bits + weft__scramble(position++));
    }
    return sum;
}

enum { HASHED = 1 << 16 }; /* elements of a device that are brought over at once */

static int hash(struct weft_context *context, const struct weft__model *model, uint64_t *sum)
{
    int there = model->memory == WEFT_MEMORY_DEVICE, status = WEFT_OK;
    size_t size = weft_dtype_size(model->dtype), position = 0;
    char *part = there ? weft_memory_alloc(HASHED, size) : NULL;
    *sum = 0;
    if (there && !part)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %d elements", HASHED);
    for (size_t t = 0; t < model->tensor_count; t++) {
        size_t count = model->tensors[t].count;
        for (size_t first = 0, n; first < count && !status; first += n, position += n) {
            const char *at = (const char *)model->tensors[t].data + first * size;
            n = !there || count - first < HASHED ? count - first : HASHED;
            if (there)
                status = weft_context_device_copy(context, part, at, n * size);
            *sum += status ? 0 : hash_part(there ? part : at, size, n, position);
        }
    }
    weft_memory_free(part);
    return status;
}

void weft__initial_settings(struct weft__setting settings[WEFT__INITIAL_SETTINGS],
                            const struct weft__creation *creation, weft_initial_t initial)
{
    struct weft__setting *contents = &settings[1];
    settings[0] = weft__setting_word("config->initial", (int)initial, words[initial]);
    *contents = (struct weft__setting){
        .name = "the contents of the tensors, which config->initial wants to be the same",
        .abstains = !creation->compares};
    if (contents->abstains)
        return;
    contents->value = creation->contents;
    snprintf(contents->text, sizeof contents->text, "bits with the hash %016llx",
             (unsigned long long)contents->value);
}

int weft__initial_make(struct weft__creation *creation, weft_initial_t initial,
                       const struct weft__model *model, struct weft__device_work *work, int looks,
                       int compares)
{
    struct weft_template_params params;
    struct weft__bad bad = {0};
    int status = WEFT_OK;
    /* What is overwritten does not matter. */
    if (looks && (initial != WEFT_INITIAL_BROADCAST || weft_context_rank(creation->context) == 0))
        status = weft__model_look(model, work, &bad);
    if (status)
        return status;
    if (bad.count)
        return weft_error_set(WEFT_ERR_COMPUTE,
                              "%s: %llu NaNs or infinities in the model of this rank, the first in "
                              "tensor %zu",
                              creation->who, (unsigned long long)bad.count, bad.tensor);
    creation->compares = compares && initial == WEFT_INITIAL_SAME;
    if (creation->compares)
        status = hash(creation->context, model, &creation->contents);
    if (status || initial != WEFT_INITIAL_BROADCAST)
        return status;
    weft_template_params_init(&params);
    params.count = model->count;
    params.dtype = model->dtype;
    params.memory = model->memory;
    status = weft__object_run(&creation->share, creation->context, creation->object, "broadcast",
                              &params);
    if (status)
        return status;
    weft_slot_t slot = weft_plan_find_slot(weft_run_plan(creation->share), "buffer");
    return slot < 0 ? slot
                    : weft_run_bind_list(creation->share, slot, model->tensors, model->tensor_count,
                                         model->dtype);
}
