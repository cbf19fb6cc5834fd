/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random programs (support/dag.h) on local ranks, compared with their execution one node after the
 * other: every buffer and every value, after each of several starts with changed data, one or two
 * runs in flight, under settings drawn from the seed.
 *
 * WEFT_TEST_SEEDS=n: so many seeds for each test. WEFT_TEST_SEED=s: this one, and
 * print its schedules. WEFT_TEST_NCCL: messages between devices go over NCCL.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#include "support/dag.h"
#include "support/sweep.h"
#include "support/virtual_ranks.h"
#include "tests/support/bind.h"
#include "tests/support/placed.h"
#ifdef WEFT_TEST_IMAGINED
#    include "tests/support/imagined_device.h"
enum { IMAGINED = 1 }; /* devices of virtual ranks */
#else
enum { IMAGINED = 0 };
#endif

enum { SEEDS = WEFT_SANITIZED ? 10 : SWEPT(150, 50) };
enum { MOST_RANKS = 9, MOST_RUNS = 2, MOST_VERSIONS = 4, USER_SLOTS = 3, MOST_PIECES = 6 };
#define MOST_BYTES ((size_t)4 << 20)
#define PATIENCE   UINT64_C(60000000000)

/* ---- one trial ---- */

struct trial {
    uint64_t seed;
    struct dag *dag;
    struct dag_ops ops;
    struct weft_local *local;
    int virtual; /* the ranks are */
    struct weft_context_config config;
    struct weft_plan *plans[MOST_RANKS];
    weft_node_t *ids;
    int runs, versions;
    int context_rank[MOST_RANKS]; /* of a rank of the program */
    int direct_peers;
    weft_nccl_t nccl;
    /* Results: [run * versions + version][rank][slot], and the values of the ranks. */
    void *(*expected)[MOST_RANKS][DAG_SLOTS];
    uint64_t *(*values)[MOST_RANKS];
    pthread_barrier_t barrier;
    atomic_int completers;
    atomic_int failed;
    pthread_mutex_t mutex;
    char text[1024];
};

struct rank {
    struct trial *trial;
    pthread_t thread;
    int rank; /* of the program */
    uint64_t random;
    struct weft_context *context;
    struct weft_run *runs[MOST_RUNS];
    void *flat[MOST_RUNS][USER_SLOTS];
    struct weft_piece pieces[MOST_RUNS][USER_SLOTS][MOST_PIECES];
    int piece_count[MOST_RUNS][USER_SLOTS]; /* 0: bound to the flat memory */
    void *bound[MOST_RUNS][USER_SLOTS];     /* or a copy of it elsewhere */
    int version;
};

static void fail(struct rank *rank, const char *what, int number, const char *detail)
{
    struct trial *trial = rank->trial;
    pthread_mutex_lock(&trial->mutex);
    if (!atomic_exchange(&trial->failed, 1))
        snprintf(trial->text, sizeof trial->text, "rank %d of %d version %d: %s %d: %.800s",
                 rank->rank, trial->dag->ranks, rank->version, what, number, detail);
    pthread_mutex_unlock(&trial->mutex);
}

static uint64_t key_of(int run, int version)
{
    return (uint64_t)run * 1000 + (uint64_t)version;
}

static int pick(struct rank *rank, int below)
{
    return (int)(dag_random(&rank->random) % (uint64_t)below);
}

/* ---- the user's operations ---- */

struct cursor {
    const struct weft_argument *argument;
    size_t piece, at, element;
};

static unsigned char *chunk(struct cursor *cursor, size_t *bytes)
{
    while (cursor->piece < cursor->argument->piece_count &&
           cursor->at == cursor->argument->pieces[cursor->piece].count * cursor->element) {
        cursor->piece++;
        cursor->at = 0;
    }
    if (cursor->piece == cursor->argument->piece_count)
        return NULL;
    const struct weft_piece *piece = &cursor->argument->pieces[cursor->piece];
    size_t left = piece->count * cursor->element - cursor->at;
    if (left < *bytes)
        *bytes = left;
    return (unsigned char *)piece->data + cursor->at;
}

