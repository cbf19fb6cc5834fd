/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Worlds, made by a program that knows no MPI: it is linked with libweft alone.
 *
 *   test_mpi_world           under mpiexec: contexts of the world, after local ranks without MPI
 *   test_mpi_world leaves    rank 0 exits while the others wait for it: the launcher ends them
 *   test_mpi_world missing   where libweft-mpi is not installed
 *   test_mpi_world static    where it is, for a program that is linked with a static libweft
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

static int failed;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, weft_error_text()); \
            failed = 1;                                                                            \
        }                                                                                          \
    } while (0)

/* 1 if a file whose name has `text` is mapped into this process. */
static int maps(const char *text)
{
    char line[4096];
    int found = 0;
    FILE *file = fopen("/proc/self/maps", "r");

    while (file && fgets(line, sizeof line, file))
        found |= strstr(line, text) != NULL;
    if (file)
        fclose(file);
    return found;
}

/* Adds the ranks' numbers up. */
static int sum(struct weft_context *context, void *user)
{
    double mine = weft_context_rank(context), all = -1;
    int size = weft_context_size(context);
    struct weft_template_params params;
    struct weft_run *run = NULL;

    (void)user;
    weft_template_params_init(&params);
    params.count = 1;
    params.dtype = WEFT_F64;
    int status = weft_template_create_run(&run, context, "allreduce", &params);
    if (!status)
        status = weft_run_bind_input_name(run, "send", &mine, 1, WEFT_F64);
    if (!status)
        status = weft_run_bind_name(run, "recv", &all, 1, WEFT_F64);
    if (!status)
        status = weft_run_execute(run);
    weft_run_destroy(run);
    if (!status && all != size * (size - 1) / 2.0)
        return weft_error_set(WEFT_ERR_COMPUTE, "the sum is %g", all);
    return status;
}

static void missing(void)
{
    struct weft_context *context = NULL;

    CHECK(!weft_transport_find("mpi")->available);
    CHECK(weft_context_create_world(&context, "mpi", NULL) == WEFT_ERR_UNSUPPORTED);
    CHECK(strstr(weft_error_text(), "libweft-mpi is not installed: libweft-mpi.so.0: "));
    CHECK(!context);
    CHECK(weft_local_run(3, NULL, sum, NULL) == WEFT_OK);
}

static void linked_statically(void)
{
    struct weft_context *context = NULL;

    CHECK(weft_context_create_world(&context, "mpi", NULL) == WEFT_ERR_UNSUPPORTED);
    CHECK(strstr(weft_error_text(), "a libweft of its own"));
    CHECK(!context);
}

static void misuse(void)
{
    struct weft_context *context = NULL;
    struct weft_context_config config = {.struct_size = 0};

    CHECK(weft_context_create_world(NULL, "mpi", NULL) == WEFT_ERR_INVALID);
    CHECK(weft_context_create_world(&context, NULL, NULL) == WEFT_ERR_INVALID);
    CHECK(weft_context_create_world(&context, "pigeon", NULL) == WEFT_ERR_NOT_FOUND);
    CHECK(strstr(weft_error_text(), "local, shared, mpi"));
    CHECK(weft_context_create_world(&context, "local", NULL) == WEFT_ERR_UNSUPPORTED);
    CHECK(strstr(weft_error_text(), "threads of one process"));
    CHECK(weft_context_create_world(&context, "virtual", NULL) == WEFT_ERR_UNSUPPORTED);
    CHECK(!maps("libweft-mpi"));
    CHECK(weft_context_create_world(&context, "mpi", &config) == WEFT_ERR_INVALID);
    CHECK(!context);
}

static void worlds(void)
{
    struct weft_context *first = NULL, *second = NULL, *third = NULL;
    struct weft_context_config config;

    weft_context_config_init(&config);
    config.progress = WEFT_PROGRESS_HELPER;
    CHECK(weft_transport_find("mpi")->available);
    CHECK(weft_local_run(3, NULL, sum, NULL) == WEFT_OK);
    CHECK(!maps("libmpi") && !maps("libmpich") && !maps("libuc") && !maps("libweft-mpi"));
    misuse();
    CHECK(weft_context_create_world(&first, "mpi", NULL) == WEFT_OK);
    CHECK(maps("libweft-mpi") && maps("libmpi"));
    CHECK(weft_context_create_world(&second, "mpi", &config) == WEFT_OK);
    if (!first || !second)
        return;
    CHECK(strcmp(weft_context_transport(first), "mpi") == 0);
    CHECK(weft_context_rank(first) == weft_context_rank(second));
    CHECK(sum(first, NULL) == WEFT_OK && sum(second, NULL) == WEFT_OK);
    CHECK(weft_context_destroy(first) == WEFT_OK);
    CHECK(sum(second, NULL) == WEFT_OK);
    CHECK(weft_context_destroy(second) == WEFT_OK);
    CHECK(weft_context_create_world(&third, "mpi", NULL) == WEFT_OK);
    CHECK(third && sum(third, NULL) == WEFT_OK);
    CHECK(weft_context_destroy(third) == WEFT_OK);
}

static void leaves(void)
{
    struct weft_context *context = NULL;

    CHECK(weft_context_create_world(&context, "mpi", NULL) == WEFT_OK);
    if (!context || weft_context_rank(context) == 0)
        exit(3);
    sum(context, NULL);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    if (strcmp(what, "missing") == 0)
        missing();
    else if (strcmp(what, "static") == 0)
        linked_statically();
    else if (strcmp(what, "leaves") == 0)
        leaves();
    else
        worlds();
    return failed;
}
