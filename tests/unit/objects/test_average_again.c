/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Group averaging that goes on after a rank has gone, created again on those that are left, from
 * its state. Every gradient has an element of its own, which is 1: so a sum tells which are in it.
 *
 *     rank 0    0 1 2 3 | 4 5 6 7 | 8 9       each generation ends when a rank gives up in it, at a
 *     rank 1    0 1   2 |   3 4 - |           moment that is drawn: between steps or in one
 *     rank 2    0   1 - |         |
 *
 * Or it dies, at any moment, and those that are left make a context of themselves.
 *
 * What a rank has published that goes on is in one sum, or pending in the end. A sum counts for
 * those who create the next object together: what a version had consumed that failed on a rank
 * counts anew if all that have taken the sum had gone before that rank could create an object with
 * them, which may be long after, or had done all their steps.
 *
 *     rank 1    0 1 failed here | cannot create it |  in no sum of those that are left: pending
 *     rank 2    0 1 failed here | creates -        |
 *     rank 3    0 1 is taken    | creates - goes
 */
#include <criterion/criterion.h>
#include <math.h>

#include "average_job.h"

enum {
    STEPS = 20,
    GENERATIONS = 3, /* in which ranks go */
    OBJECTS = 2 * MOST,
    ELEMENTS = MOST * STEPS,
    SUMS = 2,
    NEVER = -1
};

/* A sum that a gradient was in. */
struct sum {
    int version; /* its key; 0: none */
    unsigned by; /* the ranks that have taken it */
};

struct history {
    struct weft_group_average_config config;
    uint64_t seed;
    int ranks;
    int deaths;               /* ranks die in place of giving up */
    int goes[MOST];           /* the generation in which a rank gives up, or NEVER */
    uint64_t moment_ns[MOST]; /* and when, after its beginning; when it dies, of all */
    int published[MOST][STEPS], pending[MOST][STEPS];
    unsigned members[OBJECTS]; /* by generation: the ranks that create the object */
    struct sum sums[MOST][STEPS][SUMS];
    int lost[MOST][STEPS]; /* a rank that goes had it in a sum that it had not taken yet */
    int anew;              /* gradients that count again, as nobody is left who has taken them */
};

struct actor {
    struct history *history;
    struct weft_context *context;
    struct weft_group_average *average;
    int rank, generation;
    int version;           /* the key of the one that has failed */
    int carried[ELEMENTS]; /* of which version, where a sum has been carried over */
    uint64_t random, until;
    double *gradient, *pending, *failed, *sum;
};

static uint64_t draw(uint64_t *random, uint64_t below)
{
    *random += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = *random;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (x ^ (x >> 31)) % below;
}

static int key(int generation, uint64_t version)
{
    return 1 + generation * 1000 + (int)version;
}

/* 1: this is one by a number of members. */
static int is_share(double value, int ranks)
{
    for (int members = 1; members <= ranks; members++)
        if (fabs(value * members - 1) < 1e-6)
            return 1;
    return 0;
}

/* The place of a version's sum among those that a gradient was in, or a free one. */
static struct sum *find(struct history *history, int rank, int step, int version)
{
    struct sum *sums = history->sums[rank][step], *free = NULL;
    for (int i = 0; i < SUMS; i++)
        if (sums[i].version == version)
            return &sums[i];
        else if (!sums[i].version)
            free = &sums[i];
    cr_assert(free, "seed %llu: gradient %d of rank %d of %d is in more than %d sums",
              (unsigned long long)history->seed, step, rank, history->ranks, SUMS);
    return free;
}

/* This rank has created an object with all that are left. Those that have gone tell nobody what
 * they have taken: where nobody else has the sum of the version that failed here, what this rank
 * had given to it counts anew. */
static void forget(struct actor *actor)
{
    struct history *history = actor->history;
    for (int i = 0; i < ELEMENTS; i++) {
        if (actor->failed[i] == 0)
            continue;
        struct sum *sum = find(history, i / STEPS, i % STEPS, actor->version);
        history->anew += sum->by && !(sum->by & history->members[actor->generation]);
        sum->by &= history->members[actor->generation];
        sum->version = sum->by ? sum->version : 0;
    }
    memset(actor->failed, 0, ELEMENTS * sizeof *actor->failed);
}

