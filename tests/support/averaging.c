/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks do in a case of averaging.h, and what the numbers that they get mean. */
#include "support/averaging.h"

#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNIT = 16, DIGITS = 20 };

uint64_t averaging_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static int below(uint64_t *state, int bound)
{
    return (int)(averaging_random(state) % (uint64_t)bound);
}

/* ---- the case ---- */

static void draw_config(struct averaging_case *drawn, uint64_t *random)
{
    static const uint64_t periods[] = {WEFT_NEVER, 1, 2, 3, 5, 10, 7};
    struct weft_group_average_config *config = &drawn->config;
    weft_group_average_config_init(config);
    config->group_size = below(random, 4) ? 1 + below(random, drawn->ranks) : 0;
    config->sync_period = periods[below(random, 7)];
    config->mode =
        below(random, 6) ? WEFT_AVERAGE_WAIT_AVOIDING : (weft_average_mode_t)(1 + below(random, 2));
    config->activation = below(random, 3) ? WEFT_AVERAGE_ANYONE : WEFT_AVERAGE_DRAWN;
    config->contribution = below(random, 3) ? WEFT_AVERAGE_REPLACE : WEFT_AVERAGE_ACCUMULATE;
    config->dtype =
        config->contribution == WEFT_AVERAGE_REPLACE && below(random, 2) ? WEFT_F32 : WEFT_F64;
    switch (below(random, 3)) {
    case 0:
        config->patience_ns = WEFT_NS_NONE;
        break;
    case 1:
        config->patience_ns = 1 + averaging_random(random) % 5000000;
        break;
    default:
        break;
    }
    config->seed = averaging_random(random);
    if (config->contribution == WEFT_AVERAGE_REPLACE && config->seed % 2)
        config->stale_mix = WEFT_STALE_PAPER;
    if (below(random, 4) == 0)
        config->deadline_ns = 1 + averaging_random(random) % 1000000;
}

/* Everything but the number of ranks. */
static void draw_rest(struct averaging_case *drawn, uint64_t *random)
{
    draw_config(drawn, random);
    drawn->block = 2 * (below(random, 4) ? 1 + below(random, 8) : 100 + below(random, 400));
    int steps = 1 + below(random, AVERAGING_STEPS), unequal = below(random, 3) == 0;
    int restored = below(random, 6) == 0 ? below(random, steps) : 0;
    for (int r = 0; r < drawn->ranks; r++) {
        drawn->first[r] = restored ? below(random, restored + 1) : 0;
        drawn->steps[r] = drawn->first[r] + (unequal ? below(random, steps - drawn->first[r] + 1)
                                                     : steps - drawn->first[r]);
    }
    drawn->splits = below(random, 3) * 40;
    drawn->pauses = below(random, 4) * 20;
    drawn->pause_ns = 1000 + averaging_random(random) % (below(random, 2) ? 30000 : 400000);
}

static uint64_t begin_drawing(struct averaging_case *drawn, uint64_t seed)
{
    memset(drawn, 0, sizeof *drawn);
    drawn->seed = seed;
    return seed * UINT64_C(0xd1342543de82ef95) + 1;
}

void averaging_draw(struct averaging_case *drawn, uint64_t seed, int most_ranks)
{
    uint64_t random = begin_drawing(drawn, seed);
    drawn->ranks = 1 + below(&random, most_ranks);
    if (drawn->ranks == 1 && below(&random, 4))
        drawn->ranks = 1 + most_ranks / 2;
    draw_rest(drawn, &random);
}

void averaging_draw_among(struct averaging_case *drawn, uint64_t seed, int ranks)
{
    uint64_t random = begin_drawing(drawn, seed);
    drawn->ranks = ranks;
    draw_rest(drawn, &random);
}

void averaging_describe(const struct averaging_case *drawn, char text[AVERAGING_TEXT])
{
    const struct weft_group_average_config *config = &drawn->config;
    snprintf(text, AVERAGING_TEXT,
             "seed %llu: P %d, S %d, period %llu, mode %d, activation %d, contribution %d, mix %d, "
             "%s, patience %lld ns, deadline %llu ns, blocks of %d, steps of rank 0 %d..%d",
             (unsigned long long)drawn->seed, drawn->ranks, config->group_size,
             (unsigned long long)config->sync_period, (int)config->mode, (int)config->activation,
             (int)config->contribution, (int)config->stale_mix, weft_dtype_name(config->dtype),
             (long long)config->patience_ns, (unsigned long long)config->deadline_ns, drawn->block,
             drawn->first[0], drawn->steps[0]);
}

