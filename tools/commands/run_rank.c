/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank of `weft run`: its slots, its iterations, and what it found. */
#include "tools/commands/run_rank.h"

#include "tools/cli/ranks.h"
#include "tools/cli/transports.h"

#include <string.h>
#include <time.h>

/* One rank's own things. */
struct worker {
    struct run_job *job;
    struct weft_context *context;
    int rank;
    int size;
    struct weft_schedule *own; /* built here, to be destroyed */
    const struct weft_schedule *schedule;
    struct weft_plan *plan;
    struct weft_run *run;
    struct weft_run *barrier;
    struct weft_run *gather; /* maximum over ranks of `table` */
    double *table;           /* iterations times, lowest rank with a fault negated */
    size_t slot_count;
    void **slots;
    void **there; /* NULL, or memory of the device that a slot is bound to: it is filled from, and
                     compared in, what is in `slots` */
};

/* Of several processes rank 0 prints what it knows, so a rank that failed by itself says so. */
static void tell(const struct run_job *job, int rank, int status)
{
    if (cli_is_follower() && status != WEFT_ERR_PEER && status != WEFT_ERR_CANCELLED)
        fprintf(stderr, "weft run: %s: rank %d: %s\n", job->name, rank, weft_error_text());
}

/* ---- one rank ---- */

static int open_schedule(struct worker *w)
{
    struct run_job *job = w->job;

    if (!job->file) {
        int status =
            cli_template_build(job->cli, &job->params, job->name, w->rank, w->size, &w->own);
        w->schedule = w->own;
        return status;
    }
    for (size_t i = 0; i < job->file->count; i++) {
        if (weft_schedule_rank(job->file->at[i]) == w->rank) {
            w->schedule = job->file->at[i];
            return WEFT_OK;
        }
    }
    return weft_error_set(WEFT_ERR_INVALID, "%s has no schedule of rank %d", job->name, w->rank);
}

static int is_of_arena(const struct worker *w, size_t s)
{
    return w->job->memory == RUN_ARENA && !w->there[s];
}

/* Of the device and, to look at, of the host; or of the host alone. */
static int alloc_slot(const struct worker *w, size_t s, const struct weft_slot_info *slot)
{
    size_t size = weft_dtype_size(slot->dtype), count = slot->count ? slot->count : 1;
    int status = WEFT_OK;

    if (slot->memory == WEFT_MEMORY_DEVICE)
        status =
            weft_context_device_alloc(w->context, WEFT_MEMORY_DEVICE, count * size, &w->there[s]);
    if (status != WEFT_OK)
        return status;
    w->slots[s] = is_of_arena(w, s) ? weft_context_memory_alloc(w->context, count, size)
                                    : weft_memory_alloc(count, size);
    return w->slots[s]
               ? WEFT_OK
               : weft_error_set(WEFT_ERR_MEMORY, "out of memory for slot %s: %zu elements of %s",
                                slot->name, slot->count, weft_dtype_name(slot->dtype));
}

static int open_slots(struct worker *w)
{
    struct weft_slot_info slot = {.struct_size = sizeof slot};
    int status = WEFT_OK;

    w->slot_count = weft_schedule_slot_count(w->schedule);
    w->slots = weft_memory_alloc(w->slot_count + 1, sizeof *w->slots);
    w->there = weft_memory_alloc(w->slot_count + 1, sizeof *w->there);
    if (!w->slots || !w->there)
        return weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu slots", w->slot_count);
    for (size_t s = 0; status == WEFT_OK && s < w->slot_count; s++) {
        status = weft_schedule_get_slot(w->schedule, (weft_slot_t)s, &slot);
        if (status != WEFT_OK || slot.kind == WEFT_SLOT_SCRATCH)
            continue;
        status = alloc_slot(w, s, &slot);
        if (status == WEFT_OK)
            status = weft_run_bind(w->run, (weft_slot_t)s, w->there[s] ? w->there[s] : w->slots[s],
                                   slot.count, slot.dtype);
    }
    return status;
}

/* Values that no node produces are bound to the most they may be. */
static int bind_values(struct worker *w)
{
    struct weft_value_info value = {.struct_size = sizeof value};
    int status = WEFT_OK;

    for (size_t v = 1; status == WEFT_OK && v <= weft_schedule_value_count(w->schedule); v++) {
        status = weft_schedule_get_value(w->schedule, (weft_value_t)v, &value);
        if (status == WEFT_OK && value.producer < 0)
            status = weft_run_bind_value(w->run, (weft_value_t)v, value.max);
    }
    return status;
}