/* The functions of ranks that have died go on when all others have returned, and get what was
 * there: nobody sees that. */
static int is_dead(const struct actor *actor)
{
    const struct history *history = actor->history;
    return history->deaths && history->goes[actor->rank] != NEVER &&
           weft_context_now(actor->context) >= history->moment_ns[actor->rank];
}

/* What a step has got: of a version, or carried over from the generation before. */
static void take(struct actor *actor, const struct weft_group_average_result *result)
{
    struct history *history = actor->history;
    for (int i = 0; i < ELEMENTS; i++) {
        int rank = i / STEPS, step = i % STEPS;
        double value = actor->gradient[i];
        if (value == 0)
            continue;
        cr_assert(is_share(value, history->ranks), "seed %llu: rank %d got %g of gradient %d, %d",
                  (unsigned long long)history->seed, actor->rank, value, rank, step);
        int now = actor->carried[i] ? actor->carried[i] : key(actor->generation, result->version);
        struct sum *sum = find(history, rank, step, now);
        sum->version = now;
        sum->by |= 1U << actor->rank;
    }
    memset(actor->carried, 0, sizeof actor->carried);
}

/* Whether it is time to go. */
static int goes(const struct actor *actor)
{
    return !actor->history->deaths && actor->history->goes[actor->rank] == actor->generation &&
           weft_context_now(actor->context) >= actor->until;
}

static int step(struct actor *actor, int number)
{
    struct history *history = actor->history;
    struct weft_group_average_result result = {.struct_size = sizeof result};
    memset(actor->gradient, 0, ELEMENTS * sizeof *actor->gradient);
    actor->gradient[actor->rank * STEPS + number] = 1;
    int status = weft_group_average_post(actor->average);
    if (status)
        return status;
    history->published[actor->rank][number]++;
    weft_context_sleep(actor->context, 1 + draw(&actor->random, 1000000));
    if (goes(actor))
        return WEFT_ERR_CANCELLED;
    status = weft_group_average_wait(actor->average, &result);
    if (!status && !is_dead(actor))
        take(actor, &result);
    return status;
}

static const void *keep(double *to, const void *from)
{
    if (from)
        memcpy(to, from, ELEMENTS * sizeof *to);
    else
        memset(to, 0, ELEMENTS * sizeof *to);
    return from ? to : NULL;
}

static void save(struct actor *actor, struct weft_group_average_state *state)
{
    struct weft_group_average_state again = {.struct_size = sizeof again};
    *state = again;
    OK(weft_group_average_get_state(actor->average, state));
    OK(weft_group_average_get_state(actor->average, &again));
    CHECK(again.next == state->next && again.sum_members == state->sum_members);
    state->pending = keep(actor->pending, state->pending);
    state->failed = keep(actor->failed, state->failed);
    state->sum = keep(actor->sum, state->sum);
    actor->version = key(actor->generation, state->failed_version);
    if (actor->history->goes[actor->rank] != NEVER) /* others count on it, and it may die with it */
        for (int i = 0; i < ELEMENTS; i++)
            actor->history->lost[i / STEPS][i % STEPS] |= actor->sum[i] != 0;
    for (int i = 0; i < ELEMENTS; i++)
        if (actor->sum[i] != 0 && !actor->carried[i])
            actor->carried[i] = key(actor->generation, state->past[0].ended - 1);
}

