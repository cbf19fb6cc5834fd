/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts of some ranks in virtual time: thousands of seeds, late messages, messages that overtake
 * others, signals that come twice. */
#include <criterion/criterion.h>

#include "support/virtual_ranks.h"

#include "support/splitting.h" /* after CHECK and OK */

struct life {
    uint64_t seed;
    int depth;
};

static int random_life(struct weft_context *context, void *user)
{
    const struct life *life = user;
    struct splitting splitting = {.own = mixed(life->seed, (uint64_t)weft_context_rank(context)),
                                  .longest_ns = 20000,
                                  .count = 4};
    split_at_random(&splitting, context, life->seed, life->depth);
    destroy_kept(&splitting);
    return WEFT_OK;
}

static void play(uint64_t seed)
{
    struct weft_virtual_config config = with_seed(seed);
    struct weft_net net;
    struct life life = {seed, 2};
    int size = 1 + (int)(mixed(seed, 9) % 9);
    give_net(&config, &net);
    if (seed % 2)
        net.o = 0.1;
    config.delay_ns = 30000;
    config.heavy_share = 0.05;
    config.heavy_ns = 400000;
    config.pauses_per_second = seed % 3 == 0 ? 5000 : 0;
    config.pause_ns = 30000;
    config.duplicate_share = 0.2;
    config.ranks_per_host = (int)(seed % 4);
    int status = weft_virtual_run(size, &config, random_life, &life);
    cr_assert(status == WEFT_OK, "seed %llu, %d ranks: %s", (unsigned long long)seed, size,
              weft_error_text());
}

Test(virtual_split, splits_of_splits_whatever_overtakes_what)
{
    for (uint64_t seed = 1; seed <= SWEPT(3000, 600); seed++)
        play(seed);
}

/* ---- ranks that stop ---- */

/* Goes on until something fails; destroys what it has in any case. */
static int until_it_fails(struct weft_context *context, void *user)
{
    const struct life *life = user;
    struct weft_context *kept[4] = {NULL};
    int rank = weft_context_rank(context), status = WEFT_OK;
    for (int turn = 0; turn < 40 && !status; turn++) {
        struct weft_context **child = &kept[turn % 4];
        uint64_t number = mixed(life->seed, (uint64_t)turn);
        OK(weft_context_destroy(*child));
        *child = NULL;
        status = weft_context_split(context, colour_of(number, rank, 2), 0, child);
        if (status || !*child)
            continue;
        struct weft_run *run = allreduce(*child, 3);
        int64_t in[3] = {1, 2, 3}, out[3];
        OK(bind_name(run, "send", in));
        OK(bind_name(run, "recv", out));
        status = weft_run_execute(run);
        weft_run_destroy(run);
    }
    for (int i = 0; i < 4; i++)
        OK(weft_context_destroy(kept[i]));
    return status;
}

Test(virtual_split, ranks_that_stop_leave_nobody_waiting_for_ever)
{
    int failed = 0;
    for (uint64_t seed = 1; seed <= SWEPT(500, 100); seed++) {
        struct weft_virtual_config config = with_seed(seed);
        struct life life = {seed, 0};
        int size = 2 + (int)(seed % 6);
        struct weft_virtual_fault fault = {
            .rank = (int)(seed % 2), .at_ns = 1000 + mixed(seed, 4) % 200000, .for_ns = WEFT_NEVER};
        config.delay_ns = 3000;
        config.faults = &fault;
        config.fault_count = 1;
        int status = weft_virtual_run(size, &config, until_it_fails, &life);
        cr_assert(status == WEFT_OK || status == WEFT_ERR_DEADLOCK || status == WEFT_ERR_PEER,
                  "seed %llu: %s", (unsigned long long)seed, weft_error_text());
        failed += status < 0;
    }
    cr_assert_gt(failed, SWEPT(100, 20));
}

/* ---- an abort while a context is being split ---- */

/* Ranks that have got a context, and others that have not: nobody waits for ever. */
static int abort_the_parent(struct weft_context *context, void *user)
{
    const struct life *life = user;
    int rank = weft_context_rank(context), size = weft_context_size(context);
    uint64_t own = mixed(life->seed, 100 + (uint64_t)rank);
    struct weft_context *parent = NULL, *child = NULL;
    OK(weft_context_split(context, 0, 0, &parent));
    OK(weft_context_sleep(context, own % 40000));
    if (rank == (int)(life->seed % (uint64_t)size))
        OK(weft_context_abort(parent, WEFT_ERR_COMPUTE, "that is all"));
    int status = weft_context_split(parent, 0, 0, &child);
    CHECK(status == WEFT_OK || status == WEFT_ERR_PEER || status == WEFT_ERR_COMPUTE);
    CHECK((status == WEFT_OK) == (child != NULL));
    if (own >> 20 & 1) {
        OK(weft_context_destroy(parent));
        parent = NULL;
    }
    for (int i = 0; child && i < 2; i++) {
        struct weft_context *grandchild = NULL;
        status = weft_context_split(child, rank % 2, 0, &grandchild);
        CHECK((status == WEFT_OK) == (grandchild != NULL));
        OK(weft_context_destroy(grandchild));
        status = weft_barrier(child);
        CHECK(status == WEFT_OK || status == WEFT_ERR_PEER);
    }
    OK(weft_context_destroy(child));
    OK(weft_context_destroy(parent));
    return WEFT_OK;
}

Test(virtual_split, an_abort_leaves_nobody_waiting_in_a_context_that_others_have_not)
{
    for (uint64_t seed = 1; seed <= SWEPT(2000, 400); seed++) {
        struct weft_virtual_config config = with_seed(seed);
        struct life life = {seed, 0};
        config.delay_ns = 30000;
        config.heavy_share = 0.1;
        config.heavy_ns = 100000;
        int status = weft_virtual_run(2 + (int)(seed % 5), &config, abort_the_parent, &life);
        cr_assert(status == WEFT_OK, "seed %llu: %s", (unsigned long long)seed, weft_error_text());
    }
}
