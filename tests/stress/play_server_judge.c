/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What workers should have pulled from parameter servers in a play (play_server.h).
 *
 * BSP, OSP: the training is done again, step by step, with those who took part in each. The others:
 * what a worker has pulled says how many steps of each worker are in it, the same of all layers;
 * together they are its version, and each is where the synchronisation model lets it be. With a
 * velocity of the servers it does not; then there are bounds. What has the same version is the
 * same, whoever has pulled it.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "play_server.h"

/* For the judgement of an object. */
struct judge {
    const struct play_object *object;
    const struct server *server;
    char *text;
    double total[PLAY_RANKS][SERVER_LAYERS][PLAY_STEPS + 1]; /* of a worker's first steps */
    /* BSP, OSP. */
    double model[SERVER_COUNT], before[SERVER_COUNT], velocity[SERVER_COUNT], average[SERVER_COUNT];
};

static int wrong(const struct judge *judge, const char *format, ...) WEFT_PRINTF(2, 3);
static int wrong(const struct judge *judge, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(judge->text, PLAY_TEXT, format, arguments);
    va_end(arguments);
    return 0;
}

static int is_near(double is, double expected)
{
    return fabs(is - expected) <= 1e-9 * (1 + fabs(expected));
}

static int merges(const struct server *server)
{
    return server->config.sync == WEFT_SERVER_BSP || server->config.sync == WEFT_SERVER_OSP;
}

static int has_velocity(const struct server *server)
{
    return server->config.momentum > 0 && server->config.optimiser == WEFT_SERVER_UPDATES;
}

/* What a worker's optimiser makes of its gradients: what its pushes move the model by, not yet
 * weighted. Of other optimisers the gradient. */
static double pushed(const struct judge *judge, int rank, int step, int layer)
{
    const struct weft_server_config *config = &judge->server->config;
    int own = config->optimiser == WEFT_WORKER_UPDATES;
    double velocity = 0;
    for (int t = own ? 0 : step; t <= step; t++)
        if (server_pushes(judge->object, rank, t, layer))
            velocity = (own ? config->momentum * velocity : 0) + ldexp(1, t);
    if (!server_pushes(judge->object, rank, step, layer))
        return 0;
    return own ? server_rate(judge->server, step) * velocity : velocity;
}

/* In which steps it is known who took part: who has not come to a good end may have pushed in one
 * that it has not got through. */
static int known_steps(const struct play_object *object)
{
    const struct server *server = object->settings;
    int least = PLAY_STEPS;
    for (int r = 0; r < server->workers; r++)
        if (!server->ended[r] && object->taken[r] < least)
            least = object->taken[r];
    return least;
}

/* ---- BSP, OSP ---- */

/* Of the step; of models those count alone that are pushed. */
static double weights_of(const struct judge *judge, int step, int layer)
{
    const struct server *server = judge->server;
    double sum = 0;
    for (int r = 0; r < server->workers; r++)
        if (step < judge->object->taken[r] && (server->config.push == WEFT_SERVER_GRADIENTS ||
                                               server_pushes(judge->object, r, step, layer)))
            sum += server->weights[r];
    return sum;
}

/* What servers have after the step. */
static void advance(struct judge *judge, int step)
{
    const struct server *server = judge->server;
    const struct weft_server_config *config = &server->config;
    int servers = config->optimiser == WEFT_SERVER_UPDATES;
    double rate = servers ? server_rate(server, step) : 1;
    size_t at = 0;
    memcpy(judge->before, judge->model, sizeof judge->before);
    for (int l = 0; l < server_layers(server); l++) {
        double sum = weights_of(judge, step, l);
        for (size_t i = 0; i < server_counts[l]; i++, at++) {
            int owner = server_owner(server, l, i);
            double g = step < judge->object->taken[owner] && sum > 0
                           ? server->weights[owner] / sum * pushed(judge, owner, step, l)
                           : 0;
            judge->velocity[at] = (servers ? config->momentum * judge->velocity[at] : 0) + g;
            judge->model[at] -= rate * judge->velocity[at];
        }
    }
}

/* OSP: what a late element is taken for, from what the servers had before the step: `older` is what
 * they had a step before that. */
