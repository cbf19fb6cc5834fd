/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of training algorithms. */
#include "tools/train/algorithm.h"

#include <string.h>

static const struct train_algorithm *const algorithms[] = {
    &train_allreduce, &train_merged,  &train_local,      &train_d_psgd,
    &train_sgp,       &train_ad_psgd, &train_eager_solo, &train_eager_majority,
    &train_wagma,     &train_topk,    &train_gtopk,      &train_oktopk,
    &train_gradiveq,  &train_qsgd,    &train_powersgd,   &train_bsp,
    &train_asp,       &train_ssp,     &train_dssp,       &train_r2sp,
    &train_osp,       NULL,
};

const struct train_algorithm *const *train_algorithms(void)
{
    return algorithms;
}

const struct train_algorithm *train_algorithm_find(const char *name, size_t length)
{
    for (size_t i = 0; algorithms[i]; i++)
        if (strlen(algorithms[i]->name) == length &&
            strncmp(algorithms[i]->name, name, length) == 0)
            return algorithms[i];
    return NULL;
}

int train_is_beside(const struct train_options *options, const struct train_algorithm *algorithm)
{
    if (algorithm->layers.ready)
        return 0;
    return options->order == TRAIN_LISTING ? algorithm->listed_beside
                                           : options->order == TRAIN_BESIDE;
}

int train_is_delayed(const struct train_options *options, const struct train_algorithm *algorithm)
{
    int gradients = algorithm->gradients.step && (!algorithm->by_contribution ||
                                                  options->contribution == WEFT_AVERAGE_ACCUMULATE);

    return gradients && train_is_beside(options, algorithm);
}

const char *train_order_name(const struct train_options *options,
                             const struct train_algorithm *algorithm)
{
    return algorithm->layers.ready                ? "layers"
           : train_is_delayed(options, algorithm) ? "delayed"
           : train_is_beside(options, algorithm)  ? "beside"
                                                  : "after";
}

int train_needs_helper(const struct train_options *options, const struct train_algorithm *algorithm)
{
    /* While a thread waits for its device, that perhaps waits for a run. */
    return algorithm->needs_helper || options->device || train_is_beside(options, algorithm);
}
