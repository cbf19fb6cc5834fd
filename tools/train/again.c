/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where ranks die, those that are left go on: they make a context of themselves, tell each other
 * how far they are, share the data anew and make the algorithm's state anew, from what there is.
 * If another rank dies meanwhile they begin again, with still fewer.
 *
 *     in a step or behind it       an exchange fails: says so
 *     weft_context_shrink()        all that are left are here
 *     steps, updates               the last step of all is where they go on (or each with its own;
 *                                  where layers' gradients are kept, the first)
 *     a model                      of one that has had all updates, where there is one model
 *     rows                         those of the dead fall to the others
 *     the algorithm's state        again()
 *
 * A step counts as done if the model has been updated in it, or if the gradient is in the state: an
 * exchange that failed is left out. Of layers some may be in the state and some not, so the first
 * step that is not wholly in all states is taken again: what is there already does not count twice.
 *
 * With servers the training fails.
 */
#include "tools/cli/terminal.h"
#include "tools/train/backend.h"
#include "tools/train/trainee.h"

#include <stdio.h>
#include <string.h>
#include <weft/memory.h>

/* What ranks that are left tell each other. */
enum { STEPS, UPDATES, TOLD };

/* The numbers that ranks had in the beginning; for weft_memory_free(). */
static int *root_ranks(const struct weft_context *context)
{
    int *ranks = weft_memory_alloc((size_t)weft_context_size(context), sizeof *ranks);

    if (ranks && weft_context_root_ranks(context, ranks) != WEFT_OK) {
        weft_memory_free(ranks);
        ranks = NULL;
    }
    if (!ranks)
        weft_error_set(WEFT_ERR_MEMORY, "no memory for the numbers of ranks");
    return ranks;
}

static int is_among(int rank, const int *ranks, int count)
{
    for (int i = 0; i < count; i++)
        if (ranks[i] == rank)
            return 1;
    return 0;
}

/* Says who has died, and how. */
static int tell_dead(const struct trainee *trainee, const struct weft_context *before)
{
    const struct train_setup *setup = &trainee->setup;
    int *were = root_ranks(before), *are = root_ranks(setup->context);
    int status = were && are ? WEFT_OK : WEFT_ERR_MEMORY;

    for (int r = 0; r < weft_context_size(before) && status == WEFT_OK; r++) {
        weft_rank_state_t state = WEFT_RANK_PRESENT;
        const char *how = "";
        if (is_among(were[r], are, setup->size))
            continue;
        weft_context_rank_state(before, r, &state, &how);
        fprintf(stderr, "weft train: %s: rank %d: rank %d has %s%s%s; %d of %d ranks are left\n",
                trainee->job->algorithm->name, are[setup->rank], were[r],
                state == WEFT_RANK_LEFT ? "left" : "died", how && *how ? ": " : "", how ? how : "",
                setup->size, trainee->began_with);
    }
    weft_memory_free(are);
    weft_memory_free(were);
    return status;
}

/* Makes a context of those that are left. */
static int shrink(struct trainee *trainee)
{
    struct train_setup *setup = &trainee->setup;
    struct weft_context *before = setup->context, *left = NULL;

    trainee_count_bytes(trainee);
    int status = weft_context_shrink(before, &left);
    if (status != WEFT_OK)
        return status;
    setup->context = left;
    setup->rank = weft_context_rank(left);
    setup->size = weft_context_size(left);
    trainee->bytes_before = 0;
    return tell_dead(trainee, before);
}

/* The model of a rank that has had all updates, if this one has not; all are in it. */
static int take_model(struct trainee *trainee, int source)
{
    struct model *model = trainee->setup.model;
    size_t count = 2 * model_parameter_count(model);
    float *flat = weft_memory_alloc(count, sizeof *flat);

    if (!flat)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for another model");
    int status = trainee->setup.rank == source ? model_save_all(model, flat) : WEFT_OK;
    if (status == WEFT_OK)
        status = weft_broadcast(trainee->setup.context, flat, count, WEFT_F32, source);
    if (status == WEFT_OK)
        status = model_load_all(model, flat);
    weft_memory_free(flat);
    return status;
}

/* The step of all ranks. */
static uint64_t common_step(const struct trainee *trainee, const double *told)
{
    const int first = trainee->job->algorithm->layers.ready && trainee_keeps_gradients(trainee);
    double steps = told[STEPS];

    for (int r = 1; r < trainee->setup.size; r++) {
        double theirs = told[r * TOLD + STEPS];
        if (first ? theirs < steps : theirs > steps)
            steps = theirs;
    }
    return (uint64_t)steps;
}

/* Where ranks are, and where they go on. */
static int agree(struct trainee *trainee, double *told)
{
    const struct train_algorithm *algorithm = trainee->job->algorithm;
    struct train_setup *setup = &trainee->setup;
    const double mine[TOLD] = {
        [STEPS] = (double)trainee->steps, [UPDATES] = (double)trainee->updates};
    int first = 0, alike = 1;

    int status = weft_allgather(setup->context, mine, told, TOLD, WEFT_F64);
    for (int r = 0; r < setup->size && status == WEFT_OK; r++) {
        const double *theirs = told + r * TOLD;
        alike &= theirs[UPDATES] == told[UPDATES];
        if (theirs[UPDATES] > told[first * TOLD + UPDATES])
            first = r;
    }
    if (status == WEFT_OK && algorithm->one_model && !alike)
        status = take_model(trainee, first);
    if (status != WEFT_OK)
        return status;
    if (algorithm->one_model)
        trainee->updates = (uint64_t)told[first * TOLD + UPDATES];
    if (!algorithm->own_steps || !algorithm->own_steps(setup->options))
        trainee->steps = common_step(trainee, told);
    setup->step = trainee->steps;
    return WEFT_OK;
}

/* Rows are divided anew, so that those of the dead are somebody's. */
static int divide(struct trainee *trainee)
{
    const struct train_options *options = trainee->job->options;
    struct train_shards shards = {0};

    int status = train_shards_create(&shards, &options->division, trainee->job->train,
                                     trainee->setup.size, options->seed);
    if (status == WEFT_OK)
        status = trainee_join(trainee, &shards);
    if (status != WEFT_OK) {
        train_shards_free(&shards);
        return status;
    }
    train_shards_free(&trainee->shards);
    trainee->shards = shards;
    return WEFT_OK;
}

static int make_state(struct trainee *trainee)
{
    const struct train_algorithm *algorithm = trainee->job->algorithm;
    struct model *model = trainee->setup.model;
    struct backend *backend = model_backend(model);
    void *state = NULL;
    int status = WEFT_OK;

    if (trainee->posted)
        status = backend->ops->clear(backend, trainee->posted_data, model_parameter_count(model));
    if (status != WEFT_OK)
        return status;
    if (algorithm->again && trainee->state)
        return algorithm->again(&trainee->state, &trainee->setup);
    status = algorithm->create(&state, &trainee->setup);
    if (status != WEFT_OK)
        return status;
    if (trainee->state)
        algorithm->destroy(trainee->state);
    trainee->state = state;
    return WEFT_OK;
}

/* Everything that those do together that are left. */
static int settle(struct trainee *trainee)
{
    double *told = weft_memory_alloc((size_t)trainee->setup.size, TOLD * sizeof *told);
    int status = told ? WEFT_OK
                      : weft_error_set(WEFT_ERR_MEMORY, "no memory for the steps of %d ranks",
                                       trainee->setup.size);

    if (status == WEFT_OK)
        status = agree(trainee, told);
    weft_memory_free(told);
    if (status == WEFT_OK)
        status = divide(trainee);
    if (status == WEFT_OK)
        status = make_state(trainee);
    return status;
}

/* Where there are servers nobody goes on: parameters are lost with one, and who else takes part is
 * fixed. */
static int say_lost(const struct trainee *trainee, int status, const char *text)
{
    const struct train_options *options = trainee->job->options;
    const struct weft_context *world = trainee->setup.world;
    const int apart = train_server_ranks(options, trainee->job->algorithm);

    for (int rank = 0; rank < weft_context_size(world); rank++) {
        const int server = apart ? rank - trainee->setup.size : rank;
        weft_rank_state_t state = WEFT_RANK_PRESENT;
        const char *how = NULL;

        weft_context_rank_state(world, rank, &state, &how);
        if (state != WEFT_RANK_DEAD)
            continue;
        if (server >= 0 && server < options->servers.count)
            return weft_error_set(WEFT_ERR_PEER,
                                  "rank %d, server %d of %d, has died%s%s: what it held of the "
                                  "parameters is lost",
                                  rank, server, options->servers.count, how && *how ? ": " : "",
                                  how ? how : "");
        return weft_error_set(WEFT_ERR_PEER,
                              "rank %d has died%s%s: servers do not go on without it", rank,
                              how && *how ? ": " : "", how ? how : "");
    }
    return weft_error_set(status, "%s", text);
}

/* 1: the user has interrupted, and rank 0 ends while the others are in a step: nobody goes on. */
static int is_abandoned(const struct train_job *job)
{
    return job->abandon && cli_caught_signal();
}

int trainee_go_on(struct trainee *trainee, int status)
{
    const struct train_job *job = trainee->job;
    int size = trainee->setup.size;
    char text[512];

    if (!job->goes_on || !trainee->setup.model || is_abandoned(job))
        return status;
    snprintf(text, sizeof text, "%s", weft_error_text());
    if (job->algorithm->serve)
        return say_lost(trainee, status, text);
    if (status != WEFT_ERR_PEER)
        return status;
    cli_progress_end();
    fprintf(stderr, "weft train: %s: step %llu: %s\n", job->algorithm->name,
            (unsigned long long)trainee->steps, text);
    while (status == WEFT_ERR_PEER) {
        int before = trainee->setup.size;
        status = shrink(trainee);
        if (status == WEFT_ERR_UNSUPPORTED || (status == WEFT_OK && trainee->setup.size == before))
            return weft_error_set(WEFT_ERR_PEER, "%s", text); /* nobody has died, or is known to */
        if (status == WEFT_OK)
            status = settle(trainee);
        if (status == WEFT_ERR_PEER && is_abandoned(job))
            break;
    }
    if (status != WEFT_OK)
        return status;
    trainee->fresh = trainee->steps;
    if (trainee->began == 0.0)
        trainee->began = trainee_now(trainee);
    if (trainee->setup.rank == 0)
        fprintf(stderr, "weft train: %s: %d of %d ranks go on with step %llu\n",
                job->algorithm->name, trainee->setup.size, size,
                (unsigned long long)trainee->steps);
    return WEFT_OK;
}