static int open_runs(struct worker *w)
{
    struct run_job *job = w->job;
    struct weft_template_params params;
    struct weft_run_config config;
    int status = weft_schedule_commit(w->schedule, &w->plan);

    weft_run_config_init(&config);
    config.deadline_ns = (uint64_t)(job->timeout_s * 1e9);
    config.nccl = job->nccl;
    if (status == WEFT_OK)
        status = weft_run_create(&w->run, w->context, w->plan, &config);
    if (status == WEFT_OK)
        status = weft_template_create_run(&w->barrier, w->context, "barrier", NULL);
    weft_template_params_init(&params);
    params.count = job->iterations + 1;
    params.dtype = WEFT_F64;
    params.op = weft_op_builtin(WEFT_MAX);
    params.in_place = 1;
    if (status == WEFT_OK)
        status = weft_template_create_run(&w->gather, w->context, "allreduce", &params);
    if (status == WEFT_OK) {
        /* A rank that could not start must not keep the others for ever. Twice as long, so that it
         * is the run that gives up first and is named. */
        weft_run_set_deadline(w->barrier, 2 * config.deadline_ns);
        weft_run_set_deadline(w->gather, 2 * config.deadline_ns);
    }
    w->table = weft_memory_alloc(params.count, sizeof *w->table);
    if (status == WEFT_OK && !w->table)
        status = weft_error_set(WEFT_ERR_MEMORY, "out of memory for %zu times", params.count);
    return status == WEFT_OK
               ? weft_run_bind_name(w->gather, "recv", w->table, params.count, WEFT_F64)
               : status;
}

/* After a failure: the others need not wait for this rank until their own deadline. They are in the
 * barrier of the next iteration, or get past it and into that iteration, or bring their times
 * together; a run that is cancelled here fails there. Local ranks are told by weft_local_run(),
 * where they are: a run that begins before it is cancelled could let them go on first. */
static void abandon(struct worker *w)
{
    struct weft_run *runs[] = {w->barrier, w->run, w->gather};

    if (!cli_uses_processes(w->job->transport))
        return;
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        if (runs[i] && weft_run_start(runs[i]) == WEFT_OK) {
            weft_run_cancel(runs[i]);
            weft_run_wait(runs[i], WEFT_NEVER);
        }
    }
}

static void free_slots(void **slots, size_t count)
{
    for (size_t s = 0; slots && s < count; s++)
        weft_memory_free(slots[s]);
    weft_memory_free(slots);
}

static void free_own_slots(struct worker *w)
{
    for (size_t s = 0; w->slots && w->there && s < w->slot_count; s++) {
        weft_context_device_free(w->context, w->there[s]);
        if (!is_of_arena(w, s))
            continue;
        weft_context_memory_free(w->context, w->slots[s]);
        w->slots[s] = NULL;
    }
    free_slots(w->slots, w->slot_count);
}

/* A send that the transport could not take back reads its slot until its context is gone. */
static int keep_slots(struct worker *w)
{
    struct run_kept *kept;

    if (!w->run || weft_run_reclaim(w->run) != WEFT_IN_PROGRESS)
        return 0;
    kept = weft_memory_alloc(1, sizeof *kept);
    for (size_t s = 0; s < w->slot_count; s++)
        if (is_of_arena(w, s))
            w->slots[s] = NULL; /* freed with the context, as those of the device are */
    if (kept) {
        *kept = (struct run_kept){.slots = w->slots, .count = w->slot_count};
        pthread_mutex_lock(&w->job->lock);
        kept->next = w->job->kept;
        w->job->kept = kept;
        pthread_mutex_unlock(&w->job->lock);
    }
    return 1;
}

void run_free_kept(struct run_job *job)
{
    while (job->kept) {
        struct run_kept *kept = job->kept;
        job->kept = kept->next;
        free_slots(kept->slots, kept->count);
        weft_memory_free(kept);
    }
}

static void close_worker(struct worker *w)
{
    int kept = keep_slots(w);

    weft_run_destroy(w->gather);
    weft_run_destroy(w->barrier);
    weft_run_destroy(w->run);
    weft_plan_destroy(w->plan);
    if (!kept)
        free_own_slots(w);
    weft_memory_free(w->there);
    weft_memory_free(w->table);
    weft_schedule_destroy(w->own);
}