static int mix(struct weft_call *call)
{
    size_t element = weft_dtype_size(call->arguments[0].dtype);
    size_t left = call->arguments[0].count * element, done = 0;
    struct cursor to = {&call->arguments[0], 0, 0, element};
    struct cursor from = {&call->arguments[1], 0, 0, element};
    unsigned char *copy = malloc(left + 1);
    while (left > 0) {
        size_t bytes = left;
        unsigned char *data = chunk(&to, &bytes), *source = chunk(&from, &bytes);
        if (!data || !source || !copy) {
            free(copy);
            return WEFT_ERR_INVALID;
        }
        memcpy(copy + done, source, bytes);
        dag_mix(data, source, bytes, call->version);
        to.at += bytes;
        from.at += bytes;
        left -= bytes;
        done += bytes;
    }
    if (call->value)
        *call->value = dag_produce(copy, done, call->arguments[1].count);
    free(copy);
    return WEFT_OK;
}

static int mix_completed(struct weft_call *call)
{
    weft_call_complete(call, mix(call));
    return WEFT_IN_PROGRESS;
}

static int mix_polled(struct weft_call *call)
{
    return call->state++ < 3 ? WEFT_IN_PROGRESS : mix(call);
}

static atomic_int *completers; /* of the trial under way */

static void *complete(void *argument)
{
    struct weft_call *call = argument;
    sched_yield();
    weft_call_complete(call, mix(call));
    atomic_fetch_sub(completers, 1);
    return NULL;
}

static int mix_by_thread(struct weft_call *call)
{
    pthread_t thread;
    atomic_fetch_add(completers, 1);
    if (pthread_create(&thread, NULL, complete, call)) {
        atomic_fetch_sub(completers, 1);
        return WEFT_ERR_SYSTEM;
    }
    pthread_detach(thread);
    return WEFT_IN_PROGRESS;
}

#ifdef WEFT_TEST_DEVICE
static int mix_on_device(struct weft_call *call, void *stream)
{
    return placed_call(call, stream, mix, NULL);
}
#else
#    define mix_on_device NULL
#endif
PLACED_REDUCE(reduce_on_device, dag_user_reduce)

/* The operations live as long as the process. */
static void make_ops(struct dag_ops *ops, int threads)
{
    const weft_compute_fn functions[DAG_PENDS] = {mix, mix_completed, mix_polled,
                                                  threads ? mix_by_thread : mix_polled};
    static const char *const names[DAG_PENDS] = {"mix", "mix-completed", "mix-polled",
                                                 "mix-by-thread"};
    struct weft_op_config config;
    struct weft_op *op;
    for (int i = 0; i < DAG_PENDS; i++) {
        weft_op_config_init(&config);
        config.name = names[i];
        config.flags = i == DAG_AT_ONCE ? 0 : WEFT_OP_MAY_PEND;
        config.compute = functions[i];
        config.poll = functions[i] == mix_polled ? mix_polled : NULL;
        config.device = mix_on_device;
        cr_assert_eq(weft_op_create(&op, &config), WEFT_OK, "%s", weft_error_text());
        ops->mix[i] = op;
    }
    weft_op_config_init(&config);
    config.name = "triple-and-add";
    config.reduce = dag_user_reduce;
    config.device = reduce_on_device;
    cr_assert_eq(weft_op_create(&op, &config), WEFT_OK, "%s", weft_error_text());
    ops->reduce = op;
}

static void release_ops(struct dag_ops *ops)
{
    for (int i = 0; i < DAG_PENDS; i++)
        weft_op_destroy(ops->mix[i]);
    weft_op_destroy(ops->reduce);
}

/* ---- buffers ---- */