/* ---- one rank ---- */

struct averaging_actor {
    const struct averaging_case *drawn;
    struct weft_context *context;
    struct weft_group_average *average;
    struct averaging_log *log;
    struct weft_groups *groups;
    int rank, ranks, first; /* first: version */
    size_t count;
    uint64_t random;
    void *model;     /* of the case's datatype */
    double *posted;  /* what was published */
    double *before;  /* the model when the second half of a step began */
    double *got;     /* the sum, made again from the model */
    double *era;     /* the average of the last synchronisation, or the first model */
    int era_version; /* of that; -1: the first model */
    int taken;       /* version of the newest sum, + 1 */
    struct weft_group_average_stats base;
    int steps;  /* that have been taken */
    int unwell; /* one has failed */
};

static void wrong(struct averaging_actor *actor, int step, const char *format, ...)
    WEFT_PRINTF(3, 4);
static void wrong(struct averaging_actor *actor, int step, const char *format, ...)
{
    char text[AVERAGING_TEXT / 2];
    va_list arguments;
    if (actor->log->wrong[0])
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(actor->log->wrong, sizeof actor->log->wrong, "rank %d, step %d: %s", actor->rank, step,
             text);
}

/* A call has failed, which is wrong unless failures are part of the case. */
static void failed(struct averaging_actor *actor, int step, const char *call, int status)
{
    if (!actor->drawn->fails)
        wrong(actor, step, "%s: %s: %s", call, weft_status_name(status), weft_error_text());
}

static int accumulates(const struct averaging_actor *actor)
{
    return actor->drawn->config.contribution == WEFT_AVERAGE_ACCUMULATE;
}

/* 0: never. */
static int averaging_period(const struct averaging_case *drawn)
{
    return drawn->config.sync_period == WEFT_NEVER ? 0 : (int)drawn->config.sync_period;
}

static int syncs(const struct averaging_actor *actor, int version)
{
    int period = averaging_period(actor->drawn);
    return period && version % period == period - 1;
}

static double get(const struct averaging_actor *actor, size_t i)
{
    return actor->drawn->config.dtype == WEFT_F32 ? (double)((float *)actor->model)[i]
                                                  : ((double *)actor->model)[i];
}

static void set(const struct averaging_actor *actor, size_t i, double value)
{
    if (actor->drawn->config.dtype == WEFT_F32)
        ((float *)actor->model)[i] = (float)value;
    else
        ((double *)actor->model)[i] = value;
}

/* What rank r says in element e of its block in a step. */
static double word(const struct averaging_actor *actor, int r, int step, int e)
{
    if (accumulates(actor)) /* a digit of base 4 a step, in one of two numbers */
        return step / DIGITS == e % 2 ? ldexp(1, 2 * (step % DIGITS)) : 0;
    return (step + 1) * UNIT + 1 + (r * 5 + e * 3) % (UNIT - 2);
}

static void write_model(struct averaging_actor *actor, int step)
{
    int block = actor->drawn->block;
    for (size_t i = 0; i < actor->count; i++)
        set(actor, i, 0);
    for (int e = 0; e < block; e++)
        set(actor, (size_t)(actor->rank * block + e), word(actor, actor->rank, step, e));
    for (size_t i = 0; i < actor->count; i++)
        actor->posted[i] = get(actor, i);
}

static void pause(struct averaging_actor *actor)
{
    const struct averaging_case *drawn = actor->drawn;
    if (below(&actor->random, 100) >= drawn->pauses)
        return;
    uint64_t most = drawn->pause_ns * (below(&actor->random, 30) ? 1 : 20);
    int kind = below(&actor->random, 3);
    if (kind == 0)
        sched_yield();
    else
        weft_context_sleep(actor->context, averaging_random(&actor->random) % most);
    if (below(&actor->random, 50) == 0) {
        char *text = NULL;
        if (weft_group_average_report(actor->average, kind ? 1000000 : 0, &text) != WEFT_OK &&
            !actor->drawn->fails)
            wrong(actor, -1, "report: %s", weft_error_text());
        weft_memory_free(text);
    }
}

/* ---- what is in a sum ---- */