/* Contributions of an iteration; outputs are overwritten so that nothing old can pass for new. */
static int fill_slots(struct worker *w, uint64_t iteration)
{
    struct weft_slot_info slot = {.struct_size = sizeof slot};
    int status = WEFT_OK;

    for (size_t s = 0; s < w->slot_count && status == WEFT_OK; s++) {
        if (!w->slots[s] || weft_schedule_get_slot(w->schedule, (weft_slot_t)s, &slot) != WEFT_OK)
            continue;
        size_t bytes = slot.count * weft_dtype_size(slot.dtype);
        if (slot.kind == WEFT_SLOT_OUTPUT) {
            memset(w->slots[s], 0x5a, bytes);
        } else if (w->job->fill == VERIFY_COMPRESSED) {
            status = verify_fill_compressed(w->schedule, &slot, w->slots[s], iteration);
        } else if (w->job->fill == VERIFY_PAIRS) {
            verify_fill_pairs(w->schedule, &slot, w->slots[s], iteration);
        } else {
            verify_fill(w->job->fill, w->slots[s], slot.dtype, w->rank, slot.name, 0, slot.count,
                        iteration);
        }
        if (status == WEFT_OK && w->there[s])
            status = weft_context_device_copy(w->context, w->there[s], w->slots[s], bytes);
    }
    return status;
}

/* Brings back what the run has written on the device. */
static int fetch_slots(struct worker *w)
{
    struct weft_slot_info slot = {.struct_size = sizeof slot};
    int status = WEFT_OK;

    for (size_t s = 0; s < w->slot_count && status == WEFT_OK; s++)
        if (w->there[s] &&
            (status = weft_schedule_get_slot(w->schedule, (weft_slot_t)s, &slot)) == WEFT_OK &&
            slot.kind != WEFT_SLOT_INPUT)
            status = weft_context_device_copy(w->context, w->slots[s], w->there[s],
                                              slot.count * weft_dtype_size(slot.dtype));
    return status;
}

/* Starts the run, fires the events that only the application fires, waits. */
static int execute(struct worker *w)
{
    struct weft_node_info node = {.struct_size = sizeof node};
    int status = weft_run_start(w->run);

    if (status != WEFT_OK)
        return status;
    for (size_t n = 0; n < weft_schedule_node_count(w->schedule); n++)
        if (weft_schedule_get_node(w->schedule, (weft_node_t)n, &node) == WEFT_OK &&
            node.kind == WEFT_NODE_EVENT && node.channel == WEFT_CHANNEL_NONE)
            weft_run_fire(w->run, (weft_node_t)n);
    return weft_run_wait(w->run, WEFT_NEVER);
}

static int has_events(const struct weft_schedule *schedule)
{
    struct weft_node_info node = {.struct_size = sizeof node};

    for (size_t n = 0; n < weft_schedule_node_count(schedule); n++)
        if (weft_schedule_get_node(schedule, (weft_node_t)n, &node) == WEFT_OK &&
            node.kind == WEFT_NODE_EVENT)
            return 1;
    return 0;
}

static int verify(struct worker *w, uint64_t iteration, struct verify_fault *fault, uint64_t *when)
{
    struct verify_fault found;
    int status = fetch_slots(w);

    if (status == WEFT_OK)
        status = verify_results(w->schedule, w->job->fill, w->slots, iteration, &found);
    if (status == WEFT_IN_PROGRESS) {
        if (!fault->slot) {
            *fault = found;
            *when = iteration;
        }
        return WEFT_OK;
    }
    return status;
}

/* Nobody may leave before the last has come, as is stated. One rank after the other comes late: by
 * so little that the others may be late themselves, for want of cores; so some by much, then. */
static int check_barrier(struct worker *w, int *wrong)
{
    enum { MOST_LATE = 32, VERY_LATE = 8, LATE_NS = 1000000, VERY_LATE_NS = 30000000 };
    int most = w->size < MOST_LATE ? w->size : MOST_LATE;
    int very = w->job->timeout_s < 10e-9 * VERY_LATE_NS ? 0
               : w->size < VERY_LATE                    ? w->size
                                                        : VERY_LATE;

    /* Who is wrong is seen by all alike. */
    for (int late = 0; late < most + very && !*wrong; late++) {
        if (w->rank == (late < most ? late : late - most))
            nanosleep(&(struct timespec){.tv_nsec = late < most ? LATE_NS : VERY_LATE_NS}, NULL);
        double enter = (double)ranks_now();
        int status = execute(w);
        double leave = (double)ranks_now();
        memset(w->table, 0, (w->job->iterations + 1) * sizeof *w->table);
        w->table[0] = enter;
        w->table[1] = -leave;
        status = status == WEFT_OK ? weft_run_execute(w->gather) : status;
        if (status != WEFT_OK)
            return status;
        *wrong |= w->table[0] > -w->table[1];
    }
    return WEFT_OK;
}

