/* SPDX-License-Identifier: BSD-3-Clause */
/* What the suites of parameter servers share: models that are drawn, gradients that are a function
 * of who, when, where and of the parameter, and arithmetic in the datatype. */
#ifndef WEFT_TESTS_SERVER_JOB_H
#define WEFT_TESTS_SERVER_JOB_H

#include <math.h>
#include <signal.h>

#include "support/virtual_ranks.h"
#include "tests/support/draw.h"

enum { JOB_LAYERS = 8, JOB_TENSORS = 24, JOB_WORKERS = 16 };

/* ---- seeds ---- */

static uint64_t told_seed;

static inline void print_seed(int number)
{
    (void)number;
    fprintf(stderr, "seed %llu\n", (unsigned long long)told_seed);
}

/* A check that fails prints it. */
static inline void tell_seed(uint64_t seed)
{
    told_seed = seed;
    signal(SIGABRT, print_seed);
}

/* ---- models ---- */

struct shape {
    size_t layers, tensors, elements;
    size_t layer_tensors[JOB_LAYERS + 1];
    size_t counts[JOB_TENSORS + 1];
    size_t first[JOB_LAYERS + 1]; /* elements before each layer */
};

static inline void shape_finish(struct shape *shape)
{
    size_t tensor = 0;
    shape->elements = 0;
    for (size_t l = 0; l < shape->layers; l++) {
        shape->first[l] = shape->elements;
        for (size_t t = 0; t < shape->layer_tensors[l]; t++)
            shape->elements += shape->counts[tensor++];
    }
    shape->first[shape->layers] = shape->elements;
    shape->tensors = tensor;
}

/* Layers of no tensors, of tensors without elements, of a few and of some thousands of elements. */
static inline struct shape shape_draw(struct draw *draw, size_t least_layers)
{
    static const size_t sizes[] = {0, 1, 2, 3, 5, 8, 17, 40, 64, 100};
    struct shape shape = {0};
    shape.layers = least_layers + draw_below(draw, 6);
    for (size_t l = 0, t = 0; l < shape.layers; l++) {
        shape.layer_tensors[l] = draw_below(draw, 8) ? 1 + draw_below(draw, 2) : 0;
        for (size_t i = 0; i < shape.layer_tensors[l]; i++)
            shape.counts[t++] =
                draw_below(draw, 40) ? sizes[draw_below(draw, 10)] : 1000 + draw_below(draw, 3000);
    }
    shape_finish(&shape);
    return shape;
}

/* Layers of one tensor each. */
static inline struct shape shape_of(const size_t *counts, size_t layers)
{
    struct shape shape = {.layers = layers};
    for (size_t l = 0; l < layers; l++) {
        shape.layer_tensors[l] = 1;
        shape.counts[l] = counts[l];
    }
    shape_finish(&shape);
    return shape;
}

/* A rank's tensors and gradients, each in a place of its own. */
struct tensors {
    weft_dtype_t dtype;
    const struct shape *shape;
    struct weft_piece x[JOB_TENSORS + 1], g[JOB_TENSORS + 1];
};

static inline void tensors_make(struct tensors *tensors, const struct shape *shape,
                                weft_dtype_t dtype)
{
    memset(tensors, 0, sizeof *tensors);
    tensors->dtype = dtype;
    tensors->shape = shape;
    for (size_t t = 0; t < shape->tensors; t++) {
        tensors->x[t] = (struct weft_piece){calloc(shape->counts[t] + 1, 8), shape->counts[t]};
        tensors->g[t] = (struct weft_piece){calloc(shape->counts[t] + 1, 8), shape->counts[t]};
        CHECK(tensors->x[t].data && tensors->g[t].data);
    }
}

static inline void tensors_free(struct tensors *tensors)
{
    for (size_t t = 0; t < tensors->shape->tensors; t++) {
        free(tensors->x[t].data);
        free(tensors->g[t].data);
    }
}

static inline void tensors_bind(const struct tensors *tensors, struct weft_server_config *config)
{
    config->dtype = tensors->dtype;
    config->tensors = tensors->x;
    config->tensor_count = tensors->shape->tensors;
    config->gradients = config->push == WEFT_SERVER_MODELS ? NULL : tensors->g;
    config->layer_tensors = tensors->shape->layer_tensors;
    config->layer_count = tensors->shape->layers;
}

static inline void piece_put(const struct weft_piece *pieces, weft_dtype_t dtype, size_t at,
                             double value)
{
    while (at >= pieces->count)
        at -= pieces++->count;
    if (dtype == WEFT_F64)
        ((double *)pieces->data)[at] = value;
    else
        ((float *)pieces->data)[at] = (float)value;
}

