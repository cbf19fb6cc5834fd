/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Trainings on virtual ranks whose workers go each at its own pace: ASP, SSP, DSSP, R2SP. What
 * workers are told of versions and staleness says in which order their pushes have been applied:
 *
 *     place of a push = version of the pull before + staleness + 1
 *
 * All places together must be 1, 2, 3 ... without a gap; and a loop that applies the pushes in that
 * order must have, at each version that was pulled, every element of the model bit by bit. So no
 * update is lost, applied twice, or in a pull by half.
 */
#ifndef WEFT_TESTS_SERVER_APART_H
#define WEFT_TESTS_SERVER_APART_H

#include "server_job.h"

enum { APART_STEPS = 12, APART_PUSHES = JOB_WORKERS * APART_STEPS };

struct apart_worker {
    int steps; /* that it takes */
    int taken;
    int announced; /* steps of which all layers have been */
    int left;
    double weight;
    uint64_t versions[APART_STEPS + 1]; /* of its pulls; the first: of what it began with */
    uint64_t places[APART_STEPS];       /* of its pushes */
    double *x[APART_STEPS];
    struct worker_counts counts;
};

struct apart {
    uint64_t seed;
    int ranks;
    size_t workers;
    struct weft_server_config config;
    struct shape shape;
    uint64_t slow_ns;
    int absences;
    uint64_t ahead;     /* of who begins a step, the most */
    uint64_t staleness; /* of a push, the most */
    int leave_early;    /* 1: workers take unequal numbers of steps */
    struct apart_worker told[JOB_WORKERS];
    struct counts counts;
};

static inline int apart_absent(const struct apart *apart, size_t worker, uint64_t step,
                               size_t layer)
{
    if (!apart->absences)
        return 0;
    return scramble(apart->seed, worker + 100, step, JOB_LAYERS) % 5 == 0 ||
           scramble(apart->seed, worker + 100, step, layer) % 4 == 0;
}

static inline double apart_rate(const struct apart *apart, size_t worker, uint64_t step)
{
    return (double)(1 + scramble(apart->seed, worker + 300, step / 3, 0) % 7) / 8;
}

/* ---- a worker ---- */

/* What every synchronisation model promises to whoever begins a step. */
static inline void check_ahead(struct apart *apart, size_t worker)
{
    const struct apart_worker *me = &apart->told[worker];
    const struct weft_server_config *config = &apart->config;
    for (size_t w = 0; w < apart->workers; w++) {
        const struct apart_worker *other = &apart->told[w];
        if (other->left || other->announced >= me->taken)
            continue;
        uint64_t ahead = (uint64_t)(me->taken - other->announced);
        if (ahead > apart->ahead)
            apart->ahead = ahead;
        if (config->sync == WEFT_SERVER_SSP)
            CHECK(ahead <= config->staleness);
        if (config->sync == WEFT_SERVER_DSSP)
            CHECK(ahead <= config->staleness_most);
        if (config->sync == WEFT_SERVER_R2SP && apart->shape.elements)
            CHECK(ahead <= 1);
    }
}

static inline void apart_announce(struct apart *apart, struct weft_server *server,
                                  const struct tensors *tensors, size_t worker, struct draw *draw)
{
    uint64_t step = weft_server_next(server);
    size_t order[JOB_LAYERS];
    shuffle(draw, order, apart->shape.layers);
    for (size_t n = 0; n < apart->shape.layers; n++) {
        size_t l = order[n];
        if (apart_absent(apart, worker, step, l)) {
            OK(weft_server_absent(server, l));
            continue;
        }
        fill_layer(tensors, apart->config.push == WEFT_SERVER_MODELS, apart->seed, worker, step, l);
        count_pushed(&apart->told[worker].counts, tensors, l);
        OK(weft_server_ready(server, l));
    }
}

