/* SPDX-License-Identifier: BSD-3-Clause */
/* Parameters of templates: defaults and checks. */
#include <stdio.h>
#include <string.h>

#include "schedules/common/template.h"

void weft_template_params_init_sized(struct weft_template_params *params, size_t size)
{
    weft_sized_init(params, size);
}

int weft__params_read(const char *who, struct weft_template_params *full,
                      const struct weft_template_params *params)
{
    int status = weft_sized_read(who, "params", params, full, sizeof *full);
    if (!status)
        status = weft_sized_number(who, "params->in_place", full->in_place, 0, 1);
    if (!status)
        status = weft_sized_number(who, "params->group_size", full->group_size, 0, INT32_MAX);
    if (!status)
        status = weft_sized_number(who, "params->counts_agreed", full->counts_agreed, 0, 1);
    if (!status)
        status = weft_sized_number(who, "params->sent", full->sent, 0, 1);
    if (!status)
        status = weft_sized_number(who, "params->servers", full->servers, 0, INT32_MAX);
    if (!status)
        status = weft_sized_number(who, "params->colocated", full->colocated, 0, 1);
    if (!status)
        status = weft_sized_number(who, "params->memory", (int)full->memory, WEFT_MEMORY_HOST,
                                   WEFT_MEMORY_DEVICE);
    if (!status)
        status = weft_sized_number(who, "params->radix", full->radix, 0, WEFT__MOST_RADIX);
    if (!status && full->radix == 1)
        status = weft_sized_number(who, "params->radix", full->radix, 2, WEFT__MOST_RADIX);
    if (!full->op)
        full->op = weft_op_builtin(WEFT_SUM);
    return status;
}

int weft__params_cost(const char *who, const struct weft_cost_model *given,
                      struct weft_cost_model *model)
{
    if (!given) {
        weft_cost_model_init(model, "local");
        return WEFT_OK;
    }
    int status = weft_sized_read(who, "params->cost", given, model, sizeof *model);
    const struct {
        const char *name;
        double value;
    } costs[] = {{"params->cost->alpha_us", model->alpha_us},
                 {"params->cost->beta_us_per_byte", model->beta_us_per_byte},
                 {"params->cost->gamma_us_per_byte", model->gamma_us_per_byte},
                 {"params->cost->copy_us_per_byte", model->copy_us_per_byte},
                 {"params->cost->node_us", model->node_us},
                 {"params->cost->rendezvous_us", model->rendezvous_us},
                 {"params->cost->eager_us_per_byte", model->eager_us_per_byte},
                 {"params->cost->exchange_us_per_byte", model->exchange_us_per_byte},
                 {"params->cost->switch_us", model->switch_us}};
    for (size_t i = 0; !status && i < sizeof costs / sizeof costs[0]; i++)
        status = weft_sized_real(who, costs[i].name, costs[i].value, 0, 1e9);
    return status;
}

static int check_hosts(const struct weft__template *template, int size,
                       const struct weft_template_params *params)
{
    for (int r = 0; params->hosts && r < size; r++)
        if (params->hosts[r] < 0)
            return weft_error_set(WEFT_ERR_INVALID, "%s: hosts[%d] is %d, expected at least 0",
                                  template->public.name, r, params->hosts[r]);
    return WEFT_OK;
}

static int check_data(const struct weft__template *template, int size,
                      const struct weft_template_params *params)
{
    const char *name = template->public.name;
    size_t element = weft_dtype_size(params->dtype);
    if (!element)
        return weft_error_set(WEFT_ERR_INVALID, "%s: dtype is %d, expected one of weft_dtype_t",
                              name, (int)params->dtype);
    size_t blocks = template->flags & WEFT__BLOCKS ? (size_t)size : 1;
    if (params->count > PTRDIFF_MAX / element / blocks)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: count is %zu, expected at most %zu elements of %s on %d ranks",
                              name, params->count, PTRDIFF_MAX / element / blocks,
                              weft_dtype_name(params->dtype), size);
    return WEFT_OK;
}

