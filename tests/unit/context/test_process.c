/* SPDX-License-Identifier: BSD-3-Clause */
/* One thread that drives all contexts of the process. */
#include <criterion/criterion.h>

#include "support/ranks.h"
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 16, COUNT = 300, TIMES = 5 };

struct crowd {
    int size;
    struct weft_local *local;
    struct weft_context *contexts[MOST];
    struct weft_run *runs[MOST];
    int64_t x[MOST][COUNT];
};

static void gather(struct crowd *crowd, int size, size_t eager_bytes)
{
    struct weft_template_params params;
    struct weft_local_config config;
    weft_local_config_init(&config);
    config.eager_bytes = eager_bytes;
    weft_template_params_init(&params);
    params.count = COUNT;
    params.dtype = WEFT_I64;
    params.op = weft_op_builtin(WEFT_SUM);
    params.in_place = 1;
    crowd->size = size;
    OK(weft_local_create(&crowd->local, size, &config));
    for (int r = 0; r < size; r++) {
        OK(weft_context_create_local(&crowd->contexts[r], crowd->local, r, NULL));
        OK(weft_template_create_run(&crowd->runs[r], crowd->contexts[r], "allreduce", &params));
        OK(weft_run_bind_name(crowd->runs[r], "recv", crowd->x[r], COUNT, WEFT_I64));
    }
}

static void disperse(struct crowd *crowd)
{
    for (int r = 0; r < crowd->size; r++) {
        weft_run_destroy(crowd->runs[r]);
        weft_context_destroy(crowd->contexts[r]);
    }
    weft_local_destroy(crowd->local);
}

static void sum_up(struct crowd *crowd)
{
    int64_t size = crowd->size;
    for (int r = 0; r < crowd->size; r++) {
        for (int i = 0; i < COUNT; i++)
            crowd->x[r][i] = r + i;
        OK(weft_run_start(crowd->runs[r]));
    }
    for (int r = 0; r < crowd->size; r++)
        while (weft_run_test(crowd->runs[r]) == WEFT_IN_PROGRESS)
            CHECK(weft_process_progress() >= 0);
    for (int r = 0; r < crowd->size; r++) {
        OK(weft_run_test(crowd->runs[r]));
        for (int64_t i = 0; i < COUNT; i++)
            CHECK(crowd->x[r][i] == size * i + size * (size - 1) / 2);
    }
}

Test(process, one_thread_drives_all_ranks)
{
    static const int sizes[] = {1, 2, 3, 5, 7, 8, 13, 16};
    static struct crowd crowd;
    OK(weft_process_progress());
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int eager = 0; eager < 2; eager++) {
            gather(&crowd, sizes[i], eager ? 0 : SIZE_MAX);
            for (int t = 0; t < TIMES; t++)
                sum_up(&crowd);
            OK(weft_process_progress());
            disperse(&crowd);
        }
    OK(weft_process_progress());
}

/* What every rank waits for alone is unfinished business of the process. */
Test(process, says_whether_anything_is_unfinished)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_schedule *s = new_schedule(0, 1);
    weft_node_t event = weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    struct weft_run *run = make_run(alone.context, commit(s), NULL);
    OK(weft_process_progress());
    OK(weft_run_start(run));
    CHECK_STATUS(weft_process_progress(), WEFT_IN_PROGRESS);
    OK(weft_run_fire(run, event));
    OK(weft_process_progress());
    weft_run_destroy(run);
    alone_destroy(&alone);
}

static _Atomic int over;

static void *drive_all(void *unused)
{
    while (!over) {
        CHECK(weft_process_progress() >= 0);
        sched_yield();
    }
    return unused;
}

static void *come_and_go(void *unused)
{
    struct crowd *crowd = calloc(1, sizeof *crowd);
    CHECK(crowd);
    for (int t = 0; t < 40; t++) {
        gather(crowd, 1 + t % 4, 0);
        for (int r = 0; r < crowd->size; r++)
            OK(weft_run_start(crowd->runs[r]));
        for (int r = 0; r < crowd->size; r++)
            while (weft_run_test(crowd->runs[r]) == WEFT_IN_PROGRESS)
                sched_yield();
        disperse(crowd);
    }
    free(crowd);
    return unused;
}

Test(process, contexts_come_and_go_meanwhile)
{
    pthread_t drivers[2];
    pthread_t users[2];
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&drivers[i], NULL, drive_all, NULL) == 0);
        CHECK(pthread_create(&users[i], NULL, come_and_go, NULL) == 0);
    }
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(users[i], NULL) == 0);
    over = 1;
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(drivers[i], NULL) == 0);
}

static int virtual_rank(struct weft_context *context, void *user)
{
    (void)user;
    OK(weft_process_progress());
    return weft_context_sleep(context, 1000);
}

Test(process, virtual_ranks_are_left_alone)
{
    OK(weft_virtual_run(3, NULL, virtual_rank, NULL));
}

/* As what a language runs at the end of every process would. */
Test(process, a_forked_one_ends_no_context_of_its_parent)
{
    struct weft_local *local;
    struct weft_context *context;
    int64_t x = 7, sum = 0;
    int status = -1;
    OK(weft_local_create(&local, 1, NULL));
    OK(weft_context_create_local(&context, local, 0, NULL));
    pid_t child = fork();
    if (child == 0)
        _exit(weft_context_destroy(context) == WEFT_OK && weft_context_size(context) == 1 ? 0 : 1);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(weft_allreduce(context, &x, &sum, 1, WEFT_I64, weft_op_builtin(WEFT_SUM)));
    CHECK(sum == 7);
    OK(weft_context_destroy(context));
    weft_local_destroy(local);
}
