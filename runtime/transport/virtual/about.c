/* SPDX-License-Identifier: BSD-3-Clause */
/* Virtual ranks, described. */
#include <weft/context.h>

const struct weft_transport weft__transport_virtual = {
    .struct_size = sizeof(struct weft_transport),
    .name = "virtual",
    .summary = "functions of one thread, in virtual time",
    .available = 1,
    .virtual_time = 1,
    .yield_ns = 200000,
    .helper_yield_ns = 50000};
