/* SPDX-License-Identifier: BSD-3-Clause */
/* A training by BSP or OSP on virtual ranks, and what it should have come to: computed in one loop,
 * element by element, with every product and sum rounded where the object rounds it. */
#ifndef WEFT_TESTS_SERVER_TOGETHER_H
#define WEFT_TESTS_SERVER_TOGETHER_H

#include "server_job.h"

enum { TOGETHER_STEPS = 9 };

/* A worker of a story. */
struct told {
    double *x[TOGETHER_STEPS]; /* the model after each step */
    unsigned char late[TOGETHER_STEPS][JOB_LAYERS];
    /* Late, and what the servers have all the same, by the version that it had behind its wait. */
    unsigned char corrected[TOGETHER_STEPS][JOB_LAYERS];
    double *last; /* after the last correction */
    struct worker_counts counts;
};

struct story {
    uint64_t seed;
    int ranks, steps;
    size_t workers;
    struct weft_server_config config; /* without tensors */
    struct shape shape;
    double weights[JOB_WORKERS];
    int absences;    /* 1: some layers have no gradient */
    int corrections; /* 1: some workers correct after some steps */
    int pauses;      /* 1: some workers are slow */
    int rates;       /* 1: the rate changes */
    struct told told[JOB_WORKERS];
    struct counts counts;
    size_t late_layers, corrected_layers; /* with elements */
};

static inline int is_absent(const struct story *story, size_t worker, uint64_t step, size_t layer)
{
    return story->absences && scramble(story->seed, worker + 100, step, layer) % 4 == 0;
}

static inline int corrects(const struct story *story, size_t worker, uint64_t step)
{
    return story->corrections && scramble(story->seed, worker + 200, step, 0) % 3 == 0;
}

static inline double rate_of(const struct story *story, uint64_t step)
{
    return story->rates && step >= 2 ? 0.0625 : 0.3;
}

/* ---- a worker ---- */

/* What is late is as the servers have it, or as it was predicted, and says which. */
static inline void note_version(struct story *story, struct weft_server *server, size_t worker,
                                uint64_t step, size_t layer)
{
    struct told *told = &story->told[worker];
    uint64_t version = weft_server_layer_version(server, layer);
    int corrected = told->late[step][layer] && version == step + 1;
    CHECK(!corrected || story->config.osp_correction == WEFT_OSP_BEFORE_LAYER);
    CHECK(version == (told->late[step][layer] && !corrected ? step : step + 1));
    told->corrected[step][layer] = (unsigned char)corrected;
}

static inline void wait_all(struct story *story, struct weft_server *server,
                            struct weft_context *context, size_t worker, struct draw *draw)
{
    size_t order[JOB_LAYERS];
    uint64_t step = weft_server_next(server);
    shuffle(draw, order, story->shape.layers);
    for (size_t i = 0; i < story->shape.layers; i++) {
        if (story->pauses && draw_below(draw, 4) == 0)
            OK(weft_context_sleep(context, draw_below(draw, 400000)));
        OK(weft_server_wait(server, order[i]));
        if (story->config.sync == WEFT_SERVER_OSP || i + 1 == story->shape.layers)
            note_version(story, server, worker, step, order[i]);
    }
}

static inline void announce_all(struct story *story, struct weft_server *server,
                                struct weft_context *context, const struct tensors *tensors,
                                size_t worker, struct draw *draw)
{
    size_t order[JOB_LAYERS];
    uint64_t step = weft_server_next(server);
    shuffle(draw, order, story->shape.layers);
    for (size_t i = 0; i < story->shape.layers; i++) {
        if (story->pauses && draw_below(draw, 4) == 0)
            OK(weft_context_sleep(context, draw_below(draw, 400000)));
        if (is_absent(story, worker, step, order[i])) {
            OK(weft_server_absent(server, order[i]));
            continue;
        }
        fill_layer(tensors, story->config.push == WEFT_SERVER_MODELS, story->seed, worker, step,
                   order[i]);
        count_pushed(&story->told[worker].counts, tensors, order[i]);
        OK(weft_server_ready(server, order[i]));
    }
    for (size_t l = 0; l < story->shape.layers; l++) {
        story->told[worker].late[step][l] = (unsigned char)weft_server_layer_late(server, l);
        CHECK(weft_server_layer_late(server, l) == 0 || story->config.sync == WEFT_SERVER_OSP);
    }
    wait_all(story, server, context, worker, draw);
}

