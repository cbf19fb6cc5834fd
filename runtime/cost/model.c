/* SPDX-License-Identifier: BSD-3-Clause */
/* The costs that are assumed of a transport until somebody has measured them. */
#include <string.h>
#include <weft/cost.h>

struct defaults {
    const char *transport;
    struct weft_cost_model model;
};

/* Estimates from the bandwidths and latencies of a 2-core Zen 4 machine, not fitted to runs of the
 * engine. "local": a reduction reads straight from the sender's memory, a copy
 * runs at what one core streams; "mpi": MPICH between two processes that share memory. */
static const struct defaults table[] = {
    {"local",
     {.struct_size = sizeof(struct weft_cost_model),
      .alpha_us = 0.2,
      .beta_us_per_byte = 1 / 14.5e3,
      .gamma_us_per_byte = 1 / 50e3,
      .copy_us_per_byte = 1 / 14.5e3,
      .node_us = 0.025,
      .segment_bytes = 256 * 1024}},
    {"mpi",
     {.struct_size = sizeof(struct weft_cost_model),
      .alpha_us = 0.3,
      .beta_us_per_byte = 1 / 9.5e3,
      .gamma_us_per_byte = 1 / 50e3,
      .copy_us_per_byte = 1 / 14.5e3,
      .node_us = 0.025,
      .segment_bytes = 1024 * 1024}},
};

void weft_cost_model_init(struct weft_cost_model *model, const char *transport)
{
    if (!model)
        return;
    *model = table[0].model;
    for (size_t i = 0; transport && i < sizeof table / sizeof table[0]; i++)
        if (!strcmp(table[i].transport, transport))
            *model = table[i].model;
}
