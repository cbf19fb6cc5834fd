/* SPDX-License-Identifier: BSD-3-Clause */
/* The local transport, described. */
#include "runtime/cost/model.h"
#include <weft/context.h>

const struct weft_transport weft__transport_local = {.struct_size = sizeof(struct weft_transport),
                                                     .name = "local",
                                                     .summary = "threads of one process",
                                                     .available = 1,
                                                     .yield_ns = 200000,
                                                     .helper_yield_ns = 50000,
                                                     .cost = &weft__cost_standard};
