/* SPDX-License-Identifier: BSD-3-Clause */
/* Compressed averaging of gradients: creation. */
#include <string.h>

#include "schedules/objects/compressed_average/compressed_average.h"
#include "schedules/objects/compressed_average/member.h"

#define REFUSE(...) weft_error_set(WEFT_ERR_INVALID, __VA_ARGS__)

const struct weft__compression *const weft__compressions[] = {
    [WEFT_COMPRESSED_GRADIVEQ] = &weft__compression_gradiveq,
    [WEFT_COMPRESSED_QSGD] = &weft__compression_qsgd,
    [WEFT_COMPRESSED_POWERSGD] = &weft__compression_powersgd,
};

void weft_compressed_average_config_init_sized(struct weft_compressed_average_config *config,
                                               size_t size)
{
    weft_sized_init(config, size);
}

void weft_gradiveq_config_init_sized(struct weft_gradiveq_config *config, size_t size)
{
    weft_sized_init(config, size);
}

void weft_powersgd_config_init_sized(struct weft_powersgd_config *config, size_t size)
{
    weft_sized_init(config, size);
}

/* ---- the configuration ---- */

/* What was given, with all that it points to, as this version of the library has it. */
struct given {
    struct weft_compressed_average_config config;
    struct weft_quantiser quantiser;
    struct weft_gradiveq_config gradiveq;
    struct weft_powersgd_config powersgd;
    struct weft_compressed_average_state state;
};

static int read_structs(const char *who, const struct weft_compressed_average_config *config,
                        struct given *given)
{
    if (!config)
        return REFUSE("%s: config is NULL", who);
    int status = weft_sized_read(who, "config", config, &given->config, sizeof given->config);
    if (!status)
        status = weft_sized_read(who, "config->quantiser", given->config.quantiser,
                                 &given->quantiser, sizeof given->quantiser);
    if (!status)
        status = weft_sized_read(who, "config->gradiveq", given->config.gradiveq, &given->gradiveq,
                                 sizeof given->gradiveq);
    if (!status)
        status = weft_sized_read(who, "config->powersgd", given->config.powersgd, &given->powersgd,
                                 sizeof given->powersgd);
    if (!status)
        status = weft_sized_read(who, "config->state", given->config.state, &given->state,
                                 sizeof given->state);
    return status;
}

static int check_times(const char *who, struct weft_compressed_average_config *config)
{
    int status = weft_sized_time(who, "config->deadline_ns", config->deadline_ns, WEFT_NEVER);
    if (!status)
        status = weft_sized_time(who, "config->meet_ns", config->meet_ns, WEFT_NEVER);
    if (!status)
        status = weft_sized_time(who, "config->leave_ns", config->leave_ns, WEFT_NEVER);
    if (!config->leave_ns)
        config->leave_ns = WEFT__LEAVE_NS;
    return status;
}

static int check_choices(const char *who, const struct weft_compressed_average_config *config)
{
    if ((unsigned)config->method > WEFT_COMPRESSED_POWERSGD)
        return REFUSE("%s: config->method is %d, expected one of weft_compressed_method_t", who,
                      (int)config->method);
    if ((unsigned)config->residual > WEFT_COMPRESSED_RESIDUAL_KEPT)
        return REFUSE("%s: config->residual is %d, expected one of weft_compressed_residual_t", who,
                      (int)config->residual);
    if ((unsigned)config->qsgd_way > WEFT_QSGD_RING)
        return REFUSE("%s: config->qsgd_way is %d, expected WEFT_QSGD_SHARDS or WEFT_QSGD_RING",
                      who, (int)config->qsgd_way);
    if ((unsigned)config->nan > WEFT_NAN_ZERO)
        return REFUSE("%s: config->nan is %d, expected WEFT_NAN_ERROR or WEFT_NAN_ZERO", who,
                      (int)config->nan);
    if (config->gradiveq && (unsigned)config->gradiveq->uncompressed > WEFT_UNCOMPRESSED_DENSE)
        return REFUSE("%s: config->gradiveq->uncompressed is %d, expected a weft_uncompressed_t",
                      who, (int)config->gradiveq->uncompressed);
    if (config->gradiveq && (unsigned)config->gradiveq->order > WEFT_SLICES_OF_FILTERS)
        return REFUSE("%s: config->gradiveq->order is %d, expected WEFT_SLICES_ACROSS_FILTERS or "
                      "WEFT_SLICES_OF_FILTERS",
                      who, (int)config->gradiveq->order);
    if (config->gradiveq && (unsigned)config->gradiveq->dense_layers > 1)
        return REFUSE("%s: config->gradiveq->dense_layers is %d, expected 0 or 1", who,
                      config->gradiveq->dense_layers);
    if ((unsigned)config->sum > 1)
        return REFUSE("%s: config->sum is %d, expected 0 or 1", who, config->sum);
    return WEFT_OK;
}

