/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of templates, and what builds one: check, choose, build. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/memory.h>

#include "schedules/common/template.h"

/* A line each. */
/* clang-format off */
static const struct weft__template *const table[] = {
    &weft__activation_template,
    &weft__allgather_template,
    &weft__allgatherv_template,
    &weft__allreduce_template,
    &weft__alltoall_template,
    &weft__alltoallv_template,
    &weft__barrier_template,
    &weft__broadcast_template,
    &weft__exscan_template,
    &weft__gather_template,
    &weft__gatherv_template,
    &weft__group_allreduce_template,
    &weft__gtopk_template,
    &weft__merged_allreduce_template,
    &weft__neighbour_exchange_template,
    &weft__oktopk_template,
    &weft__powersgd_allreduce_template,
    &weft__projected_allreduce_template,
    &weft__quantised_allreduce_template,
    &weft__reduce_scatter_template,
    &weft__reduce_scatterv_template,
    &weft__reduce_template,
    &weft__scan_template,
    &weft__scatter_template,
    &weft__scatterv_template,
    &weft__server_step_template,
    &weft__topk_allgather_template,
    &weft__wait_avoiding_allreduce_template,
};
/* clang-format on */

/* Costs that differ by less are equal: the first algorithm of a table is taken then. */
#define ROUNDING 1e-9

enum { TEMPLATES = sizeof table / sizeof table[0] };

size_t weft_template_count(void)
{
    return TEMPLATES;
}

const struct weft_template *weft_template_at(size_t index)
{
    return index < TEMPLATES ? &table[index]->public : NULL;
}

unsigned weft__template_flags(const char *name)
{
    for (size_t i = 0; name && i < TEMPLATES; i++)
        if (!strcmp(table[i]->public.name, name))
            return table[i]->flags;
    return 0;
}

/* Appends to a text of a fixed size; cut if it is full. */
static void append(char *text, size_t size, const char *separator, const char *word)
{
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%s", used ? separator : "", word);
}

static const struct weft__template *find(const char *name)
{
    for (size_t i = 0; name && i < TEMPLATES; i++)
        if (!strcmp(table[i]->public.name, name))
            return table[i];
    char names[384] = "";
    for (size_t i = 0; i < TEMPLATES; i++)
        append(names, sizeof names, ", ", table[i]->public.name);
    weft_error_set(WEFT_ERR_NOT_FOUND, "no template '%s', expected one of: %s", name ? name : "",
                   names);
    return NULL;
}

static int refuse_null(const char *who)
{
    return weft_error_set(WEFT_ERR_INVALID, "%s: argument `name` is NULL, expected a template",
                          who);
}

const struct weft_template *weft_template_find(const char *name)
{
    const struct weft__template *template = find(name);
    return template ? &template->public : NULL;
}

/* Whether the ranks know the counts of others that an algorithm needs, as far as all can tell. */
static int known(const struct weft__template *template, size_t index,
                 const struct weft_template_params *params)
{
    return !(template->flags & WEFT__USES_COUNTS) || !template->impl[index].passes_on ||
           params->counts_agreed;
}

static int usable(const struct weft__template *template, size_t index, const struct weft_op *op)
{
    return !(template->flags & WEFT__USES_OP) || template->public.algorithms[index].ordered ||
           weft_op_commutes(op);
}

static int find_algorithm(const struct weft__template *template,
                          const struct weft_template_params *params, size_t *index)
{
    const struct weft_template *public = &template->public;
    for (size_t i = 0; i < public->algorithm_count; i++) {
        if (strcmp(public->algorithms[i].name, params->algo) != 0)
            continue;
        if (!usable(template, i, params->op))
            return weft_error_set(WEFT_ERR_UNSUPPORTED,
                                  "%s: algorithm %s does not keep the order of ranks, which "
                                  "operation %s needs",
                                  public->name, params->algo, weft_op_name(params->op));
        *index = i;
        return WEFT_OK;
    }
    char names[384] = "";
    for (size_t i = 0; i < public->algorithm_count; i++)
        append(names, sizeof names, ", ", public->algorithms[i].name);
    return weft_error_set(WEFT_ERR_NOT_FOUND, "%s: no algorithm '%s', expected one of: %s",
                          public->name, params->algo, names);
}

