/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes that have device memory of each other and end, or whose driver fails: the others hear
 * of it, and go on. Each play has processes of its own.
 */
#include <cuda.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft/shared.h>
#include <weft/weft.h>

#include "support/forked.h"
#include "tests/gpu/support/device_memory.h"
#include "tests/gpu/support/standin_calls.h"
#include "tests/support/bind.h"

enum { RANKS = 3, VICTIM = 1, BYTES = 1500000 };

struct play {
    int steps;          /* the victim is killed when it has driven so often; -1: it is not */
    unsigned long call; /* of the victim's driver, which fails while it runs; 0: none */
};

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            forked_fail(self, "%s:%d: %s: %s", __FILE__, __LINE__, #condition, weft_error_text()); \
    } while (0)

static struct weft_context *meet(struct forked_rank *self)
{
    struct weft_context *context = NULL;
    struct weft_shared_config shared;

    weft_shared_config_init(&shared);
    shared.name = self->forked->name;
    CHECK(weft_context_create_shared(&context, self->rank, RANKS, NULL, &shared) == WEFT_OK);
    return context;
}

static int execute(const struct forked_rank *self, struct weft_context *context,
                   struct weft_run *run, const struct play *play)
{
    unsigned long before = standin_find()->calls();
    int status;

    if (play)
        standin_find()->fail_at(play->call, CUDA_ERROR_UNKNOWN);
    status = weft_run_start(run);
    for (int step = 0; play && play->steps >= 0; step++) {
        if (step == play->steps)
            raise(SIGKILL);
        weft_context_progress(context);
    }
    if (status == WEFT_OK)
        status = weft_run_wait(run, WEFT_NEVER);
    if (play && play->call) {
        standin_find()->fail_at(0, 0);
        atomic_store(&self->forked->words[0], standin_find()->calls() - before >= play->call);
    }
    return status;
}

/* All of a rank's memory to the next one, and what that makes of it. */
static int pass_on(const struct forked_rank *self, struct weft_context *context,
                   const struct play *play)
{
    int rank = weft_context_rank(context), size = weft_context_size(context);
    unsigned char *out = device_alloc(BYTES), *in = device_alloc(BYTES), *copy = malloc(BYTES);
    struct weft_schedule *s = NULL;
    struct weft_plan *plan = NULL;
    struct weft_run *run = NULL;
    int status;

    CHECK(copy && weft_schedule_create(&s, rank, size) == WEFT_OK);
    weft_slot_t from = weft_schedule_add_slot(s, "out", WEFT_U8, BYTES, WEFT_SLOT_INPUT);
    weft_slot_t to = weft_schedule_add_slot(s, "in", WEFT_U8, BYTES, WEFT_SLOT_OUTPUT);
    CHECK(weft_schedule_set_memory(s, WEFT_SLOT_ALL, WEFT_MEMORY_DEVICE) == WEFT_OK);
    weft_schedule_add_send(s, weft_region_at(from, 0, BYTES), (rank + 1) % size, 0);
    weft_schedule_add_recv(s, weft_region_at(to, 0, BYTES), (rank + size - 1) % size, 0);
    CHECK(weft_schedule_commit(s, &plan) == WEFT_OK);
    weft_schedule_destroy(s);
    status = weft_run_create(&run, context, plan, NULL);
    weft_plan_destroy(plan);
    CHECK(status == WEFT_OK);
    CHECK(bind_slot(run, from, out) == WEFT_OK && bind_slot(run, to, in) == WEFT_OK);
    for (int version = 0; version < 2 && status == WEFT_OK; version++) {
        memset(copy, rank + version + 1, BYTES);
        device_put(out, copy, BYTES);
        status = execute(self, context, run, version == 1 ? play : NULL);
        if (status == WEFT_OK)
            device_get(copy, in, BYTES);
        for (size_t i = 0; i < BYTES && status == WEFT_OK; i++)
            CHECK(copy[i] == (rank + size - 1) % size + version + 1);
    }
    weft_run_destroy(run);
    device_free(out);
    device_free(in);
    free(copy);
    return status;
}