/* The steps of rank r in its block, if the first model or the last synchronisation's average stands
 * `eras` times in the sum: from and upto, AVERAGING_NOTHING for none; 0: makes no sense. */
static int read_block(const struct averaging_actor *actor, int r, int eras, int *from, int *upto)
{
    int block = actor->drawn->block;
    double slack = actor->drawn->config.dtype == WEFT_F32 ? 0.05 : 1e-6;
    for (int e = 0; e < block; e++) {
        size_t i = (size_t)(r * block + e);
        double value = actor->got[i] - eras * actor->era[i];
        int step = AVERAGING_NOTHING;
        if (fabs(value) > slack) {
            step = (int)floor(value / UNIT) - 1;
            if (step < 0 || fabs(value - word(actor, r, step, e)) > slack)
                return 0;
        }
        if (e > 0 && step != *from)
            return 0;
        *from = *upto = step;
    }
    return 1;
}

static int read_digits(const struct averaging_actor *actor, int r, int *from, int *upto)
{
    int block = actor->drawn->block;
    *from = *upto = AVERAGING_NOTHING;
    for (int e = 0; e < block; e += 2)
        for (int step = 0; step < 2 * DIGITS; step++) {
            size_t i = (size_t)(r * block + e + step / DIGITS);
            double value = nearbyint(actor->got[i]);
            if (fabs(value - actor->got[i]) > 0.1 || value < 0)
                return 0;
            int digit = (int)((uint64_t)value >> 2 * (step % DIGITS) & 3);
            if (digit > 1 || (uint64_t)value >> 2 * DIGITS)
                return 0;
            if (e > 0 && digit != (*from >= 0 && step >= *from && step <= *upto))
                return 0;
            if (e == 0 && digit) {
                if (*upto >= 0 && *upto != step - 1)
                    return 0; /* a hole */
                *from = *from < 0 ? step : *from;
                *upto = step;
            }
        }
    return 1;
}

/* Whether the sum can be read as that of so many members of which `eras` have the average of the
 * last synchronisation; then all that is in it. */
static int read_sum(const struct averaging_actor *actor, const char *member, int eras,
                    struct averaging_seen *seen)
{
    int nothing = 0;
    for (int r = 0; r < actor->ranks; r++) {
        int from = 0, upto = 0;
        int readable = accumulates(actor) ? read_digits(actor, r, &from, &upto)
                                          : read_block(actor, r, eras, &from, &upto);
        if (!readable || (!member[r] && upto != AVERAGING_NOTHING))
            return 0;
        if (member[r] && upto == AVERAGING_NOTHING && !accumulates(actor)) {
            from = upto = AVERAGING_ERA;
            nothing++;
        }
        seen->of[r].from = member[r] ? from : AVERAGING_ABSENT;
        seen->of[r].upto = member[r] ? upto : AVERAGING_ABSENT;
    }
    return accumulates(actor) || nothing == eras;
}

static int members_of(const struct averaging_actor *actor, int version, char *member)
{
    int list[AVERAGING_RANKS], members = 0;
    memset(member, 0, (size_t)actor->ranks);
    if (syncs(actor, version)) {
        memset(member, 1, (size_t)actor->ranks);
        return actor->ranks;
    }
    if (!actor->groups)
        return 0;
    weft_groups_at(actor->groups, (uint64_t)version, actor->rank, list, &members, NULL);
    for (int i = 0; i < members; i++)
        member[list[i]] = 1;
    return members;
}

/* Reads a sum, and looks for contributions that must not be in it. lacks: this rank's has been
 * taken out, and there must be nothing left of it. */
