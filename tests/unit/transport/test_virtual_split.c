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
    for (uint64_t seed = 1; seed <= 3000; seed++)
        play(seed);
}
