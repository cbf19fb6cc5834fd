/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes with a shared context that are killed, or end without a word; and the others. */
#include <criterion/criterion.h>

#include "support/ranks.h"
#include "tests/support/bind.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/shared.h>

typedef void (*process_fn)(struct weft_context *context, void *user);

struct process {
    pid_t pid;
    int status;
};

static struct weft_context *meet(int rank, int size, const char *name, weft_progress_t progress)
{
    struct weft_context *context = NULL;
    struct weft_context_config config;
    struct weft_shared_config shared;
    weft_context_config_init(&config);
    config.progress = progress;
    weft_shared_config_init(&shared);
    shared.name = name;
    OK(weft_context_create_shared(&context, rank, size, &config, &shared));
    return context;
}

/* Runs `fn` in so many processes. A rank that fails ends with a signal, or a status but 0. */
static void run_processes(int size, weft_progress_t progress, process_fn fn, void *user,
                          struct process processes[])
{
    static int turn;
    char name[64];
    snprintf(name, sizeof name, "test_shared_death.%d.%d", (int)getpid(), turn++);
    fflush(NULL);
    for (int rank = 0; rank < size; rank++) {
        processes[rank].pid = fork();
        cr_assert_geq(processes[rank].pid, 0);
        if (processes[rank].pid > 0)
            continue;
        struct weft_context *context = meet(rank, size, name, progress);
        fn(context, user);
        OK(weft_context_destroy(context));
        _exit(0);
    }
    /* Kernels before 6.15 say how a process has ended until its parent has waited for it. */
    siginfo_t unused;
    for (int rank = 0; rank < size; rank++)
        cr_assert_eq(waitid(P_PID, (id_t)processes[rank].pid, &unused, WEXITED | WNOWAIT), 0);
    for (int rank = 0; rank < size; rank++)
        cr_assert_eq(waitpid(processes[rank].pid, &processes[rank].status, 0), processes[rank].pid);
}

static int was_killed(const struct process *process)
{
    return WIFSIGNALED(process->status) && WTERMSIG(process->status) == SIGKILL;
}

/* ---- killed in the middle of collectives ---- */

struct killing {
    int victim, turns;
    size_t count;
};

static int64_t *filled(struct weft_context *context, size_t count, int64_t value)
{
    int64_t *memory = weft_context_memory_alloc(context, count, sizeof *memory);
    CHECK(memory);
    for (size_t i = 0; i < count; i++)
        memory[i] = value;
    return memory;
}

static int add_up(struct weft_context *context, size_t count)
{
    int64_t *in = filled(context, count, 1), *out = filled(context, count, 0);
    int status = weft_allreduce(context, in, out, count, WEFT_I64, weft_op_builtin(WEFT_SUM));
    for (size_t i = 0; status == WEFT_OK && i < count; i++)
        CHECK(out[i] == weft_context_size(context));
    weft_context_memory_free(context, in);
    weft_context_memory_free(context, out);
    return status;
}

static void killed_between(struct weft_context *context, void *user)
{
    const struct killing *killing = user;
    struct weft_context *left = NULL;
    int rank = weft_context_rank(context), size = weft_context_size(context);
    int status = WEFT_OK;
    for (int turn = 0; status == WEFT_OK; turn++) {
        if (rank == killing->victim && turn == killing->turns)
            kill(getpid(), SIGKILL);
        status = add_up(context, killing->count);
    }
    CHECK(status == WEFT_ERR_PEER);
    char dead[64];
    snprintf(dead, sizeof dead, "rank %d has died: ", killing->victim);
    CHECK_TEXT(weft_error_text(), dead);
    CHECK_TEXT(weft_error_text(), "killed by signal 9 (Killed)");
    OK(weft_context_shrink(context, &left));
    CHECK(weft_context_size(left) == size - 1);
    weft_rank_state_t state;
    const char *how = NULL;
    OK(weft_context_rank_state(context, killing->victim, &state, &how));
    CHECK(state == WEFT_RANK_DEAD && strcmp(how, "killed by signal 9 (Killed)") == 0);
    for (int i = 0; i < 3; i++)
        OK(add_up(left, killing->count));
    OK(weft_context_destroy(left));
}