static double predicted(const struct judge *judge, const double *older, int rank, int step,
                        int layer, size_t at, size_t element)
{
    const struct weft_server_config *config = &judge->server->config;
    int own = config->optimiser == WEFT_WORKER_UPDATES;
    double g =
        server_owner(judge->server, layer, element) == rank ? pushed(judge, rank, step, layer) : 0;
    double change = own ? -g
                        : config->momentum * (judge->before[at] - older[at]) -
                              server_rate(judge->server, step) * g;
    if (config->osp_average > 0)
        change = config->osp_average * judge->average[at] + (1 - config->osp_average) * change;
    return judge->before[at] + change;
}

static int judge_layer(const struct judge *judge, const double *older, int rank, int step,
                       int layer, size_t at)
{
    const struct server_seen *seen = &judge->server->seen[rank][step];
    uint64_t now = (uint64_t)step + 1;
    int late = judge->server->config.sync == WEFT_SERVER_OSP && !seen->corrected &&
               seen->late_bytes > 0 && seen->versions[layer] + 1 == now;
    if (!late && seen->versions[layer] != now)
        return wrong(judge, "rank %d, step %d: layer %d has version %llu, expected %llu", rank,
                     step, layer, (unsigned long long)seen->versions[layer],
                     (unsigned long long)now);
    for (size_t i = 0; i < server_counts[layer]; i++) {
        double expected =
            late ? predicted(judge, older, rank, step, layer, at + i, i) : judge->model[at + i];
        if (!is_near(seen->model[at + i], expected))
            return wrong(judge,
                         "rank %d, step %d, layer %d%s: element %zu is %.17g, expected %.17g", rank,
                         step, layer, late ? ", late" : "", i, seen->model[at + i], expected);
    }
    return 1;
}

/* How many bytes may be late, and the same on all. */
static int judge_late(const struct judge *judge, int rank, int step, int first)
{
    const struct weft_server_config *config = &judge->server->config;
    const struct server_seen *seen = &judge->server->seen[rank][step];
    const uint64_t other = judge->server->seen[first][step].late_bytes;
    double share = config->osp_share != 0  ? fmax(config->osp_share, 0)
                   : !judge->server->tells ? 0
                   : config->osp_most > 0  ? config->osp_most
                                           : 0.8;
    if (config->sync != WEFT_SERVER_OSP || step == 0)
        share = 0;
    if ((double)seen->late_bytes > share * SERVER_COUNT * sizeof(double))
        return wrong(judge, "rank %d, step %d: %llu bytes are late, expected %g of all at most",
                     rank, step, (unsigned long long)seen->late_bytes, share);
    if (seen->late_bytes != other)
        return wrong(judge, "step %d: %llu bytes of rank %d are late, %llu of rank %d", step,
                     (unsigned long long)seen->late_bytes, rank, (unsigned long long)other, first);
    return 1;
}

static int judge_merged(struct judge *judge, int steps)
{
    const struct server *server = judge->server;
    double older[SERVER_COUNT];
    for (int t = 0; t < steps; t++) {
        memcpy(older, judge->before, sizeof older);
        advance(judge, t);
        int first = -1;
        for (int r = 0; r < server->workers; r++) {
            if (judge->object->taken[r] <= t)
                continue;
            first = first < 0 ? r : first;
            size_t at = 0;
            if (server->seen[r][t].version != (uint64_t)t + 1)
                return wrong(judge, "rank %d, step %d: version %llu", r, t,
                             (unsigned long long)server->seen[r][t].version);
            for (int l = 0; l < server_layers(server); at += server_counts[l++])
                if (!judge_layer(judge, older, r, t, l, at))
                    return 0;
            if (!judge_late(judge, r, t, first))
                return 0;
        }
        for (size_t i = 0; i < SERVER_COUNT; i++)
            judge->average[i] =
                server->config.osp_average * judge->average[i] +
                (1 - server->config.osp_average) * (judge->model[i] - judge->before[i]);
    }
    return 1;
}

/* ---- ASP and its relatives ---- */

