/* SPDX-License-Identifier: BSD-3-Clause */
/* The MPI transport, described, also where it is not installed: its costs choose algorithms. */
#include "runtime/base/companion.h"
#include <weft/context.h>
#include <weft/cost.h>

/* Estimated for MPICH between two processes that share memory. Contexts whose ranks are all on one
 * host have the shared transport's costs and idle times instead (near.c). */
static const struct weft_cost_model cost = {.struct_size = sizeof(struct weft_cost_model),
                                            .alpha_us = 0.3,
                                            .beta_us_per_byte = 1 / 9.5e3,
                                            .gamma_us_per_byte = 1 / 50e3,
                                            .copy_us_per_byte = 1 / 14.5e3,
                                            .node_us = 0.025,
                                            .segment_bytes = 1024 * 1024};

/* Who sleeps is woken by its own host alone, and has to poll: it yields for longer before. */
extern WEFT__PRIVATE const struct weft_transport weft__transport_mpi;
const struct weft_transport weft__transport_mpi = {.struct_size = sizeof(struct weft_transport),
                                                   .name = "mpi",
                                                   .summary = "processes of an MPI communicator",
                                                   .processes = 1,
                                                   .yield_ns = 1000000,
                                                   .helper_yield_ns = 1000000,
                                                   .cost = &cost};
