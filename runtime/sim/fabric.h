/* SPDX-License-Identifier: BSD-3-Clause */
/* Fabrics, checked. */
#ifndef WEFT_RUNTIME_SIM_FABRIC_H
#define WEFT_RUNTIME_SIM_FABRIC_H

#include <weft/fabric.h>

/* The most hosts of a fabric. */
#define WEFT__FABRIC_HOSTS (INT64_C(1) << 30)

/* Reads a fabric by the policy of weft/sized.h, checks it, and puts defaults in; @p given NULL: no
 * fabric. @p name is whose argument it is, for the error's text. */
int weft__fabric_read(const char *who, const char *name, const struct weft_fabric *given,
                      struct weft_fabric *fabric);

#endif
