/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loads libweft-mpi when a context over MPI is asked for, so that nobody else has MPI in the
 * process: its threads, its signal handlers, its start-up time. It is looked for beside libweft, as
 * in a build folder or a prefix that no search path names, then where the system looks.
 *
 * A program that holds libweft as a static library must not load it: it would bring a libweft of
 * its own, and objects of one would be handed to the other.
 */
#include "runtime/transport/mpi/mpi_load.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <weft/version.h>

#include "runtime/base/beside.h"
#include "runtime/base/error.h"
#include "runtime/context/context.h"

static const char file[] = "libweft-mpi.so.0";

typedef int (*world_fn)(struct weft_context **context, const struct weft_context_config *config);

/* In world.c of libweft-mpi; NULL if the program was not linked with that. */
__attribute__((weak)) int weft__mpi_create_world(struct weft_context **context,
                                                 const struct weft_context_config *config);

int weft__mpi_installed(void)
{
    char path[PATH_MAX];
    void *loaded;

    if (weft__mpi_create_world || weft__beside(file, path, sizeof path))
        return 1;
    loaded = dlopen(file, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (loaded)
        dlclose(loaded);
    return loaded != NULL;
}

/* It stays loaded, as MPI does not survive its unloading. NULL, with weft__error set. */
static world_fn load(void)
{
    char path[PATH_MAX] = "";
    int near = weft__beside(file, path, sizeof path);
    void *library = dlopen(near ? path : file, RTLD_NOW | RTLD_LOCAL);
    void *found;

    if (!library) {
        const char *why = dlerror();

        weft__error(WEFT_ERR_UNSUPPORTED,
                    "%s: %s; it holds what is over MPI, and is built with weft where MPI is found",
                    near ? path : "libweft-mpi is not installed", why ? why : "not found");
        return NULL;
    }
    found = dlsym(library, "weft__companion_check");
    if (found != (void *)(uintptr_t)weft__companion_check) {
        weft__error(WEFT_ERR_UNSUPPORTED,
                    "%s would bring a libweft of its own, beside the static one in this program, "
                    "which calls weft_context_create_mpi() instead",
                    near ? path : file);
        return NULL;
    }
    found = dlsym(library, "weft__mpi_create_world");
    if (!found)
        weft__error(WEFT_ERR_STATE, "%s does not belong to libweft %s: install both from one build",
                    near ? path : file, WEFT_VERSION);
    return (world_fn)(uintptr_t)found;
}

int weft__mpi_world(const char *who, struct weft_context **context,
                    const struct weft_context_config *config)
{
    (void)who;
    world_fn world = weft__mpi_create_world ? weft__mpi_create_world : load();

    return world ? world(context, config) : WEFT_ERR_UNSUPPORTED;
}
