/* SPDX-License-Identifier: BSD-3-Clause */
/* Virtual ranks, described. */
#include <weft/context.h>
#include <weft/cost.h>

/* No machine's: what algorithms are chosen by on any network, the same wherever it is simulated. */
static const struct weft_cost_model cost = {.struct_size = sizeof(struct weft_cost_model),
                                            .alpha_us = 0.2,
                                            .beta_us_per_byte = 1 / 14.5e3,
                                            .gamma_us_per_byte = 1 / 50e3,
                                            .copy_us_per_byte = 1 / 14.5e3,
                                            .node_us = 0.025,
                                            .segment_bytes = 256 * 1024};

const struct weft_transport weft__transport_virtual = {
    .struct_size = sizeof(struct weft_transport),
    .name = "virtual",
    .summary = "functions of one thread, in virtual time",
    .available = 1,
    .virtual_time = 1,
    .yield_ns = 200000,
    .helper_yield_ns = 50000,
    .cost = &cost};
