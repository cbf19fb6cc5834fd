/* SPDX-License-Identifier: BSD-3-Clause */
/* Merged gradients: the configuration. */
#include <stdio.h>
#include <string.h>

#include "schedules/objects/gradients/create.h"

#define REFUSE(...) weft_error_set(WEFT_ERR_INVALID, __VA_ARGS__)

enum { MEASURE_STEPS = 5, CHECK_STEPS = 200, MOST_MEASURE_STEPS = 1000 };
#define GAIN 0.05

static int read_structs(const char *who, const struct weft_gradients_config *config,
                        struct weft__gradients_given *given)
{
    if (!config)
        return REFUSE("%s: config is NULL", who);
    struct weft_gradients_config *read = &given->config;
    int status = weft_sized_read(who, "config", config, read, sizeof *read);
    if (!status)
        status =
            weft_sized_read(who, "config->merge", read->merge, &given->merge, sizeof given->merge);
    if (!status)
        status = weft_sized_read(who, "config->cost", read->cost, &given->cost, sizeof given->cost);
    if (!status)
        status =
            weft_sized_read(who, "config->state", read->state, &given->state, sizeof given->state);
    if (!status)
        status = weft_sized_read(who, "config->sparse", read->sparse, &given->sparse,
                                 sizeof given->sparse);
    if (!status)
        status = weft_sized_read(who, "config->compressed", read->compressed, &given->compressed,
                                 sizeof given->compressed);
    if (!status)
        status = weft_sized_time(who, "config->check_steps", read->check_steps, WEFT_NEVER);
    if (!status)
        status = weft_sized_time(who, "config->deadline_ns", read->deadline_ns, WEFT_NEVER);
    if (!status)
        status = weft_sized_time(who, "config->meet_ns", read->meet_ns, WEFT_NEVER);
    if (!status)
        status = weft_sized_time(who, "config->leave_ns", read->leave_ns, WEFT_NEVER);
    return status;
}

static void set_defaults(struct weft_gradients_config *config)
{
    if (!config->measure_steps)
        config->measure_steps = MEASURE_STEPS;
    if (!config->check_steps)
        config->check_steps = CHECK_STEPS;
    if (config->gain == 0)
        config->gain = GAIN;
    if (!config->deadline_ns)
        config->deadline_ns = WEFT_NEVER;
    if (!config->leave_ns)
        config->leave_ns = WEFT__LEAVE_NS;
}

static int check_choices(const char *who, const struct weft_gradients_config *config)
{
    if ((unsigned)config->reduction > WEFT_GRADIENTS_SUM)
        return REFUSE("%s: config->reduction is %d, expected one of weft_gradients_reduction_t",
                      who, (int)config->reduction);
    if ((unsigned)config->method > WEFT_GRADIENTS_COMPRESSED)
        return REFUSE("%s: config->method is %d, expected one of weft_gradients_method_t", who,
                      (int)config->method);
    if ((unsigned)config->missing > WEFT_GRADIENTS_MISSING_ZERO)
        return REFUSE("%s: config->missing is %d, expected one of weft_gradients_missing_t", who,
                      (int)config->missing);
    if (!(config->gain >= 0 && config->gain <= 1))
        return REFUSE("%s: config->gain is %g, expected 0 .. 1", who, config->gain);
    if (config->measure_steps > MOST_MEASURE_STEPS)
        return REFUSE("%s: config->measure_steps is %llu, expected at most %d", who,
                      (unsigned long long)config->measure_steps, MOST_MEASURE_STEPS);
    weft_dtype_t wire = config->wire_dtype;
    if (wire != WEFT_F32 && wire != WEFT_F16 && wire != WEFT_BF16)
        return weft_error_set(weft_dtype_name(wire) ? WEFT_ERR_UNSUPPORTED : WEFT_ERR_INVALID,
                              "%s: config->wire_dtype is %s (%d), expected f32, f16 or bf16", who,
                              weft_dtype_name(wire) ? weft_dtype_name(wire) : "no datatype",
                              (int)wire);
    if (config->method != WEFT_GRADIENTS_DENSE && wire != WEFT_F32)
        return weft_error_set(WEFT_ERR_UNSUPPORTED,
                              "%s: config->wire_dtype is %s, expected f32 with %s", who,
                              weft_dtype_name(wire),
                              config->method == WEFT_GRADIENTS_SPARSE
                                  ? "WEFT_GRADIENTS_SPARSE, which sends entries of 32 bits"
                                  : "WEFT_GRADIENTS_COMPRESSED, which sends bits of its own");
    return WEFT_OK;
}

