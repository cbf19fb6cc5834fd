/* SPDX-License-Identifier: BSD-3-Clause */
/* The steps of a rank: a gradient, what is exchanged, an update, in the orders of algorithm.h. */
#include "tools/train/backend.h"
#include "tools/train/trainee.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

double trainee_processor_time(void)
{
    struct timespec time;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

double trainee_now(const struct trainee *trainee)
{
    return (double)weft_context_now(trainee->world) * 1e-9;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

double trainee_median(const double *ring, uint64_t count, uint64_t most)
{
    double values[TRAINEE_DURATIONS];
    size_t wanted = count < TRAINEE_DURATIONS ? (size_t)count : TRAINEE_DURATIONS;

    if (most < wanted)
        wanted = (size_t)most;
    for (size_t i = 0; i < wanted; i++)
        values[i] = ring[(count - 1 - i) % TRAINEE_DURATIONS];
    qsort(values, wanted, sizeof *values, compare);
    return wanted ? (values[(wanted - 1) / 2] + values[wanted / 2]) / 2.0 : 0.0;
}

/* From the beginning of the step before to that of this one. */
static void count_duration(struct trainee *trainee)
{
    double now = trainee_now(trainee);

    if (trainee->steps > 0)
        trainee->durations[trainee->duration_count++ % TRAINEE_DURATIONS] =
            now - trainee->step_began;
    trainee->step_began = now;
}

/* The gradient of a step, and the time that the step is to last without communication. */
static int compute(struct trainee *trainee, uint64_t step)
{
    const struct train_options *options = trainee->job->options;
    const struct train_setup *setup = &trainee->setup;
    double began = trainee_now(trainee);
    double used = trainee_processor_time();

    train_batches_take(&trainee->batches, step);
    int status = model_gradient(setup->model, trainee->batches.images, trainee->batches.labels,
                                options->batch, NULL, NULL);
    double late = train_delay(&options->imbalance, options->seed, step, setup->rank, setup->size);
    /* Who is late is so when the gradient is there. */
    if (status == WEFT_OK && (late > 0.0 || options->compute_seconds > 0.0))
        status = model_backend(setup->model)->ops->settle(model_backend(setup->model));
    if (status != WEFT_OK)
        return status;
    double ended = trainee_now(trainee);
    trainee->report[REPORT_GRADIENTS] += trainee_processor_time() - used;

    double end = began + options->compute_seconds;
    end = (end > ended ? end : ended) + late;
    return end > ended ? weft_context_sleep(setup->context, (uint64_t)((end - ended) * 1e9))
                       : WEFT_OK;
}

/* ---- exchanges: after the gradient or beside it (algorithm.h) ---- */

/* The mean gradient that was waited for becomes the gradient, and the gradient what is posted: both
 * are lists of tensors one behind the other. */
static int swap_gradients(struct trainee *trainee)
{
    struct model *model = trainee->setup.model;
    struct backend *backend = model_backend(model);

    return backend->ops->swap(backend, model_gradients(model)[0].data, trainee->posted_data,
                              model_parameter_count(model));
}

float trainee_momentum(const struct trainee *trainee)
{
    const struct train_algorithm *algorithm = trainee->job->algorithm;
    const struct train_options *options = trainee->job->options;

    return (float)(algorithm->momentum ? algorithm->momentum(options) : options->momentum);
}

static int update(struct trainee *trainee)
{
    int status = model_update(trainee->setup.model, (float)trainee->job->options->rate,
                              trainee_momentum(trainee));

    if (status == WEFT_OK)
        trainee->updates += model_layer_count(trainee->setup.model);
    return status;
}

/* What was posted at the step before: the mean gradient, if it is of gradients, is where the
 * gradient was posted. */
static int wait_posted(struct trainee *trainee, uint64_t next)
{
    const struct train_algorithm *algorithm = trainee->job->algorithm;
    int status = WEFT_OK;

    if (!trainee->setup.beside || next == trainee->fresh)
        return WEFT_OK;
    if (algorithm->models.wait)
        status = algorithm->models.wait(trainee->state, next - 1);
    if (status == WEFT_OK && algorithm->gradients.wait)
        status = algorithm->gradients.wait(trainee->state, next - 1);
    return status;
}

/* One of the two exchanges of a step. */
static int exchange(struct trainee *trainee, const struct train_exchange *exchange, uint64_t step)
{
    int (*begin)(void *, uint64_t) = trainee->setup.beside ? exchange->post : exchange->step;

    return begin ? begin(trainee->state, step) : WEFT_OK;
}

/* The exchange that comes is perhaps another than those before. */
static int note_phase(struct trainee *trainee, uint64_t step)
{
    const struct train_algorithm *algorithm = trainee->job->algorithm;
    const char *name = algorithm->phase ? algorithm->phase(trainee->state) : NULL;
    size_t count = trainee->phase_count;

    if (!name || (count > 0 && strcmp(trainee->phases[count - 1].name, name) == 0))
        return WEFT_OK;
    if (count == trainee->phase_room) {
        size_t room = 2 * count + 8;
        struct train_phase *phases = weft_memory_alloc(room, sizeof *phases);
        if (!phases)
            return weft_error_set(WEFT_ERR_MEMORY, "no memory for %zu phases", room);
        if (count > 0)
            memcpy(phases, trainee->phases, count * sizeof *phases);
        weft_memory_free(trainee->phases);
        trainee->phases = phases;
        trainee->phase_room = room;
    }
    trainee->phases[trainee->phase_count++] =
        (struct train_phase){step, step > 0 ? trainee_now(trainee) - trainee->began : 0.0, name};
    return WEFT_OK;
}

/* The loss of an epoch that has ended, to whom it is of use. */
static int count_loss(struct trainee *trainee, uint64_t step)
{
    const struct train_algorithm *algorithm = trainee->job->algorithm;
    const struct train_batches *batches = &trainee->batches;

    trainee->epoch_loss += trainee->report[REPORT_LOSS];
    trainee->epoch_steps++;
    if (!algorithm->epoch ||
        train_batches_epoch(batches, step + 1) == train_batches_epoch(batches, step))
        return WEFT_OK;
    double loss = trainee->epoch_loss / (double)trainee->epoch_steps;
    trainee->epoch_loss = 0.0;
    trainee->epoch_steps = 0;
    return algorithm->epoch(trainee->state, loss);
}

int trainee_keeps_gradients(const struct trainee *trainee)
{
    const struct train_algorithm *algorithm = trainee->job->algorithm;

    return algorithm->keeps_gradients && algorithm->keeps_gradients(trainee->job->options);
}

int trainee_step(struct trainee *trainee, uint64_t step)
{
    const struct train_algorithm *algorithm = trainee->job->algorithm;
    int status;

    count_duration(trainee);
    if (algorithm->layers.ready) {
        status = trainee_compute_layers(trainee);
        const int computed = status == WEFT_OK;
        if (status == WEFT_OK) /* the step before has ended, and this one begun */
            status = note_phase(trainee, step);
        if (status == WEFT_OK)
            status = count_loss(trainee, step);
        if (status == WEFT_OK && !trainee_goes_by_layers(trainee))
            status = trainee_finish_layers(trainee);
        trainee->steps += status == WEFT_OK || (computed && trainee_keeps_gradients(trainee));
        return status;
    }
    status = compute(trainee, step);
    if (status == WEFT_OK)
        status = wait_posted(trainee, step);
    if (status == WEFT_OK && trainee->posted)
        status = swap_gradients(trainee);
    if (status == WEFT_OK)
        status = note_phase(trainee, step);
    if (status != WEFT_OK)
        return status;
    status = exchange(trainee, &algorithm->gradients, step);
    if (status != WEFT_OK) {
        trainee->steps += trainee_keeps_gradients(trainee);
        return status;
    }
    status = update(trainee);
    if (status != WEFT_OK)
        return status;
    trainee->steps++; /* whatever becomes of the models' exchange, the model has had its step */
    return exchange(trainee, &algorithm->models, step);
}

int trainee_drain(struct trainee *trainee)
{
    if (trainee_goes_by_layers(trainee))
        return trainee->steps > trainee->fresh ? trainee_finish_layers(trainee) : WEFT_OK;
    int status = wait_posted(trainee, trainee->steps);

    if (status != WEFT_OK || !trainee->posted || trainee->steps == trainee->fresh)
        return status;
    status = swap_gradients(trainee);
    return status == WEFT_OK ? update(trainee) : status;
}
