/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GradiVeQ: phases.
 *
 *     warm-up ---> sampling ---> compressed ---.
 *                    ^    L_t samples           |  L_c steps, or most have voted for it
 *                    `--------------------------'
 *
 * Sums that are not finite are no samples, and sampling goes on for longer, but not for ever: after
 * 2 L_t steps projections are made of the samples that there are, if they are at least two. If
 * not, sampling begins anew: what was taken is old by then, and steps that are not compressed do no
 * harm.
 */
#include "schedules/objects/compressed_average/gradiveq.h"

enum { LEAST_SAMPLES = 2, TRIES = 2 };

static struct weft__gradiveq_phase sampling(const struct weft_gradiveq_config *config)
{
    uint64_t steps = config->sample_steps;
    return (struct weft__gradiveq_phase){.phase = WEFT_COMPRESSED_SAMPLING,
                                         .left = steps > (WEFT_NEVER - 1) / TRIES ? WEFT_NEVER - 1
                                                                                  : TRIES * steps};
}

static struct weft__gradiveq_phase compressed(const struct weft_gradiveq_config *config)
{
    return (struct weft__gradiveq_phase){.phase = WEFT_COMPRESSED_COMPRESSED,
                                         .left = config->compressed_steps};
}

struct weft__gradiveq_phase weft__gradiveq_begin(const struct weft_gradiveq_config *config,
                                                 uint64_t step)
{
    uint64_t warmup = config->warmup_steps == WEFT_WARMUP_NONE ? 0 : config->warmup_steps;
    if (step < warmup)
        return (struct weft__gradiveq_phase){.phase = WEFT_COMPRESSED_WARMUP,
                                             .left = warmup - step};
    return sampling(config);
}

static struct weft__gradiveq_phase sampled(const struct weft_gradiveq_config *config,
                                           const struct weft__gradiveq_phase *phase, int finite)
{
    struct weft__gradiveq_phase next = *phase;
    next.left--;
    next.samples += finite != 0;
    if (next.samples >= config->sample_steps)
        return compressed(config);
    if (!next.left)
        return next.samples >= LEAST_SAMPLES ? compressed(config) : sampling(config);
    return next;
}

struct weft__gradiveq_phase weft__gradiveq_after(const struct weft_gradiveq_config *config,
                                                 const struct weft__gradiveq_phase *phase,
                                                 const struct weft__gradiveq_sum *sum, int *early)
{
    struct weft__gradiveq_phase next = *phase;
    *early = 0;
    if (phase->phase == WEFT_COMPRESSED_SAMPLING)
        return sampled(config, phase, sum->finite);
    if (next.left != WEFT_NEVER)
        next.left--;
    if (next.left && phase->phase == WEFT_COMPRESSED_COMPRESSED &&
        sum->votes > sum->ranks - sum->votes) {
        next.left = 0;
        *early = 1;
    }
    return next.left ? next : sampling(config);
}

int weft__gradiveq_possible(const struct weft_gradiveq_config *config,
                            const struct weft__gradiveq_phase *phase)
{
    if (phase->phase == WEFT_COMPRESSED_COMPRESSED)
        return phase->left && !phase->samples &&
               (config->compressed_steps == WEFT_NEVER || phase->left <= config->compressed_steps);
    return phase->phase == WEFT_COMPRESSED_SAMPLING && phase->left &&
           phase->left <= sampling(config).left && phase->samples < config->sample_steps &&
           phase->samples <= sampling(config).left - phase->left;
}
