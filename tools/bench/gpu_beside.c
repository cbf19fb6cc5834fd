/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs that take turns with `weft bench gpu` (--beside): libraries that this command is not
 * linked with. FILE COUNT K answers every line of its input, which holds a number N, with a line
 * "SECONDS NAME": how long one of N selections of the K largest by magnitude of COUNT numbers (f32)
 * took on the device, and what it measures ("torch.topk 2.9"). At the end of its input it ends.
 */
#include "tools/bench/gpu.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* How long an answer may take, which begins with what the program loads; and its end. */
enum { ANSWER_S = 300, END_MS = 5000, LOOK_MS = 10 };

struct gpu_beside {
    const char *file;
    pid_t child;
    FILE *to, *from;
    char name[64];
};

/* Starts the program between two pipes; the ends that are ours do not reach other programs. */
static int spawn(struct gpu_beside *beside, char **words, const int in[2], const int out[2])
{
    posix_spawn_file_actions_t actions;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    int failed = posix_spawnp(&beside->child, words[0], &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed)
        beside->child = 0;
    return failed ? weft_error_set(WEFT_ERR_INVALID,
                                   "--beside: '%s': %s; expected a program that can be started",
                                   words[0], strerror(failed))
                  : WEFT_OK;
}

static int out_of_pipes(void)
{
    return weft_error_set(WEFT_ERR_MEMORY, "--beside: a pipe: %s", strerror(errno));
}

static int start(struct gpu_beside *beside, char **words)
{
    int in[2], out[2];

    if (pipe2(in, O_CLOEXEC) != 0)
        return out_of_pipes();
    if (pipe2(out, O_CLOEXEC) != 0) {
        close(in[0]);
        close(in[1]);
        return out_of_pipes();
    }
    int status = spawn(beside, words, in, out);
    close(in[0]);
    close(out[1]);
    beside->to = fdopen(in[1], "w");
    beside->from = fdopen(out[0], "r");
    return status;
}

int gpu_beside_open(struct gpu_beside **out, const char *file, size_t count, size_t k)
{
    struct gpu_beside *beside = weft_memory_alloc(1, sizeof *beside);
    char path[4096], numbers[2][32];
    char *words[] = {path, numbers[0], numbers[1], NULL};

    if (!beside)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory");
    memset(beside, 0, sizeof *beside);
    beside->file = file;
    snprintf(path, sizeof path, "%s", file);
    snprintf(numbers[0], sizeof numbers[0], "%zu", count);
    snprintf(numbers[1], sizeof numbers[1], "%zu", k);
    signal(SIGPIPE, SIG_IGN); /* a program that has ended is told of when it is asked */
    int status = start(beside, words);
    if (status == WEFT_OK && (!beside->to || !beside->from))
        status = out_of_pipes();
    /* Once, to load what it needs, and to hear its name. */
    double seconds;
    if (status == WEFT_OK)
        status = gpu_beside_turn(beside, 1, &seconds);
    if (status == WEFT_OK)
        *out = beside;
    else
        gpu_beside_close(beside);
    return status;
}

int gpu_beside_turn(struct gpu_beside *beside, int times, double *seconds)
{
    char line[128] = "";

    fprintf(beside->to, "%d\n", times);
    fflush(beside->to);
    struct pollfd answer = {.fd = fileno(beside->from), .events = POLLIN};
    if (poll(&answer, 1, ANSWER_S * 1000) == 0)
        return weft_error_set(WEFT_ERR_TIMEOUT,
                              "--beside: %s has not answered for %d s; expected \"SECONDS NAME\"",
                              beside->file, ANSWER_S);
    if (!fgets(line, sizeof line, beside->from))
        return weft_error_set(WEFT_ERR_COMPUTE, "--beside: %s ended; expected \"SECONDS NAME\"",
                              beside->file);
    line[strcspn(line, "\n")] = '\0';
    if (sscanf(line, "%lf %63[^\n]", seconds, beside->name) != 2 || !(*seconds > 0))
        return weft_error_set(WEFT_ERR_COMPUTE,
                              "--beside: %s answers '%s'; expected \"SECONDS NAME\"", beside->file,
                              line);
    return WEFT_OK;
}

const char *gpu_beside_name(const struct gpu_beside *beside)
{
    return beside->name;
}

/* A program that does not end at the end of its input is killed. */
static void end_child(pid_t child)
{
    for (int ms = 0; ms < END_MS; ms += LOOK_MS) {
        if (waitpid(child, NULL, WNOHANG) != 0)
            return;
        bench_sleep_ms(LOOK_MS);
    }
    kill(child, SIGKILL);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
}

void gpu_beside_close(struct gpu_beside *beside)
{
    if (beside->to)
        fclose(beside->to);
    if (beside->from)
        fclose(beside->from);
    if (beside->child)
        end_child(beside->child);
    weft_memory_free(beside);
}