static size_t element_size(const struct rank *rank)
{
    return weft_dtype_size(rank->trial->dag->dtype);
}

/* Where a rank's slot is. */
static enum placed place_of(const struct trial *trial, int rank, int slot)
{
    uint64_t any = dag_hash(trial->seed, (uint64_t)rank, (uint64_t)slot, 11);
    /* Where peers are bound, ends of messages meet by their tags, and are all alike. */
    if (trial->nccl == WEFT_NCCL_AGREED)
        return ON_DEVICE;
    if (!PLACED || any % 8 == 0)
        return ON_HOST;
    return any % 8 == 1 && slot < USER_SLOTS ? PINNED : any % 2 ? ON_DEVICE : ON_HOST;
}

static void unbind(struct rank *rank, int run, int slot)
{
    enum placed place = place_of(rank->trial, rank->rank, slot);
    for (int p = 0; p < rank->piece_count[run][slot]; p++)
        placed_free(place, rank->pieces[run][slot][p].data);
    if (rank->bound[run][slot] != rank->flat[run][slot])
        placed_free(place, rank->bound[run][slot]);
    rank->bound[run][slot] = NULL;
    rank->piece_count[run][slot] = 0;
}

/* As a whole: the flat memory itself, or a copy of it where the slot is. */
static int bind_flat(struct rank *rank, int run, int slot)
{
    enum placed place = place_of(rank->trial, rank->rank, slot);
    size_t bytes = dag_slot_bytes(rank->trial->dag);
    rank->bound[run][slot] = place == ON_HOST ? rank->flat[run][slot] : placed_alloc(place, bytes);
    if (place != ON_HOST)
        placed_put(place, rank->bound[run][slot], rank->flat[run][slot], bytes);
    return bind_slot(rank->runs[run], slot, rank->bound[run][slot]);
}

/* Splits a slot into pieces of memory of their own, some of them empty. */
static int bind_pieces(struct rank *rank, int run, int slot)
{
    size_t left = dag_slot_count(rank->trial->dag), element = element_size(rank), done = 0;
    int count = 1 + pick(rank, MOST_PIECES);
    enum placed place = place_of(rank->trial, rank->rank, slot);
    struct weft_piece *pieces = rank->pieces[run][slot];
    for (int p = 0; p < count; p++) {
        size_t part = p == count - 1 ? left : dag_random(&rank->random) % (left + 1);
        if (p < count - 1 && pick(rank, 5) == 0)
            part = 0;
        pieces[p].count = part;
        pieces[p].data = placed_alloc(place, part * element);
        if (!pieces[p].data)
            abort();
        placed_put(place, pieces[p].data, (char *)rank->flat[run][slot] + done * element,
                   part * element);
        left -= part;
        done += part;
    }
    rank->piece_count[run][slot] = count;
    return bind_list(rank->runs[run], slot, pieces, (size_t)count);
}

static int bind_run(struct rank *rank, int run)
{
    const struct dag *dag = rank->trial->dag;
    uint64_t key = key_of(run, rank->version);
    int status = WEFT_OK;
    for (int slot = 0; slot < USER_SLOTS && !status; slot++) {
        unbind(rank, run, slot);
        dag_fill(dag, rank->rank, slot, rank->flat[run][slot], key);
        status = pick(rank, 3) ? bind_flat(rank, run, slot) : bind_pieces(rank, run, slot);
    }
    for (size_t v = 0; v < dag->value_count && !status; v++)
        if (dag->values[v].rank == rank->rank && !dag->values[v].produced)
            status = weft_run_bind_value(rank->runs[run], dag->values[v].number,
                                         dag_bound(dag, &dag->values[v], key));
    return status;
}