int weft__params_sum(const char *name, const char *member, const size_t *counts, int first, int end,
                     weft_dtype_t dtype, size_t *largest, size_t *total)
{
    size_t most = PTRDIFF_MAX / weft_dtype_size(dtype), sum = 0, top = 0;
    for (int r = first; r < end; r++) {
        if (counts[r] > most - sum)
            return weft_error_set(WEFT_ERR_INVALID,
                                  "%s: %s[%d] is %zu, behind %zu elements of other ranks, expected "
                                  "at most %zu of %s together",
                                  name, member, r, counts[r], sum, most, weft_dtype_name(dtype));
        sum += counts[r];
        top = counts[r] > top ? counts[r] : top;
    }
    if (largest)
        *largest = top;
    if (total)
        *total = sum;
    return WEFT_OK;
}

/* By default a thousandth of the elements; the vector has at least as many elements as pairs. */
static int check_pairs(const struct weft__template *template, int size,
                       struct weft_template_params *params)
{
    const char *name = template->public.name;
    size_t most = PTRDIFF_MAX / 64 / (size_t)size;
    if (!params->k)
        params->k = params->count / 1000 + (params->count % 1000 != 0);
    if (params->k > most)
        return weft_error_set(WEFT_ERR_INVALID, "%s: k is %zu, expected at most %zu on %d ranks",
                              name, params->k, most, size);
    if ((uint64_t)params->k > (uint64_t)1 << 32)
        return weft_error_set(WEFT_ERR_UNSUPPORTED,
                              "%s: k is %zu, expected at most 2^32: indices have 4 bytes", name,
                              params->k);
    if (params->count < params->k)
        params->count = params->k;
    if ((uint64_t)params->count > (uint64_t)1 << 32)
        return weft_error_set(WEFT_ERR_UNSUPPORTED,
                              "%s: count is %zu, expected at most 2^32: indices have 4 bytes", name,
                              params->count);
    return WEFT_OK;
}

enum { LAYERS = 4, LAYERS_OF_A_GROUP = 2 };

struct weft__layers weft__params_layers(const struct weft_template_params *params)
{
    return (struct weft__layers){.layers = params->layers,
                                 .layer_count = params->layer_count,
                                 .groups = params->groups,
                                 .group_count = params->group_count,
                                 .elements = params->count};
}

/* The elements of all layers become the count. */
static int check_layers(const struct weft__template *template, struct weft_template_params *params)
{
    const char *name = template->public.name;
    if (!params->layers && !params->layer_count)
        params->layer_count = LAYERS;
    if (!params->layer_count || params->layer_count > INT32_MAX)
        return weft_error_set(WEFT_ERR_INVALID, "%s: layer_count is %zu, expected 1 to %d", name,
                              params->layer_count, INT32_MAX);
    if (!params->layers)
        return WEFT_OK;
    return weft__params_sum(name, "layers", params->layers, 0, (int)params->layer_count,
                            params->dtype, NULL, &params->count);
}

/* Groups of layers that have been checked. */
static int check_groups(const struct weft__template *template, struct weft_template_params *params)
{
    const char *name = template->public.name;
    size_t layers = params->layer_count, sum = 0;
    if (!params->groups && !params->group_count)
        params->group_count = (layers + LAYERS_OF_A_GROUP - 1) / LAYERS_OF_A_GROUP;
    if (!params->group_count || params->group_count > layers)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: group_count is %zu, expected 1 to the %zu layers", name,
                              params->group_count, layers);
    for (size_t g = 0; params->groups && g < params->group_count; g++) {
        if (!params->groups[g] || params->groups[g] > layers - sum)
            return weft_error_set(WEFT_ERR_INVALID,
                                  "%s: groups[%zu] is %zu, behind %zu layers of other groups, "
                                  "expected 1 to %zu",
                                  name, g, params->groups[g], sum, layers - sum);
        sum += params->groups[g];
    }
    if (params->groups && sum != layers)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: groups have %zu layers together, expected all %zu", name, sum,
                              layers);
    return WEFT_OK;
}

