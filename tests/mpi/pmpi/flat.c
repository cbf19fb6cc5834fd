/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives on communicators that come and go leave nothing behind. While as many are alive, a
 * process is as large at the end as after a fifth of the work; and as large when 1000 are alive for
 * the second time as for the first.
 *
 *     flat [--communicators=N] [--calls=N] [--all]
 *
 * 1000 communicators, as many collectives for each: 100. Where there are more ranks than cores, 400
 * and then 250, as MPI makes them slowly there, unless --all is given.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compare.h"

enum { ALIVE = 50 };

/*
 * What may come in between, in KiB: 0 to 600 of holes that the heap has by then, and no more after
 * 2,000,000 calls on 20,000 communicators. A KiB and a half that each communicator leaves exceeds
 * it, and 16 bytes of each call.
 */
static const long allowed = 1024;

static double began;

static long resident(void)
{
    long pages = 0, all = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    if (!file || fscanf(file, "%ld %ld", &all, &pages) != 2)
        test_mismatch("/proc/self/statm cannot be read");
    if (file)
        fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void compare(const char *when, long first, long last)
{
    if (test_rank == 0)
        printf("# %s: %ld KiB, later %+ld KiB; %.1f s\n", when, first, last - first,
               test_seconds() - began);
    if (last - first > allowed)
        test_mismatch("%s: %ld KiB, and later %ld more: at most %ld are expected", when, first,
                      last - first, allowed);
}

/* ---- communicators ---- */

static MPI_Comm by_create(void)
{
    MPI_Group world, group;
    MPI_Comm comm;
    int range[3] = {test_size - 1, 0, -1};

    MUST(MPI_Comm_group(MPI_COMM_WORLD, &world));
    MUST(MPI_Group_range_incl(world, 1, &range, &group));
    MUST(MPI_Comm_create(MPI_COMM_WORLD, group, &comm));
    MUST(MPI_Group_free(&group));
    MUST(MPI_Group_free(&world));
    return comm;
}

/* Where no core is left over, one in eight by what spins in MPI. */
static MPI_Comm make(int number)
{
    int way = number % (test_size > sysconf(_SC_NPROCESSORS_ONLN) ? 40 : 5);
    MPI_Comm comm;

    switch (way) {
    case 0:
        return by_create();
    case 1:
        MUST(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        return comm;
    case 2:
        MUST(MPI_Comm_split(MPI_COMM_WORLD, 0, -test_rank, &comm));
        return comm;
    case 3:
        MUST(MPI_Comm_split(MPI_COMM_WORLD, test_rank % 2, 0, &comm));
        return comm;
    default:
        return test_idup();
    }
}

/* ---- datatypes and operations ---- */

static void add(void *in, void *out, int *len, MPI_Datatype *type)
{
    const int *a = in;
    int *b = out;

    (void)type;
    for (int i = 0; i < *len; i++) {
        b[3 * i] += a[3 * i];
        b[3 * i + 2] += a[3 * i + 2];
    }
}

/* Each is used once: two ints with a gap. Of a datatype MPICH 4.0.2 leaves 56 bytes where the heap
 * of a process happens to lie so. */
static void short_lived(MPI_Comm comm)
{
    int in[3] = {test_rank, 0, 1}, out[3] = {0}, ranks;
    MPI_Datatype type;
    MPI_Op op;

    MUST(PMPI_Comm_size(comm, &ranks));
    MUST(MPI_Type_vector(2, 1, 2, MPI_INT, &type));
    MUST(MPI_Type_commit(&type));
    MUST(MPI_Op_create(add, 0, &op));
    MUST(MPI_Allreduce(in, out, 1, type, op, comm));
    EXPECT(out[2] == ranks);
    MUST(MPI_Op_free(&op));
    MUST(MPI_Type_free(&type));
}

/* ---- phases ---- */

/* In turn on the new one and on any of the others. */
static void use(const MPI_Comm *comms, int alive, int newest, int number, int calls)
{
    if (number % 4 == 0)
        short_lived(comms[newest]);
    for (int call = 0; call < calls; call++) {
        int other = (int)(test_random((uint64_t)number, 1, (uint64_t)call) % (uint64_t)alive);

        round_run(comms[call % 2 ? other : newest], (number + call) % ROUNDS_COLLECTIVE, call,
                  number);
    }
}

static void come_and_go(int count, int calls)
{
    MPI_Comm comms[ALIVE];
    long first = 0;

    for (int i = 0; i < count; i++) {
        int place = i < ALIVE ? i : (int)(test_random((uint64_t)i, 0, 0) % ALIVE);

        test_doing("communicator %d", i);
        if (i >= ALIVE)
            MUST(MPI_Comm_free(&comms[place]));
        comms[place] = make(i);
        use(comms, i < ALIVE ? i + 1 : ALIVE, place, i, calls);
        if (i == count / 5 - 1)
            first = resident();
    }
    compare("50 alive", first, resident());
    for (int i = 0; i < ALIVE; i++)
        MUST(MPI_Comm_free(&comms[i]));
}

/* Freed in another order than made. 619 is a prime. */
static long many(int count)
{
    MPI_Comm *comms = test_alloc((size_t)count * sizeof *comms);
    long size;

    for (int i = 0; i < count; i++) {
        test_doing("communicator %d of %d", i, count);
        comms[i] = make(i);
        round_run(comms[i], i % ROUNDS_COLLECTIVE, i, i);
    }
    size = resident();
    for (int i = 0; i < count; i++) {
        int place = i * 619 % count;

        round_run(comms[place], i % ROUNDS_COLLECTIVE, i, i);
        MUST(MPI_Comm_free(&comms[place]));
    }
    free(comms);
    return size;
}

static int option(int argc, char **argv, const char *name, int otherwise)
{
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], name, strlen(name)) == 0)
            return (int)strtol(argv[i] + strlen(name), NULL, 10);
    return otherwise;
}

int main(int argc, char **argv)
{
    bool crowded;
    int count;
    long first;
    char text[40];

    test_begin(&argc, &argv, -1);
    began = test_seconds();
    crowded = test_size > sysconf(_SC_NPROCESSORS_ONLN) && !test_option(argc, argv, "--all");
    count = crowded ? 250 : 1000;
    come_and_go(option(argc, argv, "--communicators=", crowded ? 400 : 1000),
                option(argc, argv, "--calls=", 100));
    first = many(count);
    snprintf(text, sizeof text, "%d alive", count);
    compare(text, first, many(count));
    return test_end();
}
