/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libweft-cuda, found and loaded as libweft-mpi is: beside libweft, then where the system looks. A
 * process that asks for no device has nothing of it, and one without a driver is told what is
 * missing.
 */
#include "runtime/device/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <weft/version.h>

#include "runtime/base/beside.h"
#include "runtime/base/error.h"

static const char file[] = "libweft-cuda.so.0";

typedef const char *(*build_fn)(uint64_t *layout);
typedef int (*open_fn)(int ordinal, int otherwise, struct weft__device **device);
typedef int (*describe_fn)(struct weft__devices *devices);
typedef int (*locate_fn)(const void *address);

/* In gpu/; NULL if the program was not linked with that. */
#pragma weak weft__cuda_describe
#pragma weak weft__cuda_locate
#pragma weak weft__cuda_open

/* It stays loaded, as drivers do not survive their unloading. WEFT_ERR_NOT_FOUND: it is not
 * there. */
static int load(void **library, const char **path, char *place, size_t size)
{
    int near = weft__beside(file, place, size);
    const char *why;

    *path = near ? place : file;
    *library = dlopen(*path, RTLD_NOW | RTLD_LOCAL);
    if (*library)
        return WEFT_OK;
    why = dlerror();
    return weft__error(near ? WEFT_ERR_UNSUPPORTED : WEFT_ERR_NOT_FOUND,
                       "%s: %s; it holds what is on devices, and is built with weft where nvcc is "
                       "found",
                       near ? place : "libweft-cuda is not installed", why ? why : "not found");
}

/* Whether it is of this build, and uses this libweft, and no other one. */
static int check(void *library, const char *path)
{
    void *found = dlsym(library, "weft__error");
    uint64_t layout = 0;
    build_fn build;
    const char *version;

    if (found != (void *)(uintptr_t)weft__error)
        return weft__error(WEFT_ERR_UNSUPPORTED,
                           "%s would bring a libweft of its own, beside the static one in this "
                           "program",
                           path);
    build = (build_fn)(uintptr_t)dlsym(library, "weft__cuda_build");
    version = build ? build(&layout) : "(of no version)";
    if (strcmp(version, WEFT_VERSION) != 0 || layout != WEFT__DEVICE_LAYOUT)
        return weft__error(WEFT_ERR_STATE,
                           "%s %s does not belong to libweft %s%s: install both from one build",
                           path, version, WEFT_VERSION,
                           strcmp(version, WEFT_VERSION) == 0 ? " (another build of it)" : "");
    return WEFT_OK;
}

static int find(const char *name, void **function)
{
    char place[PATH_MAX] = "";
    const char *path;
    void *library;
    int status = load(&library, &path, place, sizeof place);

    if (status == WEFT_OK)
        status = check(library, path);
    if (status < 0)
        return status;
    *function = dlsym(library, name);
    return *function ? WEFT_OK
                     : weft__error(WEFT_ERR_STATE,
                                   "%s has no %s: install it from the build of "
                                   "libweft %s",
                                   path, name, WEFT_VERSION);
}

/* "cuda" is -1. */
static int parse(const char *name, int *ordinal)
{
    char *end;
    long number;

    *ordinal = -1;
    if (!name || strcmp(name, "cuda") == 0)
        return WEFT_OK;
    if (strncmp(name, "cuda:", 5) == 0 && name[5] >= '0' && name[5] <= '9') {
        errno = 0;
        number = strtol(name + 5, &end, 10);
        *ordinal = (int)number;
        if (*end == '\0' && errno == 0 && number <= INT_MAX)
            return WEFT_OK;
    }
    return weft__error(WEFT_ERR_INVALID, "device is \"%s\", expected \"cuda\" or \"cuda:N\"", name);
}

int weft__device_open(const char *name, int otherwise, struct weft__device **device)
{
    void *function = (void *)(uintptr_t)weft__cuda_open;
    int ordinal;
    int status = parse(name, &ordinal);

    if (status == WEFT_OK && !function)
        status = find("weft__cuda_open", &function);
    if (status == WEFT_ERR_NOT_FOUND)
        status = WEFT_ERR_UNSUPPORTED;
    return status < 0 ? status : ((open_fn)(uintptr_t)function)(ordinal, otherwise, device);
}

int weft__device_describe(struct weft__devices *devices)
{
    void *function = (void *)(uintptr_t)weft__cuda_describe;
    int status = function ? WEFT_OK : find("weft__cuda_describe", &function);

    return status < 0 ? status : ((describe_fn)(uintptr_t)function)(devices);
}

/* Only what is loaded already can have opened a device. */
int weft__device_locate(const void *address)
{
    void *function = (void *)(uintptr_t)weft__cuda_locate;
    char place[PATH_MAX] = "";
    void *library = NULL;
    int status = 0;

    if (!function) {
        library = dlopen(weft__beside(file, place, sizeof place) ? place : file,
                         RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
        function = library ? dlsym(library, "weft__cuda_locate") : NULL;
    }
    if (function)
        status = ((locate_fn)(uintptr_t)function)(address);
    if (library)
        dlclose(library);
    return status;
}
