/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rank tells of its training on the way: models for the history, and a line of progress. */
#include "tools/cli/terminal.h"
#include "tools/train/backend.h"
#include "tools/train/trainee.h"

/* The parameters, for the host to read: those of a device are kept there, and brought here. */
static int keep_parameters(struct trainee *trainee)
{
    struct model *model = trainee->setup.model;
    struct backend *backend = model_backend(model);

    return backend->ops->keep(backend, model_parameters(model)[0].data,
                              model_parameter_count(model));
}

static int take_kept(struct trainee *trainee, struct weft_piece *kept)
{
    struct backend *backend = model_backend(trainee->setup.model);
    const float *host = NULL;
    int status = backend->ops->kept(backend, &host);

    *kept = (struct weft_piece){(float *)host, model_parameter_count(trainee->setup.model)};
    return status;
}

/* Adds what was kept before. */
static int add_kept(struct trainee *trainee)
{
    struct weft_piece kept;

    if (!trainee->kept.is_there)
        return WEFT_OK;
    trainee->kept.is_there = 0;
    int status = take_kept(trainee, &kept);
    return status == WEFT_OK
               ? train_history_add(trainee->job->history, &trainee->kept.next, trainee->kept.done,
                                   trainee->kept.seconds, &kept, 1)
               : status;
}

/* A device is some steps behind the thread, which does not wait for it here. The time is that of
 * the thread. */
int trainee_add_to_history(struct trainee *trainee, uint64_t done)
{
    struct model *model = trainee->setup.model;
    double seconds = done > 0 ? trainee_now(trainee) - trainee->began : 0.0;

    if (!model_backend(model)->stream)
        return train_history_add(trainee->job->history, &trainee->next, done, seconds,
                                 model_parameters(model), model_tensor_count(model));
    if (!train_history_wants(trainee->job->history, &trainee->next, done))
        return WEFT_OK;
    int status = add_kept(trainee);
    if (status == WEFT_OK)
        status = keep_parameters(trainee);
    trainee->kept.is_there = status == WEFT_OK;
    trainee->kept.next = trainee->next;
    trainee->kept.done = done;
    trainee->kept.seconds = seconds;
    return status;
}

int trainee_add_last_to_history(struct trainee *trainee)
{
    struct train_history *history = trainee->job->history;
    double seconds = trainee->report[REPORT_SECONDS];
    struct model *model = trainee->setup.model;
    struct weft_piece kept;

    if (!model_backend(model)->stream)
        return train_history_add_last(history, seconds, model_parameters(model),
                                      model_tensor_count(model));
    int status = add_kept(trainee);
    if (status == WEFT_OK)
        status = keep_parameters(trainee);
    if (status == WEFT_OK)
        status = take_kept(trainee, &kept);
    return status == WEFT_OK ? train_history_add_last(history, seconds, &kept, 1) : status;
}

int trainee_show(struct trainee *trainee, uint64_t done)
{
    const struct train_job *job = trainee->job;
    double time = trainee_now(trainee);
    double loss = 0.0;

    if (trainee->setup.rank != 0 || !cli_shows_progress() || time - trainee->shown < 0.2)
        return WEFT_OK;
    trainee->shown = time;
    int status = model_loss(trainee->setup.model, &loss);
    if (status == WEFT_OK)
        cli_progress("%s: step %llu of %llu, %.1f s, loss %.4f", job->algorithm->name,
                     (unsigned long long)done, (unsigned long long)job->options->steps,
                     time - trainee->began, loss);
    return status;
}