/* A generation of the object; 0: this rank has gone in it, or it was the last. */
static int live(struct actor *actor, struct weft_context *context,
                struct weft_group_average_state *state)
{
    struct history *history = actor->history;
    struct weft_piece tensors[] = {{actor->gradient, ELEMENTS}};
    struct weft_group_average_config config = history->config;
    struct weft_group_average *before = actor->average;
    int ranks = weft_context_size(context), status;
    actor->context = context;
    CHECK(actor->generation < OBJECTS);
    history->members[actor->generation] |= 1U << actor->rank;
    actor->until = weft_context_now(context) + history->moment_ns[actor->rank];
    config.tensors = tensors;
    config.tensor_count = 1;
    config.state = state;
    if (config.group_size > ranks)
        config.group_size = ranks;
    status = weft_group_average_create(&actor->average, context, &config);
    if (status) { /* then the state is still there */
        actor->average = before;
        CHECK(status == WEFT_ERR_PEER || history->goes[actor->rank] != NEVER);
        return status == WEFT_ERR_PEER;
    }
    weft_group_average_destroy(before);
    forget(actor);
    CHECK(weft_group_average_next(actor->average) == state->next);
    for (int next = (int)state->next; next < STEPS && !status; next++) {
        weft_context_sleep(context, 500000 + draw(&actor->random, 4000000));
        status = goes(actor) ? WEFT_ERR_CANCELLED : step(actor, next);
    }
    if (status && history->deaths && history->goes[actor->rank] != NEVER) {
        if (status == WEFT_ERR_PEER)
            save(actor, state); /* it has not died yet */
        return status == WEFT_ERR_PEER;
    }
    if (status == WEFT_ERR_CANCELLED) {
        OK(weft_group_average_fail(actor->average, status, "this rank goes"));
    } else if (status) {
        CHECK(status == WEFT_ERR_PEER);
        save(actor, state);
        return 1;
    } else {
        OK(weft_group_average_take_state(actor->average, state));
        for (int i = 0; state->pending && i < ELEMENTS; i++)
            history->pending[i / STEPS][i % STEPS] += ((const double *)state->pending)[i] != 0;
    }
    weft_group_average_destroy(actor->average);
    actor->average = NULL;
    return 0;
}

/* Those that are left after a generation. */
static int left_after(const struct history *history, int generation, int *ranks)
{
    int count = 0;
    for (int r = 0; r < history->ranks; r++)
        if (history->goes[r] == NEVER || history->goes[r] > generation)
            ranks[count++] = r;
    return count;
}

static int enter_history(struct weft_context *context, void *user)
{
    struct history *history = user;
    struct weft_group_average_state state = {.struct_size = sizeof state};
    struct actor actor = {.history = history, .rank = weft_context_rank(context)};
    struct weft_context *now = context;
    int status = WEFT_OK;
    double *memory = calloc(ELEMENTS, 4 * sizeof *memory);
    CHECK(memory);
    actor.gradient = memory;
    actor.pending = memory + ELEMENTS;
    actor.failed = memory + 2 * ELEMENTS;
    actor.sum = memory + 3 * ELEMENTS;
    actor.random = history->seed * 100 + (uint64_t)actor.rank;
    while (!status && live(&actor, now, &state)) {
        int ranks[MOST], count = left_after(history, actor.generation, ranks);
        status = history->deaths
                     ? weft_context_shrink(now, &now)
                     : weft_context_subset(context, ranks, count, actor.generation, &now);
        CHECK(!status || history->goes[actor.rank] != NEVER);
        actor.generation++;
    }
    weft_group_average_destroy(actor.average);
    free(memory);
    return WEFT_OK;
}

/* One of those that there are, or by cost. */
static const char *draw_algorithm(uint64_t *random)
{
    const struct weft_template *allreduce = weft_template_find("allreduce");
    size_t number = (size_t)draw(random, 1 + (uint64_t)allreduce->algorithm_count);
    return number ? allreduce->algorithms[number - 1].name : NULL;
}

static void draw_history(struct history *history, uint64_t seed, int deaths)
{
    uint64_t random = seed;
    memset(history, 0, sizeof *history);
    weft_group_average_config_init(&history->config);
    history->seed = seed;
    history->deaths = deaths;
    history->ranks = 2 + (int)draw(&random, 5);
    for (int r = 0; r < history->ranks; r++)
        history->goes[r] = NEVER;
    /* Each goes alone, and one is left. */
    for (int g = 0; g < GENERATIONS && g < history->ranks - 1; g++) {
        int rank = (int)draw(&random, (uint64_t)history->ranks);
        if (history->goes[rank] != NEVER)
            break;
        history->goes[rank] = g;
        history->moment_ns[rank] = draw(&random, deaths ? 60000000 : 20000000);
    }
    history->config.dtype = WEFT_F64;
    history->config.contribution = WEFT_AVERAGE_ACCUMULATE;
    history->config.mode = (weft_average_mode_t)(draw(&random, 4) == 0);
    history->config.activation = (weft_average_activation_t)(draw(&random, 3) == 0);
    history->config.group_size = history->ranks;
    if (draw(&random, 4) == 0)
        history->config.group_size = 1 + (int)draw(&random, (uint64_t)history->ranks);
    history->config.sync_period = draw(&random, 2) ? WEFT_NEVER : 2 + draw(&random, 6);
    history->config.patience_ns = draw(&random, 2) ? WEFT_NS_NONE : 0;
    history->config.seed = seed;
    history->config.algo = draw_algorithm(&random);
}

