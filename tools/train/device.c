/* SPDX-License-Identifier: BSD-3-Clause */
/* The module that knows CUDA, and which rank has which device. */
#include "tools/train/device.h"

#include "tools/cli/module.h"
#include "tools/train/backend.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

/* Of a program that is linked with it. */
#pragma weak weft_command_cuda

static const struct cli_module needed = {.file = "command-cuda.so",
                                         .symbol = TRAIN_DEVICE_SYMBOL,
                                         .size = sizeof(struct train_device_module),
                                         .does = "trains on devices of CUDA",
                                         .needs = "nvcc"};
static const struct train_device_module *loaded;
static char why[512];

static void load(void)
{
    loaded = &weft_command_cuda;
    if (!loaded)
        loaded = cli_load_module(&needed, why, sizeof why);
}

static int find_module(const struct train_device_module **module)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, load);
    *module = loaded;
    return loaded ? WEFT_OK : weft_error_set(WEFT_ERR_UNSUPPORTED, "%s", why);
}

/* "cuda" is -1. */
static int parse(const char *name, int *ordinal)
{
    char *end = NULL;

    *ordinal = -1;
    if (strcmp(name, "cuda") == 0)
        return WEFT_OK;
    if (strncmp(name, "cuda:", 5) == 0 && name[5] >= '0' && name[5] <= '9') {
        long long number = strtoll(name + 5, &end, 10);
        *ordinal = number <= INT_MAX ? (int)number : INT_MAX;
    }
    return end && !*end ? WEFT_OK
                        : weft_error_set(WEFT_ERR_INVALID, "'%s'; expected cuda, or cuda:N", name);
}

/* The module, and a device of those that it finds. */
static int find(const char *name, const struct train_device_module **module, int *ordinal,
                int *devices)
{
    const char *chosen = getenv("WEFT_DEVICE");
    int status = parse(name, ordinal);

    /* As runs have it. */
    if (status == WEFT_OK && *ordinal < 0 && chosen && *chosen) {
        name = chosen;
        status = parse(name, ordinal);
    }

    if (status == WEFT_OK)
        status = find_module(module);
    if (status == WEFT_OK)
        status = (*module)->count(devices);
    if (status == WEFT_OK && *ordinal >= *devices)
        status = weft_error_set(WEFT_ERR_INVALID, "'%s'; expected one of cuda:0 to cuda:%d", name,
                                *devices - 1);
    return status;
}

const char *train_device_of_contexts(const char *name)
{
    return name && strchr(name, ':') ? name : NULL;
}

int train_device_check(const char *name)
{
    const struct train_device_module *module;
    int ordinal, devices;

    return find(name, &module, &ordinal, &devices);
}

/* ---- a rank's device ---- */

/* Of the ranks of this host how many come before this one, and how many there are. */
static int find_place(const struct weft_context *context, int *place, int *ranks)
{
    const int rank = weft_context_rank(context), size = weft_context_size(context);
    int *hosts = weft_memory_alloc((size_t)size, sizeof *hosts);

    if (!hosts)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for the hosts of ranks");
    int status = weft_context_hosts(context, hosts);
    *place = *ranks = 0;
    for (int r = 0; r < size && status == WEFT_OK; r++) {
        *place += r < rank && hosts[r] == hosts[rank];
        *ranks += hosts[r] == hosts[rank];
    }
    weft_memory_free(hosts);
    return status;
}

/* How many streams of a process are sure to have a connection to a device of their own. Those that
 * share one go on in the order in which their work was put there, so that one which waits for a run
 * may hold up the stream of that run. */
static long connections(void)
{
    const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    long number = text ? strtol(text, NULL, 10) : 0;

    return number > 0 ? number : 8;
}

/* A rank has its model's stream and its algorithm's, and libweft opens another one for a while.
 * Ranks that are processes do not meet in this. */
static int is_crowded(const struct weft_context *context, int ranks, int streams)
{
    return strcmp(weft_context_transport(context), "local") == 0 &&
           (1L + streams) * ranks >= connections();
}

int train_device_create(struct backend **backend, const char *name, struct weft_context *context,
                        size_t batch, size_t numbers, int streams)
{
    struct train_device_config config = {.batch = batch, .numbers = numbers};
    const struct train_device_module *module;
    int place, ranks, devices;
    int status = find(name, &module, &config.ordinal, &devices);

    if (status == WEFT_OK)
        status = find_place(context, &place, &ranks);
    if (status != WEFT_OK)
        return status;
    if (config.ordinal < 0) {
        config.ordinal = place % devices;
        ranks = (ranks - 1) / devices + 1;
    }
    status = module->create(backend, &config);
    if (status == WEFT_OK)
        (*backend)->crowded = is_crowded(context, ranks, streams);
    return status;
}