static void look(struct averaging_actor *actor, int step, int version, int lacks,
                 struct averaging_seen *seen)
{
    char member[AVERAGING_RANKS];
    int members = members_of(actor, version, member), readable = 0;
    member[actor->rank] &= !lacks;
    members -= lacks;
    for (int eras = 0; eras <= members && !readable; eras++)
        readable = read_sum(actor, member, eras, seen);
    if (!readable) {
        wrong(actor, step, "the sum of version %d is not one of contributions of its %d members",
              version, members);
        for (size_t i = 0; getenv("WEFT_STRESS_VERBOSE") && i < actor->count; i++)
            fprintf(stderr, "%s%.9g", i % (size_t)actor->drawn->block ? " " : "\n", actor->got[i]);
        return;
    }
    if (lacks)
        seen->of[actor->rank].from = seen->of[actor->rank].upto = AVERAGING_TAKEN_OUT;
    for (int r = 0; r < actor->ranks; r++) {
        int upto = seen->of[r].upto, from = seen->of[r].from;
        int arrives = actor->drawn->steps[r] > version && !actor->drawn->gave_up[r];
        if (upto < 0) {
            if (syncs(actor, version) && arrives)
                wrong(actor, step, "rank %d is missing in synchronisation %d", r, version);
            continue;
        }
        if (upto > version || upto >= actor->drawn->steps[r])
            wrong(actor, step, "step %d of rank %d is in version %d", upto, r, version);
        if (from <= actor->era_version)
            wrong(actor, step, "step %d of rank %d is in version %d, after synchronisation %d",
                  from, r, version, actor->era_version);
        if (syncs(actor, version) && arrives && upto != version)
            wrong(actor, step, "rank %d took part in synchronisation %d with step %d", r, version,
                  upto);
    }
}

static uint64_t bits_of(const struct averaging_actor *actor)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    size_t bytes = actor->count * weft_dtype_size(actor->drawn->config.dtype);
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((unsigned char *)actor->model)[i]) * UINT64_C(1099511628211);
    return hash | 1;
}

/* ---- one step ---- */

static void check_result(struct averaging_actor *actor, int step,
                         const struct weft_group_average_result *result)
{
    char member[AVERAGING_RANKS];
    int version = (int)result->version;
    int sync = syncs(actor, step) && step >= actor->first;
    if (result->synchronised != sync)
        wrong(actor, step, "synchronised %d", result->synchronised);
    if (sync && (version != step || result->stale))
        wrong(actor, step, "synchronisation gave version %d, stale %d", version, result->stale);
    if (result->members == 0) {
        if (version != step)
            wrong(actor, step, "no sum, but version %d", version);
        if (actor->taken <= step && step >= actor->first &&
            actor->drawn->config.mode != WEFT_AVERAGE_NONE)
            wrong(actor, step, "no sum, though only those below version %d were taken",
                  actor->taken);
        if (result->stale != (actor->drawn->config.mode != WEFT_AVERAGE_NONE || syncs(actor, step)))
            wrong(actor, step, "no sum, stale %d", result->stale);
        return;
    }
    if (version < actor->taken || version < step || version >= AVERAGING_STEPS)
        wrong(actor, step, "version %d after %d had been taken", version, actor->taken - 1);
    if (members_of(actor, version, member) != result->members)
        wrong(actor, step, "version %d has %d members", version, result->members);
    if (actor->drawn->config.mode == WEFT_AVERAGE_WAITING && step >= actor->first &&
        (result->stale || version != step))
        wrong(actor, step, "waiting, but version %d, stale %d", version, result->stale);
}

/* Makes the sum again from the model after a step; substitutes: without this rank's contribution.
 */
static void undo(struct averaging_actor *actor, const struct weft_group_average_result *result,
                 int split, int substitutes)
{
    int own = result->stale && !accumulates(actor);
    for (size_t i = 0; i < actor->count; i++) {
        double average = get(actor, i);
        if (split && !accumulates(actor))
            average += actor->posted[i] - actor->before[i];
        actor->got[i] =
            average * (result->members + (own && !substitutes)) - (own ? actor->posted[i] : 0);
    }
}

static void check_kept(struct averaging_actor *actor, int step, int split)
{
    for (size_t i = 0; i < actor->count; i++) {
        double expected = accumulates(actor) ? 0 : split ? actor->before[i] : actor->posted[i];
        if (get(actor, i) != expected)
            wrong(actor, step, "no sum, but element %zu is %g", i, get(actor, i));
    }
}