enum { BUCKET = 512 }; /* where it is 0 */

int weft__params_quantiser(const char *who, const struct weft_quantiser *given,
                           struct weft_quantiser *quantiser)
{
    weft_quantiser_init(quantiser);
    int status =
        given ? weft_sized_read(who, "params->quantiser", given, quantiser, sizeof *quantiser)
              : WEFT_OK;
    if (!status && !weft_quantised_bytes(quantiser, 1)) {
        const char *colon = strstr(weft_error_text(), ": ");
        char text[256];
        snprintf(text, sizeof text, "%s", colon ? colon + 2 : "quantiser");
        status = weft_error_set(WEFT_ERR_INVALID, "%s: params->%s", who, text);
    }
    if (!quantiser->bucket)
        quantiser->bucket = BUCKET;
    return status;
}

struct weft__servers weft__params_servers(const struct weft_template_params *params, int size)
{
    int workers = params->colocated || size == 1 ? size : size - params->servers;
    return (struct weft__servers){.workers = workers,
                                  .count = params->servers,
                                  .first = size - workers ? workers : 0,
                                  .window = params->window};
}

/* One rank alone is both. */
static int check_servers(const struct weft__template *template, int size,
                         struct weft_template_params *params)
{
    int apart = !params->colocated && size > 1, most = apart ? size - 1 : size;
    if (!params->servers)
        params->servers = 1;
    if (!params->window)
        params->window = 1;
    if (params->servers < 0 || params->servers > most)
        return weft_error_set(WEFT_ERR_INVALID, "%s: servers is %d, expected 1 to %d of %d ranks%s",
                              template->public.name, params->servers, most, size,
                              apart ? ", as one is a worker (or colocated = 1)" : "");
    return WEFT_OK;
}

int weft__params_check(const struct weft__template *template, int size,
                       struct weft_template_params *params)
{
    const char *name = template->public.name;
    if (size < 1)
        return weft_error_set(WEFT_ERR_INVALID, "%s: size is %d, expected at least 1", name, size);
    if (template->flags & WEFT__USES_HOSTS) {
        int status = check_hosts(template, size, params);
        if (status)
            return status;
    }
    if (template->flags & WEFT__SUMS_F32) {
        params->dtype = WEFT_F32;
        params->op = weft_op_builtin(WEFT_SUM);
    }
    if (template->flags & WEFT__USES_BLOCKS) {
        int status = weft__blocks_check(template, params);
        if (status)
            return status;
    }
    if (template->flags & WEFT__USES_LAYERS && weft_dtype_size(params->dtype)) {
        int status = check_layers(template, params);
        if (!status)
            status = check_groups(template, params);
        if (status)
            return status;
    }
    if (template->flags & WEFT__USES_DATA) {
        int status = check_data(template, size, params);
        if (status)
            return status;
    }
    if (template->flags & WEFT__USES_PAIRS) {
        int status = check_pairs(template, size, params);
        if (status)
            return status;
    }
    if (template->flags & WEFT__USES_GROUP && (params->group_size < 0 || params->group_size > size))
        return weft_error_set(WEFT_ERR_INVALID, "%s: group_size is %d, expected 0 .. %d", name,
                              params->group_size, size);
    if (template->flags & WEFT__USES_SERVERS) {
        int status = check_servers(template, size, params);
        if (status)
            return status;
    }
    if (template->flags & WEFT__USES_ROOT && (params->root < 0 || params->root >= size))
        return weft_error_set(WEFT_ERR_INVALID, "%s: root is %d, expected 0 .. %d", name,
                              params->root, size - 1);
    if (template->flags & WEFT__USES_OP && !weft_op_supports(params->op, params->dtype))
        return weft_error_set(WEFT_ERR_INVALID, "%s: operation %s is not defined on %s%s", name,
                              weft_op_name(params->op), weft_dtype_name(params->dtype),
                              weft_dtype_is_opaque(params->dtype)
                                  ? ", expected a reduction of weft_op_create() for opaque elements"
                                  : "");
    return WEFT_OK;
}
