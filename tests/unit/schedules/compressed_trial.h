/* SPDX-License-Identifier: BSD-3-Clause */
/* Trials of sums of vectors that are compressed: one template, started twice with other data, on
 * local ranks or on virtual ones. */
#ifndef WEFT_TESTS_UNIT_SCHEDULES_COMPRESSED_TRIAL_H
#define WEFT_TESTS_UNIT_SCHEDULES_COMPRESSED_TRIAL_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#include "support/virtual_ranks.h"
#include "tests/support/bind.h"

enum { MOST_RANKS = 16, ELEMENTS = 1600, ROUNDS = 2, SLOTS = 32 };

static const int sizes[] = {1, 2, 3, 5, 7, 8, 13, 16};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

struct trial {
    const char *name;
    struct weft_template_params params;
    size_t count;
    int scattered; /* 1: magnitudes differ by much */
    int ranks_alike;
    /* Fills a slot beside send and recv; all ranks alike. NULL: zeros. */
    void (*fill)(const struct trial *trial, const char *slot, void *data, size_t count);
    float send[ROUNDS][MOST_RANKS][ELEMENTS];
    float recv[ROUNDS][MOST_RANKS][ELEMENTS];
    float sent[ROUNDS][MOST_RANKS][ELEMENTS];
    double squares[ROUNDS][MOST_RANKS][SLOTS];
    float factor[ROUNDS][MOST_RANKS][ELEMENTS]; /* of block 0 */
};

static inline uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Between -1 and 1. */
static inline double draw(uint64_t a, uint64_t b)
{
    return (double)(mix(mix(a + 1) + b * 0x9e3779b97f4a7c15u) >> 11) * 0x1p-52 - 1;
}

static inline float contribution(const struct trial *trial, int rank, int round, size_t i)
{
    double value = draw((uint64_t)(1 + (trial->ranks_alike ? 0 : rank) + 100 * round), i);

    return (float)(trial->scattered ? value * exp2((double)(i % 37) - 18) : value);
}

static inline struct trial *make_trial(const char *name, const char *algo, size_t count,
                                       int in_place)
{
    struct trial *trial = calloc(1, sizeof *trial);

    cr_assert_not_null(trial);
    trial->name = name;
    trial->count = count;
    weft_template_params_init(&trial->params);
    trial->params.algo = algo;
    trial->params.count = count;
    trial->params.in_place = in_place;
    return trial;
}

static inline void keep(struct trial *trial, int round, int rank, const struct weft_slot_info *info,
                        const void *data)
{
    size_t bytes = info->count * weft_dtype_size(info->dtype);

    if (strcmp(info->name, "recv") == 0)
        memcpy(trial->recv[round][rank], data, bytes);
    else if (strcmp(info->name, "sent") == 0)
        memcpy(trial->sent[round][rank], data, bytes);
    else if (strcmp(info->name, "squares") == 0)
        memcpy(trial->squares[round][rank], data, bytes);
    else if (strcmp(info->name, "factor.0") == 0)
        memcpy(trial->factor[round][rank], data, bytes);
}

static inline int play_round(struct trial *trial, struct weft_run *run, void **slots, int round,
                             int rank)
{
    const struct weft_plan *plan = weft_run_plan(run);
    struct weft_slot_info info = {.struct_size = sizeof info};

    for (weft_slot_t s = 0; weft_plan_get_slot(plan, s, &info) == WEFT_OK; s++) {
        if (info.kind == WEFT_SLOT_SCRATCH)
            continue;
        CHECK(s < SLOTS);
        free(slots[s]);
        slots[s] = calloc(info.count + 1, weft_dtype_size(info.dtype));
        CHECK(slots[s]);
        if (strcmp(info.name, trial->params.in_place ? "recv" : "send") == 0)
            memcpy(slots[s], trial->send[round][rank], info.count * sizeof(float));
        else if (info.kind == WEFT_SLOT_OUTPUT)
            memset(slots[s], 0xa5, info.count * weft_dtype_size(info.dtype));
        else if (trial->fill)
            trial->fill(trial, info.name, slots[s], info.count);
        OK(bind_slot(run, s, slots[s]));
    }
    int status = weft_run_execute(run);
    for (weft_slot_t s = 0; !status && weft_plan_get_slot(plan, s, &info) == WEFT_OK; s++)
        if (info.kind != WEFT_SLOT_SCRATCH)
            keep(trial, round, rank, &info, slots[s]);
    return status;
}

static inline int one_rank(struct weft_context *context, void *user)
{
    struct trial *trial = user;
    int rank = weft_context_rank(context);
    void *slots[SLOTS] = {0};
    struct weft_run *run = NULL;
    int status = weft_template_create_run(&run, context, trial->name, &trial->params);

    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < trial->count; i++)
            trial->send[round][rank][i] = contribution(trial, rank, round, i);
    for (int round = 0; !status && round < ROUNDS; round++)
        status = play_round(trial, run, slots, round, rank);
    weft_run_destroy(run);
    for (int s = 0; s < SLOTS; s++)
        free(slots[s]);
    return status;
}

/* On local ranks, or with a seed on virtual ones whose messages are late and overtake others. */
static inline void play(struct trial *trial, int size, uint64_t seed)
{
    struct weft_virtual_config config = with_delays(seed, 20000, 0.1, 300000);
    struct weft_net net;
    int status;

    give_net(&config, &net);
    net.S = seed % 2 ? 64 : 0;
    status = seed ? weft_virtual_run(size, &config, one_rank, trial)
                  : weft_local_run(size, NULL, one_rank, trial);
    cr_assert_eq(status, WEFT_OK, "%s %s P=%d seed %d: %s", trial->name, trial->params.algo, size,
                 (int)seed, weft_error_text());
    for (int round = 0; round < ROUNDS; round++)
        for (int r = 1; r < size; r++)
            cr_assert_arr_eq(trial->recv[round][r], trial->recv[round][0],
                             trial->count * sizeof(float), "%s %s P=%d round %d: rank %d differs",
                             trial->name, trial->params.algo, size, round, r);
}

static inline double sum_of(const struct trial *trial, int size, int round, size_t i)
{
    double sum = 0;

    for (int r = 0; r < size; r++)
        sum += (double)trial->send[round][r][i];
    return sum;
}

static inline double magnitude_of(const struct trial *trial, int size, int round, size_t i)
{
    double sum = 0;

    for (int r = 0; r < size; r++)
        sum += fabs((double)trial->send[round][r][i]);
    return sum;
}

static inline void expect_near(const struct trial *trial, int size, int round, size_t i,
                               double expected, double bound)
{
    double got = (double)trial->recv[round][0][i];

    cr_assert(fabs(got - expected) <= bound,
              "%s %s P=%d round %d element %zu: %.9g, expected %.9g within %.3g", trial->name,
              trial->params.algo, size, round, i, got, expected, bound);
}

/* Over all ranks "sent" is the result. */
static inline void expect_shares(const struct trial *trial, int size, double bound)
{
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < trial->count; i++) {
            double sum = 0, magnitude = 0;

            for (int r = 0; r < size; r++) {
                sum += (double)trial->sent[round][r][i];
                magnitude += fabs((double)trial->sent[round][r][i]);
            }
            expect_near(trial, size, round, i, sum,
                        bound * (magnitude + magnitude_of(trial, size, round, i)));
        }
}

#endif