static inline double piece_get(const struct weft_piece *pieces, weft_dtype_t dtype, size_t at)
{
    while (at >= pieces->count)
        at -= pieces++->count;
    return dtype == WEFT_F64 ? ((const double *)pieces->data)[at]
                             : (double)((const float *)pieces->data)[at];
}

static inline void tensors_read(const struct tensors *tensors, double *to)
{
    for (size_t t = 0; t < tensors->shape->tensors; t++)
        for (size_t i = 0; i < tensors->x[t].count; i++)
            *to++ = piece_get(&tensors->x[t], tensors->dtype, i);
}

/* ---- numbers ---- */

/* Sums and products of two numbers of a datatype, computed in double, are rounded but once so. */
static inline double rounded(weft_dtype_t dtype, double value)
{
    return dtype == WEFT_F64 ? value : (double)(float)value;
}

static inline uint64_t scramble(uint64_t seed, uint64_t a, uint64_t b, uint64_t c)
{
    struct draw draw = {seed + a * UINT64_C(0x9e3779b97f4a7c15)};
    draw.state ^= draw_word(&draw) + b * UINT64_C(0xd1342543de82ef95);
    draw.state ^= draw_word(&draw) + c;
    return draw_word(&draw);
}

static inline double initial_value(size_t at)
{
    return (double)(at % 23) / 8 - 1;
}

/* a (x - c). */
static inline double gradient_of(weft_dtype_t dtype, uint64_t seed, size_t worker, uint64_t step,
                                 size_t at, double x)
{
    uint64_t drawn = scramble(seed, worker + 1, step, at);
    double a = (double)(1 + drawn % 15) / 16, c = (double)(drawn / 16 % 33) / 8 - 2;
    return rounded(dtype, a * rounded(dtype, x - c));
}

/* What a worker computes of a layer: gradients, or models after a step of their own. */
static inline void fill_layer(const struct tensors *tensors, int models, uint64_t seed,
                              size_t worker, uint64_t step, size_t layer)
{
    weft_dtype_t dtype = tensors->dtype;
    for (size_t i = tensors->shape->first[layer]; i < tensors->shape->first[layer + 1]; i++) {
        double x = piece_get(tensors->x, dtype, i);
        double g = gradient_of(dtype, seed, worker, step, i, x);
        if (models)
            piece_put(tensors->x, dtype, i, rounded(dtype, x - 0.25 * g));
        else
            piece_put(tensors->g, dtype, i, g);
    }
}

/* The numbers below count in an order of their own. */
static inline void shuffle(struct draw *draw, size_t *order, size_t count)
{
    for (size_t i = 0; i < count; i++)
        order[i] = i;
    for (size_t i = count; i > 1; i--) {
        size_t j = draw_below(draw, (unsigned)i), was = order[i - 1];
        order[i - 1] = order[j];
        order[j] = was;
    }
}

/* ---- counts ---- */

/* What a worker has been told of its steps, and what it has pushed. */
struct worker_counts {
    uint64_t steps, staleness, staleness_most, synchronised_ns, waited_ns, late_bytes;
    uint64_t pushed_bytes;
};

/* Those of all workers, and what every server says. */
struct counts {
    uint64_t steps, pushed_bytes;
    struct weft_server_stats servers[JOB_WORKERS];
};

static inline void count_result(struct worker_counts *counts,
                                const struct weft_server_result *result)
{
    counts->steps++;
    counts->staleness += result->staleness;
    if (result->staleness > counts->staleness_most)
        counts->staleness_most = result->staleness;
    counts->synchronised_ns += result->synchronised_ns;
    counts->waited_ns += result->waited_ns;
    counts->late_bytes += result->late_bytes;
}

static inline void count_pushed(struct worker_counts *counts, const struct tensors *tensors,
                                size_t layer)
{
    const struct shape *shape = tensors->shape;
    counts->pushed_bytes +=
        (shape->first[layer + 1] - shape->first[layer]) * weft_dtype_size(tensors->dtype);
}

/* `between`: it may have waited between its steps, too. */
static inline void check_worker_counts(const struct worker_counts *counts,
                                       const struct weft_server_stats *stats, int between)
{
    CHECK(stats->steps == counts->steps);
    CHECK(stats->staleness == counts->staleness);
    CHECK(stats->staleness_most == counts->staleness_most);
    CHECK(stats->synchronised_ns == counts->synchronised_ns);
    CHECK(stats->waited_ns == counts->waited_ns ||
          (between && stats->waited_ns > counts->waited_ns));
    CHECK(stats->late_bytes == counts->late_bytes);
    CHECK(stats->pushed_bytes == counts->pushed_bytes);
    CHECK(stats->nans == 0);
}