static void compare_run(struct rank *rank, int run)
{
    struct trial *trial = rank->trial;
    const struct dag *dag = trial->dag;
    int index = run * trial->versions + rank->version;
    char detail[120];
    for (int slot = 0; slot < USER_SLOTS; slot++) {
        unsigned char *flat = rank->flat[run][slot];
        const unsigned char *expected = trial->expected[index][rank->rank][slot];
        size_t done = 0;
        enum placed place = place_of(trial, rank->rank, slot);
        if (rank->bound[run][slot] && rank->bound[run][slot] != flat)
            placed_get(place, flat, rank->bound[run][slot], dag_slot_bytes(dag));
        for (int p = 0; p < rank->piece_count[run][slot]; p++) {
            const struct weft_piece *piece = &rank->pieces[run][slot][p];
            placed_get(place, flat + done, piece->data, piece->count * element_size(rank));
            done += piece->count * element_size(rank);
        }
        for (size_t i = 0; i < dag_slot_bytes(dag); i++)
            if (flat[i] != expected[i]) {
                snprintf(detail, sizeof detail, "byte %zu of %zu is %u, expected %u", i,
                         dag_slot_bytes(dag), flat[i], expected[i]);
                fail(rank, "result in slot", slot, detail);
                break;
            }
    }
    for (size_t v = 0; v < dag->value_count; v++) {
        int number = dag->values[v].number;
        if (dag->values[v].rank == rank->rank && weft_run_get_value(rank->runs[run], number) !=
                                                     trial->values[index][rank->rank][number - 1])
            fail(rank, "value", number, "differs");
    }
}

/* ---- events ---- */

static void expect_fired(struct rank *rank, int run, int node, int surely)
{
    int status = weft_run_fire(rank->runs[run], rank->trial->ids[node]);
    if (status == WEFT_OK || (!surely && (status == WEFT_RETIRED || status == WEFT_ERR_STATE)))
        return;
    fail(rank, "weft_run_fire of node", node, weft_status_name(status));
}

/* After the winner of a choice, another of it does nothing. */
static void fire_loser(struct rank *rank, int run, int winner)
{
    const struct dag *dag = rank->trial->dag;
    for (size_t n = 0; n < dag->node_count; n++)
        if (dag->nodes[n].rank == rank->rank && (int)n != winner &&
            dag->nodes[n].choice == dag->nodes[winner].choice) {
            int status = weft_run_fire(rank->runs[run], rank->trial->ids[n]);
            if (status != WEFT_RETIRED && status != WEFT_ERR_STATE)
                fail(rank, "weft_run_fire of a retired node", (int)n, weft_status_name(status));
            return;
        }
}

static void fire_one(struct rank *rank, int run, int number)
{
    const struct dag *dag = rank->trial->dag;
    const struct dag_node *node = &dag->nodes[number];
    if (node->choice < 0) {
        if (node->channel == WEFT_CHANNEL_NONE)
            expect_fired(rank, run, number, 1);
        return;
    }
    enum dag_firing firing = dag->choices[node->choice].firing;
    if (node->branch != dag_winner(dag, node->choice, key_of(run, rank->version)))
        return;
    if (firing == DAG_BY_APPLICATION) {
        expect_fired(rank, run, number, 1);
        if (pick(rank, 2))
            fire_loser(rank, run, number);
    } else if (firing == DAG_BY_BOTH) {
        expect_fired(rank, run, number, 0);
    }
}

/* Fires the events of both runs, in an order of its own, with pauses of several kinds between. */
static void *fire_all(void *argument)
{
    struct rank *rank = argument;
    const struct dag *dag = rank->trial->dag;
    int start = pick(rank, (int)dag->node_count + 1), step = pick(rank, 2) ? 1 : -1;
    for (size_t i = 0; i < dag->node_count; i++) {
        int count = (int)dag->node_count;
        int n = (start + count + step * (int)i) % count;
        n = n < 0 ? n + count : n;
        if (dag->nodes[n].rank != rank->rank || dag->nodes[n].kind != WEFT_NODE_EVENT)
            continue;
        for (int run = 0; run < rank->trial->runs; run++)
            fire_one(rank, run, n);
        if (pick(rank, 4) == 0 && rank->trial->virtual)
            weft_context_sleep(rank->context, (uint64_t)pick(rank, 20000));
        else if (pick(rank, 4) == 0)
            sched_yield();
    }
    return NULL;
}

