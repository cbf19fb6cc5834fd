/* SPDX-License-Identifier: BSD-3-Clause */
/* What every processor has. */
#define WEFT__TOPK_TABLE weft__topk_scalar
#include "ops/topk_template.h"
