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

#include "tools/pmpi/request.h"
#include <weft/mpi.h>

_Atomic int pmpi_active;
struct weft_context *pmpi_world;
MPI_Comm pmpi_self = MPI_COMM_NULL;
int pmpi_level;

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

const char *pmpi_form_name(enum pmpi_form form)
{
    static const char *const names[] = {"blocking", "non-blocking", "persistent"};
    return names[form];
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

/* ---- MPI moves ---- */

/* A request that never ends before the end: to test it moves all that is MPI's. A probe does not,
 * of MPI_COMM_SELF in MPICH 4.0.2. */
static MPI_Request endless = MPI_REQUEST_NULL;
static atomic_flag tested = ATOMIC_FLAG_INIT;

static int say_nothing(void *state, MPI_Status *status)
{
    (void)state;
    PMPI_Status_set_elements(status, MPI_BYTE, 0);
    PMPI_Status_set_cancelled(status, 0);
    return MPI_SUCCESS;
}

static int do_nothing(void *state)
{
    (void)state;
    return MPI_SUCCESS;
}

static int cancel_nothing(void *state, int complete)
{
    (void)state;
    (void)complete;
    return MPI_SUCCESS;
}

void pmpi_drive_mpi(void)
{
    int flag;
    if (atomic_flag_test_and_set_explicit(&tested, memory_order_acquire))
        return;
    PMPI_Test(&endless, &flag, MPI_STATUS_IGNORE);
    atomic_flag_clear_explicit(&tested, memory_order_release);
}

/* Messages of the program are MPI's: they go on while a rank waits for weft. */
static uint64_t meanwhile(void *user, uint64_t idle_ns)
{
    (void)user;
    if (idle_ns < AT_ONCE_NS)
        return 0;
    pmpi_drive_mpi();
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

/* Whether all ranks say so: their environments may differ, and their memory. */
static int do_all(int mine)
{
    int all = 0;
    PMPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return all;
}

/* What is this rank's own. */
static int open_own(int rank)
{
    if (PMPI_Comm_dup(MPI_COMM_SELF, &pmpi_self) != MPI_SUCCESS)
        return 0;
    PMPI_Comm_set_errhandler(pmpi_self, MPI_ERRORS_RETURN);
    PMPI_Grequest_start(say_nothing, do_nothing, cancel_nothing, NULL, &endless);
    pmpi_stats_open(rank);
    return pmpi_type_open() == MPI_SUCCESS && pmpi_comm_open() == MPI_SUCCESS;
}

/* The context of all ranks, on all of them or on none. */
static void make_world(void)
{
    struct weft_context_config config;
    weft_context_config_init(&config);
    config.meanwhile = meanwhile;
    if (pmpi_level < MPI_THREAD_MULTIPLE)
        config.progress = WEFT_PROGRESS_CALLER;
    int made = weft_context_create_mpi(&pmpi_world, MPI_COMM_WORLD, &config, NULL) == WEFT_OK;
    if (!made)
        fprintf(stderr, "weft: %s; collectives are MPI's\n", weft_error_text());
    if (!do_all(made) && made) {
        weft_context_destroy(pmpi_world);
        pmpi_world = NULL;
    }
}

/* Whatever one rank lacks, none has. */
static void begin(void)
{
    int rank, level = MPI_THREAD_SINGLE;
    if (!do_all(is_wanted()))
        return;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Query_thread(&level);
    pmpi_level = do_all(level);
    if (!do_all(open_own(rank)))
        return;
    make_world();
    pmpi_choice_open(rank);
    const struct pmpi_comm *world = pmpi_comm_find(MPI_COMM_WORLD);
    if (do_all(world && (world->lists || !world->context)))
        atomic_store(&pmpi_active, 1);
}

static void end(void)
{
    if (!atomic_load(&pmpi_active))
        return;
    pmpi_request_close();
    pmpi_rescue_close();
    PMPI_Barrier(MPI_COMM_WORLD);
    pmpi_stats_close();
    atomic_store(&pmpi_active, 0);
    pmpi_comm_close();
    pmpi_comm_bury();
    weft_context_destroy(pmpi_world);
    pmpi_world = NULL;
    pmpi_type_close();
    pmpi_reduction_close();
    pmpi_choice_close();
    PMPI_Grequest_complete(endless);
    PMPI_Wait(&endless, MPI_STATUS_IGNORE);
    PMPI_Comm_free(&pmpi_self);
}

WEFT_EXPORT int MPI_Init(int *argc, char ***argv)
{
    int level;
    int code = wants_helper() ? PMPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &level)
                              : PMPI_Init(argc, argv);
    if (code == MPI_SUCCESS)
        begin();
    return code;
}

WEFT_EXPORT int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    int code =
        PMPI_Init_thread(argc, argv, wants_helper() ? MPI_THREAD_MULTIPLE : required, provided);
    if (code == MPI_SUCCESS)
        begin();
    return code;
}

WEFT_EXPORT int MPI_Finalize(void)
{
    end();
    return PMPI_Finalize();
}