/* Of a rank, at its end. */
static inline void collect_counts(struct counts *counts, struct weft_server *server,
                                  const struct worker_counts *worker, int between)
{
    struct weft_server_stats stats = {.struct_size = sizeof stats};
    OK(weft_server_get_stats(server, &stats));
    if (weft_server_is_worker(server)) {
        check_worker_counts(worker, &stats, between);
        counts->steps += worker->steps;
        counts->pushed_bytes += worker->pushed_bytes;
    } else {
        CHECK(stats.steps == 0 && stats.pushed_bytes == 0 && stats.waited_ns == 0);
        counts->servers[weft_server_index(server)] = stats;
    }
}

/* Of servers apart, which have seen the end of all workers: each byte has come once, and all of the
 * model has gone to every worker in every step. `updates`: on each that has something of the model;
 * UINT64_MAX: not known. */
static inline void judge_counts(const struct counts *counts,
                                const struct weft_server_config *config, size_t model_bytes,
                                uint64_t updates)
{
    uint64_t received = 0, sent = 0;
    size_t servers = config->servers ? (size_t)config->servers : 1;
    if (config->place != WEFT_SERVER_APART)
        return;
    for (size_t k = 0; k < servers; k++) {
        const struct weft_server_stats *stats = &counts->servers[k];
        int holds = stats->sent_bytes > 0;
        received += stats->received_bytes;
        sent += stats->sent_bytes;
        CHECK(stats->pushes == (k == 0 || holds ? counts->steps : 0));
        CHECK(updates == UINT64_MAX || stats->updates == (holds ? updates : 0));
    }
    CHECK(received == counts->pushed_bytes);
    CHECK(sent == counts->steps * model_bytes);
}

/* ---- networks ---- */

/* Delays, pauses, signals that come twice, everything in any order. */
static inline struct weft_virtual_config rough(uint64_t seed)
{
    struct weft_virtual_config config = with_seed(seed);
    if (seed % 4 == 0)
        return config;
    config.delay_ns = seed % 3 ? 30000 : 500000;
    config.heavy_share = seed % 5 ? 0 : 0.05;
    config.heavy_ns = 5000000;
    config.duplicate_share = seed % 2 ? 0.3 : 0;
    config.pauses_per_second = seed % 7 ? 0 : 300;
    config.pause_ns = 3000000;
    return config;
}

/* ---- states ---- */

/* A state with memory of its own. */
struct state_copy {
    struct weft_server_state state;
    void *parts[8];
};

static inline void *copy_part(struct state_copy *copy, int at, const void *from, size_t bytes)
{
    if (!from)
        return NULL;
    copy->parts[at] = malloc(bytes + 1);
    CHECK(copy->parts[at]);
    memcpy(copy->parts[at], from, bytes);
    return copy->parts[at];
}

static inline void state_copy(struct state_copy *copy, struct weft_server *server,
                              const struct shape *shape, weft_dtype_t dtype)
{
    struct weft_server_state *s = &copy->state;
    memset(copy, 0, sizeof *copy);
    s->struct_size = sizeof *s;
    OK(weft_server_get_state(server, s));
    size_t element = weft_dtype_size(dtype), model = shape->elements * element;
    s->parameters = copy_part(copy, 0, s->parameters, s->element_count * element);
    s->velocity = copy_part(copy, 1, s->velocity, s->element_count * element);
    s->clocks = copy_part(copy, 2, s->clocks, s->clock_count * 8);
    s->worker_velocity = copy_part(copy, 3, s->worker_velocity, model);
    s->late = copy_part(copy, 4, s->late, shape->layers);
    s->pulled = copy_part(copy, 5, s->pulled, model);
    s->changes = copy_part(copy, 6, s->changes, model);
    s->average = copy_part(copy, 7, s->average, model);
}

static inline void state_free(struct state_copy *copy)
{
    for (int i = 0; i < 8; i++)
        free(copy->parts[i]);
}

/* The state of an object that has taken no step. */
static inline void state_of_first(struct state_copy *copy, struct weft_context *context,
                                  const struct weft_server_config *config,
                                  const struct shape *shape)
{
    struct weft_server *server = NULL;
    OK(weft_server_create(&server, context, config));
    state_copy(copy, server, shape, config->dtype);
    OK(weft_server_destroy(server));
}

#endif