struct counts {
    int pending, lost, gone, anew;
};

static void check_gradient(const struct history *history, int r, int s, struct counts *counts)
{
    int in = 0, pending = history->pending[r][s];
    for (int i = 0; i < SUMS; i++)
        in += history->sums[r][s][i].version != 0;
    cr_assert_leq(history->published[r][s], 1);
    cr_assert_leq(in + pending, history->published[r][s],
                  "seed %llu: gradient %d of rank %d of %d counts %d times, and is pending %d",
                  (unsigned long long)history->seed, s, r, history->ranks, in, pending);
    counts->pending += pending;
    if (in + pending == history->published[r][s])
        return;
    if (history->goes[r] != NEVER) { /* its own are lost with a rank */
        counts->gone++;
        return;
    }
    /* In a small group all may sleep through a version. */
    cr_assert(history->lost[r][s] || history->config.group_size < history->ranks,
              "seed %llu: gradient %d of rank %d of %d is lost", (unsigned long long)history->seed,
              s, r, history->ranks);
    counts->lost++;
}

static void run_history(struct history *history, struct counts *counts)
{
    struct weft_virtual_config config;
    struct weft_virtual_fault faults[MOST];
    weft_virtual_config_init(&config);
    for (int r = 0; history->deaths && r < history->ranks; r++)
        if (history->goes[r] != NEVER)
            faults[config.fault_count++] = (struct weft_virtual_fault){
                .rank = r, .at_ns = history->moment_ns[r], .for_ns = WEFT_NEVER};
    config.faults = faults;
    config.deaths = history->deaths;
    config.death_ns = 200000;
    config.seed = history->seed;
    config.shuffle = 1;
    config.delay_ns = 300000; /* so that versions end on some ranks and not on others */
    config.heavy_share = 0.1;
    config.heavy_ns = 3000000;
    OK(weft_virtual_run(history->ranks, &config, enter_history, history));
    for (int r = 0; r < MOST; r++)
        for (int s = 0; s < STEPS; s++)
            check_gradient(history, r, s, counts);
    counts->anew += history->anew;
}

static void run_histories(uint64_t count, int deaths)
{
    struct history *history = malloc(sizeof *history);
    struct counts counts = {0};
    CHECK(history);
    for (uint64_t seed = 1; seed <= count; seed++) {
        draw_history(history, seed, deaths);
        run_history(history, &counts);
    }
    cr_log_info("pending %d, lost with ranks that had them %d, of ranks that went %d, anew %d",
                counts.pending, counts.lost, counts.gone, counts.anew);
    cr_assert_gt(counts.pending, count / 3);
    cr_assert_gt(counts.anew, SWEPT(10, 1));
    free(history);
}

Test(average_again, no_gradient_is_lost_or_counts_twice, .timeout = 140)
{
    run_histories(SWEPT(3000, 500), 0);
}

Test(average_again, nor_where_ranks_die, .timeout = 140)
{
    run_histories(SWEPT(3000, 500), 1);
}

/*
 * Rank 0 pauses in two creations in a row, while a rank goes that has come out of them. What it had
 * given to a version of the object before is in the sum that rank 1 has taken: so that must not be
 * forgotten for versions that rank 1 has begun since, before rank 0 has heard of it.
 */
enum { PAUSES_RANKS = 4, PAUSES_APART_NS = 1000000, PAUSES_WITHIN_NS = 16000 };

struct pauses {
    int begun;   /* objects in which rank 1 has begun a version */
    int decided; /* that rank 0 has, those that had failed meanwhile too */
    int pending; /* rank 0 gives again what is in a sum */
};