static int check_state(const char *who, const struct weft_compressed_average_state *state)
{
    if (state->word_count && !state->words)
        return REFUSE("%s: config->state->words is NULL, expected %zu words", who,
                      state->word_count);
    if (state->number_count && !state->numbers)
        return REFUSE("%s: config->state->numbers is NULL, expected %zu numbers", who,
                      state->number_count);
    if (state->vote != 0 && state->vote != 1)
        return REFUSE("%s: config->state->vote is %d, expected 0 or 1", who, state->vote);
    if (state->unsent && !state->failed)
        return REFUSE("%s: config->state->unsent is given, expected NULL but of an object that has "
                      "failed",
                      who);
    return WEFT_OK;
}

enum { BITS = 4, BUCKET = 512, MOST_BUCKET = 1 << 30 };

static int check_quantiser(const char *who, struct given *given)
{
    struct weft_quantiser *quantiser = &given->quantiser;
    quantiser->struct_size = sizeof *quantiser;
    if (quantiser->nan)
        return REFUSE("%s: config->quantiser->nan is %d, expected 0: config->nan says it", who,
                      (int)quantiser->nan);
    quantiser->nan = given->config.nan;
    quantiser->bits = quantiser->bits ? quantiser->bits : BITS;
    quantiser->bucket = quantiser->bucket ? quantiser->bucket : BUCKET;
    const int bits = quantiser->bits;
    if (bits != WEFT_QUANTISE_SIGN && bits != 2 && bits != 4 && bits != 8)
        return REFUSE("%s: config->quantiser->bits is %d, expected 2, 4, 8 or WEFT_QUANTISE_SIGN",
                      who, bits);
    if (quantiser->bucket % 8 || quantiser->bucket > MOST_BUCKET)
        return REFUSE("%s: config->quantiser->bucket is %zu, expected a multiple of 8 up to 2^30",
                      who, quantiser->bucket);
    if (bits == WEFT_QUANTISE_SIGN)
        quantiser->norm = WEFT_QUANTISE_MAX; /* signs have none */
    if ((unsigned)quantiser->norm > WEFT_QUANTISE_L2)
        return REFUSE("%s: config->quantiser->norm is %d, expected WEFT_QUANTISE_MAX or "
                      "WEFT_QUANTISE_L2",
                      who, (int)quantiser->norm);
    return WEFT_OK;
}

/* Fills `average` with what was given. */
static int check(const char *who, const struct weft_compressed_average_config *config,
                 struct given *given, struct weft_compressed_average *average)
{
    int status = read_structs(who, config, given);
    if (!status)
        status = check_times(who, &given->config);
    if (!status && given->config.gradiveq)
        given->config.gradiveq = &given->gradiveq;
    if (!status)
        status = check_choices(who, &given->config);
    if (!status)
        status = check_state(who, &given->state);
    if (!status)
        status = check_quantiser(who, given);
    if (status)
        return status;
    average->who = who;
    average->config = given->config;
    average->config.tensors = NULL;
    average->config.shapes = NULL;
    average->config.quantiser = NULL;
    average->config.gradiveq = NULL;
    average->config.powersgd = NULL;
    average->config.state = NULL;
    average->quantiser = given->quantiser;
    average->gradiveq = given->gradiveq;
    average->powersgd = given->powersgd;
    average->method = weft__compressions[given->config.method];
    for (int m = 0; m <= WEFT_COMPRESSED_POWERSGD && !status;
         m++) /* what is wrong is told anyway */
        if (weft__compressions[m] && weft__compressions[m]->check)
            status = weft__compressions[m]->check(average);
    if (status)
        return status;
    average->keeps = average->config.residual == WEFT_COMPRESSED_RESIDUAL_DEFAULT
                         ? (average->method && average->method->keeps) ||
                               (average->config.method == WEFT_COMPRESSED_QSGD &&
                                average->quantiser.bits == WEFT_QUANTISE_SIGN)
                         : average->config.residual == WEFT_COMPRESSED_RESIDUAL_KEPT;
    return WEFT_OK;
}