static void expect_clean(const struct forked_rank *self)
{
    device_check();
    CHECK(device_left() == 0);
}

static int killed(struct forked_rank *self, void *user)
{
    const struct play *play = user;
    struct weft_context *context, *left = NULL;
    weft_rank_state_t state = WEFT_RANK_PRESENT;
    int status;

    device_use(self->rank % device_count());
    context = meet(self);
    if (self->rank == VICTIM)
        self->forked->killed[VICTIM] = 1;
    status = pass_on(self, context, self->rank == VICTIM ? play : NULL);
    /* Whoever was through before goes on until it hears. */
    while (status == WEFT_OK)
        status = pass_on(self, context, NULL);
    CHECK(status == WEFT_ERR_PEER);
    /* Another that has heard of it may have dropped the message before this one hears. */
    while (state == WEFT_RANK_PRESENT) {
        CHECK(weft_context_progress(context) >= 0);
        CHECK(weft_context_rank_state(context, VICTIM, &state, NULL) == WEFT_OK);
        sched_yield();
    }
    CHECK(state == WEFT_RANK_DEAD);
    CHECK(weft_context_shrink(context, &left) == WEFT_OK && weft_context_size(left) == RANKS - 1);
    for (int i = 0; i < 2; i++)
        CHECK(pass_on(self, left, NULL) == WEFT_OK);
    CHECK(weft_context_destroy(left) == WEFT_OK && weft_context_destroy(context) == WEFT_OK);
    expect_clean(self);
    return 0;
}

/* Its own run fails, and with it those of the others, or all are well. */
static int failed(struct forked_rank *self, void *user)
{
    const struct play *play = user;
    struct weft_context *context;
    int status;

    device_use(self->rank % device_count());
    context = meet(self);
    status = pass_on(self, context, self->rank == VICTIM ? play : NULL);
    if (self->rank == VICTIM)
        CHECK(status == WEFT_OK || status == WEFT_ERR_SYSTEM || status == WEFT_ERR_COMPUTE);
    else
        CHECK(status == WEFT_OK || status == WEFT_ERR_PEER);
    /* It has the memory of who reads it. */
    forked_come(self);
    while (!forked_all_came(self)) {
        weft_context_progress(context);
        sched_yield();
    }
    CHECK(weft_context_destroy(context) == WEFT_OK);
    expect_clean(self);
    return 0;
}

/* All ranks have ended; 1: one has failed. */
static int has_failed(const char *what, struct forked *forked)
{
    char text[FORKED_TEXT + 100];

    if (!forked_wait(forked, text, sizeof text))
        return 0;
    printf("not ok - %s: %s\n", what, text);
    return 1;
}

/* Each `stride`-th call. */
static int play_failures(unsigned long stride)
{
    struct play play = {.steps = -1, .call = 1};
    int fired = 1;

    while (fired) {
        struct forked *forked;
        char what[64];

        snprintf(what, sizeof what, "call %lu of the driver fails", play.call);
        forked = forked_start(RANKS, failed, &play);
        if (has_failed(what, forked))
            return 1;
        fired = (int)atomic_load(&forked->words[0]);
        forked_free(forked);
        play.call += stride;
    }
    printf("ok 2 - calls of the driver fail, of %lu each %lu.\n", play.call - 1, stride);
    return play.call < 8; /* a run makes some */
}

/* test_between_ends [STRIDE] */
int main(int argc, char **argv)
{
    static const int steps[] = {0, 1, 2, 4, 9, 30};

    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        struct play play = {.steps = steps[i]};

        struct forked *forked = forked_start(RANKS, killed, &play);

        if (has_failed("killed", forked))
            return 1;
        forked_free(forked);
    }
    printf("ok 1 - a rank is killed\n");
    if (play_failures(argc > 1 ? strtoul(argv[1], NULL, 10) : 1))
        return 1;
    printf("1..2\n");
    return 0;
}