static inline void check_result(struct story *story, struct weft_server *server, size_t worker,
                                uint64_t step)
{
    struct weft_server_result result = {.struct_size = sizeof result};
    size_t element = weft_dtype_size(story->config.dtype), late = 0, bytes = 0;
    OK(weft_server_get_result(server, &result));
    count_result(&story->told[worker].counts, &result);
    CHECK(result.step == step && result.version == step + 1);
    CHECK(weft_server_next(server) == step + 1);
    for (size_t l = 0; l < story->shape.layers; l++) {
        size_t count = story->shape.first[l + 1] - story->shape.first[l];
        int is_late = story->told[worker].late[step][l];
        CHECK(!is_late || count);
        late += (size_t)is_late;
        bytes += is_late ? count * element : 0;
        if (!is_late)
            CHECK(weft_server_layer_version(server, l) == step + 1);
    }
    CHECK(result.bytes == story->shape.elements * element);
    CHECK(result.late_layers == late && result.late_bytes == bytes);
    CHECK(result.staleness == (late > 0));
}

static inline void keep_model(const struct story *story, const struct tensors *tensors, double **to)
{
    *to = calloc(story->shape.elements + 1, sizeof **to);
    CHECK(*to);
    tensors_read(tensors, *to);
}

static inline void work(struct story *story, struct weft_server *server,
                        struct weft_context *context, const struct tensors *tensors)
{
    size_t worker = (size_t)weft_context_rank(context);
    struct draw draw = {scramble(story->seed, worker, 77, 0)};
    for (uint64_t step = 0; step < (uint64_t)story->steps; step++) {
        CHECK(weft_server_next(server) == step);
        if (story->rates && step == 2)
            OK(weft_server_set_rate(server, rate_of(story, step)));
        if (story->pauses)
            OK(weft_context_sleep(context, draw_below(&draw, 1000000)));
        if (story->shape.layers)
            announce_all(story, server, context, tensors, worker, &draw);
        else
            OK(weft_server_step(server, NULL));
        check_result(story, server, worker, step);
        if (corrects(story, worker, step))
            OK(weft_server_correct(server));
        keep_model(story, tensors, &story->told[worker].x[step]);
    }
    OK(weft_server_correct(server));
    keep_model(story, tensors, &story->told[worker].last);
}

static inline int play_story(struct weft_context *context, void *user)
{
    struct story *story = user;
    struct weft_server *server = NULL;
    struct weft_server_config config = story->config;
    struct tensors tensors;
    int rank = weft_context_rank(context);
    tensors_make(&tensors, &story->shape, config.dtype);
    for (size_t i = 0; i < story->shape.elements; i++)
        piece_put(tensors.x, config.dtype, i, initial_value(i));
    tensors_bind(&tensors, &config);
    config.weight = rank < JOB_WORKERS ? story->weights[rank] : 0;
    if (config.push == WEFT_SERVER_GRADIENTS)
        config.rate = rate_of(story, 0);
    OK(weft_server_create(&server, context, &config));
    CHECK(weft_server_workers(server) == (int)story->workers);
    if (weft_server_is_worker(server))
        work(story, server, context, &tensors);
    else
        OK(weft_server_serve(server, WEFT_NEVER));
    collect_counts(&story->counts, server, rank < JOB_WORKERS ? &story->told[rank].counts : NULL,
                   config.sync == WEFT_SERVER_OSP);
    OK(weft_server_destroy(server));
    tensors_free(&tensors);
    return WEFT_OK;
}

/* ---- what it should be ---- */

/* An element of the model: of the servers, and of each worker. */
struct element {
    weft_dtype_t dtype;
    double is, was, v, last, average;
    double x[JOB_WORKERS], own_v[JOB_WORKERS], pushed[JOB_WORKERS];
    int has[JOB_WORKERS];
};

static inline void push_element(const struct story *story, struct element *e, size_t w,
                                uint64_t step, size_t at, size_t layer)
{
    const struct weft_server_config *config = &story->config;
    double m = rounded(e->dtype, config->momentum);
    double r = rounded(e->dtype, rate_of(story, step));
    double g = gradient_of(e->dtype, story->seed, w, step, at, e->x[w]);
    e->has[w] = !is_absent(story, w, step, layer);
    e->pushed[w] = g;
    if (config->push == WEFT_SERVER_MODELS) {
        if (e->has[w])
            e->x[w] = rounded(e->dtype, e->x[w] - 0.25 * g);
        e->pushed[w] = e->x[w];
    } else if (config->optimiser == WEFT_WORKER_UPDATES && e->has[w]) {
        if (config->momentum > 0)
            e->own_v[w] = g = rounded(e->dtype, rounded(e->dtype, m * e->own_v[w]) + g);
        e->pushed[w] = -rounded(e->dtype, r * g);
    }
}