/* ---- agreement ---- */

/* Where the last step has failed everywhere it is to be done again; where it has ended somewhere,
 * nothing of it is left to be sent. */
static void resume(struct weft_compressed_average *average,
                   const struct weft_compressed_average_state *state, uint64_t first, int same)
{
    int again = average->next == first;
    average->first = average->next = first;
    for (size_t i = 0; again && average->keeps && state->unsent && i < average->model.count; i++)
        average->residual[i] += state->unsent[i];
    if (!same && average->own && average->method->renew)
        average->method->renew(average);
}

enum { COMMON_SETTINGS = 18, SAME = 0 };

static size_t list_settings(const struct weft_compressed_average *average,
                            const struct weft_compressed_average_state *state,
                            struct weft__setting settings[])
{
    static const char *const names[] = {"gradiveq", "qsgd", "powersgd"};
    static const char *const policies[] = {"error", "zero"};
    const struct weft_compressed_average_config *config = &average->config;
    const struct weft__model *model = &average->model;
    const struct weft_tensor_shape *shapes = average->shapes;
    struct weft__setting next = weft__setting_count("the next step", average->next);
    struct weft__setting same =
        weft__setting_count("config->state->words and numbers", average->state_number);
    struct weft__setting near = next, agreed = same;
    next.abstains = agreed.abstains = state->failed != 0; /* which may be behind by one */
    near.apart = 1;
    same.apart = UINT64_MAX;
    size_t count = 0;
    settings[count++] = same; /* SAME */
    settings[count++] = weft__setting_count("the number of elements", model->count);
    settings[count++] = weft__setting_count("the number of tensors", model->tensor_count);
    settings[count++] = weft__setting_counts("the tensors' counts", &model->tensors->count,
                                             model->tensor_count, sizeof *model->tensors);
    settings[count++] =
        weft__setting_word("config->dtype", (int)config->dtype, weft_dtype_name(config->dtype));
    settings[count++] =
        weft__setting_word("config->method", (int)config->method, names[config->method]);
    settings[count++] =
        weft__setting_string("the layouts of config->shapes (a letter each)", average->layouts);
    settings[count++] = weft__setting_counts("the shapes' outputs", &shapes->outputs,
                                             model->tensor_count, sizeof *shapes);
    settings[count++] = weft__setting_counts("the shapes' inputs", &shapes->inputs,
                                             model->tensor_count, sizeof *shapes);
    settings[count++] = weft__setting_counts("the shapes' heights", &shapes->height,
                                             model->tensor_count, sizeof *shapes);
    settings[count++] = weft__setting_counts("the shapes' widths", &shapes->width,
                                             model->tensor_count, sizeof *shapes);
    settings[count++] = weft__setting_count("config->sum", (uint64_t)config->sum);
    settings[count++] =
        weft__setting_word("config->residual", average->keeps, average->keeps ? "kept" : "none");
    settings[count++] = weft__setting_word("config->nan", (int)config->nan, policies[config->nan]);
    settings[count++] = next;
    settings[count++] = near;
    settings[count++] = agreed;
    return count;
}