/* As of an object of a rank more whose version 0 has failed but on rank 1. */
static struct weft_group_average_state paused_state(int rank, const double *failed)
{
    struct weft_group_average_state state = {.struct_size = sizeof state, .next = 1};
    state.past[0] =
        (struct weft_group_average_past){rank, PAUSES_RANKS + 1, PAUSES_RANKS + 1, rank == 1};
    state.failed = rank ? NULL : failed;
    state.failed_count = rank == 0;
    return state;
}

/* In an object that the last rank fails. */
static void live_paused(struct pauses *pauses, struct weft_context *context,
                        struct weft_group_average *average, struct weft_group_average_state *state)
{
    int rank = weft_context_rank(context), last = weft_context_size(context) - 1;
    if (rank == 1 && !weft_group_average_post(average)) {
        pauses->begun++;
        cr_assert_eq(weft_group_average_wait(average, NULL), WEFT_ERR_PEER);
    }
    if (rank == last) {
        weft_context_sleep(context, 10000);
        OK(weft_group_average_fail(average, WEFT_ERR_CANCELLED, "this rank goes"));
        return;
    }
    weft_context_sleep(context, PAUSES_APART_NS / 2);
    OK(weft_group_average_get_state(average, state));
    cr_assert_null(rank ? NULL : state->failed);
}

static int enter_pauses(struct weft_context *context, void *user)
{
    struct pauses *pauses = user;
    struct weft_group_average *average = NULL, *before;
    struct weft_group_average_config config;
    double gradient = 0, failed = 1;
    struct weft_piece tensor = {&gradient, 1};
    int rank = weft_context_rank(context), ranks[] = {0, 1, 2, 3};
    struct weft_group_average_state state = paused_state(rank, &failed);
    weft_group_average_config_init(&config);
    config.dtype = WEFT_F64;
    config.contribution = WEFT_AVERAGE_ACCUMULATE;
    config.mode = WEFT_AVERAGE_WAITING;
    config.tensors = &tensor;
    config.tensor_count = 1;
    config.state = &state;
    for (int left = PAUSES_RANKS; left >= 2 && rank < left; left--) {
        struct weft_context *now;
        uint64_t begins = (uint64_t)(PAUSES_RANKS - left + 1) * PAUSES_APART_NS;
        weft_context_sleep(context, begins - weft_context_now(context));
        OK(weft_context_subset(context, ranks, left, left, &now));
        config.group_size = left;
        before = average;
        if (weft_group_average_create(&average, now, &config)) {
            average = before; /* cut off: its state is still there */
            continue;
        }
        weft_group_average_destroy(before);
        pauses->decided += rank == 0;
        if (left > 2) {
            live_paused(pauses, now, average, &state);
            continue;
        }
        OK(weft_group_average_take_state(average, &state));
        pauses->pending += rank == 0 && state.pending && *(const double *)state.pending != 0;
    }
    weft_group_average_destroy(average);
    return WEFT_OK;
}

Test(average_again, a_sum_is_known_until_all_have_heard_of_it)
{
    for (uint64_t first = 0; first < PAUSES_WITHIN_NS; first += SWEPT(500, 1000))
        for (uint64_t second = 0; second < PAUSES_WITHIN_NS; second += SWEPT(500, 1000)) {
            struct pauses pauses = {0};
            struct weft_virtual_config config;
            struct weft_virtual_fault faults[] = {
                {.at_ns = PAUSES_APART_NS + first, .for_ns = PAUSES_APART_NS / 4},
                {.at_ns = 2 * PAUSES_APART_NS + second, .for_ns = PAUSES_APART_NS / 4}};
            weft_virtual_config_init(&config);
            config.faults = faults;
            config.fault_count = 2;
            OK(weft_virtual_run(PAUSES_RANKS, &config, enter_pauses, &pauses));
            cr_assert_eq(pauses.pending, 0, "pauses at %llu and %llu ns: it counts twice",
                         (unsigned long long)first, (unsigned long long)second);
            cr_assert_eq(pauses.begun, 2);
            cr_assert_eq(pauses.decided, 3);
        }
}
