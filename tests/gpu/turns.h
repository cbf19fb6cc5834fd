/* SPDX-License-Identifier: BSD-3-Clause */
/* Two processes that take turns: one exports memory, the other one imports it. CHECK() is the
 * test's. */
#ifndef WEFT_TESTS_GPU_TURNS_H
#define WEFT_TESTS_GPU_TURNS_H

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct turns {
    int to_parent[2], to_child[2];
};

static inline void say(int fd, const void *data, size_t size)
{
    CHECK(write(fd, data, size) == (ssize_t)size);
}

static inline void hear(int fd, void *data, size_t size)
{
    CHECK(read(fd, data, size) == (ssize_t)size);
}

/* The importer is the child. None of them may have begun with the driver. */
static inline void take_turns(void (*exports)(struct turns *), void (*imports)(struct turns *))
{
    struct turns turns;
    int status;

    CHECK(!pipe(turns.to_parent) && !pipe(turns.to_child));
    pid_t child = fork();
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* whoever waits for a turn ends with the other */
        imports(&turns);
        exit(0);
    }
    exports(&turns);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

#endif