static int agree(struct weft__creation *creation, struct weft_compressed_average *average,
                 const struct weft_compressed_average_state *state)
{
    struct weft__setting settings[COMMON_SETTINGS + WEFT__METHOD_SETTINGS];
    uint64_t first = average->next;
    size_t count = list_settings(average, state, settings);
    if (average->method->settings)
        count += average->method->settings(average, settings + count);
    int status =
        weft__creation_end(creation, settings, count, &first, average->config.meet_ns, WEFT_OK);
    if (!status)
        resume(average, state, first,
               weft__creation_largest(creation, SAME) == weft__creation_smallest(creation, SAME));
    if (!status && average->own && average->method->ready) {
        status = average->method->ready(average);
        status = status ? weft__compressed_fail(average, status) : WEFT_OK;
    }
    return status;
}

/* ---- memory ---- */

static int out_of_memory(const struct weft_compressed_average *average, size_t count)
{
    return weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory for gradients of %zu elements",
                          average->who, count);
}

static int check_aligned(const struct weft_compressed_average *average)
{
    const struct weft__model *model = &average->model;
    const size_t size = weft_dtype_size(model->dtype);
    for (size_t t = 0; t < model->tensor_count; t++)
        if ((uintptr_t)model->tensors[t].data % size)
            return REFUSE("%s: config->tensors[%zu].data is %p, expected a multiple of the %zu "
                          "bytes of %s",
                          average->who, t, model->tensors[t].data, size,
                          weft_dtype_name(model->dtype));
    return WEFT_OK;
}

static int copy_tensors(struct weft_compressed_average *average,
                        const struct weft_compressed_average_config *config)
{
    struct weft__model *model = &average->model;
    int status = weft__model_init(model, average->who, WEFT__GRADIENT_DTYPES, config->dtype,
                                  config->tensors, config->tensor_count);
    if (!status)
        status = check_aligned(average);
    if (!status)
        status = weft__compressed_shapes(average, config->shapes);
    if (status)
        return status;
    average->offsets = weft_memory_alloc(model->tensor_count + 1, sizeof *average->offsets);
    if (!average->offsets)
        return out_of_memory(average, model->count);
    for (size_t t = 0; t < model->tensor_count; t++)
        average->offsets[t + 1] = average->offsets[t] + model->tensors[t].count;
    return WEFT_OK;
}

static int make_memory(struct weft_compressed_average *average)
{
    float **const flat[] = {&average->values, &average->sum, &average->sent, &average->residual};
    const size_t count = average->model.count + average->method->extra + 1;
    for (int i = 0; i < (average->keeps ? 4 : 2); i++) {
        *flat[i] = weft_context_memory_alloc(average->context, count, sizeof **flat[i]);
        if (!*flat[i])
            return out_of_memory(average, count);
    }
    return WEFT_OK;
}

/* Everything that needs no other rank. */
static int make(struct weft_compressed_average *average,
                const struct weft_compressed_average_config *config,
                const struct weft_compressed_average_state *state)
{
    average->ranks = weft_context_size(average->context);
    average->first = average->next = state->next;
    int status = copy_tensors(average, config);
    if (!status && !average->method)
        status =
            weft_error_set(WEFT_ERR_UNSUPPORTED,
                           "%s: config->method is WEFT_COMPRESSED_GRADIVEQ, which this library "
                           "does not have",
                           average->who);
    if (!status)
        status = make_memory(average);
    if (!status)
        status = weft__surroundings_find(&average->surroundings, average->context);
    if (!status && average->model.count)
        status = average->method->create(average);
    return status ? status : weft__compressed_load(average, state);
}

static void free_all(struct weft_compressed_average *average)
{
    if (average->own)
        average->method->destroy(average);
    weft__surroundings_free(&average->surroundings);
    weft_context_memory_free(average->context, average->residual);
    weft_context_memory_free(average->context, average->sent);
    weft_context_memory_free(average->context, average->sum);
    weft_context_memory_free(average->context, average->values);
    if (!average->member)
        weft_object_destroy(average->object);
    weft_memory_free(average->numbers);
    weft_memory_free(average->words);
    weft_memory_free(average->layouts);
    weft_memory_free(average->shapes);
    weft_memory_free(average->offsets);
    weft__model_free(&average->model);
    weft_memory_free(average);
}