static void add_up(struct judge *judge)
{
    const struct server *server = judge->server;
    double sum = 0;
    for (int r = 0; r < server->workers; r++)
        sum += server->weights[r];
    for (int r = 0; r < server->workers; r++)
        for (int l = 0; l < SERVER_LAYERS; l++)
            for (int t = 0; t < PLAY_STEPS; t++) {
                double rate =
                    server->config.optimiser == WEFT_SERVER_UPDATES ? server_rate(server, t) : 1;
                judge->total[r][l][t + 1] = judge->total[r][l][t] + rate * server->weights[r] /
                                                                        sum *
                                                                        pushed(judge, r, t, l);
            }
}

/* How many steps of a worker may be in what was seen. */
struct range {
    int least, most;
};

static int fits(const struct judge *judge, const struct server_seen *seen, int rank, int steps)
{
    size_t at = 0;
    for (int l = 0; l < server_layers(judge->server); l++)
        for (size_t i = 0; i < server_counts[l]; i++, at++)
            if (server_owner(judge->server, l, i) == rank &&
                !is_near(-seen->model[at], judge->total[rank][l][steps]))
                return 0;
    return 1;
}

/* A velocity of all workers moves parameters on with each push: at most so far. */
static int is_bounded(const struct judge *judge, const struct server_seen *seen)
{
    const struct weft_server_config *config = &judge->server->config;
    size_t at = 0;
    for (int l = 0; l < server_layers(judge->server); l++)
        for (size_t i = 0; i < server_counts[l]; i++, at++) {
            int owner = server_owner(judge->server, l, i);
            double most = judge->total[owner][l][PLAY_STEPS] * 4 / (1 - config->momentum);
            if (!(seen->model[at] <= 0 && -seen->model[at] <= most * (1 + 1e-9)))
                return 0;
        }
    return 1;
}

/* Where the synchronisation model lets another worker be when `rank` has ended a step. */
static struct range allowed(const struct judge *judge, int rank, int step, int other)
{
    const struct weft_server_config *config = &judge->server->config;
    const int taken = judge->object->taken[other];
    struct range range = {0, PLAY_STEPS};
    if (other == rank)
        return (struct range){step + 1, step + 1};
    if (config->sync == WEFT_SERVER_SSP || config->sync == WEFT_SERVER_DSSP) {
        int ahead =
            (int)(config->sync == WEFT_SERVER_SSP ? config->staleness : config->staleness_most);
        range = (struct range){step + 1 - ahead, step + 2 + ahead};
    } else if (config->sync == WEFT_SERVER_R2SP && server_layers(judge->server)) {
        /* Who has nothing to push takes no turn. */
        range.least = range.most = other < rank ? step + 1 : step;
    }
    if (range.least > taken) /* it has left, or failed */
        range.least = taken;
    if (range.least < 0)
        range.least = 0;
    if (range.most > taken + (taken < PLAY_STEPS))
        range.most = taken + (taken < PLAY_STEPS);
    return range;
}

static int judge_staleness(const struct judge *judge, int rank, int step)
{
    const struct server *server = judge->server;
    const struct server_seen *seen = &server->seen[rank][step];
    uint64_t before = step ? server->seen[rank][step - 1].version : 0;
    /* Who has pulled nothing and goes on from a state counts from there. */
    int anew = step == 0 && server->restart[rank] == 0;
    int at_once = !anew && (server->config.sync == WEFT_SERVER_ASP ||
                            server->config.sync == WEFT_SERVER_R2SP);
    if (seen->version <= before)
        return wrong(judge, "rank %d, step %d: version %llu after %llu", rank, step,
                     (unsigned long long)seen->version, (unsigned long long)before);
    uint64_t between = seen->version - before - 1;
    if (at_once ? seen->staleness != between : seen->staleness > between)
        return wrong(judge, "rank %d, step %d: staleness %llu, version %llu after %llu", rank, step,
                     (unsigned long long)seen->staleness, (unsigned long long)seen->version,
                     (unsigned long long)before);
    return 1;
}

