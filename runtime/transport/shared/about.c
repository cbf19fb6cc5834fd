/* SPDX-License-Identifier: BSD-3-Clause */
/* The shared transport, described. */
#include "runtime/base/companion.h"
#include "runtime/cost/model.h"
#include <weft/context.h>

/* Also what the MPI transport is for the ranks of one host. */
extern WEFT__PRIVATE const struct weft_transport weft__transport_shared;
const struct weft_transport weft__transport_shared = {.struct_size = sizeof(struct weft_transport),
                                                      .name = "shared",
                                                      .summary = "processes of one machine",
                                                      .available = 1,
                                                      .processes = 1,
                                                      .yield_ns = 200000,
                                                      .helper_yield_ns = 50000,
                                                      .cost = &weft__cost_standard};
