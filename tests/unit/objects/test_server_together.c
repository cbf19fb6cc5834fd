/* SPDX-License-Identifier: BSD-3-Clause */
/* Parameter servers whose workers go together, BSP and OSP: every model of every worker after every
 * step, against a plain loop. */
#include <criterion/criterion.h>

#include "server_together.h"

static const size_t sizes[] = {1, 2, 3, 5, 8, 16};

/* ---- BSP ---- */

/* Every number of workers and servers, both places, both datatypes. */
Test(server_together, bsp_is_a_plain_loop_bit_by_bit, .timeout = 140)
{
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int servers = 1; servers <= 3; servers++)
            for (int variant = 0; variant < 4; variant++) {
                struct story story =
                    new_story(1000 + s * 100 + (uint64_t)(servers * 10 + variant), sizes[s]);
                story.config.place = variant & 1 ? WEFT_SERVER_COLOCATED : WEFT_SERVER_APART;
                story.config.servers =
                    variant & 1 && servers > (int)sizes[s] ? (int)sizes[s] : servers;
                story.config.dtype = variant & 2 ? WEFT_F64 : WEFT_F32;
                story.ranks = (int)sizes[s] + (variant & 1 ? 0 : story.config.servers);
                tell(&story);
            }
}

Test(server_together, bsp_whatever_is_drawn, .timeout = 140)
{
    for (uint64_t seed = 1; seed <= SWEPT(400, 80); seed++) {
        struct story story = new_story(seed, sizes[seed % 5]);
        tell(&story);
    }
}

/* Parts of many slices, whole and split, beside small and empty layers. */
Test(server_together, bsp_of_large_layers)
{
    static const size_t counts[] = {70000, 3, 0, 1000, 150001};
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct story story = new_story(seed, 2 + seed % 2);
        story.shape = shape_of(counts, 5);
        story.steps = 3;
        story.config.split_bytes = seed % 3 ? 0 : SIZE_MAX;
        story.config.merge_bytes = seed % 2 ? 0 : 30000;
        story.config.segment_bytes = 50000;
        tell(&story);
    }
}

Test(server_together, layers_may_be_absent)
{
    for (uint64_t seed = 1; seed <= SWEPT(150, 30); seed++) {
        struct story story = new_story(seed, sizes[seed % 5]);
        story.absences = 1;
        tell(&story);
    }
}

Test(server_together, models_are_averaged)
{
    for (uint64_t seed = 1; seed <= SWEPT(150, 30); seed++) {
        struct story story = new_story(seed, sizes[seed % 5]);
        story.config.push = WEFT_SERVER_MODELS;
        story.config.optimiser = WEFT_SERVER_UPDATES;
        story.config.momentum = 0;
        story.absences = seed % 3 == 0;
        tell(&story);
    }
}

/* One element, and many servers. */
Test(server_together, more_servers_than_there_is_to_hold)
{
    static const size_t counts[] = {1, 0};
    for (uint64_t seed = 1; seed <= SWEPT(60, 12); seed++) {
        struct story story = new_story(seed, 1 + seed % 4);
        story.shape = shape_of(counts, seed % 3);
        story.config.place = seed % 2 ? WEFT_SERVER_APART : WEFT_SERVER_COLOCATED;
        story.config.servers = seed % 2 ? 5 : (int)story.workers;
        story.ranks = (int)story.workers + (seed % 2 ? 5 : 0);
        tell(&story);
    }
}

/* ---- OSP ---- */

static struct story osp_story(uint64_t seed, double share)
{
    struct story story = new_story(seed, sizes[seed % 5]);
    story.config.sync = WEFT_SERVER_OSP;
    story.config.osp_share = share;
    story.steps = 7;
    return story;
}

/* The reference has no late layers then: it is that of BSP. */
Test(server_together, osp_with_nothing_late_is_bsp_bit_by_bit)
{
    for (uint64_t seed = 1; seed <= SWEPT(100, 20); seed++) {
        struct story story = osp_story(seed, WEFT_OSP_NOTHING);
        tell(&story);
        cr_assert_eq(story.late_layers, 0);
    }
}

/*
 * Synchronous SGD one step late with local prediction. With S_0 the initial parameters:
 *
 *     S_{t+1} = the update of S_t by the mean of g_w(x_w(t))
 *     x_w(t+1) = S_t + (what g_w(x_w(t)) alone would make of it)
 *
 * The first step has no late layers, since nothing has been ranked.
 */
Test(server_together, osp_with_everything_late_is_one_step_behind_bit_by_bit, .timeout = 140)
{
    for (uint64_t seed = 1; seed <= SWEPT(300, 60); seed++) {
        struct story story = osp_story(seed, 1);
        story.config.osp_average = seed % 3 ? 0 : 0.75;
        story.corrections = seed % 4 == 0;
        size_t full = 0;
        tell(&story);
        for (size_t l = 0; l < story.shape.layers; l++)
            full += story.shape.first[l + 1] > story.shape.first[l];
        cr_assert_eq(story.late_layers, story.workers * (size_t)(story.steps - 1) * full, "seed %d",
                     (int)seed);
    }
}

Test(server_together, osp_with_some_layers_late, .timeout = 140)
{
    size_t late = 0;
    for (uint64_t seed = 1; seed <= SWEPT(400, 80); seed++) {
        struct story story = osp_story(seed, (double)(1 + seed % 9) / 10);
        story.config.osp_average = seed % 3 ? 0 : 0.5;
        story.corrections = seed % 4 == 0;
        story.absences = seed % 5 == 0;
        tell(&story);
        late += story.late_layers;
    }
    cr_assert_gt(late, SWEPT(1000, 200));
}

/* A late layer is what the servers have, or what was predicted, as a whole: its version says which.
 * Both happen. */
Test(server_together, osp_corrects_before_the_layer)
{
    size_t late = 0, corrected = 0;
    for (uint64_t seed = 1; seed <= SWEPT(300, 60); seed++) {
        struct story story = osp_story(seed, seed % 2 ? 1 : 0.6);
        story.config.osp_correction = WEFT_OSP_BEFORE_LAYER;
        story.pauses = 1;
        story.config.osp_average = seed % 3 ? 0 : 0.5;
        story.corrections = seed % 4 == 0;
        story.absences = seed % 5 == 0;
        tell(&story);
        late += story.late_layers;
        corrected += story.corrected_layers;
    }
    cr_assert_gt(corrected, SWEPT(1000, 200), "%zu of %zu", corrected, late);
    cr_assert_gt(late - corrected, SWEPT(1000, 200), "%zu of %zu", corrected, late);
}
