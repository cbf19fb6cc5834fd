/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hosts: WEFT_HOSTS has ranks pretend to be on some, which contexts of any communicator tell and
 * templates use; ranks of one reach each other without MPI, or by MPI where they cannot share
 * memory; a list that is wrong is an error that all ranks hear of.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <weft/mpi.h>

#include "tests/processes/world.h"

static int rank, size;

/* ---- how often weft calls MPI for a message: these stand before MPI's own ---- */

static int calls;

#define COUNTED(name, parameters, arguments)                                                       \
    int name parameters                                                                            \
    {                                                                                              \
        int(*next) parameters = (int(*) parameters)(uintptr_t)dlsym(RTLD_NEXT, #name);             \
                                                                                                   \
        calls++;                                                                                   \
        return next arguments;                                                                     \
    }

COUNTED(PMPI_Test, (MPI_Request * request, int *flag, MPI_Status *status), (request, flag, status))
COUNTED(PMPI_Testany, (int count, MPI_Request *requests, int *place, int *flag, MPI_Status *status),
        (count, requests, place, flag, status))
COUNTED(PMPI_Testsome,
        (int count, MPI_Request *requests, int *ended, int *places, MPI_Status *statuses),
        (count, requests, ended, places, statuses))
COUNTED(PMPI_Isend,
        (const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
         MPI_Request *request),
        (data, count, type, to, tag, comm, request))
COUNTED(PMPI_Irecv,
        (void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
         MPI_Request *request),
        (data, count, type, from, tag, comm, request))

/* ---- what a context says of how ranks are reached ---- */

static char said[2000];

static void hear(void *user, weft_log_level_t level, int from, const char *line)
{
    (void)user;
    (void)level;
    (void)from;
    if (strstr(line, " reached "))
        snprintf(said, sizeof said, "%s", line);
}

static struct weft_context *made_over(MPI_Comm comm)
{
    struct weft_context_config config;
    struct weft_context *context = NULL;

    weft_context_config_init(&config);
    config.log = hear;
    config.log_level = WEFT_LOG_INFO;
    said[0] = '\0';
    OK(weft_context_create_mpi(&context, comm, &config, NULL));
    return context;
}

/* WEFT_HOSTS: of process r, host(r). */
static void pretend(int (*host)(int))
{
    char *text = malloc((size_t)size * 12 + 1);
    size_t length = 0;

    CHECK(text);
    for (int r = 0; r < size; r++)
        length += (size_t)sprintf(text + length, "%s%d", r == 0 ? "" : ",", host(r));
    CHECK(setenv("WEFT_HOSTS", text, 1) == 0);
    free(text);
}

static int each(int r)
{
    return r;
}

static int pairs(int r)
{
    return 7 - r / 2 % 7;
}

static int alternating(int r)
{
    return r % 2;
}

static int one(int r)
{
    (void)r;
    return 3;
}

/* The sum of all ranks' numbers, by the algorithm. */
static void sum(struct weft_context *context, const char *algorithm, size_t count)
{
    struct weft_template_params params;
    struct weft_run *run = NULL;
    int members = weft_context_size(context);
    int64_t *data = malloc(count * sizeof *data);

    CHECK(data);
    for (size_t i = 0; i < count; i++)
        data[i] = weft_context_rank(context) + (int64_t)i;
    weft_template_params_init(&params);
    params.count = count;
    params.dtype = WEFT_I64;
    params.in_place = 1;
    params.algo = algorithm;
    OK(weft_template_create_run(&run, context, "allreduce", &params));
    OK(weft_run_bind_name(run, "recv", data, count, WEFT_I64));
    OK(weft_run_execute(run));
    for (size_t i = 0; i < count; i++)
        CHECK(data[i] == members * (members - 1) / 2 + members * (int64_t)i);
    weft_run_destroy(run);
    free(data);
}

/* Whether a context of `comm` numbers hosts as they first appear among its ranks. */
static void numbered(MPI_Comm comm, int (*host)(int), const char *what)
{
    struct weft_context *context;
    int members, own, count = 0, near = 0;
    char expected[64] = "";
    int *world = malloc((size_t)size * sizeof *world),
        *hosts = malloc((size_t)size * sizeof *hosts);
    MPI_Group of_comm, of_world;

    CHECK(world && hosts);
    pretend(host);
    context = made_over(comm);
    members = weft_context_size(context);
    own = weft_context_rank(context);
    OK(weft_context_hosts(context, hosts));
    MPI_Comm_group(comm, &of_comm);
    MPI_Comm_group(MPI_COMM_WORLD, &of_world);
    for (int r = 0; r < members; r++)
        MPI_Group_translate_ranks(of_comm, 1, &r, of_world, &world[r]);
    MPI_Group_free(&of_comm);
    MPI_Group_free(&of_world);
    for (int r = 0; r < members; r++) {
        int first = 0;

        while (host(world[first]) != host(world[r]))
            first++;
        CHECK(hosts[r] == (first == r ? count : hosts[first]));
        count += first == r;
        near += hosts[r] == hosts[own];
    }
    CHECK(weft_context_host_count(context) == count);
    if (near > 1 || members == 1)
        snprintf(expected, sizeof expected, "%d of %d ranks are reached through shared memory",
                 near, members);
    CHECK(strcmp(said, expected) == 0);
    sum(context, NULL, 5);
    sum(context, "hierarchical", 5);
    sum(context, "hierarchical", 30000);
    sum(context, "multi-lane", 5);
    sum(context, "multi-lane", 30000);
    OK(weft_context_destroy(context));
    free(world);
    free(hosts);
    world_ok("%s", what);
}

/* Everybody near: between its beginning and its end a context does not call MPI. */
static void without_mpi(void)
{
    struct weft_context *context;
    int before;

    pretend(one);
    context = made_over(MPI_COMM_WORLD);
    before = calls;
    sum(context, NULL, 5);
    sum(context, "ring", 300000);
    CHECK(calls == before);
    OK(weft_context_destroy(context));
    world_ok("ranks of one host do without MPI");
    pretend(each);
    context = made_over(MPI_COMM_WORLD);
    before = calls;
    sum(context, NULL, 5);
    CHECK(size == 1 || calls > before);
    OK(weft_context_destroy(context));
    world_ok("ranks of different hosts do not");
}

/* One rank can open nothing more: all of its host go by MPI, and each tells why. */
static void without_memory(void)
{
    struct weft_context *context;
    struct rlimit usual, none;

    pretend(one);
    CHECK(getrlimit(RLIMIT_NOFILE, &usual) == 0);
    /* One: who asks which kernel this is has a file open for that. */
    int next = dup(0);
    CHECK(next >= 0 && close(next) == 0);
    none = usual;
    none.rlim_cur = (rlim_t)next + 1;
    if (rank == size - 1)
        CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    context = made_over(MPI_COMM_WORLD);
    if (rank == size - 1)
        CHECK(setrlimit(RLIMIT_NOFILE, &usual) == 0);
    CHECK(strstr(said, " ranks of this host are reached by MPI: "));
    CHECK(strstr(said, "Too many open files"));
    CHECK(weft_context_host_count(context) == 1);
    sum(context, NULL, 5);
    sum(context, "ring", 30000);
    OK(weft_context_destroy(context));
    world_ok("ranks that cannot share memory are reached by MPI");
}

static void refused(const char *value)
{
    struct weft_context *context = NULL;
    char expected[64];

    CHECK(setenv("WEFT_HOSTS", value, 1) == 0);
    STATUS(WEFT_ERR_INVALID, weft_context_create_mpi(&context, MPI_COMM_WORLD, NULL, NULL));
    CHECK(!context);
    snprintf(expected, sizeof expected, "WEFT_HOSTS is `%s`, expected the hosts of all %d ", value,
             size);
    CHECK(strstr(weft_error_text(), expected));
    world_ok("WEFT_HOSTS=%s is refused", value);
}

/* Only the last process has it. */
static void refused_on_one(void)
{
    struct weft_context *context = NULL;
    char expected[64];

    if (rank == size - 1)
        CHECK(setenv("WEFT_HOSTS", "no", 1) == 0);
    else
        CHECK(unsetenv("WEFT_HOSTS") == 0);
    STATUS(WEFT_ERR_INVALID, weft_context_create_mpi(&context, MPI_COMM_WORLD, NULL, NULL));
    snprintf(expected, sizeof expected, "failed on rank %d: ", size - 1);
    CHECK(rank == size - 1 || strstr(weft_error_text(), expected));
    CHECK(strstr(weft_error_text(), "WEFT_HOSTS is `no`"));
    CHECK(unsetenv("WEFT_HOSTS") == 0);
    world_ok("what one process has wrong, all hear");
}

int main(int argc, char **argv)
{
    MPI_Comm back, half;
    char more[300] = "0", list[400];

    world_init(&argc, &argv, WORLD_ONE_THREAD);
    rank = world_rank;
    size = world_size;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &back);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    numbered(MPI_COMM_WORLD, one, "all on one host");
    numbered(MPI_COMM_WORLD, each, "a host for each");
    numbered(MPI_COMM_WORLD, pairs, "two by two");
    numbered(MPI_COMM_WORLD, alternating, "two hosts by turns");
    numbered(back, pairs, "two by two, in a communicator of another order");
    numbered(half, pairs, "two by two, in one of some");
    MPI_Comm_free(&back);
    MPI_Comm_free(&half);
    without_mpi();
    without_memory();
    refused("x");
    refused(",");
    refused("-1");
    refused(" 0");
    refused("99999999999");
    for (int r = 0; r < size; r++)
        strcat(more, ",1");
    refused(more);
    more[strlen(more) - 2] = '\0';
    snprintf(list, sizeof list, "%s,", more); /* as many, and a comma */
    refused(list);
    more[strlen(more) - 1] = '\0';
    snprintf(list, sizeof list, "%s1.5", more);
    refused(list);
    refused_on_one();
    return world_end();
}
