/* SPDX-License-Identifier: BSD-3-Clause */
/* Averaging in pairs: the compute operations of its plans, and whose turn it is. */
#include <string.h>

#include "schedules/objects/pair_average/pair_average.h"

/* ---- turns: on the thread that drives the engine ---- */

static int turn_take(struct turn *turn, struct weft_call *call)
{
    if (!turn->taken) {
        turn->taken = 1;
        return WEFT_OK;
    }
    turn->waiting = call;
    return WEFT_IN_PROGRESS;
}

static void turn_leave(struct turn *turn)
{
    struct weft_call *next = turn->waiting;
    turn->waiting = NULL;
    turn->taken = next != NULL;
    if (next)
        weft_call_complete(next, WEFT_OK);
}

static void turn_break(struct turn *turn)
{
    if (turn->waiting)
        weft_call_complete(turn->waiting, WEFT_ERR_CANCELLED);
    turn->waiting = NULL;
}

void weft__pair_failed(void *user, struct weft_object *object, int status)
{
    struct weft_pair_average *average = user;
    (void)object;
    (void)status;
    average->broken = 1;
    turn_break(&average->model_turn);
}

static int take_model(struct weft_call *call)
{
    struct weft_pair_average *average = call->user;
    return average->broken ? WEFT_ERR_CANCELLED : turn_take(&average->model_turn, call);
}

static int leave_model(struct weft_call *call)
{
    struct weft_pair_average *average = call->user;
    turn_leave(&average->model_turn);
    return WEFT_OK;
}
/* ---- arithmetic ---- */

#define DEFINE_ARITHMETIC(type)                                                                    \
    /* A visitor and the model meet halfway; the visitor leaves with what it is to subtract. */    \
    static void meet_##type(type *visitor, const type *published, type *added, size_t count)       \
    {                                                                                              \
        for (size_t i = 0; i < count; i++) {                                                       \
            type d = (visitor[i] - (published[i] + added[i])) / 2;                                 \
            added[i] += d;                                                                         \
            visitor[i] = d;                                                                        \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static void settle_##type(type *tensor, type *published, type *added, size_t count)            \
    {                                                                                              \
        for (size_t i = 0; i < count; i++) {                                                       \
            tensor[i] += added[i];                                                                 \
            published[i] = tensor[i];                                                              \
            added[i] = 0;                                                                          \
        }                                                                                          \
    }

DEFINE_ARITHMETIC(float)
DEFINE_ARITHMETIC(double)

/* Regions: room, published, added. */
static int mix(struct weft_call *call)
{
    struct weft_argument *argument = call->arguments;
    if (argument[0].dtype == WEFT_F64)
        meet_double(argument[0].data, argument[1].data, argument[2].data, argument[0].count);
    else
        meet_float(argument[0].data, argument[1].data, argument[2].data, argument[0].count);
    return WEFT_OK;
}

/* Regions: published, added, tensors. Without tensors there are no calls. */
static int settle(struct weft_call *call)
{
    struct weft_argument *argument = call->arguments;
    const struct weft_argument *tensors = &argument[2];
    size_t at = 0;
    for (size_t p = 0; p < tensors->piece_count; p++) {
        const struct weft_piece *piece = &tensors->pieces[p];
        if (tensors->dtype == WEFT_F64)
            settle_double(piece->data, (double *)argument[0].data + at,
                          (double *)argument[1].data + at, piece->count);
        else
            settle_float(piece->data, (float *)argument[0].data + at,
                         (float *)argument[1].data + at, piece->count);
        at += piece->count;
    }
    return WEFT_OK;
}

/* After a synchronisation the tensors are the mean, and what visitors have added since is kept. */
static int publish(struct weft_call *call)
{
    const struct weft_argument *to = &call->arguments[0], *tensors = &call->arguments[1];
    size_t element = weft_dtype_size(tensors->dtype);
    char *at = to->data;
    for (size_t p = 0; p < tensors->piece_count; p++) {
        const struct weft_piece *piece = &tensors->pieces[p];
        memcpy(at, piece->data, piece->count * element);
        at += piece->count * element;
    }
    return WEFT_OK;
}

static const struct weft__function functions[OPS] = {
    [OP_TAKE_MODEL] = {"take-model", take_model, WEFT_OP_MAY_PEND},
    [OP_LEAVE_MODEL] = {"leave-model", leave_model, 0},
    [OP_MIX] = {"mix", mix, 0},
    [OP_SETTLE] = {"settle", settle, 0},
    [OP_PUBLISH] = {"publish", publish, 0},
};

int weft__pair_make_ops(struct weft_pair_average *average)
{
    return weft__functions_make(average->ops, functions, OPS, average);
}