/* ---- ranks ---- */

static int wait_run(struct rank *rank, int run)
{
    char *report = NULL;
    int status = weft_run_wait(rank->runs[run], PATIENCE);
    if (status == WEFT_OK)
        return 0;
    if (status == WEFT_IN_PROGRESS) {
        weft_run_report(rank->runs[run], &report);
        fail(rank, "no end of run", run, report ? report : "");
        weft_memory_free(report);
        weft_run_cancel(rank->runs[run]);
        weft_run_wait(rank->runs[run], PATIENCE);
    } else {
        fail(rank, "failure of run", run, weft_error_text());
    }
    return -1;
}

static int one_version(struct rank *rank)
{
    struct trial *trial = rank->trial;
    pthread_t thread;
    int status = 0, apart = pick(rank, 3) == 0 && !trial->virtual;
    /* What frees memory of the device waits for all that is under way there. */
    for (int run = 0; run < trial->runs && trial->nccl; run++)
        status |= bind_run(rank, run);
    for (int run = 0; run < trial->runs; run++) {
        if (status || (!trial->nccl && bind_run(rank, run)) || weft_run_start(rank->runs[run])) {
            fail(rank, "start of run", run, weft_error_text());
            return -1;
        }
        if (pick(rank, 4) == 0)
            weft_run_test(rank->runs[run]);
    }
    if (apart && pthread_create(&thread, NULL, fire_all, rank))
        apart = 0;
    if (!apart)
        fire_all(rank);
    for (int run = 0; run < trial->runs; run++)
        status |= wait_run(rank, run);
    if (apart)
        pthread_join(thread, NULL);
    for (int run = 0; run < trial->runs && !status; run++)
        compare_run(rank, run);
    return status;
}

static int create_rank(struct rank *rank)
{
    struct trial *trial = rank->trial;
    struct weft_run_config config;
    weft_run_config_init(&config);
    config.nccl = trial->nccl;
    int status = trial->virtual
                     ? WEFT_OK
                     : weft_context_create_local(&rank->context, trial->local,
                                                 trial->context_rank[rank->rank], &trial->config);
    for (int run = 0; run < trial->runs && !status; run++) {
        status =
            weft_run_create(&rank->runs[run], rank->context, trial->plans[rank->rank], &config);
        if (!status && !trial->direct_peers)
            status = weft_run_bind_peers(rank->runs[run], trial->context_rank);
        for (int slot = 0; slot < USER_SLOTS; slot++)
            if (!(rank->flat[run][slot] = malloc(dag_slot_bytes(trial->dag))))
                abort();
    }
    return status;
}

static void work(struct rank *rank)
{
    int status = create_rank(rank);
    if (status)
        fail(rank, "creation", status, weft_error_text());
    for (rank->version = 0; rank->version < rank->trial->versions && !status; rank->version++)
        status = one_version(rank);
}

static void close_rank(struct rank *rank)
{
    const struct trial *trial = rank->trial;
    for (int run = 0; run < trial->runs; run++) {
        weft_run_destroy(rank->runs[run]);
        for (int slot = 0; slot < USER_SLOTS; slot++) {
            unbind(rank, run, slot);
            free(rank->flat[run][slot]);
        }
    }
}

static void *run_rank(void *argument)
{
    struct rank *rank = argument;
    struct trial *trial = rank->trial;
    placed_rank(rank->rank);
    work(rank);
    pthread_barrier_wait(&trial->barrier);
    while (atomic_load(&trial->completers) > 0)
        sched_yield();
    close_rank(rank);
    pthread_barrier_wait(&trial->barrier);
    weft_context_destroy(rank->context);
    return NULL;
}