int weft_compressed_average_create(struct weft_compressed_average **out,
                                   struct weft_context *context,
                                   const struct weft_compressed_average_config *given)
{
    if (!context)
        return REFUSE("%s: context is NULL", __func__);
    struct given full = {.state.struct_size = sizeof full.state};
    struct weft_compressed_average checked = {.who = NULL}, *average = NULL;
    int status =
        out ? check(__func__, given, &full, &checked) : REFUSE("%s: average is NULL", __func__);
    if (!status) {
        average = weft_memory_alloc(1, sizeof *average);
        if (!average)
            status = weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory", __func__);
        else
            *average = checked;
    }
    struct weft__creation creation;
    status = weft__creation_begin(&creation, context, __func__, NULL, status);
    if (average) {
        average->context = context;
        average->object = creation.object;
    }
    if (!status)
        status = make(average, &full.config, &full.state);
    status = status ? weft__creation_end(&creation, NULL, 0, NULL, 0, status)
                    : agree(&creation, average, &full.state);
    if (!status)
        *out = average;
    else if (average)
        free_all(average);
    else
        weft_object_destroy(creation.object);
    return status;
}

/* ---- members ---- */

int weft__compressed_average_check(const char *who,
                                   const struct weft_compressed_average_config *config,
                                   struct weft__compressed_choices *choices)
{
    struct given given;
    struct weft_compressed_average average = {.who = who};
    int status = check(who, config, &given, &average);
    if (status || !choices)
        return status;
    *choices = (struct weft__compressed_choices){.quantiser = average.quantiser,
                                                 .gradiveq = average.gradiveq,
                                                 .powersgd = average.powersgd,
                                                 .keeps = average.keeps};
    choices->quantiser.nan = 0;
    choices->gradiveq.struct_size = sizeof choices->gradiveq;
    choices->powersgd.struct_size = sizeof choices->powersgd;
    return WEFT_OK;
}

int weft__compressed_average_create_member(struct weft_compressed_average **out, const char *who,
                                           struct weft_context *context, struct weft_object *object,
                                           const struct weft_compressed_average_config *config)
{
    struct given given = {.state.struct_size = sizeof given.state};
    struct weft_compressed_average checked = {.who = who};
    int status = check(who, config, &given, &checked);
    if (status)
        return status;
    struct weft_compressed_average *average = weft_memory_alloc(1, sizeof *average);
    if (!average)
        return weft_error_set(WEFT_ERR_MEMORY, "%s: out of memory", who);
    *average = checked;
    average->context = context;
    average->object = object;
    average->member = 1;
    status = make(average, &given.config, &given.state);
    if (!status && average->own && average->method->ready)
        status = average->method->ready(average);
    if (status)
        free_all(average);
    else
        *out = average;
    return status;
}

int weft__compressed_average_check_shapes(const char *who, const struct weft_piece *tensors,
                                          size_t count, const struct weft_tensor_shape *shapes)
{
    int status = WEFT_OK;
    for (size_t t = 0; t < count && shapes && !status; t++) {
        struct weft_tensor_shape shape = shapes[t];
        status = weft__compressed_shape(who, &shape, t, tensors[t].count);
    }
    return status;
}

/* ---- the end ---- */

int weft_compressed_average_fail(struct weft_compressed_average *average, int status,
                                 const char *text)
{
    return average ? weft__object_give_up(__func__, average->object, status, text)
                   : REFUSE("%s: average is NULL", __func__);
}

int weft__compressed_average_leave(struct weft_compressed_average *average, const char *who)
{
    int status = weft_object_check(average->object, who);
    if (!status)
        status = weft__compressed_end(average, who);
    for (struct weft__compressed_run *run = average->runs; run && !status; run = run->next)
        weft_run_quit(run->run);
    return status;
}

void weft__compressed_average_free(struct weft_compressed_average *average)
{
    if (average)
        free_all(average);
}

int weft_compressed_average_destroy(struct weft_compressed_average *average)
{
    if (!average)
        return WEFT_OK;
    int status = weft__compressed_average_leave(average, __func__);
    free_all(average);
    return status;
}
