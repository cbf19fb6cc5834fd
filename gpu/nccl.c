/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/nccl.h"

#include <stdarg.h>
#include <stdio.h>

#include "gpu/table.h"
#include "runtime/base/error.h"

static struct weft__nccl loaded;

#define SYMBOL(name) {#name, offsetof(struct weft__nccl, name)},
static const struct weft__symbol needed[] = {WEFT__NCCL_FUNCTIONS(SYMBOL){NULL, 0}};

static int begin(void)
{
    ncclResult_t code = loaded.ncclGetVersion(&loaded.version);

    return code ? weft__nccl_error(&loaded, code, NULL, "ncclGetVersion", "%s", "") : WEFT_OK;
}

static struct weft__table table = {.file = "libnccl.so.2",
                                   .absent = "there is no NCCL",
                                   .what = "NCCL",
                                   .major = 2,
                                   .minor = 14,
                                   .needed = needed,
                                   .functions = &loaded,
                                   .begin = begin,
                                   .lock = PTHREAD_MUTEX_INITIALIZER};

int weft__nccl(const struct weft__nccl **nccl)
{
    int status = weft__table_load(&table);

    if (status == WEFT_OK)
        *nccl = &loaded;
    return status;
}

static int status_of(ncclResult_t code)
{
    switch (code) {
    case ncclRemoteError:
        return WEFT_ERR_PEER;
    case ncclInvalidArgument:
    case ncclInvalidUsage:
        return WEFT_ERR_INVALID;
    default:
        return WEFT_ERR_SYSTEM;
    }
}

int weft__nccl_error(const struct weft__nccl *nccl, ncclResult_t code, ncclComm_t comm,
                     const char *call, const char *format, ...)
{
    char behind[256];
    const char *last = nccl->ncclGetLastError(comm);
    va_list list;

    va_start(list, format);
    vsnprintf(behind, sizeof behind, format, list);
    va_end(list);
    return weft__error(status_of(code), "%s: NCCL says: %s%s%s%s%s%s", call,
                       nccl->ncclGetErrorString(code), last && *last ? " (" : "",
                       last && *last ? last : "", last && *last ? ")" : "", *behind ? " " : "",
                       behind);
}
