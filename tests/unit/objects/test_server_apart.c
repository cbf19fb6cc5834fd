/* SPDX-License-Identifier: BSD-3-Clause */
/* Parameter servers whose workers go each at its own pace, over many seeds. */
#include <criterion/criterion.h>

#include "server_apart.h"

enum { SEEDS = SWEPT(420, 80) };

static void tell_all(weft_server_sync_t sync, uint64_t first, uint64_t count)
{
    for (uint64_t seed = first; seed < first + count; seed++) {
        struct apart apart = new_apart(seed, sync);
        tell_apart(&apart);
    }
}

Test(server_apart, asp_applies_every_push_once_in_one_order, .timeout = 140)
{
    tell_all(WEFT_SERVER_ASP, 1, SEEDS);
}

Test(server_apart, ssp_applies_every_push_once_in_one_order, .timeout = 140)
{
    tell_all(WEFT_SERVER_SSP, 10001, SEEDS);
}

Test(server_apart, dssp_applies_every_push_once_in_one_order, .timeout = 140)
{
    tell_all(WEFT_SERVER_DSSP, 20001, SEEDS);
}

Test(server_apart, r2sp_goes_round, .timeout = 140)
{
    tell_all(WEFT_SERVER_R2SP, 30001, SEEDS);
}

Test(server_apart, layers_may_be_absent, .timeout = 140)
{
    for (uint64_t seed = 40001; seed < 40001 + SEEDS; seed++) {
        struct apart apart = new_apart(seed, (weft_server_sync_t)(WEFT_SERVER_ASP + seed % 4));
        apart.absences = 1;
        tell_apart(&apart);
    }
}

Test(server_apart, models_are_mixed, .timeout = 140)
{
    for (uint64_t seed = 50001; seed < 50001 + SEEDS; seed++) {
        struct apart apart = new_apart(seed, (weft_server_sync_t)(WEFT_SERVER_ASP + seed % 4));
        apart.config.push = WEFT_SERVER_MODELS;
        apart.config.optimiser = WEFT_SERVER_UPDATES;
        apart.config.momentum = 0;
        apart.absences = seed % 8 < 4;
        tell_apart(&apart);
    }
}

/* A fast worker gets as far as it may, and no further; so do updates between a pull and a push. */
Test(server_apart, who_is_ahead_gets_as_far_as_it_may)
{
    for (uint64_t s = 0; s < 5; s++)
        for (int dynamic = 0; dynamic < 2; dynamic++) {
            uint64_t ahead = 0;
            int most = 0; /* updates between */
            for (uint64_t seed = 1; seed <= 40; seed++) {
                struct apart apart = new_apart(seed, dynamic ? WEFT_SERVER_DSSP : WEFT_SERVER_SSP);
                apart.config.staleness = s;
                apart.config.staleness_most = s + (dynamic ? 2 : 0);
                apart.slow_ns = 900000;
                for (size_t w = 0; w < apart.workers; w++)
                    apart.told[w].steps = APART_STEPS;
                tell_apart(&apart);
                ahead = apart.ahead > ahead ? apart.ahead : ahead;
                most |= apart.workers > 1 && apart.staleness == (2 * s + 1) * (apart.workers - 1);
            }
            cr_assert(ahead >= s, "s = %d: %d", (int)s, (int)ahead);
            cr_assert(!dynamic || ahead > s);
            cr_assert(most || dynamic || s > 1, "s = %d", (int)s);
        }
}

/* Servers that hold nothing, and layers on one of several servers alone. */
Test(server_apart, more_servers_than_layers, .timeout = 140)
{
    static const size_t counts[] = {3, 0, 1};
    for (uint64_t seed = 1; seed <= SWEPT(300, 60); seed++) {
        struct apart apart = new_apart(seed, (weft_server_sync_t)(WEFT_SERVER_ASP + seed % 4));
        apart.shape = shape_of(counts, seed % 5 % 4);
        apart.config.place = WEFT_SERVER_APART;
        apart.config.servers = 5;
        apart.config.split_bytes = SIZE_MAX;
        apart.ranks = (int)apart.workers + 5;
        apart.absences = seed % 2 == 0;
        tell_apart(&apart);
    }
}