/* What things cost an algorithm: where its messages go both ways at once, and where ranks share
 * cores, of which each then does the work of several, one after the other: also of short messages,
 * which between ranks of one host are work more than they are a wait. */
static struct weft_cost_model cost_of(const struct weft__algorithm *algorithm,
                                      const struct weft__shape *shape)
{
    struct weft_cost_model cost = *shape->cost;
    double load = algorithm->goes & WEFT__FEW_BUSY ? 1 : shape->load;
    /* Two ranks have but each other. */
    int both_ways = algorithm->goes & WEFT__EXCHANGES ||
                    (shape->size == 2 && !(algorithm->goes & WEFT__FEW_BUSY));
    if (both_ways && cost.exchange_us_per_byte > 0)
        cost.beta_us_per_byte = cost.exchange_us_per_byte;
    cost.alpha_us *= load;
    cost.beta_us_per_byte *= load;
    cost.gamma_us_per_byte *= load;
    cost.copy_us_per_byte *= load;
    cost.eager_us_per_byte *= load;
    cost.node_us *= load;
    return cost;
}

/* Messages, one after the other, that the cost of an algorithm counts. */
static double messages_of(const struct weft__algorithm *algorithm, const struct weft__shape *shape)
{
    static const struct weft_cost_model one = {.struct_size = sizeof one, .alpha_us = 1};
    struct weft__shape counted = *shape;
    counted.cost = &one;
    counted.segment = 0;
    return algorithm->cost(&counted);
}

/* How often a rank waits for another's message that the other could not have sent before. */
static double rounds_of(const struct weft__algorithm *algorithm, const struct weft__shape *shape)
{
    return algorithm->rounds ? algorithm->rounds(shape) : messages_of(algorithm, shape);
}

/* What it counts too much for receives that are waited for: those of one round are together. */
static double waits_together(const struct weft__algorithm *algorithm, struct weft__shape *shape,
                             double us)
{
    const struct weft_cost_model *given = shape->cost;
    struct weft_cost_model eager = *given;
    double messages = messages_of(algorithm, shape);
    eager.rendezvous_us = 0;
    shape->cost = &eager;
    double waits = us - algorithm->cost(shape);
    shape->cost = given;
    return messages > 0 ? waits * (1 - fmin(rounds_of(algorithm, shape) / messages, 1)) : 0;
}

/* The segment of one algorithm, and with it its cost. */
static double price(const struct weft__algorithm *algorithm, struct weft__shape *shape,
                    size_t segment)
{
    const struct weft_cost_model *given = shape->cost, own = cost_of(algorithm, shape);
    shape->cost = &own;
    shape->segment = segment == WEFT_SEGMENT_NONE ? 0 : segment;
    if (!segment)
        shape->segment = algorithm->segment ? algorithm->segment(shape) : 0;
    double us = algorithm->cost(shape);
    if (algorithm->rounds)
        us -= waits_together(algorithm, shape, us);
    /* A rank that waits gets its core back when all others of the core have had it. */
    if (shape->load > 1)
        us += given->switch_us * shape->load * rounds_of(algorithm, shape);
    shape->cost = given;
    return us;
}

/* Chooses the algorithm: the caller's, or the cheapest; the shape gets its segment. */
static int choose(const struct weft__template *template, const struct weft_template_params *params,
                  struct weft__shape *shape, size_t *index, double *cost_us)
{
    size_t best = 0;
    double cost = INFINITY;
    if (params->algo) {
        int status = find_algorithm(template, params, &best);
        if (status)
            return status;
    } else if (!(template->flags & WEFT__FIXED)) {
        int found = 0;
        for (size_t i = 0; i < template->public.algorithm_count; i++) {
            if (!usable(template, i, params->op) || !known(template, i, params))
                continue;
            double candidate = price(&template->impl[i], shape, params->segment);
            if (!found || candidate < cost * (1 - ROUNDING)) {
                best = i;
                cost = candidate;
                found = 1;
            }
        }
    }
    *cost_us = price(&template->impl[best], shape, params->segment);
    *index = best;
    return WEFT_OK;
}