static void check_step(struct averaging_actor *actor, int step,
                       const struct weft_group_average_result *result, int split)
{
    struct averaging_seen seen = {.taken = 1};
    int version = (int)result->version;
    check_result(actor, step, result);
    actor->log->stale += (uint64_t)result->stale;
    actor->log->empty += result->stale && result->members == 0;
    if (actor->log->wrong[0])
        return;
    if (result->members == 0) {
        check_kept(actor, step, split);
        return;
    }
    int substitutes = result->stale && !accumulates(actor) &&
                      actor->drawn->config.stale_mix == WEFT_STALE_SUBSTITUTE;
    undo(actor, result, split, substitutes);
    look(actor, step, version, substitutes, &seen);
    if (actor->log->wrong[0])
        return;
    if ((seen.of[actor->rank].upto == step) == result->stale)
        wrong(actor, step, "stale is %d, but of this rank version %d has steps up to %d",
              result->stale, version, seen.of[actor->rank].upto);
    if (!result->stale && !split)
        seen.bits = bits_of(actor);
    actor->log->seen[version] = seen;
    actor->taken = version + 1;
    if (syncs(actor, version)) {
        for (size_t i = 0; i < actor->count; i++)
            actor->era[i] = actor->got[i] / actor->ranks;
        actor->era_version = version;
    }
}

static int finish(struct averaging_actor *actor, int step, int status,
                  struct weft_group_average_result *result)
{
    int patience = actor->drawn->patience;
    while (status == WEFT_ERR_TIMEOUT && actor->drawn->config.deadline_ns) {
        struct weft_group_average_state state = {.struct_size = sizeof state};
        if (patience && --patience == 0)
            break;
        if (!actor->drawn->fails && !strstr(weft_error_text(), "have not arrived"))
            wrong(actor, step, "late, but \"%s\"", weft_error_text());
        if (weft_group_average_get_state(actor->average, &state) != WEFT_ERR_STATE)
            wrong(actor, step, "a state in the middle of a step");
        uint64_t began = weft_context_now(actor->context);
        status = weft_group_average_wait(actor->average, result);
        if (actor->drawn->fails && weft_context_now(actor->context) == began)
            break; /* time has ended */
    }
    return status;
}

static int one_step(struct averaging_actor *actor, int step)
{
    struct weft_group_average_result result = {.struct_size = sizeof result, .version = UINT64_MAX};
    int split = below(&actor->random, 100) < actor->drawn->splits, status;
    write_model(actor, step);
    if (weft_group_average_next(actor->average) != (uint64_t)step)
        wrong(actor, step, "the next step is %llu",
              (unsigned long long)weft_group_average_next(actor->average));
    uint64_t began = weft_context_now(actor->context);
    if (split) {
        status = weft_group_average_post(actor->average);
        for (size_t i = 0; i < actor->count; i++) {
            set(actor, i, get(actor, i) + (double)(i % 3));
            actor->before[i] = get(actor, i);
        }
        pause(actor);
        began = weft_context_now(actor->context);
        if (status == WEFT_OK)
            status = weft_group_average_wait(actor->average, &result);
    } else {
        status = weft_group_average_step(actor->average, &result);
    }
    status = finish(actor, step, status, &result);
    uint64_t took = weft_context_now(actor->context) - began;
    if (status != WEFT_OK) {
        failed(actor, step, "step", status);
        return status;
    }
    if (!syncs(actor, step) && took > actor->log->waited_most_ns)
        actor->log->waited_most_ns = took;
    check_step(actor, step, &result, split);
    return WEFT_OK;
}

static void check_statistics(struct averaging_actor *actor, int steps)
{
    struct weft_group_average_stats s = {.struct_size = sizeof s};
    uint64_t behind = 0, ends = 0, most = 0;
    weft_group_average_get_stats(actor->average, &s);
    for (int i = 0; i < WEFT_AVERAGE_BEHIND; i++)
        behind += s.behind[i];
    for (int v = actor->first; v < actor->drawn->steps[actor->rank]; v++)
        ends += (uint64_t)syncs(actor, v);
    for (int r = 0; r < actor->ranks; r++)
        if ((uint64_t)actor->drawn->steps[r] > most)
            most = (uint64_t)actor->drawn->steps[r];
    if (s.steps != actor->base.steps + (uint64_t)steps || behind != s.steps)
        wrong(actor, -1, "%d steps, but %llu counted, %llu in the histogram", steps,
              (unsigned long long)s.steps, (unsigned long long)behind);
    if (s.stale_steps != actor->log->stale || s.empty_steps != actor->log->empty || s.syncs != ends)
        wrong(actor, -1, "%llu of %llu stale, %llu of %llu empty, %llu of %llu synchronisations",
              (unsigned long long)s.stale_steps, (unsigned long long)actor->log->stale,
              (unsigned long long)s.empty_steps, (unsigned long long)actor->log->empty,
              (unsigned long long)s.syncs, (unsigned long long)ends);
    uint64_t versions = s.active_versions + s.passive_versions;
    if (s.active_versions > (uint64_t)steps || versions > most ||
        (actor->taken > actor->first && actor->drawn->config.mode != WEFT_AVERAGE_NONE &&
         versions < (uint64_t)(actor->taken - actor->first)))
        wrong(actor, -1, "%llu active and %llu passive versions, %d steps, %d taken last",
              (unsigned long long)s.active_versions, (unsigned long long)s.passive_versions, steps,
              actor->taken - 1);
}