static int judge_pulled(const struct judge *judge, int rank, int step)
{
    const struct server *server = judge->server;
    const struct server_seen *seen = &server->seen[rank][step];
    int velocity = has_velocity(server);
    uint64_t least = 0, most = 0;
    if (velocity && !is_bounded(judge, seen))
        return wrong(judge, "rank %d, step %d: a parameter is out of bounds", rank, step);
    for (int o = 0; o < server->workers; o++) {
        struct range range = allowed(judge, rank, step, o);
        while (!velocity && range.least <= range.most && !fits(judge, seen, o, range.least))
            range.least++;
        while (!velocity && range.least < range.most && !fits(judge, seen, o, range.most))
            range.most--;
        if (range.least > range.most)
            return wrong(judge,
                         "rank %d, step %d: parameters of rank %d are of no step that may be", rank,
                         step, o);
        least += (uint64_t)range.least;
        most += (uint64_t)range.most;
    }
    if (seen->version < least || seen->version > most)
        return wrong(judge, "rank %d, step %d: version %llu, of the parameters it is %llu to %llu",
                     rank, step, (unsigned long long)seen->version, (unsigned long long)least,
                     (unsigned long long)most);
    return judge_staleness(judge, rank, step);
}

/* Whoever has pulled a version, it is the same. */
static int judge_same(const struct judge *judge, int rank, int step)
{
    const struct server_seen *seen = &judge->server->seen[rank][step];
    for (int r = 0; r < rank; r++)
        for (int t = 0; t < judge->object->taken[r]; t++) {
            const struct server_seen *other = &judge->server->seen[r][t];
            if (other->version == seen->version &&
                memcmp(other->model, seen->model, sizeof seen->model) != 0)
                return wrong(judge, "version %llu: ranks %d and %d have other bits",
                             (unsigned long long)seen->version, r, rank);
        }
    return 1;
}

/* A push of one worker, with a velocity of the servers. */
static void apply(struct judge *judge, int rank, int step)
{
    const struct server *server = judge->server;
    const double momentum = pow(server->config.momentum, 1.0 / server->workers);
    double sum = 0;
    size_t at = 0;
    for (int r = 0; r < server->workers; r++)
        sum += server->weights[r];
    double share = server->weights[rank] / sum * (1 - momentum) / (1 - server->config.momentum);
    for (int l = 0; l < server_layers(server); l++) {
        int pushes = server_pushes(judge->object, rank, step, l);
        for (size_t i = 0; i < server_counts[l]; i++, at++) {
            if (!pushes)
                continue;
            double g = server_owner(server, l, i) == rank ? ldexp(1, step) : 0;
            judge->velocity[at] = momentum * judge->velocity[at] + share * g;
            judge->model[at] -= server_rate(server, step) * judge->velocity[at];
        }
    }
}

/* R2SP has one order: there the velocity counts too. */
static int judge_ordered(struct judge *judge, int steps)
{
    const struct server *server = judge->server;
    size_t count = server_layers(server) ? SERVER_COUNT : 0;
    for (int t = 0; t < steps; t++)
        for (int r = 0; r < server->workers; r++) {
            if (judge->object->taken[r] <= t)
                continue;
            apply(judge, r, t);
            for (size_t i = 0; i < count; i++)
                if (!is_near(server->seen[r][t].model[i], judge->model[i]))
                    return wrong(judge, "rank %d, step %d: element %zu is %.17g, expected %.17g", r,
                                 t, i, server->seen[r][t].model[i], judge->model[i]);
        }
    return 1;
}

static int judge_single(struct judge *judge)
{
    add_up(judge);
    for (int r = 0; r < judge->server->workers; r++)
        for (int t = 0; t < judge->object->taken[r]; t++)
            if (!judge_pulled(judge, r, t) || !judge_same(judge, r, t))
                return 0;
    if (has_velocity(judge->server) &&
        (judge->server->config.sync == WEFT_SERVER_R2SP || judge->server->workers == 1))
        return judge_ordered(judge, known_steps(judge->object));
    return 1;
}

int server_judge(struct play_object *object, char text[PLAY_TEXT])
{
    const struct server *server = object->settings;
    struct judge judge = {.object = object, .server = server, .text = text};
    if (server->wrong[0])
        return wrong(&judge, "%.700s", server->wrong);
    return merges(server) ? judge_merged(&judge, known_steps(object)) : judge_single(&judge);
}
