/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From MPI_Init to MPI_Finalize.
 *
 * What is weft's is made behind MPI's own, and ended before it: a rank that has called MPI_Finalize
 * has ended all its collectives, and once all have, no context is needed by anybody. A program that
 * calls collectives in the callbacks of MPI_Finalize has MPI's there, on all ranks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/pmpi/pmpi.h"
#include <weft/mpi.h>

_Atomic int pmpi_active;
struct weft_context *pmpi_world;
MPI_Comm pmpi_self = MPI_COMM_NULL;

/* How long a rank that waits lets MPI rest: a share of how long it has waited, up to this. */
#define REST_NS UINT64_C(1000000)
enum { REST_SHARE = 10 };
/* So long nothing is late that a call of MPI would make later. */
#define AT_ONCE_NS UINT64_C(1000)

const char *pmpi_kind_name(enum pmpi_kind kind)
{
    static const char *const names[] = {
#define NAME(name, mixed, lower) [PMPI_##name] = "MPI_" #mixed,
        PMPI_KINDS(NAME)
#undef NAME
    };
    return names[kind];
}

const char *pmpi_reason_text(enum pmpi_reason reason)
{
    static const char *const texts[] = {
#define TEXT(name, text) [name] = text,
        PMPI_REASONS(TEXT)
#undef TEXT
    };
    return texts[reason];
}

/* Messages of the program are MPI's: they go on while a rank waits for weft. */
static uint64_t drive_mpi(void *user, uint64_t idle_ns)
{
    int flag;
    (void)user;
    if (idle_ns < AT_ONCE_NS)
        return 0;
    PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, pmpi_self, &flag, MPI_STATUS_IGNORE);
    return idle_ns < REST_NS ? 0 : idle_ns / REST_SHARE < REST_NS ? idle_ns / REST_SHARE : REST_NS;
}

/* What WEFT_PMPI says: 0, never. */
static int is_wanted(void)
{
    const char *value = getenv("WEFT_PMPI");
    if (value && strcmp(value, "never") != 0 && strcmp(value, "always") != 0 &&
        strcmp(value, "auto") != 0 && value[0] != '\0')
        fprintf(stderr,
                "weft: environment: WEFT_PMPI is `%.100s`, expected always, auto or never; "
                "ignored\n",
                value);
    return !value || strcmp(value, "never") != 0;
}

static int wants_helper(void)
{
    const char *value = getenv("WEFT_PROGRESS");
    return value && strcmp(value, "helper") == 0;
}

/* The context of all ranks, on all of them or on none. */
static void make_world(int level)
{
    struct weft_context_config config;
    int made, all = 0;
    weft_context_config_init(&config);
    config.meanwhile = drive_mpi;
    if (level < MPI_THREAD_MULTIPLE)
        config.progress = WEFT_PROGRESS_CALLER;
    made = weft_context_create_mpi(&pmpi_world, MPI_COMM_WORLD, &config, NULL) == WEFT_OK;
    if (!made)
        fprintf(stderr, "weft: %s; collectives are MPI's\n", weft_error_text());
    PMPI_Allreduce(&made, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (made && !all) {
        weft_context_destroy(pmpi_world);
        pmpi_world = NULL;
    }
}

static void begin(int level)
{
    int rank, size;
    if (!is_wanted())
        return;
    if (PMPI_Comm_dup(MPI_COMM_SELF, &pmpi_self) != MPI_SUCCESS)
        return;
    PMPI_Comm_set_errhandler(pmpi_self, MPI_ERRORS_RETURN);
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    pmpi_stats_open(rank, size);
    make_world(level);
    if (pmpi_type_open() == MPI_SUCCESS && pmpi_comm_open() == MPI_SUCCESS)
        atomic_store(&pmpi_active, 1);
}

static void end(void)
{
    if (!atomic_load(&pmpi_active))
        return;
    PMPI_Barrier(MPI_COMM_WORLD);
    pmpi_stats_close();
    atomic_store(&pmpi_active, 0);
    pmpi_comm_close();
    weft_context_destroy(pmpi_world);
    pmpi_world = NULL;
    pmpi_type_close();
    pmpi_reduction_close();
    PMPI_Comm_free(&pmpi_self);
}

WEFT_EXPORT int MPI_Init(int *argc, char ***argv)
{
    int level = MPI_THREAD_SINGLE;
    int code = wants_helper() ? PMPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &level)
                              : PMPI_Init(argc, argv);
    if (code == MPI_SUCCESS)
        begin(level);
    return code;
}

WEFT_EXPORT int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    int code =
        PMPI_Init_thread(argc, argv, wants_helper() ? MPI_THREAD_MULTIPLE : required, provided);
    if (code == MPI_SUCCESS)
        begin(*provided);
    return code;
}

WEFT_EXPORT int MPI_Finalize(void)
{
    end();
    return PMPI_Finalize();
}