static int run_virtual_rank(struct weft_context *context, void *user)
{
    struct rank *ranks = user;
    const struct trial *trial = ranks->trial;
    int r = 0;
    while (trial->context_rank[r] != weft_context_rank(context))
        r++;
    ranks[r].context = context;
    work(&ranks[r]);
    close_rank(&ranks[r]);
    return WEFT_OK;
}

/* ---- trials ---- */

static void expect_all(struct trial *trial)
{
    const struct dag *dag = trial->dag;
    int count = trial->runs * trial->versions;
    trial->expected = calloc((size_t)count, sizeof *trial->expected);
    trial->values = calloc((size_t)count, sizeof *trial->values);
    for (int i = 0; i < count; i++) {
        uint64_t key = key_of(i / trial->versions, i % trial->versions);
        for (int r = 0; r < dag->ranks; r++) {
            trial->values[i][r] = calloc(dag->value_count + 1, sizeof(uint64_t));
            for (int s = 0; s < DAG_SLOTS; s++) {
                trial->expected[i][r][s] = calloc(1, dag_slot_bytes(dag));
                if (s < USER_SLOTS)
                    dag_fill(dag, r, s, trial->expected[i][r][s], key);
            }
        }
        dag_reference(dag, trial->expected[i], trial->values[i], key,
                      (uint64_t)(i % trial->versions));
        for (int r = 0; r < dag->ranks; r++)
            for (int s = USER_SLOTS; s < DAG_SLOTS; s++) {
                free(trial->expected[i][r][s]);
                trial->expected[i][r][s] = NULL;
            }
    }
}

static void print_schedule(const struct weft_schedule *schedule)
{
    char *text = NULL;
    size_t length;
    if (!weft_schedule_write(&schedule, 1, WEFT_FORMAT_TEXT, &text, &length))
        fprintf(stderr, "%s\n", text);
    weft_memory_free(text);
}

static void make_plans(struct trial *trial)
{
    trial->ids = calloc(trial->dag->node_count + 1, sizeof *trial->ids);
    for (int r = 0; r < trial->dag->ranks; r++) {
        struct weft_schedule *schedule = dag_schedule(trial->dag, r, &trial->ops, trial->ids);
        cr_assert_not_null(schedule, "seed %llu: %s", (unsigned long long)trial->seed,
                           weft_error_text());
        for (int slot = 0; slot < DAG_SLOTS; slot++)
            if (place_of(trial, r, slot) == ON_DEVICE)
                weft_schedule_set_memory(schedule, slot, WEFT_MEMORY_DEVICE);
        if (getenv("WEFT_TEST_SEED"))
            print_schedule(schedule);
        int status = weft_schedule_commit(schedule, &trial->plans[r]);
        cr_assert_eq(status, WEFT_OK, "seed %llu: %s", (unsigned long long)trial->seed,
                     weft_error_text());
        weft_schedule_destroy(schedule);
    }
}