/* docs/servers.md: updates of others between a pull and the push that is computed on it. */
static inline void check_staleness(const struct apart *apart, uint64_t staleness, int first)
{
    const struct weft_server_config *config = &apart->config;
    uint64_t others = apart->workers - 1;
    if (config->sync == WEFT_SERVER_SSP)
        CHECK(staleness <= (2 * config->staleness + 1) * others);
    if (config->sync == WEFT_SERVER_DSSP)
        CHECK(staleness <= (2 * config->staleness_most + 1) * others);
    if (config->sync == WEFT_SERVER_R2SP && apart->shape.elements) {
        CHECK(staleness <= others);
        CHECK(apart->leave_early || first || staleness == others);
    }
    CHECK(apart->workers > 1 || staleness == 0);
}

static inline void apart_note(struct apart *apart, struct weft_server *server,
                              const struct tensors *tensors, struct apart_worker *me)
{
    struct weft_server_result result = {.struct_size = sizeof result};
    OK(weft_server_get_result(server, &result));
    count_result(&me->counts, &result);
    CHECK(result.step == (uint64_t)me->taken);
    CHECK(result.version > me->versions[me->taken]);
    for (size_t l = 0; l < apart->shape.layers; l++)
        CHECK(weft_server_layer_version(server, l) == result.version);
    check_staleness(apart, result.staleness, me->taken == 0);
    if (result.staleness > apart->staleness)
        apart->staleness = result.staleness;
    me->places[me->taken] = me->versions[me->taken] + result.staleness + 1;
    CHECK(me->places[me->taken] <= result.version);
    if (apart->config.sync == WEFT_SERVER_ASP || apart->config.sync == WEFT_SERVER_R2SP)
        CHECK(me->places[me->taken] == result.version);
    me->x[me->taken] = calloc(apart->shape.elements + 1, sizeof(double));
    CHECK(me->x[me->taken]);
    tensors_read(tensors, me->x[me->taken]);
    me->versions[++me->taken] = result.version;
}

static inline void apart_work(struct apart *apart, struct weft_server *server,
                              struct weft_context *context, const struct tensors *tensors)
{
    size_t worker = (size_t)weft_context_rank(context);
    struct apart_worker *me = &apart->told[worker];
    struct draw draw = {scramble(apart->seed, worker, 78, 0)};
    unsigned slow = 1 + draw_below(&draw, 5);
    for (uint64_t step = 0; step < (uint64_t)me->steps; step++) {
        if (apart->slow_ns)
            OK(weft_context_sleep(context, slow * draw_below(&draw, (unsigned)apart->slow_ns)));
        if (apart->config.push == WEFT_SERVER_GRADIENTS)
            OK(weft_server_set_rate(server, apart_rate(apart, worker, step)));
        check_ahead(apart, worker);
        if (apart->shape.layers)
            apart_announce(apart, server, tensors, worker, &draw);
        me->announced++;
        OK(weft_server_step(server, NULL));
        apart_note(apart, server, tensors, me);
    }
}

static inline int play_apart(struct weft_context *context, void *user)
{
    struct apart *apart = user;
    struct weft_server *server = NULL;
    struct weft_server_config config = apart->config;
    struct weft_server_stats stats = {.struct_size = sizeof stats};
    struct tensors tensors;
    int rank = weft_context_rank(context);
    tensors_make(&tensors, &apart->shape, config.dtype);
    for (size_t i = 0; i < apart->shape.elements; i++)
        piece_put(tensors.x, config.dtype, i, initial_value(i));
    tensors_bind(&tensors, &config);
    config.weight = rank < (int)apart->workers ? apart->told[rank].weight : 0;
    OK(weft_server_create(&server, context, &config));
    if (weft_server_is_worker(server)) {
        apart_work(apart, server, context, &tensors);
        apart->told[rank].left = 1;
    } else {
        OK(weft_server_serve(server, WEFT_NEVER));
    }
    collect_counts(&apart->counts, server, &apart->told[rank].counts, 0);
    OK(weft_server_get_stats(server, &stats));
    if (config.sync == WEFT_SERVER_SSP)
        CHECK(stats.ahead_most <= config.staleness + 1);
    if (config.sync == WEFT_SERVER_DSSP)
        CHECK(stats.ahead_most <= config.staleness_most + 1);
    OK(weft_server_destroy(server));
    tensors_free(&tensors);
    return WEFT_OK;
}

/* ---- what it should be ---- */

struct push_of {
    size_t worker;
    int step;
};

