/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counts instead of times: this program runs itself under valgrind, which says how many
 * instructions or allocations the whole process made. The difference of two runs that differ in the
 * number of executions alone is what executions cost.
 */
#include "tools/bench/bench.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Number after @key in @text, which may have commas; NAN if the key is not there. */
static double number_after(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    double number = 0;
    int digits = 0;

    if (!at)
        return NAN;
    for (at += strlen(key); *at == ' ' || *at == ':'; at++) {
    }
    for (; isdigit((unsigned char)*at) || *at == ','; at++) {
        if (*at != ',') {
            number = number * 10 + (*at - '0');
            digits++;
        }
    }
    return digits ? number : NAN;
}

/* Starts valgrind with its standard error in a pipe; the reading end, or -1. */
static int start(char **words, pid_t *child)
{
    posix_spawn_file_actions_t actions;
    int ends[2];

    if (pipe(ends) != 0)
        return -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    int failed = posix_spawnp(child, words[0], &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (failed) {
        close(ends[0]);
        return -1;
    }
    return ends[0];
}

double bench_valgrind(const struct bench *bench, enum bench_count what, const char *inside,
                      size_t turns)
{
    char self[PATH_MAX];
    char text[16384];
    char job[64];
    size_t used = 0;
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    int instructions = what == BENCH_INSTRUCTIONS;
    pid_t child;

    (void)bench;
    if (length < 0)
        return NAN;
    self[length] = '\0';
    snprintf(job, sizeof job, "%s:%zu", inside, turns);
    char *words[] = {"valgrind",
                     instructions ? "--tool=callgrind" : "--tool=memcheck",
                     instructions ? "--callgrind-out-file=/dev/null" : "--leak-check=no",
                     self,
                     "bench",
                     "--inside",
                     job,
                     NULL};
    int end = start(words, &child);
    if (end < 0)
        return NAN;
    for (;;) {
        ssize_t got = read(end, text + used, sizeof text - 1 - used);
        if (got <= 0 && !(got < 0 && errno == EINTR))
            break;
        used += got > 0 ? (size_t)got : 0;
        if (used == sizeof text - 1) { /* the summary comes last: keep the second half */
            memmove(text, text + used / 2, used - used / 2);
            used -= used / 2;
        }
    }
    text[used] = '\0';
    close(end);
    int how = 0;
    while (waitpid(child, &how, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
        return NAN;
    return number_after(text, instructions ? "Collected" : "total heap usage");
}