/* The settings of a trial; those of the test stay. */
static void draw_settings(struct trial *trial, size_t eager_bytes, weft_progress_t progress)
{
    static const uint64_t pauses[] = {0, WEFT_NS_NONE, WEFT_NS_NONE, 5000, 300000};
    uint64_t random = dag_hash(trial->seed, 5, 5, 5);
    struct weft_local_config local;
    weft_local_config_init(&local);
    local.eager_bytes = eager_bytes;
    if (eager_bytes == 0 && dag_random(&random) % 3 == 0)
        local.eager_bytes = 64;
    local.eager_messages = dag_random(&random) % 3 == 0 ? 1 : 0;
    weft_context_config_init(&trial->config);
    trial->config.progress = progress;
    trial->config.spin_ns = pauses[dag_random(&random) % 5];
    trial->config.yield_ns = pauses[dag_random(&random) % 5];
    trial->config.helper_yield_ns = pauses[dag_random(&random) % 5];
    trial->config.slice_bytes = dag_random(&random) % 2 ? 1 : 0;
    trial->runs = 1 + (int)(dag_random(&random) % MOST_RUNS);
    trial->versions = 2 + (int)(dag_random(&random) % (MOST_VERSIONS - 1));
    trial->direct_peers = dag_random(&random) % 2 == 0;
    if (getenv("WEFT_TEST_NCCL"))
        trial->nccl = trial->direct_peers ? WEFT_NCCL_KNOWN : WEFT_NCCL_AGREED;
    for (int r = 0; r < trial->dag->ranks; r++)
        trial->context_rank[r] = r;
    for (int r = trial->dag->ranks - 1; r > 0 && !trial->direct_peers; r--) {
        int other = (int)(dag_random(&random) % (uint64_t)(r + 1)), held = trial->context_rank[r];
        trial->context_rank[r] = trial->context_rank[other];
        trial->context_rank[other] = held;
    }
    cr_assert_eq(weft_local_create(&trial->local, trial->dag->ranks, &local), WEFT_OK);
}

static void free_trial(struct trial *trial)
{
    for (int i = 0; i < trial->runs * trial->versions; i++)
        for (int r = 0; r < trial->dag->ranks; r++) {
            free(trial->values[i][r]);
            for (int s = 0; s < USER_SLOTS; s++)
                free(trial->expected[i][r][s]);
        }
    free(trial->expected);
    free(trial->values);
    free(trial->ids);
    for (int r = 0; r < trial->dag->ranks; r++)
        weft_plan_destroy(trial->plans[r]);
    release_ops(&trial->ops);
    weft_local_destroy(trial->local);
    pthread_barrier_destroy(&trial->barrier);
    pthread_mutex_destroy(&trial->mutex);
    dag_destroy(trial->dag);
}

static void try_seed(uint64_t seed, size_t eager_bytes, weft_progress_t progress)
{
    struct trial trial = {.seed = seed};
    struct rank ranks[MOST_RANKS] = {0};
    trial.dag = dag_create(seed, MOST_BYTES);
    make_ops(&trial.ops, 1);
    draw_settings(&trial, eager_bytes, progress);
    make_plans(&trial);
    expect_all(&trial);
    completers = &trial.completers;
    pthread_mutex_init(&trial.mutex, NULL);
    pthread_barrier_init(&trial.barrier, NULL, (unsigned)trial.dag->ranks);
    for (int r = 0; r < trial.dag->ranks; r++) {
        ranks[r].trial = &trial;
        ranks[r].rank = r;
        ranks[r].random = dag_hash(seed, (uint64_t)r, 7, 7);
        cr_assert_eq(pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]), 0);
    }
    for (int r = 0; r < trial.dag->ranks; r++)
        pthread_join(ranks[r].thread, NULL);
    cr_assert(!atomic_load(&trial.failed), "seed %llu: %s", (unsigned long long)seed, trial.text);
    free_trial(&trial);
    placed_check();
}

/* ---- on virtual ranks ---- */

#ifdef WEFT_TEST_IMAGINED
static void step_devices(void *user, const struct weft_virtual_event *event)
{
    (void)user;
    (void)event;
    imagined_step();
}
#endif

/* Before and after a play with devices. */
static void begin_devices(uint64_t seed, struct weft_virtual_config *config)
{
#ifdef WEFT_TEST_IMAGINED
    imagined_begin(seed);
    config->trace = step_devices;
    config->limit_ns = UINT64_C(100000000000);
#endif
    (void)seed;
    (void)config;
}

static void end_devices(int status)
{
#ifdef WEFT_TEST_IMAGINED
    if (status != WEFT_OK)
        imagined_report();
    else
        placed_collect();
    if (status == WEFT_OK)
        imagined_end();
#endif
    (void)status;
}

