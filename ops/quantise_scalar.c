/* SPDX-License-Identifier: BSD-3-Clause */
#define WEFT__QUANTISE_TABLE weft__quantise_scalar
#include "ops/quantise_template.h"
