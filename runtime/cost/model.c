/* SPDX-License-Identifier: BSD-3-Clause */
/* The costs that are assumed where nobody says better. */
#include "runtime/cost/model.h"

/* Estimates from the bandwidths and latencies of a 2-core Zen 4 machine, not fitted to runs of the
 * engine: a reduction reads the sender's memory itself, a copy runs at what one core streams. */
const struct weft_cost_model weft__cost_standard = {.struct_size = sizeof(struct weft_cost_model),
                                                    .alpha_us = 0.2,
                                                    .beta_us_per_byte = 1 / 14.5e3,
                                                    .gamma_us_per_byte = 1 / 50e3,
                                                    .copy_us_per_byte = 1 / 14.5e3,
                                                    .node_us = 0.025,
                                                    .segment_bytes = 256 * 1024};