static void try_virtually(uint64_t seed)
{
    struct trial trial = {.seed = seed, .virtual = 1};
    struct rank ranks[MOST_RANKS] = {0};
    struct weft_virtual_config config;
    struct weft_net net;
    uint64_t random = dag_hash(seed, 6, 6, 6);
    trial.dag = dag_create(seed, MOST_BYTES);
    make_ops(&trial.ops, 0);
    draw_settings(&trial, 0, WEFT_PROGRESS_DEFAULT);
    make_plans(&trial);
    expect_all(&trial);
    pthread_mutex_init(&trial.mutex, NULL);
    pthread_barrier_init(&trial.barrier, NULL, 1);
    for (int r = 0; r < trial.dag->ranks; r++) {
        ranks[r].trial = &trial;
        ranks[r].rank = r;
        ranks[r].random = dag_hash(seed, (uint64_t)r, 7, 7);
    }
    config = with_seed(seed);
    give_net(&config, &net);
    config.context = &trial.config;
    config.delay_ns = dag_random(&random) % 3 * 3000;
    config.heavy_share = dag_random(&random) % 2 ? 0.1 : 0;
    config.heavy_ns = 100000;
    config.duplicate_share = dag_random(&random) % 2 ? 0.3 : 0;
    config.pauses_per_second = dag_random(&random) % 3 ? 0 : 20000;
    config.pause_ns = 30000;
    if (dag_random(&random) % 2)
        net.S = dag_random(&random) % 2 ? WEFT_NET_NO_EAGER : 64;
    if (dag_random(&random) % 2) {
        net.o = 0.2;
        net.G = 0.0005;
        config.node_ns = 100;
    }
    begin_devices(seed, &config);
    int status = weft_virtual_run(trial.dag->ranks, &config, run_virtual_rank, ranks);
    end_devices(status);
    cr_assert(!atomic_load(&trial.failed), "seed %llu: %s", (unsigned long long)seed, trial.text);
    cr_assert_eq(status, WEFT_OK, "seed %llu: %s", (unsigned long long)seed, weft_error_text());
    free_trial(&trial);
}

/* ---- how many ---- */

static void try_seeds(uint64_t first, size_t eager_bytes, weft_progress_t progress)
{
    const char *count = getenv("WEFT_TEST_SEEDS"), *seed = getenv("WEFT_TEST_SEED");
    uint64_t seeds = count ? strtoull(count, NULL, 10) : seed ? 1 : SEEDS / swept_again();
    if (seed)
        first = strtoull(seed, NULL, 10);
    for (uint64_t s = first; s < first + seeds; s++)
        try_seed(s, eager_bytes, progress);
}

/* They have no device but an imagined one. */
Test(random_dag, virtual_ranks, .disabled = PLACED && !IMAGINED)
{
    const char *count = getenv("WEFT_TEST_SEEDS"), *seed = getenv("WEFT_TEST_SEED");
    uint64_t first = seed ? strtoull(seed, NULL, 10) : 5000000;
    uint64_t seeds = count ? strtoull(count, NULL, 10) : seed ? 1 : 2 * SEEDS;
    for (uint64_t s = first; s < first + seeds; s++)
        try_virtually(s);
}

Test(random_dag, eager_caller_progress, .disabled = IMAGINED)
{
    try_seeds(1000000, 0, WEFT_PROGRESS_CALLER);
}

Test(random_dag, eager_helper_progress, .disabled = IMAGINED)
{
    try_seeds(2000000, 0, WEFT_PROGRESS_HELPER);
}

Test(random_dag, rendezvous_caller_progress, .disabled = IMAGINED)
{
    try_seeds(3000000, SIZE_MAX, WEFT_PROGRESS_CALLER);
}

Test(random_dag, rendezvous_helper_progress, .disabled = IMAGINED)
{
    try_seeds(4000000, SIZE_MAX, WEFT_PROGRESS_HELPER);
}