/* The mean, in the order of the workers. A gradient that was not pushed is zero, a model none. */
static inline double mean_of(const struct story *story, const struct element *e, int *any)
{
    size_t count = 0;
    int equal = 1, models = story->config.push == WEFT_SERVER_MODELS;
    double sum = 0, weights = 0, pushed = 0;
    for (size_t w = 0; w < story->workers; w++) {
        equal &= story->weights[w] == story->weights[0];
        weights += story->weights[w];
        pushed += e->has[w] ? story->weights[w] : 0;
        count += (size_t)e->has[w];
    }
    *any = count > 0;
    for (size_t w = 0, first = 1; w < story->workers; w++) {
        double by = equal ? 1 : story->weights[w] / weights * (double)story->workers;
        if (!e->has[w])
            continue;
        if (count < story->workers && models)
            by = equal ? 1 : story->weights[w] / pushed * (double)count;
        double term = rounded(e->dtype, rounded(e->dtype, by) * e->pushed[w]);
        sum = first ? term : rounded(e->dtype, sum + term);
        first = 0;
    }
    return count ? rounded(e->dtype, sum / (double)(models ? count : story->workers)) : 0;
}

static inline void update_element(const struct story *story, struct element *e, uint64_t step)
{
    const struct weft_server_config *config = &story->config;
    int any;
    double mean = mean_of(story, e, &any), r = rounded(e->dtype, rate_of(story, step));
    e->was = e->is;
    if (config->push == WEFT_SERVER_MODELS) {
        e->is = any ? mean : e->is;
    } else if (config->optimiser == WEFT_WORKER_UPDATES) {
        e->is = rounded(e->dtype, e->is + mean);
    } else {
        if (config->momentum > 0)
            e->v = mean = rounded(
                e->dtype, rounded(e->dtype, rounded(e->dtype, config->momentum) * e->v) + mean);
        e->is = rounded(e->dtype, e->is - rounded(e->dtype, r * mean));
    }
}

/* How the servers' parameters change, which is known before the next prediction. */
static inline void change_element(const struct story *story, struct element *e)
{
    double b = rounded(e->dtype, story->config.osp_average);
    double rest = rounded(e->dtype, 1 - story->config.osp_average);
    e->last = rounded(e->dtype, e->is - e->was);
    e->average =
        rounded(e->dtype, rounded(e->dtype, b * e->average) + rounded(e->dtype, rest * e->last));
}

static inline double prediction(const struct story *story, const struct element *e, size_t w,
                                uint64_t step)
{
    const struct weft_server_config *config = &story->config;
    weft_dtype_t dtype = e->dtype;
    int own = config->optimiser == WEFT_WORKER_UPDATES;
    double b = rounded(dtype, config->osp_average), rest = rounded(dtype, 1 - config->osp_average);
    double g = e->has[w] ? e->pushed[w] : 0;
    double p = own ? g : -rounded(dtype, rounded(dtype, rate_of(story, step)) * g);
    if (config->momentum > 0 && !own)
        p = rounded(dtype, rounded(dtype, rounded(dtype, config->momentum) * e->last) + p);
    if (config->osp_average > 0)
        p = rounded(dtype, rounded(dtype, b * e->average) + rounded(dtype, rest * p));
    return p;
}

static inline void compare(const struct story *story, size_t worker, uint64_t step, size_t at,
                           double is, double expected)
{
    /* Sums of weights that are no powers of two may be rounded in other ways. */
    int models = story->config.push == WEFT_SERVER_MODELS;
    double bound = story->absences && models ? 1e-5 * (1 + fabs(expected)) : 0;
    if (fabs(is - expected) <= bound)
        return;
    fprintf(stderr,
            "seed %llu: worker %zu of %zu, step %llu: element %zu is %.17g, expected %.17g\n",
            (unsigned long long)story->seed, worker, story->workers, (unsigned long long)step, at,
            is, expected);
    abort();
}

