/* SPDX-License-Identifier: BSD-3-Clause */
/* Where libraries are that libweft loads by itself. */
#ifndef WEFT_RUNTIME_BASE_BESIDE_H
#define WEFT_RUNTIME_BASE_BESIDE_H

#include <stddef.h>

/* The path of a file beside the library, or program, that this code is part of, as in a build
 * folder or a prefix that no search path names. 0: it is not there, or not known where that is. */
int weft__beside(const char *file, char *path, size_t size);

#endif