/* 1 if a rank's end is stated to come after the start of all ranks. */
static int states_barrier(const struct weft_schedule *schedule)
{
    struct weft_result result = {.struct_size = sizeof result};

    for (size_t i = 0; weft_schedule_get_result(schedule, i, &result) == WEFT_OK; i++)
        if (result.kind == WEFT_RESULT_AFTER_START && result.ranks == weft_schedule_size(schedule))
            return 1;
    return 0;
}

/* 1 if all ranks state that, and share a clock by which it can be seen. */
static int is_barrier(const struct worker *w)
{
    const struct cli_schedules *file = w->job->file;
    int *nodes = weft_memory_alloc((size_t)w->size, sizeof *nodes);
    int same = nodes && weft_context_hosts(w->context, nodes) == WEFT_OK;

    for (int r = 0; same && r < w->size; r++)
        same = nodes[r] == nodes[0];
    weft_memory_free(nodes);
    for (size_t i = 0; same && file && i < file->count; i++)
        same = states_barrier(file->at[i]);
    return same && states_barrier(w->schedule);
}

/* Brings times and faults together; the lowest rank with a fault tells it. */
static int conclude(struct worker *w, const struct verify_fault *fault, uint64_t when)
{
    struct run_job *job = w->job;
    size_t n = job->iterations;

    w->table[n] = fault->slot ? -w->rank : -w->size;
    int status = weft_run_execute(w->gather);
    if (status != WEFT_OK)
        return status;
    int lowest = (int)-w->table[n];
    if (lowest == w->rank) {
        fprintf(stderr,
                "weft run: rank %d, slot %s, element %zu, iteration %llu: got %s, expected %s\n",
                fault->rank, fault->slot, fault->element, (unsigned long long)when, fault->got,
                fault->expected);
    }
    if (w->rank == 0) {
        memcpy(job->times_us, w->table, n * sizeof *w->table);
        job->faults = lowest < w->size;
        job->nodes = weft_schedule_node_count(w->schedule);
        job->size = w->size;
        snprintf(job->schedule, sizeof job->schedule, "%s", weft_schedule_name(w->schedule));
    }
    return WEFT_OK;
}

static int iterate(struct worker *w)
{
    struct run_job *job = w->job;
    struct verify_fault fault = {.slot = NULL};
    uint64_t when = 0;
    int events = has_events(w->schedule);
    int status = WEFT_OK;

    for (size_t i = 0; status == WEFT_OK && i <= job->iterations; i++) {
        status = fill_slots(w, i);
        if (status == WEFT_OK)
            status = weft_run_execute(w->barrier);
        uint64_t start = ranks_now();
        status = status != WEFT_OK ? status : events ? execute(w) : weft_run_execute(w->run);
        if (i > 0)
            w->table[i - 1] = (double)(ranks_now() - start) * 1e-3;
        if (status == WEFT_OK && job->verify)
            status = verify(w, i, &fault, &when);
    }
    if (status == WEFT_OK)
        status = conclude(w, &fault, when);
    if (status == WEFT_OK && job->verify && is_barrier(w)) {
        int wrong = 0;
        status = check_barrier(w, &wrong);
        if (w->rank == 0) {
            job->faults |= wrong;
            if (wrong)
                cli_fail("run", "%s: a rank ended before the last had started", w->job->name);
        }
    }
    return status;
}

int run_rank(struct weft_context *context, void *user)
{
    struct worker w = {.job = user,
                       .context = context,
                       .rank = weft_context_rank(context),
                       .size = weft_context_size(context)};
    int status = open_schedule(&w);

    if (status == WEFT_OK)
        status = run_trace_begin(w.job, context, w.schedule);
    if (status == WEFT_OK)
        status = open_runs(&w);
    if (status == WEFT_OK)
        status = open_slots(&w);
    if (status == WEFT_OK)
        status = bind_values(&w);
    if (status == WEFT_OK)
        status = iterate(&w);
    char text[512] = "";
    if (status != WEFT_OK) {
        tell(w.job, w.rank, status);
        snprintf(text, sizeof text, "%s", weft_error_text());
        abandon(&w);
    }
    int traced = run_trace_end(w.job, context, status != WEFT_OK);
    if (status == WEFT_OK && traced != WEFT_OK) {
        status = traced;
        tell(w.job, w.rank, status);
        snprintf(text, sizeof text, "%s", weft_error_text());
    }
    close_worker(&w);
    /* The text of the failure, not of what it made fail afterwards. */
    return status == WEFT_OK ? WEFT_OK : weft_error_set(status, "%s", text);
}
