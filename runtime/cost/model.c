/* SPDX-License-Identifier: BSD-3-Clause */
/* The costs that are assumed where nobody says better. */
#include "runtime/cost/model.h"

/* Fitted by `weft bench model --rounds 9` to two local ranks on a 2-core Zen 4 machine whose cores
 * share an L3 (docs/performance.md, "What messages cost"). */
const struct weft_cost_model weft__cost_standard = {.struct_size = sizeof(struct weft_cost_model),
                                                    .alpha_us = 0.23,
                                                    .beta_us_per_byte = 6.7e-5,
                                                    .gamma_us_per_byte = 2.4e-5,
                                                    .copy_us_per_byte = 2.45e-5,
                                                    .node_us = 0.0042,
                                                    .segment_bytes = 256 * 1024,
                                                    .eager_bytes = 8192,
                                                    .rendezvous_us = 2.2,
                                                    .eager_us_per_byte = 1.69e-4,
                                                    .switch_us = 1};
