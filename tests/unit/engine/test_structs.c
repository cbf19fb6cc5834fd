/* SPDX-License-Identifier: BSD-3-Clause */
/* Opaque elements as a program has them, on local and virtual ranks; structs.h says which. */
#include <criterion/criterion.h>

#include "support/ranks.h"
#include "support/structs.h"
#include "support/sweep.h"

/* A rank that fails ends the process, so that the others need not wait for it. */
static void one_rank(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)rank;
    OK(structs_rank(context, ranks->user));
}

Test(structs, one_local_rank)
{
    int few = 0;

    ranks_run_each_way(one_rank, 1, &few);
}

Test(structs, local_ranks)
{
    static const int sizes[] = {2, 3, 5, 8};
    int few = SWEPT(0, 1);

    for (size_t i = 0; i < SWEPT(sizeof sizes / sizeof sizes[0], 2); i++) {
        struct ranks ranks;

        ranks_init(&ranks, sizes[i], one_rank, &few);
        ranks_run(&ranks);
    }
}

Test(structs, local_ranks_each_way)
{
    int few = 1;

    ranks_run_each_way(one_rank, 3, &few);
    ranks_run_each_way(one_rank, 5, &few);
}

Test(structs, small_slices)
{
    struct ranks ranks;
    int few = SWEPT(0, 1);

    ranks_init(&ranks, 3, one_rank, &few);
    ranks.config.slice_bytes = 1; /* as small as they may be */
    ranks_run(&ranks);
}

Test(structs, virtual_ranks)
{
    static const int sizes[] = {1, 2, 3, 5, 7, 13};
    int few = 1;

    for (size_t i = 0; i < SWEPT(sizeof sizes / sizeof sizes[0], 4); i++) {
        struct weft_virtual_config config;
        struct weft_net net;

        weft_net_init(&net);
        weft_virtual_config_init(&config);
        config.net = &net;
        config.seed = i;
        config.shuffle = 1;
        config.delay_ns = i % 2 ? 20000 : 0;
        if (i % 3 == 1)
            net.S = WEFT_NET_NO_EAGER;
        if (i % 2) {
            net.G = 0.001;
            config.reduce_ns_per_byte = 0.2;
            config.copy_ns_per_byte = 0.1;
        }
        cr_assert_eq(weft_virtual_run(sizes[i], &config, structs_rank, &few), WEFT_OK,
                     "%d ranks: %s", sizes[i], weft_error_text());
    }
}

Test(structs, a_message_that_ends_within_an_element_fails_its_receive)
{
    cr_expect_eq(weft_local_run(1, NULL, structs_broken, NULL), WEFT_OK, "%s", weft_error_text());
    cr_expect_eq(weft_virtual_run(1, NULL, structs_broken, NULL), WEFT_OK, "%s", weft_error_text());
}
