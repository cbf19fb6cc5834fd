/* SPDX-License-Identifier: BSD-3-Clause */
/* The shared transport, described. */
#include "runtime/base/companion.h"
#include <weft/context.h>
#include <weft/cost.h>

/* Fitted by `weft bench model` to two processes of a 2-core Zen 4 machine whose cores share an L3,
 * payload in memory of their own (docs/performance.md, "What messages cost"); but a wait is that of
 * memory of the context, by broadcasts of 16 KiB: 1.6 in memory of their own. */
static const struct weft_cost_model cost = {.struct_size = sizeof(struct weft_cost_model),
                                            .alpha_us = 0.23,
                                            .beta_us_per_byte = 1.035e-4,
                                            .gamma_us_per_byte = 2.4e-5,
                                            .copy_us_per_byte = 2.45e-5,
                                            .node_us = 0.0042,
                                            .segment_bytes = 256 * 1024,
                                            .eager_bytes = 8192,
                                            .rendezvous_us = 1.2,
                                            .eager_us_per_byte = 8.7e-5,
                                            .switch_us = 1};

/* Also what the MPI transport is for the ranks of one host. */
extern WEFT__PRIVATE const struct weft_transport weft__transport_shared;
const struct weft_transport weft__transport_shared = {.struct_size = sizeof(struct weft_transport),
                                                      .name = "shared",
                                                      .summary = "processes of one machine",
                                                      .available = 1,
                                                      .processes = 1,
                                                      .yield_ns = 200000,
                                                      .helper_yield_ns = 50000,
                                                      .cost = &cost};