/* Puts all pushes in their order; returns how many. */
static inline size_t order_pushes(const struct apart *apart, struct push_of *order)
{
    size_t count = 0;
    unsigned char seen[APART_PUSHES + 1] = {0};
    for (size_t w = 0; w < apart->workers; w++)
        count += (size_t)apart->told[w].taken;
    for (size_t w = 0; w < apart->workers; w++)
        for (int t = 0; t < apart->told[w].taken; t++) {
            uint64_t place = apart->told[w].places[t];
            CHECK(place >= 1 && place <= count && !seen[place]++);
            order[place] = (struct push_of){w, t};
        }
    return count;
}

/* R2SP: round after round, in the order of the workers that take part. */
static inline void check_rounds(const struct apart *apart, const struct push_of *order)
{
    size_t place = 1;
    for (int t = 0; t < APART_STEPS; t++)
        for (size_t w = 0; w < apart->workers; w++)
            if (t < apart->told[w].taken) {
                CHECK(order[place].worker == w && order[place].step == t);
                place++;
            }
}

static inline double share_of(const struct apart *apart, size_t worker, double scale)
{
    int equal = 1;
    double sum = 0;
    for (size_t w = 0; w < apart->workers; w++) {
        sum += apart->told[w].weight;
        equal &= apart->told[w].weight == apart->told[0].weight;
    }
    double by = equal ? 1 : apart->told[worker].weight / sum * (double)apart->workers;
    return rounded(apart->config.dtype, scale * by / (double)apart->workers);
}

/* Momentum counts by the step of all workers: what is left of it after one push. */
static inline double momentum_by_push(const struct apart *apart)
{
    return pow(apart->config.momentum, 1.0 / (double)apart->workers);
}

struct apart_element {
    weft_dtype_t dtype;
    double v, own_v[JOB_WORKERS];
    double versions[APART_PUSHES + 1]; /* what it was */
};

/* What a push makes of an element. */
static inline double pushed(const struct apart *apart, struct apart_element *e, size_t w, int step,
                            size_t at, double now)
{
    const struct weft_server_config *config = &apart->config;
    weft_dtype_t dtype = e->dtype;
    double base = e->versions[apart->told[w].versions[step]];
    double g = gradient_of(dtype, apart->seed, w, (uint64_t)step, at, base);
    double share = share_of(apart, w, 1), r = rounded(dtype, apart_rate(apart, w, (uint64_t)step));
    double m = rounded(dtype, config->momentum);
    if (config->push == WEFT_SERVER_MODELS) {
        double model = rounded(dtype, base - 0.25 * g);
        return rounded(dtype, now + rounded(dtype, share * rounded(dtype, model - now)));
    }
    if (config->optimiser == WEFT_WORKER_UPDATES) {
        if (config->momentum > 0)
            e->own_v[w] = g = rounded(dtype, rounded(dtype, m * e->own_v[w]) + g);
        return rounded(dtype, now + rounded(dtype, share * -rounded(dtype, r * g)));
    }
    if (config->momentum > 0) {
        m = momentum_by_push(apart);
        share = share_of(apart, w, (1 - m) / (1 - config->momentum));
        m = rounded(dtype, m);
    }
    double speed = rounded(dtype, share * g);
    if (config->momentum > 0)
        e->v = speed = rounded(dtype, rounded(dtype, m * e->v) + speed);
    return rounded(dtype, now - rounded(dtype, r * speed));
}

static inline void judge_at(const struct apart *apart, const struct push_of *order, size_t count,
                            size_t at, size_t layer)
{
    struct apart_element e = {.dtype = apart->config.dtype};
    e.versions[0] = rounded(e.dtype, initial_value(at));
    for (size_t p = 1; p <= count; p++) {
        size_t w = order[p].worker;
        int step = order[p].step;
        double now = e.versions[p - 1];
        e.versions[p] = apart_absent(apart, w, (uint64_t)step, layer)
                            ? now
                            : pushed(apart, &e, w, step, at, now);
    }
    for (size_t w = 0; w < apart->workers; w++)
        for (int t = 0; t < apart->told[w].taken; t++) {
            double is = apart->told[w].x[t][at];
            double expected = e.versions[apart->told[w].versions[t + 1]];
            if (is == expected)
                continue;
            fprintf(stderr,
                    "seed %llu: worker %zu, step %d, version %d: element %zu is %.17g, expected "
                    "%.17g\n",
                    (unsigned long long)apart->seed, w, t, (int)apart->told[w].versions[t + 1], at,
                    is, expected);
            abort();
        }
}

