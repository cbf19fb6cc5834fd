/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/base/beside.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int weft__beside(const char *file, char *path, size_t size)
{
    Dl_info info;
    const char *slash;

    if (dladdr((void *)(uintptr_t)weft__beside, &info) == 0 || !info.dli_fname)
        return 0;
    slash = strrchr(info.dli_fname, '/');
    return slash &&
           (size_t)snprintf(path, size, "%.*s/%s", (int)(slash - info.dli_fname), info.dli_fname,
                            file) < size &&
           access(path, R_OK) == 0;
}