static int create(struct averaging_actor *actor)
{
    const struct averaging_case *drawn = actor->drawn;
    struct weft_group_average_config config = drawn->config;
    struct weft_group_average_state state = {.struct_size = sizeof state};
    size_t size = weft_dtype_size(config.dtype), cut = actor->count / 3;
    struct weft_piece tensors[] = {
        {actor->model, cut}, {NULL, 0}, {(char *)actor->model + cut * size, actor->count - cut}};
    for (size_t i = 0; i < actor->count; i++) {
        set(actor, i, accumulates(actor) ? 0 : 3 + (double)(i % 5));
        actor->era[i] = get(actor, i);
    }
    state.next = (uint64_t)drawn->first[actor->rank];
    state.stats.steps = state.next;
    state.stats.behind[0] = state.next;
    actor->base = state.stats;
    for (int r = 0; r < actor->ranks; r++)
        if (drawn->first[r] > actor->first)
            actor->first = drawn->first[r];
    config.tensors = tensors;
    config.tensor_count = 3;
    config.state = actor->first ? &state : NULL;
    while (config.mode != WEFT_AVERAGE_NONE && /* only the object may be short of memory */
           weft_groups_create(&actor->groups, actor->ranks, config.group_size) == WEFT_ERR_MEMORY)
        continue;
    return weft_group_average_create(&actor->average, actor->context, &config);
}

int averaging_begin(struct averaging_actor **begun, const struct averaging_case *drawn,
                    struct weft_context *context, struct averaging_log *log)
{
    struct averaging_actor *actor = calloc(1, sizeof *actor);
    memset(log, 0, sizeof *log);
    if (!actor)
        abort();
    actor->drawn = drawn;
    actor->context = context;
    actor->log = log;
    actor->rank = weft_context_rank(context);
    actor->ranks = drawn->ranks;
    actor->count = (size_t)drawn->ranks * (size_t)drawn->block;
    actor->era_version = -1;
    actor->random = drawn->seed * 1000 + (uint64_t)actor->rank;
    actor->posted = calloc(5 * actor->count, sizeof *actor->posted);
    if (!actor->posted)
        abort();
    actor->before = actor->posted + actor->count;
    actor->got = actor->posted + 2 * actor->count;
    actor->era = actor->posted + 3 * actor->count;
    actor->model = actor->posted + 4 * actor->count;
    *begun = actor;
    int status = create(actor);
    if (status != WEFT_OK)
        failed(actor, -1, "create", status);
    return status;
}

int averaging_step(struct averaging_actor *actor, int step)
{
    pause(actor);
    int status = one_step(actor, step);
    actor->steps += status == WEFT_OK;
    actor->unwell |= status != WEFT_OK;
    return status;
}

struct weft_group_average *averaging_object(const struct averaging_actor *actor)
{
    return actor->average;
}

int averaging_end(struct averaging_actor *actor)
{
    if (actor->average && !actor->unwell && !actor->log->wrong[0])
        check_statistics(actor, actor->steps);
    int status = weft_group_average_destroy(actor->average);
    if (status != WEFT_OK)
        failed(actor, -1, "destroy", status);
    weft_groups_destroy(actor->groups);
    free(actor->posted);
    free(actor);
    return status;
}

void averaging_rank(const struct averaging_case *drawn, struct weft_context *context,
                    struct averaging_log *log)
{
    struct averaging_actor *actor = NULL;
    int status = averaging_begin(&actor, drawn, context, log), rank = actor->rank;
    for (int t = drawn->first[rank]; status == WEFT_OK && t < drawn->steps[rank]; t++)
        status = averaging_step(actor, t);
    averaging_end(actor);
}

/* ---- all ranks ---- */

struct verdict {
    const struct averaging_case *drawn;
    char *text;
    /* by version: what anybody has seen, and the bits of the averages by a member */
    struct averaging_seen merged;
};

