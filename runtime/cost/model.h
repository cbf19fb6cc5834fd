/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEFT_RUNTIME_COST_MODEL_H
#define WEFT_RUNTIME_COST_MODEL_H

#include <weft/cost.h>

/* Between threads of one process: what is assumed of a transport that has no costs of its own. */
extern const struct weft_cost_model weft__cost_standard;

#endif