static inline void judge_element(const struct story *story, size_t at, size_t layer)
{
    struct element e = {.dtype = story->config.dtype,
                        .is = rounded(story->config.dtype, initial_value(at))};
    for (size_t w = 0; w < story->workers; w++)
        e.x[w] = e.is;
    for (uint64_t step = 0; step < (uint64_t)story->steps; step++) {
        for (size_t w = 0; w < story->workers; w++)
            push_element(story, &e, w, step, at, layer);
        if (step)
            change_element(story, &e);
        double before = e.is;
        update_element(story, &e, step);
        for (size_t w = 0; w < story->workers; w++) {
            const struct told *told = &story->told[w];
            int late = told->late[step][layer];
            double predicted = rounded(e.dtype, before + prediction(story, &e, w, step));
            late &= !told->corrected[step][layer] && !corrects(story, w, step);
            e.x[w] = late ? predicted : e.is;
            compare(story, w, step, at, told->x[step][at], e.x[w]);
        }
    }
    for (size_t w = 0; w < story->workers; w++)
        compare(story, w, (uint64_t)story->steps, at, story->told[w].last[at], e.is);
}

static inline void judge_story(struct story *story)
{
    for (size_t l = 0; l < story->shape.layers; l++)
        for (size_t i = story->shape.first[l]; i < story->shape.first[l + 1]; i++)
            judge_element(story, i, l);
    story->late_layers = story->corrected_layers = 0;
    for (size_t w = 0; w < story->workers; w++) {
        struct told *told = &story->told[w];
        CHECK(memcmp(told->late, story->told[0].late, sizeof told->late) == 0);
        for (int t = 0; t < story->steps; t++) {
            free(told->x[t]);
            for (size_t l = 0; l < story->shape.layers; l++) {
                story->late_layers += told->late[t][l];
                story->corrected_layers += told->corrected[t][l];
            }
        }
        free(told->last);
    }
}

/* ---- stories ---- */

static inline void tell(struct story *story)
{
    struct weft_virtual_config config = rough(story->seed);
    tell_seed(story->seed);
    const struct weft_server_config *given = &story->config;
    int both = given->place == WEFT_SERVER_COLOCATED || story->ranks == 1;
    story->workers = (size_t)(story->ranks - (both ? 0 : given->servers ? given->servers : 1));
    CHECK(story->workers <= JOB_WORKERS && story->steps <= TOGETHER_STEPS);
    memset(story->told, 0, sizeof story->told);
    memset(&story->counts, 0, sizeof story->counts);
    int status = weft_virtual_run(story->ranks, &config, play_story, story);
    if (status) {
        fprintf(stderr, "seed %llu, %d ranks: %s: %s\n", (unsigned long long)story->seed,
                story->ranks, weft_status_name(status), weft_error_text());
        abort();
    }
    judge_story(story);
    if (!both) {
        size_t bytes = story->shape.elements * weft_dtype_size(given->dtype);
        CHECK(story->counts.steps == story->workers * (uint64_t)story->steps);
        judge_counts(&story->counts, given, bytes, (uint64_t)story->steps);
    }
}

static inline struct story new_story(uint64_t seed, size_t workers)
{
    struct draw draw = {seed};
    struct story story = {.seed = seed, .steps = 5, .workers = workers};
    weft_server_config_init(&story.config);
    story.config.dtype = seed % 2 ? WEFT_F32 : WEFT_F64;
    story.shape = shape_draw(&draw, 0);
    story.config.servers = 1 + (int)draw_below(&draw, 3);
    story.config.place = draw_below(&draw, 2) ? WEFT_SERVER_COLOCATED : WEFT_SERVER_APART;
    if (story.config.place == WEFT_SERVER_COLOCATED && (size_t)story.config.servers > workers)
        story.config.servers = (int)workers;
    story.ranks =
        (int)workers + (story.config.place == WEFT_SERVER_APART ? story.config.servers : 0);
    story.config.split_bytes = draw_below(&draw, 2) ? 1 + draw_below(&draw, 300) : 0;
    /* Of an element on, but not of thousands of pieces. */
    story.config.merge_bytes =
        draw_below(&draw, 2) ? 1 + story.shape.elements / 16 + draw_below(&draw, 300) : 0;
    story.config.momentum = draw_below(&draw, 2) ? 0.9 : 0;
    story.config.flow = (weft_server_flow_t)draw_below(&draw, 3);
    story.config.turns = (int)draw_below(&draw, 3);
    story.config.segment_bytes = 8 + draw_below(&draw, 200);
    story.config.window = 1 + (int)draw_below(&draw, 3);
    story.config.optimiser = draw_below(&draw, 4) ? WEFT_SERVER_UPDATES : WEFT_WORKER_UPDATES;
    story.pauses = (int)draw_below(&draw, 2);
    story.rates = (int)draw_below(&draw, 2);
    int equal = (int)draw_below(&draw, 3);
    for (size_t w = 0; w < JOB_WORKERS; w++)
        story.weights[w] = equal ? 3 : 1 + draw_below(&draw, 5);
    return story;
}

#endif