int weft__gradients_retell(int status, const char *who, const char *from, const char *member)
{
    const size_t length = strlen(who);
    char text[400], name[48];
    snprintf(name, sizeof name, " %s->", from);
    snprintf(text, sizeof text, "%s", weft_error_text());
    const char *rest = strstr(text, name), *told = text;
    if (strncmp(told, who, length) == 0 && strncmp(told + length, ": ", 2) == 0)
        told += length + 2;
    return rest ? weft_error_set(status, "%s: config->%s->%s", who, member, rest + strlen(name))
                : weft_error_set(status, "%s: config->%s: %s", who, member, told);
}

int weft__gradients_check_repeated(const char *who, const struct weft__gradients_repeated *repeated)
{
    const char *member = repeated->member;
    if (repeated->dtype)
        return REFUSE("%s: config->%s->dtype is %d, expected 0: config->dtype says it", who, member,
                      (int)repeated->dtype);
    if (repeated->tensors || repeated->tensor_count)
        return REFUSE("%s: config->%s->tensors is %s, of %zu, expected NULL, of 0: "
                      "config->tensors says it",
                      who, member, repeated->tensors ? "given" : "NULL", repeated->tensor_count);
    return repeated->given
               ? REFUSE("%s: config->%s->%s is given, expected 0", who, member, repeated->given)
               : WEFT_OK;
}

static int check_state(const char *who, const struct weft_sparse_average_config *config,
                       weft_gradients_method_t method, const struct weft_gradients_state *state)
{
    if (state->region_count && !state->regions)
        return REFUSE("%s: config->state->regions is NULL, expected %zu words", who,
                      state->region_count);
    if (method == WEFT_GRADIENTS_DENSE &&
        (state->residual || state->velocity || state->unsent || state->regions))
        return REFUSE("%s: config->state has %s, expected NULL with WEFT_GRADIENTS_DENSE", who,
                      state->residual   ? "residual"
                      : state->velocity ? "velocity"
                      : state->unsent   ? "unsent"
                                        : "regions");
    if (state->word_count && !state->words)
        return REFUSE("%s: config->state->words is NULL, expected %zu words", who,
                      state->word_count);
    if (state->number_count && !state->numbers)
        return REFUSE("%s: config->state->numbers is NULL, expected %zu numbers", who,
                      state->number_count);
    if (method != WEFT_GRADIENTS_COMPRESSED && (state->words || state->numbers || state->votes))
        return REFUSE("%s: config->state->%s is given, expected NULL but with "
                      "WEFT_GRADIENTS_COMPRESSED",
                      who,
                      state->words     ? "words"
                      : state->numbers ? "numbers"
                                       : "votes");
    if (method == WEFT_GRADIENTS_COMPRESSED && (state->velocity || state->regions))
        return REFUSE("%s: config->state->%s is given, expected NULL with "
                      "WEFT_GRADIENTS_COMPRESSED",
                      who, state->velocity ? "velocity" : "regions");
    if (method == WEFT_GRADIENTS_SPARSE && state->velocity && config->momentum == 0)
        return REFUSE("%s: config->state->velocity is given, expected NULL with "
                      "config->sparse->momentum 0",
                      who);
    if (state->unsent && !state->failed)
        return REFUSE("%s: config->state->unsent is given, expected NULL but of an object that has "
                      "failed",
                      who);
    return WEFT_OK;
}

static int check_merge(const char *who, struct weft__gradients_given *given)
{
    char text[WEFT_MERGE_METHOD_TEXT];
    double us;
    given->merge.struct_size = sizeof given->merge;
    given->cost.struct_size = sizeof given->cost;
    if (weft_merge_method_format(&given->merge, text, sizeof text))
        return weft__gradients_retell(WEFT_ERR_INVALID, who, "config", "merge");
    if (weft_merge_cost_get(&given->cost, 0, &us))
        return weft__gradients_retell(WEFT_ERR_INVALID, who, "cost", "cost");
    if (given->merge.method == WEFT_MERGE_CYCLES)
        return weft_error_set(WEFT_ERR_UNSUPPORTED,
                              "%s: config->merge->method is WEFT_MERGE_CYCLES, which knows nothing "
                              "of layers to come: expected another method",
                              who);
    return WEFT_OK;
}

int weft__gradients_given_read(const char *who, const struct weft_gradients_config *config,
                               struct weft__gradients_given *given)
{
    int status = read_structs(who, config, given);
    if (status)
        return status;
    set_defaults(&given->config);
    status = check_merge(who, given);
    if (!status)
        status = check_choices(who, &given->config);
    if (!status)
        status = check_state(who, &given->sparse, given->config.method, &given->state);
    if (!status)
        status = weft__gradients_sparse_check(who, &given->sparse);
    if (!status && (given->config.compressed || given->config.method == WEFT_GRADIENTS_COMPRESSED))
        status = weft__gradients_compressed_check(who, &given->config, &given->compressed);
    return status;
}
