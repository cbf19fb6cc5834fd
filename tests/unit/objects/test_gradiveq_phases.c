/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GradiVeQ's phases, for all that steps can be: histories of a few steps, each with a sum that is
 * finite or not and votes of none, half or most of the ranks, against words written plainly.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "schedules/objects/compressed_average/gradiveq.h"

enum { STEPS = 8, KINDS = 6 };

static struct weft_gradiveq_config config_of(uint64_t warmup, uint64_t samples, uint64_t compressed)
{
    struct weft_gradiveq_config config;
    weft_sized_init(&config, sizeof config);
    config.warmup_steps = warmup ? warmup : WEFT_WARMUP_NONE;
    config.sample_steps = samples;
    config.compressed_steps = compressed;
    return config;
}

/* What a step is: finite or not, and how many of four ranks have voted. */
static struct weft__gradiveq_sum sum_of(int kind)
{
    static const int votes[] = {0, 2, 3};
    return (struct weft__gradiveq_sum){.finite = kind % 2, .votes = votes[kind / 2], .ranks = 4};
}

/* The letters of a history of steps: w, s, c. early: how many phases votes have ended. */
static void tell(const struct weft_gradiveq_config *config, const int *kinds, char *letters,
                 int *early)
{
    uint64_t warmup = config->warmup_steps == WEFT_WARMUP_NONE ? 0 : config->warmup_steps;
    uint64_t samples = 0, tried = 0, done = 0;
    int compressed = 0;
    *early = 0;
    for (uint64_t step = 0; step < STEPS; step++) {
        const struct weft__gradiveq_sum sum = sum_of(kinds[step]);
        letters[step] = step < warmup ? 'w' : compressed ? 'c' : 's';
        if (step < warmup)
            continue;
        if (compressed) {
            int over = ++done == config->compressed_steps;
            *early += !over && sum.votes >= 3;
            compressed = !over && sum.votes < 3;
            samples = tried = 0;
            continue;
        }
        tried++;
        samples += (uint64_t)sum.finite;
        int tired = tried == 2 * config->sample_steps;
        compressed = samples == config->sample_steps || (tired && samples >= 2);
        done = 0;
        if (tired && !compressed)
            samples = tried = 0;
    }
}

static void live(const struct weft_gradiveq_config *config, const int *kinds)
{
    char expected[STEPS + 1] = "", got[STEPS + 1] = "";
    int early = 0, all = 0, now = 0;
    struct weft__gradiveq_phase phase = weft__gradiveq_begin(config, 0);
    tell(config, kinds, expected, &all);
    for (int step = 0; step < STEPS; step++) {
        const struct weft__gradiveq_sum sum = sum_of(kinds[step]);
        got[step] = "wsc"[phase.phase];
        if (phase.phase == WEFT_COMPRESSED_WARMUP)
            cr_assert_eq(phase.left, config->warmup_steps - (uint64_t)step);
        else
            cr_assert(weft__gradiveq_possible(config, &phase), "step %d", step);
        phase = weft__gradiveq_after(config, &phase, &sum, &now);
        early += now;
    }
    cr_assert_str_eq(got, expected);
    cr_assert_eq(early, all, "%s: %d phases ended early, expected %d", got, early, all);
}

static void each_history(const struct weft_gradiveq_config *config)
{
    int kinds[STEPS] = {0};
    for (;;) {
        int at = 0;
        live(config, kinds);
        while (at < STEPS && ++kinds[at] == KINDS)
            kinds[at++] = 0;
        if (at == STEPS)
            return;
    }
}

Test(gradiveq_phases, of_short_phases_all_histories)
{
    const struct weft_gradiveq_config config = config_of(0, 2, 2);
    each_history(&config);
}

Test(gradiveq_phases, of_one_compressed_step)
{
    const struct weft_gradiveq_config config = config_of(1, 2, 1);
    each_history(&config);
}

Test(gradiveq_phases, of_three_samples_and_for_ever)
{
    const struct weft_gradiveq_config config = config_of(2, 3, WEFT_NEVER);
    each_history(&config);
}

Test(gradiveq_phases, the_papers_steps)
{
    const struct weft_gradiveq_config config = config_of(2500, 100, 400);
    const struct weft__gradiveq_sum sum = {.finite = 1, .ranks = 6};
    struct weft__gradiveq_phase phase = weft__gradiveq_begin(&config, 0);
    int early = 0;
    for (int step = 0; step < 5000; step++) {
        int at = (step - 2500) % 500;
        cr_assert_eq(phase.phase, step < 2500 ? WEFT_COMPRESSED_WARMUP
                                  : at < 100  ? WEFT_COMPRESSED_SAMPLING
                                              : WEFT_COMPRESSED_COMPRESSED);
        phase = weft__gradiveq_after(&config, &phase, &sum, &early);
        cr_assert_eq(early, 0);
    }
}

Test(gradiveq_phases, sampling_begins_at_once_behind_the_warmup)
{
    const struct weft_gradiveq_config config = config_of(5, 4, 3);
    cr_assert_eq(weft__gradiveq_begin(&config, 4).phase, WEFT_COMPRESSED_WARMUP);
    cr_assert_eq(weft__gradiveq_begin(&config, 4).left, 1);
    cr_assert_eq(weft__gradiveq_begin(&config, 5).phase, WEFT_COMPRESSED_SAMPLING);
    cr_assert_eq(weft__gradiveq_begin(&config, UINT64_MAX - 1).left, 8);
}

/* Half of the ranks are not most of them; of one rank one is. */
Test(gradiveq_phases, majorities)
{
    const struct weft_gradiveq_config config = config_of(0, 2, 10);
    const struct weft__gradiveq_phase phase = {.phase = WEFT_COMPRESSED_COMPRESSED, .left = 10};
    for (int ranks = 1; ranks <= 13; ranks++)
        for (int votes = 0; votes <= ranks; votes++) {
            const struct weft__gradiveq_sum sum = {.finite = 1, .votes = votes, .ranks = ranks};
            int early = 0;
            struct weft__gradiveq_phase next = weft__gradiveq_after(&config, &phase, &sum, &early);
            cr_assert_eq(early, 2 * votes > ranks, "%d of %d", votes, ranks);
            cr_assert_eq(next.phase, early ? WEFT_COMPRESSED_SAMPLING : WEFT_COMPRESSED_COMPRESSED);
        }
}

Test(gradiveq_phases, what_cannot_be_is_told)
{
    const struct weft_gradiveq_config config = config_of(5, 4, 3);
    static const struct weft__gradiveq_phase wrong[] = {{WEFT_COMPRESSED_WARMUP, 3, 0},
                                                        {WEFT_COMPRESSED_SAMPLING, 0, 0},
                                                        {WEFT_COMPRESSED_SAMPLING, 9, 0},
                                                        {WEFT_COMPRESSED_SAMPLING, 4, 4},
                                                        {WEFT_COMPRESSED_SAMPLING, 8, 1},
                                                        {WEFT_COMPRESSED_COMPRESSED, 0, 0},
                                                        {WEFT_COMPRESSED_COMPRESSED, 4, 0},
                                                        {WEFT_COMPRESSED_COMPRESSED, 2, 1},
                                                        {WEFT_COMPRESSED_COMPRESSED, WEFT_NEVER, 0},
                                                        {(weft_compressed_phase_t)3, 1, 0}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        cr_assert_not(weft__gradiveq_possible(&config, &wrong[i]), "%zu", i);
}
