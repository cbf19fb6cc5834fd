/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives for those who look at a program from outside: endless FOLDER [ROUNDS]. A rank writes
 * FOLDER/pid.RANK when it is ready, and waits while there is FOLDER/late.RANK. Without ROUNDS it
 * goes on until there is FOLDER/stop.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "compare.h"

/* Other ranks may look at any time: the file is there when all of it is. */
static void say_ready(const char *folder)
{
    char path[2][4096];
    FILE *file;

    snprintf(path[0], sizeof path[0], "%s/new.%d", folder, test_rank);
    snprintf(path[1], sizeof path[1], "%s/pid.%d", folder, test_rank);
    file = fopen(path[0], "w");
    if (!file || fprintf(file, "%ld\n", (long)getpid()) < 0 || fclose(file) != 0 ||
        rename(path[0], path[1]) != 0)
        test_mismatch("%s cannot be written", path[1]);
}

static void be_late(const char *folder)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/late.%d", folder, test_rank);
    while (access(path, F_OK) == 0)
        usleep(1000);
}

/* What rank 0 sees. */
static bool must_stop(const char *folder)
{
    char path[4096];
    int stop;

    snprintf(path, sizeof path, "%s/stop", folder);
    stop = test_rank == 0 && access(path, F_OK) == 0;
    MUST(MPI_Bcast(&stop, 1, MPI_INT, 0, MPI_COMM_WORLD));
    return stop;
}

int main(int argc, char **argv)
{
    int rounds = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0;

    test_begin(&argc, &argv, -1);
    if (argc < 2) {
        test_mismatch("usage: endless FOLDER [ROUNDS]");
        return test_end();
    }
    say_ready(argv[1]);
    be_late(argv[1]);
    for (int round = 0; rounds ? round < rounds : !must_stop(argv[1]); round++) {
        test_doing("round %d", round);
        round_run(MPI_COMM_WORLD, round % ROUNDS_COLLECTIVE, round, round);
    }
    return test_end();
}
