/* SPDX-License-Identifier: BSD-3-Clause */
/* What suites on virtual ranks share. */
#ifndef WEFT_TESTS_VIRTUAL_RANKS_H
#define WEFT_TESTS_VIRTUAL_RANKS_H

#include "support/ranks.h"
#include "tests/support/bind.h"

static inline struct weft_virtual_config with_seed(uint64_t seed)
{
    struct weft_virtual_config config;
    weft_virtual_config_init(&config);
    config.seed = seed;
    config.shuffle = 1;
    return config;
}

/* Messages are late by up to delay_ns, and a share of them by up to heavy_ns more. */
static inline struct weft_virtual_config with_delays(uint64_t seed, uint64_t delay_ns,
                                                     double heavy_share, uint64_t heavy_ns)
{
    struct weft_virtual_config config = with_seed(seed);
    config.delay_ns = delay_ns;
    config.heavy_share = heavy_share;
    config.heavy_ns = heavy_ns;
    return config;
}

/* A network, borrowed, on which a message takes 1 us until the caller says more. */
static inline void give_net(struct weft_virtual_config *config, struct weft_net *net)
{
    weft_net_init(net);
    net->L = 1;
    config->net = net;
}

static inline struct weft_run *allreduce(struct weft_context *context, size_t count)
{
    struct weft_template_params params;
    struct weft_run *run = NULL;
    weft_template_params_init(&params);
    params.count = count;
    params.dtype = WEFT_I64;
    OK(weft_template_create_run(&run, context, "allreduce", &params));
    return run;
}

/* An allreduce, restarted with other data. */
static inline int add_ranks(struct weft_context *context, void *user)
{
    (void)user;
    int64_t in[5], out[5];
    int rank = weft_context_rank(context), size = weft_context_size(context);
    struct weft_run *run = allreduce(context, 5);
    OK(bind_name(run, "send", in));
    OK(bind_name(run, "recv", out));
    for (int64_t start = 0; start < 4; start++) {
        for (int64_t i = 0; i < 5; i++)
            in[i] = (rank + 1) * (i + 1) + start;
        OK(weft_run_execute(run));
        for (int64_t i = 0; i < 5; i++)
            CHECK(out[i] == (i + 1) * size * (size + 1) / 2 + start * size);
    }
    weft_run_destroy(run);
    return WEFT_OK;
}

#endif
