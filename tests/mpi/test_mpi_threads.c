/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is refused: MPI that is not running, a thread level that is too low, communicators that are
 * none. And what happens when MPI ends before a context does.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/mpi.h>

#include "tests/processes/world.h"
#include "tests/support/bind.h"

static void before_init(void)
{
    struct weft_context *context = NULL;

    STATUS(WEFT_ERR_STATE, weft_context_create_mpi(&context, MPI_COMM_WORLD, NULL, NULL));
    CHECK(strstr(weft_error_text(), "MPI_Init_thread"));
    CHECK(!context);
}

static void arguments(void)
{
    struct weft_context *context = NULL;

    STATUS(WEFT_ERR_INVALID, weft_context_create_mpi(NULL, MPI_COMM_WORLD, NULL, NULL));
    CHECK(strstr(weft_error_text(), "context"));
    STATUS(WEFT_ERR_INVALID, weft_context_create_mpi(&context, MPI_COMM_NULL, NULL, NULL));
    CHECK(strstr(weft_error_text(), "MPI_COMM_NULL"));
    CHECK(!context);
    world_ok("no communicator, no place for the context: refused");
}

static void intercommunicator(void)
{
    struct weft_context *context = NULL;
    MPI_Comm half, inter;
    int side = world_rank % 2;

    if (world_size < 2)
        return;
    MPI_Comm_split(MPI_COMM_WORLD, side, world_rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - side, 77, &inter);
    STATUS(WEFT_ERR_INVALID, weft_context_create_mpi(&context, inter, NULL, NULL));
    CHECK(strstr(weft_error_text(), "intercommunicator"));
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
    world_ok("an intercommunicator is refused");
}

static void helper_needs_multiple(void)
{
    struct weft_context_config config;
    struct weft_context *context = NULL;

    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_HELPER;
    STATUS(WEFT_ERR_STATE, weft_context_create_mpi(&context, MPI_COMM_WORLD, &config, NULL));
    CHECK(strstr(weft_error_text(), "MPI_THREAD_MULTIPLE"));
    CHECK(strstr(weft_error_text(), "MPI_THREAD_FUNNELED"));
    CHECK(!context);
    world_ok("helper progress needs MPI_THREAD_MULTIPLE, and says so");
}

static void environment_too(void)
{
    struct weft_context *context = NULL;

    CHECK(setenv("WEFT_PROGRESS", "helper", 1) == 0);
    STATUS(WEFT_ERR_STATE, weft_context_create_mpi(&context, MPI_COMM_WORLD, NULL, NULL));
    CHECK(unsetenv("WEFT_PROGRESS") == 0);
    CHECK(!context);
    world_ok("helper progress by WEFT_PROGRESS needs it as well");
}

static void *create_elsewhere(void *status)
{
    struct weft_context *context = NULL;

    *(int *)status = weft_context_create_mpi(&context, MPI_COMM_WORLD, NULL, NULL);
    return NULL;
}

static void main_thread_only(void)
{
    pthread_t thread;
    int status = WEFT_OK;

    CHECK(pthread_create(&thread, NULL, create_elsewhere, &status) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(status == WEFT_ERR_STATE);
    world_ok("with MPI_THREAD_FUNNELED only the main thread makes contexts");
}

/* The last case: MPI is gone, the context is still there. */
static void finalized_first(void)
{
    struct weft_context *context = world_context(NULL);
    struct weft_context *late = NULL;
    struct weft_template_params params;
    struct weft_run *run = NULL;
    float data[4] = {1, 2, 3, 4};

    weft_template_params_init(&params);
    params.count = 4;
    params.in_place = 1;
    OK(weft_template_create_run(&run, context, "allreduce", &params));
    OK(bind_name(run, "recv", data));
    OK(weft_run_execute(run));
    world_ok("MPI_Finalize before the end of a context is reported");
    world_end();
    if (world_size > 1) {
        CHECK(weft_run_execute(run) < 0);
        CHECK(strstr(weft_error_text(), "MPI_Finalize"));
    }
    weft_run_destroy(run);
    weft_context_destroy(context);
    STATUS(WEFT_ERR_STATE, weft_context_create_mpi(&late, MPI_COMM_WORLD, NULL, NULL));
    CHECK(strstr(weft_error_text(), "MPI_Finalize"));
}

int main(int argc, char **argv)
{
    before_init();
    world_init(&argc, &argv, WORLD_MAIN_THREAD);
    arguments();
    intercommunicator();
    helper_needs_multiple();
    environment_too();
    main_thread_only();
    finalized_first();
    return 0;
}
