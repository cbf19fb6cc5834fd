/* SPDX-License-Identifier: BSD-3-Clause */
/* The MPI transport, described, also where it is not installed: its costs choose algorithms. */
#include "runtime/base/companion.h"
#include <weft/context.h>
#include <weft/cost.h>

/* Fitted by `weft bench model` to MPICH 4.0.2 between two processes of a 2-core Zen 4 machine that
 * pretend to be on two hosts (WEFT_HOSTS=0,1; docs/performance.md, "What messages cost"): a network
 * is slower. Contexts whose ranks are all on one host have the shared transport's costs and idle
 * times instead (near.c). */
static const struct weft_cost_model cost = {.struct_size = sizeof(struct weft_cost_model),
                                            .alpha_us = 0.755,
                                            .beta_us_per_byte = 1e-4,
                                            .gamma_us_per_byte = 2.42e-5,
                                            .copy_us_per_byte = 2.48e-5,
                                            .node_us = 0.0042,
                                            .segment_bytes = 1024 * 1024,
                                            .eager_bytes = 8192,
                                            .rendezvous_us = 1.87,
                                            .eager_us_per_byte = 1.05e-4,
                                            .switch_us = 1};

/* Who sleeps is woken by its own host alone, and has to poll: it yields for longer before. */
extern WEFT__PRIVATE const struct weft_transport weft__transport_mpi;
const struct weft_transport weft__transport_mpi = {.struct_size = sizeof(struct weft_transport),
                                                   .name = "mpi",
                                                   .summary = "processes of an MPI communicator",
                                                   .processes = 1,
                                                   .yield_ns = 1000000,
                                                   .helper_yield_ns = 1000000,
                                                   .cost = &cost};