static int differ(char *text, int version, int a, int b, const char *what)
{
    snprintf(text, AVERAGING_TEXT, "version %d: ranks %d and %d differ: %s", version, a, b, what);
    return 0;
}

/* Two that took a sum of one version have seen the same, if their groups have a member in common;
 * but what each has taken out. */
static int alike(const struct averaging_seen *x, const struct averaging_seen *y, int ranks)
{
    for (int r = 0; r < ranks; r++)
        if (x->of[r].upto != AVERAGING_TAKEN_OUT && y->of[r].upto != AVERAGING_TAKEN_OUT &&
            memcmp(&x->of[r], &y->of[r], sizeof x->of[r]) != 0)
            return 0;
    return 1;
}

static int compare(const struct averaging_case *drawn, struct averaging_log *const *logs,
                   int version, char *text)
{
    for (int a = 0; a < drawn->ranks; a++) {
        const struct averaging_seen *x = &logs[a]->seen[version];
        for (int b = 0; b < a && x->taken; b++) {
            const struct averaging_seen *y = &logs[b]->seen[version];
            if (!y->taken || y->of[a].upto == AVERAGING_ABSENT)
                continue;
            if (!alike(x, y, drawn->ranks))
                return differ(text, version, a, b, "contributions");
            if (x->bits && y->bits && x->bits != y->bits)
                return differ(text, version, a, b, "bits");
        }
    }
    return 1;
}

/* Follows what a rank has contributed, version by version. */
static int follow(const struct averaging_case *drawn, struct averaging_log *const *logs, int rank,
                  char *text)
{
    int accumulates = drawn->config.contribution == WEFT_AVERAGE_ACCUMULATE;
    int last = drawn->first[rank] - 1, gap = 0, period = averaging_period(drawn), first = 0;
    for (int r = 0; r < drawn->ranks; r++)
        first = drawn->first[r] > first ? drawn->first[r] : first;
    for (int v = first; v < AVERAGING_STEPS; v++) {
        const struct averaging_seen *seen = NULL;
        for (int r = 0; r < drawn->ranks && !seen; r++)
            if (logs[r]->seen[v].taken && logs[r]->seen[v].of[rank].upto > AVERAGING_ABSENT)
                seen = &logs[r]->seen[v];
        gap |= !seen &&
               !(drawn->config.mode == WEFT_AVERAGE_NONE && !(period && v % period == period - 1));
        if (!seen || seen->of[rank].upto < 0)
            continue;
        if (accumulates &&
            (seen->of[rank].from <= last || (!gap && seen->of[rank].from != last + 1))) {
            if (drawn->config.mode != WEFT_AVERAGE_NONE || seen->of[rank].from <= last) {
                snprintf(text, AVERAGING_TEXT,
                         "version %d has steps %d..%d of rank %d, consumed were those up to %d", v,
                         seen->of[rank].from, seen->of[rank].upto, rank, last);
                return 0;
            }
        }
        if (!accumulates && seen->of[rank].upto < last) {
            snprintf(text, AVERAGING_TEXT, "version %d has step %d of rank %d, before it %d", v,
                     seen->of[rank].upto, rank, last);
            return 0;
        }
        last = seen->of[rank].upto;
        gap = 0;
    }
    return 1;
}

int averaging_judge(const struct averaging_case *drawn, struct averaging_log *const *logs,
                    char text[AVERAGING_TEXT])
{
    for (int r = 0; r < drawn->ranks; r++)
        if (logs[r]->wrong[0]) {
            memcpy(text, logs[r]->wrong, AVERAGING_TEXT);
            return 0;
        }
    for (int r = 0; r < drawn->ranks; r++)
        if (drawn->bound_ns && logs[r]->waited_most_ns > drawn->bound_ns) {
            snprintf(text, AVERAGING_TEXT, "rank %d: a step took %llu ns, expected at most %llu", r,
                     (unsigned long long)logs[r]->waited_most_ns,
                     (unsigned long long)drawn->bound_ns);
            return 0;
        }
    for (int v = 0; v < AVERAGING_STEPS; v++)
        if (!compare(drawn, logs, v, text))
            return 0;
    for (int r = 0; r < drawn->ranks; r++)
        if (!follow(drawn, logs, r, text))
            return 0;
    return 1;
}