Test(shared_death, whoever_is_left_goes_on)
{
    static const size_t counts[] = {1, 3000, 300000};
    for (int size = 2; size <= 4; size++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (int helps = 0; helps < 2; helps++) {
                struct killing killing = {(int)(c + (size_t)helps) % size, 3, counts[c]};
                struct process processes[4];
                run_processes(size, helps ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER,
                              killed_between, &killing, processes);
                for (int rank = 0; rank < size; rank++)
                    cr_assert(rank == killing.victim ? was_killed(&processes[rank])
                                                     : processes[rank].status == 0,
                              "%d processes, rank %d: status %x", size, rank,
                              processes[rank].status);
            }
}

/* ---- ends without a signal, and of who sleeps ---- */

static void exits(struct weft_context *context, void *user)
{
    int status = weft_barrier(context);
    (void)user;
    if (weft_context_rank(context) == 1) {
        OK(status);
        _exit(0);
    }
    if (status == WEFT_OK) /* else it has died before the others were through */
        status = weft_barrier(context);
    CHECK_STATUS(status, WEFT_ERR_PEER);
    CHECK_TEXT(weft_error_text(), "rank 1 has died: exited with status 0");
    /* The others tell each other nothing more: what they have ends without them. */
}

Test(shared_death, a_process_that_just_exits_has_died)
{
    struct process processes[3];
    run_processes(3, WEFT_PROGRESS_CALLER, exits, NULL, processes);
    for (int rank = 0; rank < 3; rank++)
        cr_assert(processes[rank].status == 0, "rank %d: status %x", rank, processes[rank].status);
}

static void leaves(struct weft_context *context, void *user)
{
    weft_rank_state_t state = WEFT_RANK_PRESENT;
    struct weft_context *left = NULL;
    (void)user;
    OK(weft_barrier(context));
    if (weft_context_rank(context) == 0)
        return; /* destroys it, and ends */
    OK(weft_context_shrink(context, &left));
    CHECK(weft_context_size(left) == 2);
    for (int i = 0; i < 100; i++) {
        OK(weft_context_rank_state(context, 0, &state, NULL));
        CHECK(state == WEFT_RANK_LEFT);
        OK(weft_barrier(left));
    }
    OK(weft_context_destroy(left));
}

Test(shared_death, a_process_that_has_destroyed_its_context_has_left_and_not_died)
{
    struct process processes[3];
    run_processes(3, WEFT_PROGRESS_CALLER, leaves, NULL, processes);
    for (int rank = 0; rank < 3; rank++)
        cr_assert(processes[rank].status == 0, "rank %d: status %x", rank, processes[rank].status);
}

/* How many processes' regions are mapped, this one's among them. */
static int mapped_regions(void)
{
    char line[512];
    unsigned long files[8];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    while (fgets(line, sizeof line, maps)) {
        unsigned long file = 0;
        int at = 0;
        if (!strstr(line, "memfd:weft") || sscanf(line, "%*s %*s %*s %*s %lu", &file) != 1)
            continue;
        while (at < count && files[at] != file)
            at++;
        if (at == count && count < 8)
            files[count++] = file;
    }
    fclose(maps);
    return count;
}

enum { HELD = 1 << 17 };

/* Rank 1 sends rank 0 what lies in its arena. */
static struct weft_run *sends(struct weft_context *context, int64_t *memory)
{
    struct weft_schedule *schedule = NULL;
    struct weft_plan *plan = NULL;
    struct weft_run *run = NULL;
    int rank = weft_context_rank(context);
    OK(weft_schedule_create(&schedule, rank, weft_context_size(context)));
    weft_slot_t slot = weft_schedule_add_slot(schedule, "memory", WEFT_I64, HELD, WEFT_SLOT_INOUT);
    if (rank == 1)
        weft_schedule_add_send(schedule, weft_region_at(slot, 0, HELD), 0, 1);
    if (rank == 0)
        weft_schedule_add_recv(schedule, weft_region_at(slot, 0, HELD), 1, 1);
    OK(weft_schedule_commit(schedule, &plan));
    weft_schedule_destroy(schedule);
    OK(weft_run_create(&run, context, plan, NULL));
    weft_plan_destroy(plan);
    OK(bind_slot(run, slot, memory));
    return run;
}

static void remembers(struct weft_context *context, void *user)
{
    struct weft_context *left = NULL;
    int held = *(int *)user;
    int rank = weft_context_rank(context);
    int64_t *memory = filled(context, HELD, 7 * rank);
    struct weft_run *run = sends(context, memory);
    int status = weft_barrier(context);
    if (rank == 1) {
        OK(status);
        if (held)
            OK(weft_run_start(run));
        kill(getpid(), SIGKILL);
    }
    OK(weft_context_shrink(context, &left));
    OK(weft_barrier(left));
    OK(weft_context_destroy(left));
    if (held && rank == 0) {
        CHECK(mapped_regions() == 3); /* where what has been announced is */
        status = weft_run_start(run);
        if (status == WEFT_OK)
            status = weft_run_wait(run, WEFT_NEVER);
        CHECK(status == WEFT_ERR_PEER || (status == WEFT_OK && memory[HELD - 1] == 7));
    }
    weft_run_destroy(run);
    while (mapped_regions() > 2) /* another rank may have said first that it is dead */
        weft_context_progress(context);
    weft_context_memory_free(context, memory);
}

Test(shared_death, the_memory_of_the_dead_is_given_back)
{
    for (int held = 0; held < 2; held++) {
        struct process processes[3];
        run_processes(3, WEFT_PROGRESS_CALLER, remembers, &held, processes);
        for (int rank = 0; rank < 3; rank++)
            cr_assert(rank == 1 ? was_killed(&processes[rank]) : processes[rank].status == 0,
                      "rank %d: status %x", rank, processes[rank].status);
    }
}

/* What was announced from memory of the victim's own has gone with it. */
static void comes_late(struct weft_context *context, void *user)
{
    struct weft_context *left = NULL;
    int rank = weft_context_rank(context);
    int64_t *memory = weft_memory_alloc(HELD, sizeof *memory);
    CHECK(memory);
    struct weft_run *run = sends(context, memory);
    int status = weft_barrier(context);
    (void)user;
    if (rank == 1) {
        OK(status);
        OK(weft_run_start(run));
        kill(getpid(), SIGKILL);
    }
    OK(weft_context_shrink(context, &left));
    if (rank == 0) {
        status = weft_run_start(run);
        if (status == WEFT_OK)
            status = weft_run_wait(run, WEFT_NEVER);
        CHECK_STATUS(status, WEFT_ERR_PEER);
        CHECK_TEXT(weft_error_text(), "rank 1 has died: killed by signal 9");
    }
    weft_run_destroy(run);
    weft_memory_free(memory);
    OK(weft_context_destroy(left));
}

Test(shared_death, a_message_that_the_dead_only_announced_is_not_waited_for)
{
    for (int helps = 0; helps < 2; helps++) {
        struct process processes[3];
        run_processes(3, helps ? WEFT_PROGRESS_HELPER : WEFT_PROGRESS_CALLER, comes_late, NULL,
                      processes);
        for (int rank = 0; rank < 3; rank++)
            cr_assert(rank == 1 ? was_killed(&processes[rank]) : processes[rank].status == 0,
                      "rank %d: status %x", rank, processes[rank].status);
    }
}

/* Ranks 0 and 2 exchange with each other alone, and never hear of it. */
static void others(struct weft_context *context, void *user)
{
    int pair[] = {0, 2};
    struct weft_context *child = NULL;
    (void)user;
    if (weft_context_rank(context) == 1) {
        usleep(2000);
        kill(getpid(), SIGKILL);
    }
    OK(weft_context_subset(context, pair, 2, 0, &child));
    for (int i = 0; i < 2000; i++)
        OK(add_up(child, 100));
    OK(weft_context_destroy(child));
}

Test(shared_death, who_does_not_need_it_goes_on)
{
    struct process processes[3];
    run_processes(3, WEFT_PROGRESS_CALLER, others, NULL, processes);
    cr_assert(was_killed(&processes[1]));
    cr_assert(processes[0].status == 0 && processes[2].status == 0);
}
