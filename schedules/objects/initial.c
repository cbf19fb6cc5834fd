/* SPDX-License-Identifier: BSD-3-Clause */
/* The first models of all ranks are compared by a hash, or are that of rank 0. */
#include <stdio.h>
#include <string.h>

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
static uint64_t hash(const struct weft__model *model)
{
    size_t size = weft_dtype_size(model->dtype);
    uint64_t sum = 0, position = 0;
    for (size_t t = 0; t < model->tensor_count; t++) {
        const char *at = model->tensors[t].data;
        for (size_t i = 0; i < model->tensors[t].count; i++, at += size) {
            uint64_t bits = 0;
            if (size == 2)
                memcpy(&bits, at, 2);
            else if (size == 4)
                memcpy(&bits, at, 4);
            else
                memcpy(&bits, at, 8);
            sum += weft__scramble(bits + weft__scramble(position++));
        }
    }
    return sum;
}

void weft__initial_settings(struct weft__setting settings[WEFT__INITIAL_SETTINGS],
                            weft_initial_t initial, int compares, const struct weft__model *model)
{
    struct weft__setting *contents = &settings[1];
    settings[0] = weft__setting_word("config->initial", (int)initial, words[initial]);
    *contents = (struct weft__setting){
        .name = "the contents of the tensors, which config->initial wants to be the same",
        .abstains = !compares || initial != WEFT_INITIAL_SAME};
    if (contents->abstains)
        return;
    contents->value = hash(model);
    snprintf(contents->text, sizeof contents->text, "bits with the hash %016llx",
             (unsigned long long)contents->value);
}

int weft__initial_make(struct weft__creation *creation, weft_initial_t initial,
                       const struct weft__model *model, int looks)
{
    struct weft_template_params params;
    struct weft__bad bad = {0};
    /* What is overwritten does not matter. */
    if (looks && (initial != WEFT_INITIAL_BROADCAST || weft_context_rank(creation->context) == 0))
        bad = weft__model_look(model);
    if (bad.count)
        return weft_error_set(WEFT_ERR_COMPUTE,
                              "%s: %llu NaNs or infinities in the model of this rank, the first in "
                              "tensor %zu",
                              creation->who, (unsigned long long)bad.count, bad.tensor);
    if (initial != WEFT_INITIAL_BROADCAST)
        return WEFT_OK;
    weft_template_params_init(&params);
    params.count = model->count;
    params.dtype = model->dtype;
    int status = weft__object_run(&creation->share, creation->context, creation->object,
                                  "broadcast", &params);
    if (status)
        return status;
    weft_slot_t slot = weft_plan_find_slot(weft_run_plan(creation->share), "buffer");
    return slot < 0 ? slot
                    : weft_run_bind_list(creation->share, slot, model->tensors, model->tensor_count,
                                         model->dtype);
}
