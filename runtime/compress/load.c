/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loads libweft-lapack when principal components are asked for, so that nobody else has a LAPACK in
 * the process, and its threads: it is looked for beside libweft, then where the system looks. It is
 * never unloaded, as LAPACK's threads would be left without their code; so to load it again is to
 * look it up, and nothing has to be remembered here.
 */
#include "runtime/compress/load.h"

#include "runtime/base/beside.h"
#include "runtime/base/error.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <weft/version.h>

static const char file[] = "libweft-lapack.so.0";

const struct weft__lapack *weft__lapack_load(void)
{
    char path[PATH_MAX];
    const char *name = weft__beside(file, path, sizeof path) ? path : file;
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const struct weft__lapack *table;

    if (!library) {
        const char *why = dlerror();

        weft__error(
            WEFT_ERR_UNSUPPORTED,
            "principal components need LAPACK, in libweft-lapack: %s; it is built with weft "
            "where LAPACK is found",
            why ? why : "not found");
        return NULL;
    }
    table = dlsym(library, "weft__lapack_table");
    if (table && table->version == WEFT__LAPACK_VERSION)
        return table;
    weft__error(WEFT_ERR_UNSUPPORTED,
                "%s does not belong to libweft %s: install both from one build", name,
                WEFT_VERSION);
    dlclose(library);
    return NULL;
}
