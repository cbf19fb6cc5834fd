/* SPDX-License-Identifier: BSD-3-Clause */
/* What collective objects on models share: the list of tensors, and steps. */
#ifndef WEFT_SCHEDULES_OBJECTS_MODEL_H
#define WEFT_SCHEDULES_OBJECTS_MODEL_H

#include <weft/context.h>
#include <weft/cost.h>
#include <weft/model.h>
#include <weft/schedule.h>
#include <weft/types.h>

struct weft__device_work;

/* A list of tensors. */
struct weft__model {
    weft_dtype_t dtype;
    weft_memory_t memory;       /* of all of them */
    struct weft_piece *tensors; /* owned; their memory is borrowed */
    size_t tensor_count;
    size_t count; /* elements of all tensors */
};

/* Datatypes that an object takes: 1 << dtype each. */
enum {
    WEFT__WIDE_DTYPES = 1 << WEFT_F32 | 1 << WEFT_F64,
    WEFT__GRADIENT_DTYPES = 1 << WEFT_F16 | 1 << WEFT_BF16 | 1 << WEFT_F32,
};

/* Checks and copies a list of tensors of the host; `who` begins error texts. Leaves the model empty
 * on failure. */
int weft__model_init(struct weft__model *model, const char *who, int dtypes, weft_dtype_t dtype,
                     const struct weft_piece *tensors, size_t tensor_count);
/* The same of tensors that are in some memory. */
int weft__model_init_in(struct weft__model *model, const char *who, int dtypes, weft_dtype_t dtype,
                        const struct weft_piece *tensors, size_t tensor_count,
                        weft_memory_t memory);
void weft__model_free(struct weft__model *model);
/* Whether all tensors of a list ("config->tensors") are where they are said to be, from their first
 * to their last byte, as far as this process knows of devices. */
int weft__tensors_locate(const char *who, const char *list, const struct weft_piece *tensors,
                         size_t tensor_count, weft_dtype_t dtype, weft_memory_t memory);

/* The same of one by itself, which is called `name`. */
int weft__tensor_locate(const char *who, const char *name, const void *data, size_t bytes,
                        weft_memory_t memory);

/* A pointer to element `at` of flat memory of the model's datatype. */
static inline void *weft__model_at(const struct weft__model *model, void *flat, size_t at)
{
    return (char *)flat + at * weft_dtype_size(model->dtype);
}

/* ---- what is not finite ---- */

/* NaNs and infinities among elements of f16, bf16, f32 or f64. */
size_t weft__count_bad(weft_dtype_t dtype, const void *data, size_t count);

/* How many a list of tensors has, and the first tensor that has one. */
struct weft__bad {
    uint64_t count;
    size_t tensor;
};

/* bad += those of a tensor, or a part of it. */
void weft__bad_add(struct weft__bad *bad, size_t tensor, size_t found);
/* The tensor of an element of all of them. */
size_t weft__tensor_at(const struct weft_piece *tensors, size_t place);
/* work: of tensors on a device; else NULL. */
int weft__model_look(const struct weft__model *model, struct weft__device_work *work,
                     struct weft__bad *bad);
/* Copies all tensors to flat memory of the same datatype. looks: and counts on the way. */
struct weft__bad weft__model_copy(const struct weft__model *model, void *flat, int looks);

/* Averages of models: whether config->nan is a policy for them. */
int weft__nan_check(const char *who, weft_nan_policy_t nan);
const char *weft__nan_word(weft_nan_policy_t nan);
/* WEFT_ERR_COMPUTE: a model that was to be published is not finite, in a step. */
int weft__bad_refuse(const char *who, uint64_t step, const struct weft__bad *bad);

/* ---- steps ---- */

/* What has become of the step of an object, which a caller begins and waits for at once, or posts
 * and waits for later. */
enum weft__step { WEFT__STEP_NONE, WEFT__STEP_POSTED, WEFT__STEP_BEGUN };

/* WEFT_OK if no step is under way; else WEFT_ERR_STATE. `number` is that of the step. */
int weft__step_check_none(const char *who, enum weft__step step, uint64_t number);
/* WEFT_OK if one is. */
int weft__step_check_posted(const char *who, enum weft__step step);

/* Waits for a run that a step has started, for ever if deadline_ns is 0, and adds what that took to
 * *waited_ns. */
int weft__step_wait(struct weft_context *context, struct weft_run *run, uint64_t deadline_ns,
                    uint64_t *waited_ns);
/* WEFT_ERR_TIMEOUT, with what a run still waits for. */
int weft__step_timed_out(const char *who, const char *what, struct weft_run *run,
                         uint64_t deadline_ns);

/* A number that looks random (SplitMix64's mixing: Steele, Lea, Flood, OOPSLA 2014). */
uint64_t weft__scramble(uint64_t x);

/* ---- compute functions ---- */

/* One of an object's: what graphs call it, and WEFT_OP_MAY_PEND or nothing. */
struct weft__function {
    const char *name;
    weft_compute_fn compute;
    unsigned flags;
};

/* Makes an operation of each, which is handed `user`. After an error those before it are made. */
int weft__functions_make(struct weft_op **ops, const struct weft__function *functions, size_t count,
                         void *user);

/* ---- what is around an object ---- */

/* The costs and hosts of a context, which choose algorithms as weft_template_create_run() does: for
 * schedules that an object builds, and adds to, by itself. */
struct weft__surroundings {
    struct weft_cost_model cost;
    int *hosts; /* owned; NULL: all on one */
};

int weft__surroundings_find(struct weft__surroundings *surroundings, struct weft_context *context);
void weft__surroundings_free(struct weft__surroundings *surroundings);

#endif
