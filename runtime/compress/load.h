/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WEFT_RUNTIME_COMPRESS_LOAD_H
#define WEFT_RUNTIME_COMPRESS_LOAD_H

#include "runtime/compress/lapack/lapack.h"

/* LAPACK; NULL, with an error text, if it is not there. It stays loaded. */
const struct weft__lapack *weft__lapack_load(void);

#endif