static int by_number(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* Ranks of the host that has most of them; negative: an error. */
static int most_on_a_host(const int *hosts, int size)
{
    int *sorted = weft_memory_alloc((size_t)size, sizeof *sorted), most = 0;
    if (!sorted)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for the hosts of %d ranks", size);
    memcpy(sorted, hosts, (size_t)size * sizeof *sorted);
    qsort(sorted, (size_t)size, sizeof *sorted, by_number);
    for (int r = 0, first = 0; r < size; r++) {
        first = sorted[r] == sorted[first] ? first : r;
        most = r - first + 1 > most ? r - first + 1 : most;
    }
    weft_memory_free(sorted);
    return most;
}

/* Ranks of the host that has most of them, by its cores; 1: they all run at once. */
static int load_of(const struct weft_template_params *params, int size, double *load)
{
    *load = 1;
    if (params->cost->cores == 0 || params->cost->cores >= (size_t)size)
        return WEFT_OK;
    int most = params->hosts ? most_on_a_host(params->hosts, size) : size;
    *load = fmax((double)most / (double)params->cost->cores, 1);
    return most < 0 ? most : WEFT_OK;
}

/* How blocks differ, where everybody knows. Elsewhere only one algorithm can be chosen, whatever it
 * costs. */
static int measure(const struct weft__template *template, int size,
                   const struct weft_template_params *params, struct weft__shape *shape)
{
    size_t largest, total, element = weft_dtype_size(params->dtype);
    if (!params->counts || (template->flags & WEFT__USES_ROOT && !params->counts_agreed))
        return WEFT_OK;
    int status = weft__params_sum(template->public.name, "counts", params->counts, 0, size,
                                  params->dtype, &largest, &total);
    shape->largest = (double)largest * (double)element;
    shape->total = (double)total * (double)element;
    shape->element = element;
    shape->counts = largest > total / (size_t)size ? params->counts : NULL;
    return status;
}

/* What building and choosing have in common. `model` is for the default costs. */
static int prepare(const char *who, const struct weft__template *template, int size,
                   const struct weft_template_params *given, struct weft_template_params *params,
                   struct weft_cost_model *model, struct weft__shape *shape)
{
    struct weft_quantiser quantiser;
    int status = weft__params_read(who, params, given);
    if (!status)
        status = weft__params_check(template, size, params);
    if (!status)
        status = weft__params_cost(who, params->cost, model);
    if (!status)
        status = weft__params_quantiser(who, params->quantiser, &quantiser);
    if (status)
        return status;
    params->cost = model;
    *shape = (struct weft__shape){.size = size,
                                  .root = template->flags & WEFT__USES_ROOT ? params->root : 0,
                                  .cost = params->cost,
                                  .hosts = params->hosts,
                                  .op = params->op,
                                  .quantiser = quantiser,
                                  .aggregate = params->aggregate,
                                  .radix = params->radix};
    status = load_of(params, size, &shape->load);
    if (status)
        return status;
    if (template->flags & WEFT__USES_LAYERS)
        shape->layers = weft__params_layers(params);
    if (template->flags & WEFT__USES_BLOCKS)
        shape->blocks = weft__blocks_of(template, params);
    if (template->flags & WEFT__USES_SERVERS)
        shape->servers = weft__params_servers(params, size);
    if (template->flags & WEFT__USES_GROUP)
        shape->size = weft__group_largest(size, params->group_size);
    if (template->flags & WEFT__USES_PAIRS)
        shape->bytes = params->k * 8;
    if (template->flags & WEFT__USES_DATA)
        shape->bytes = params->count * weft_dtype_size(params->dtype);
    shape->largest = (double)shape->bytes;
    shape->total = (double)shape->bytes * shape->size;
    return template->flags & WEFT__USES_COUNTS ? measure(template, size, params, shape) : WEFT_OK;
}

static int check_pair_counts(const struct weft__template *template,
                             const struct weft_template_params *params, int size)
{
    int status = WEFT_OK;
    if (params->send_counts && !params->in_place)
        status = weft__params_sum(template->public.name, "send_counts", params->send_counts, 0,
                                  size, params->dtype, NULL, NULL);
    if (!status && params->recv_counts)
        status = weft__params_sum(template->public.name, "recv_counts", params->recv_counts, 0,
                                  size, params->dtype, NULL, NULL);
    return status;
}

/* The counts of a rank that is to build: all of them, or its own where others are not its affair.
 */
static int take_counts(const struct weft__template *template, size_t index,
                       const struct weft_template_params *params, struct weft__build *build)
{
    if (template->flags & WEFT__USES_PAIR_COUNTS)
        return build->status = check_pair_counts(template, params, build->size);
    if (!(template->flags & WEFT__USES_COUNTS) || !params->counts)
        return WEFT_OK;
    int alone = template->flags & WEFT__USES_ROOT && !weft__build_is_root(build) &&
                !template->impl[index].passes_on;
    build->status =
        weft__params_sum(template->public.name, "counts", params->counts, alone ? build->rank : 0,
                         alone ? build->rank + 1 : build->size, params->dtype, NULL, NULL);
    if (alone)
        build->count = params->counts[build->rank];
    else if (!build->status)
        weft__build_set_counts(build, params->counts);
    return build->status;
}

int weft_template_choose(const char *name, int size, const struct weft_template_params *given,
                         const char **algo, double *cost_us)
{
    const struct weft__template *template = find(name);
    if (!template)
        return name ? WEFT_ERR_NOT_FOUND : refuse_null(__func__);
    struct weft_template_params params;
    struct weft_cost_model model;
    struct weft__shape shape;
    size_t index;
    double cost;
    int status = prepare(__func__, template, size, given, &params, &model, &shape);
    if (!status)
        status = choose(template, &params, &shape, &index, &cost);
    if (status)
        return status;
    if (algo)
        *algo = template->public.algorithms[index].name;
    if (cost_us)
        *cost_us = cost;
    return WEFT_OK;
}

int weft__template_build(const char *who, const char *name, int rank, int size,
                         const struct weft_template_params *given, struct weft_schedule **schedule)
{
    const struct weft__template *template = find(name);
    if (!template)
        return name ? WEFT_ERR_NOT_FOUND : refuse_null(who);
    if (!schedule)
        return weft_error_set(WEFT_ERR_INVALID, "%s: argument `schedule` is NULL", who);
    struct weft_template_params params;
    struct weft_cost_model model;
    struct weft__shape shape;
    size_t index;
    double cost;
    int status = prepare(who, template, size, given, &params, &model, &shape);
    if (!status)
        status = choose(template, &params, &shape, &index, &cost);
    struct weft__build build;
    if (!status)
        status = weft__build_init(&build, rank, size, &shape, &params);
    if (status)
        return status;

    char full[96];
    snprintf(full, sizeof full, "%s-%s", name, template->public.algorithms[index].name);
    weft_schedule_set_name(build.schedule, full);
    if (!take_counts(template, index, &params, &build)) {
        template->slots(&build);
        template->impl[index].build(&build);
        if (params.memory != WEFT_MEMORY_HOST)
            weft_schedule_set_memory(build.schedule, WEFT_SLOT_ALL, params.memory);
    }
    return weft__build_finish(&build, schedule);
}

int weft_template_build(const char *name, int rank, int size,
                        const struct weft_template_params *given, struct weft_schedule **schedule)
{
    return weft__template_build(__func__, name, rank, size, given, schedule);
}
