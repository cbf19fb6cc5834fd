/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The world of those processes of this machine that a launcher has started together: `weft launch`
 * (weft/shared.h), or torchrun. Their first contexts meet each other, then their second ones, and
 * so on: what they meet by is what all of a launch have in common, and a number.
 */
#include "runtime/transport/shared/shared.h"

#include "runtime/base/error.h"
#include "runtime/context/context.h"
#include "runtime/transport/shared/launched.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 512 };

struct world {
    int rank, size;
    char name[NAME_BYTES];
};

static const char *or_none(const char *name)
{
    const char *value = weft__env_text(name);

    return value ? value : "-";
}

/* What torchrun sets on every process, one of those that are there; NULL: none. */
static const char *torchrun_name(void)
{
    static const char *const names[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                        "TORCHELASTIC_RUN_ID"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (weft__env_text(names[i]))
            return names[i];
    return NULL;
}

/* RANK and WORLD_SIZE are words that others may use, too; so more of torchrun must be there. */
static int torchrun(const char *who, struct world *world)
{
    const char *local = weft__env_text("LOCAL_WORLD_SIZE");
    int local_rank = 0;
    int local_size = 0;

    if (!weft__env_text("RANK") && !weft__env_text("WORLD_SIZE"))
        return WEFT__INVALID("%s: environment: %s is set, but RANK and WORLD_SIZE are not", who,
                             torchrun_name());
    int status =
        weft__env_rank(who, "RANK", "WORLD_SIZE", WEFT__LAUNCH_MOST, &world->rank, &world->size);

    if (status != WEFT_OK)
        return status;
    if (local) {
        status = weft__env_rank(who, "LOCAL_RANK", "LOCAL_WORLD_SIZE", WEFT__LAUNCH_MOST,
                                &local_rank, &local_size);
        if (status != WEFT_OK)
            return status;
        if (local_size != world->size)
            return weft__error(WEFT_ERR_UNSUPPORTED,
                               "%s: environment: LOCAL_WORLD_SIZE is %d, WORLD_SIZE %d: the "
                               "processes are on several hosts, and transport `shared` is one of "
                               "processes of one host; expected transport `mpi`",
                               who, local_size, world->size);
    }
    if (world->size > 1 && !weft__env_text("MASTER_PORT") && !weft__env_text("TORCHELASTIC_RUN_ID"))
        return WEFT__INVALID("%s: environment: RANK and WORLD_SIZE are set, but neither "
                             "MASTER_PORT nor TORCHELASTIC_RUN_ID, which torchrun sets too",
                             who);
    snprintf(world->name, sizeof world->name, "torchrun %.160s %.160s:%.16s %.16s",
             or_none("TORCHELASTIC_RUN_ID"), or_none("MASTER_ADDR"), or_none("MASTER_PORT"),
             or_none("TORCHELASTIC_RESTART_COUNT"));
    return WEFT_OK;
}

/* A world of one would be a silent mistake there. */
static int refuse_mpiexec(const char *who)
{
    static const char *const names[] = {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *size = weft__env_text(names[i]);
        if (size && strtol(size, NULL, 10) > 1)
            return weft__error(WEFT_ERR_UNSUPPORTED,
                               "%s: mpiexec has started %.16s processes (%s): expected transport "
                               "`mpi`, which uses shared memory within a host, or `weft launch`",
                               who, size, names[i]);
    }
    return WEFT_OK;
}

static int find_world(const char *who, struct world *world)
{
    struct weft__launched launched;
    char token[WEFT__LAUNCH_TOKEN];
    int status = weft__launched(who, &launched, token);

    *world = (struct world){.rank = 0, .size = 1};
    if (status != WEFT_OK)
        return status;
    if (launched.launch) {
        world->rank = launched.rank;
        world->size = launched.size;
        snprintf(world->name, sizeof world->name, "launch %s", token);
        return WEFT_OK;
    }
    if (torchrun_name())
        return torchrun(who, world);
    return refuse_mpiexec(who);
}

int weft__shared_world(const char *who, struct weft_context **context,
                       const struct weft_context_config *config)
{
    static atomic_uint contexts;
    struct weft_shared_config shared;
    struct world world;
    char name[NAME_BYTES + 32];
    int status = find_world(who, &world);

    if (status != WEFT_OK)
        return status;
    weft_shared_config_init(&shared);
    snprintf(name, sizeof name, "%s, context %u", world.name,
             atomic_fetch_add_explicit(&contexts, 1, memory_order_relaxed));
    shared.name = name;
    struct weft__launch_page *page = weft__launch_page_open();
    status = weft__shared_create(who, context, world.rank, world.size, config, &shared, page);
    weft__launch_page_close(page);
    return status;
}