static inline void judge_apart(struct apart *apart)
{
    struct push_of order[APART_PUSHES + 1];
    size_t count = order_pushes(apart, order);
    if (apart->config.sync == WEFT_SERVER_R2SP && apart->shape.elements)
        check_rounds(apart, order);
    for (size_t l = 0; l < apart->shape.layers; l++)
        for (size_t i = apart->shape.first[l]; i < apart->shape.first[l + 1]; i++)
            judge_at(apart, order, count, i, l);
    for (size_t w = 0; w < apart->workers; w++)
        for (int t = 0; t < apart->told[w].taken; t++)
            free(apart->told[w].x[t]);
}

/* ---- stories ---- */

static inline void tell_apart(struct apart *apart)
{
    struct weft_virtual_config config = rough(apart->seed);
    tell_seed(apart->seed);
    int status = weft_virtual_run(apart->ranks, &config, play_apart, apart);
    if (status) {
        fprintf(stderr, "seed %llu, %d ranks: %s: %s\n", (unsigned long long)apart->seed,
                apart->ranks, weft_status_name(status), weft_error_text());
        abort();
    }
    judge_apart(apart);
    if (apart->ranks > (int)apart->workers)
        judge_counts(&apart->counts, &apart->config,
                     apart->shape.elements * weft_dtype_size(apart->config.dtype),
                     apart->absences ? UINT64_MAX : apart->counts.steps);
}

static inline struct apart new_apart(uint64_t seed, weft_server_sync_t sync)
{
    static const size_t sizes[] = {1, 2, 3, 4, 5, 7, 8};
    struct draw draw = {seed};
    struct apart apart = {.seed = seed};
    struct weft_server_config *config = &apart.config;
    weft_server_config_init(config);
    apart.workers = sizes[draw_below(&draw, 7)];
    config->sync = sync;
    config->dtype = draw_below(&draw, 2) ? WEFT_F32 : WEFT_F64;
    config->servers = 1 + (int)draw_below(&draw, 3);
    config->place = draw_below(&draw, 2) ? WEFT_SERVER_COLOCATED : WEFT_SERVER_APART;
    if (config->place == WEFT_SERVER_COLOCATED && (size_t)config->servers > apart.workers)
        config->servers = (int)apart.workers;
    apart.ranks = (int)apart.workers + (config->place == WEFT_SERVER_APART ? config->servers : 0);
    apart.shape = shape_draw(&draw, 0);
    config->split_bytes = draw_below(&draw, 2) ? 1 + draw_below(&draw, 300) : 0;
    config->momentum = draw_below(&draw, 2) ? 0.75 : 0;
    config->flow = (weft_server_flow_t)draw_below(&draw, 3);
    config->turns = (int)draw_below(&draw, 3);
    config->segment_bytes = 8 + draw_below(&draw, 200);
    config->window = 1 + (int)draw_below(&draw, 3);
    config->optimiser = draw_below(&draw, 4) ? WEFT_SERVER_UPDATES : WEFT_WORKER_UPDATES;
    config->staleness = draw_below(&draw, 4);
    config->staleness_most = config->staleness + draw_below(&draw, 4);
    apart.slow_ns = draw_below(&draw, 3) ? 1 + draw_below(&draw, 400000) : 0;
    int equal = (int)draw_below(&draw, 2), unequal_steps = (int)draw_below(&draw, 2);
    for (size_t w = 0; w < apart.workers; w++) {
        apart.told[w].weight = equal ? 2 : 1 + draw_below(&draw, 4);
        apart.told[w].steps = unequal_steps ? (int)draw_below(&draw, APART_STEPS) : 6;
    }
    apart.leave_early = unequal_steps;
    return apart;
}

#endif
