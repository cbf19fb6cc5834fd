/* SPDX-License-Identifier: BSD-3-Clause */
/* Virtual ranks: faults, seeds, ranks without payload, what runs on them, memory that runs out. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/alloc.h"
#include "support/virtual_ranks.h"
#include "tests/support/bind.h"
#include "tests/support/compute.h"

/* ---- faults ---- */

/* A ring of messages over and over, until it fails or has gone round. */
static int go_round(struct weft_context *context, void *user)
{
    int *unwound = user, rank = weft_context_rank(context);
    int64_t *numbers = calloc(2, sizeof *numbers);
    CHECK(numbers);
    struct weft_run *run = allreduce(context, 1);
    OK(bind_name(run, "send", &numbers[0]));
    OK(bind_name(run, "recv", &numbers[1]));
    OK(weft_run_set_deadline(run, 500000000));
    int status = WEFT_OK;
    for (int i = 0; i < 100 && status == WEFT_OK; i++) {
        numbers[0] = rank + i;
        status = weft_context_sleep(context, 1000000);
        if (status == WEFT_OK)
            status = weft_run_execute(run);
    }
    if (status != WEFT_OK)
        unwound[rank] = status;
    weft_run_destroy(run);
    free(numbers);
    return WEFT_OK;
}

Test(virtual_faults, others_time_out_on_a_rank_that_has_stopped)
{
    for (uint64_t seed = 0; seed < 6; seed++) {
        int unwound[5] = {0};
        struct weft_virtual_fault stop = {
            .rank = (int)seed % 5, .at_ns = seed * 7000000, .for_ns = WEFT_NEVER};
        struct weft_virtual_result result = {.struct_size = sizeof result};
        struct weft_virtual_config config = with_seed(seed);
        config.faults = &stop;
        config.fault_count = 1;
        config.result = &result;
        OK(weft_virtual_run(5, &config, go_round, unwound));
        int timeouts = 0;
        for (int r = 0; r < 5; r++) {
            timeouts += unwound[r] == WEFT_ERR_TIMEOUT;
            cr_assert(unwound[r] == WEFT_ERR_TIMEOUT || unwound[r] == WEFT_ERR_PEER ||
                      r == stop.rank);
        }
        cr_assert(timeouts > 0);
        /* A function that had not begun does not; one that had returns in the end. */
        cr_assert_eq(unwound[stop.rank], seed == 0 ? 0 : WEFT_ERR_CANCELLED);
        cr_assert(result.end_ns >= stop.at_ns + 500000000);
    }
}

/* Sends by rendezvous end when the receiver has them, which a rank that has stopped does not hear.
 */
Test(virtual_faults, what_a_stopped_rank_was_sending_is_let_go)
{
    struct weft_net net;
    weft_net_init(&net);
    net.L = 1;
    net.S = 1;
    for (uint64_t at_ns = 1000000; at_ns < 1010000; at_ns += 250) {
        int unwound[5] = {0};
        struct weft_virtual_fault stop = {.rank = 1, .at_ns = at_ns, .for_ns = WEFT_NEVER};
        struct weft_virtual_config config = with_seed(at_ns);
        config.net = &net;
        config.faults = &stop;
        config.fault_count = 1;
        OK(weft_virtual_run(5, &config, go_round, unwound));
        cr_assert_eq(unwound[1], WEFT_ERR_CANCELLED);
    }
}

static int meet_and_look(struct weft_context *context, void *user)
{
    struct weft_run *run = NULL;
    OK(weft_template_create_run(&run, context, "barrier", NULL));
    OK(weft_run_execute(run));
    *(uint64_t *)user = weft_context_now(context);
    weft_run_destroy(run);
    return WEFT_OK;
}

static int never_called(struct weft_context *context, void *user)
{
    (void)context, (void)user;
    abort();
}

Test(virtual_faults, times_that_are_none_are_refused)
{
    static const struct {
        uint64_t at_ns, for_ns;
        const char *text;
    } wrong[] = {{WEFT_NEVER, 5, "weft_virtual_run: config->faults[1].at_ns is WEFT_NEVER"},
                 {WEFT_NS_NONE, 5, "weft_virtual_run: config->faults[1].at_ns is WEFT_NS_NONE"},
                 {5, WEFT_NS_NONE, "weft_virtual_run: config->faults[1].for_ns is WEFT_NS_NONE"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct weft_virtual_fault faults[2] = {
            {.rank = 0, .at_ns = 1, .for_ns = 1},
            {.rank = 0, .at_ns = wrong[i].at_ns, .for_ns = wrong[i].for_ns}};
        struct weft_virtual_config config;
        weft_virtual_config_init(&config);
        config.faults = faults;
        config.fault_count = 2;
        cr_expect_eq(weft_virtual_run(1, &config, never_called, NULL), WEFT_ERR_INVALID);
        cr_expect(strstr(weft_error_text(), wrong[i].text), "%s", weft_error_text());
    }
}

Test(virtual_faults, a_rank_that_pauses_is_waited_for)
{
    uint64_t met = 0;
    struct weft_virtual_fault pauses[2] = {{.rank = 3, .at_ns = 0, .for_ns = 40000},
                                           {.rank = 3, .at_ns = 40500, .for_ns = 70000}};
    struct weft_virtual_config config = with_seed(2);
    config.faults = pauses;
    config.fault_count = 2;
    OK(weft_virtual_run(5, &config, meet_and_look, &met));
    cr_assert(met >= 110500 && met < 120000, "%llu", (unsigned long long)met);
}

/* Rank 0 fires its event; every other waits for a signal of the rank below it. */
static int pass_signals(struct weft_context *context, void *user)
{
    int rank = weft_context_rank(context), size = weft_context_size(context);
    struct weft_schedule *s = new_schedule(rank, size);
    weft_node_t event = weft_schedule_add_event(s, rank == 0 ? WEFT_CHANNEL_NONE : 3);
    if (rank + 1 < size)
        weft_schedule_add_order(s, event, weft_schedule_add_signal(s, rank + 1, 3));
    struct weft_run *run = make_run(context, commit(s), NULL);
    for (int i = 0; i < 20; i++) {
        OK(weft_run_start(run));
        if (rank == 0)
            OK(weft_run_fire(run, event));
        OK(weft_run_wait(run, WEFT_NEVER));
        ((int *)user)[rank]++;
    }
    weft_run_destroy(run);
    return WEFT_OK;
}

Test(virtual_faults, signals_may_come_twice_and_out_of_order)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        int passed[6] = {0};
        struct weft_virtual_result result = {.struct_size = sizeof result};
        struct weft_virtual_config config = with_seed(seed);
        config.duplicate_share = 1;
        config.delay_ns = 20000;
        config.result = &result;
        OK(weft_virtual_run(6, &config, pass_signals, passed));
        for (int r = 0; r < 6; r++)
            cr_assert_eq(passed[r], 20);
        cr_assert_eq(result.signals, 2 * 20 * 5);
    }
}

/* ---- the same seed, the same events ---- */

struct story {
    char *text;
    size_t length, capacity, overtaken;
    uint64_t latest;
};

static void tell(void *user, const struct weft_virtual_event *event)
{
    struct story *story = user;
    if (story->capacity - story->length < 200) {
        story->capacity = 2 * story->capacity + 1000;
        story->text = realloc(story->text, story->capacity);
        CHECK(story->text);
    }
    story->length += (size_t)snprintf(
        story->text + story->length, 200, "%llu %d %d %d %llu %llu %u %zu %d\n",
        (unsigned long long)event->time_ns, (int)event->kind, event->rank, event->from,
        (unsigned long long)event->object, (unsigned long long)event->version, event->tag,
        event->bytes, event->signal);
    if (event->kind == WEFT_VIRTUAL_ARRIVE && event->signal && event->rank == 1) {
        story->overtaken += event->version < story->latest;
        story->latest = event->version;
    }
}

static int do_much(struct weft_context *context, void *user)
{
    OK(pass_signals(context, user));
    return add_ranks(context, NULL);
}

Test(virtual_faults, a_seed_determines_every_event)
{
    struct story stories[3] = {{0}};
    struct weft_virtual_result results[3];
    size_t overtaken = 0;
    for (uint64_t seed = 0; seed < 5; seed++) {
        for (int i = 0; i < 3; i++) {
            int passed[6] = {0};
            struct weft_virtual_config config = with_seed(seed + (i == 2 ? 100 : 0));
            struct weft_net net;
            give_net(&config, &net);
            config.delay_ns = 30000;
            config.heavy_share = 0.1;
            config.heavy_ns = 1000000;
            config.duplicate_share = 0.2;
            config.pauses_per_second = 10000;
            config.pause_ns = 50000;
            net.o = 0.3;
            net.G = 0.001;
            config.reduce_ns_per_byte = 1;
            config.trace = tell;
            config.trace_user = &stories[i];
            results[i].struct_size = sizeof results[i];
            config.result = &results[i];
            stories[i].length = 0;
            OK(weft_virtual_run(6, &config, do_much, passed));
            overtaken += stories[i].overtaken;
        }
        cr_assert(memcmp(&results[0], &results[1], sizeof results[0]) == 0);
        cr_assert(stories[0].length == stories[1].length &&
                  memcmp(stories[0].text, stories[1].text, stories[0].length) == 0);
        cr_assert(results[0].hash != results[2].hash);
    }
    cr_assert(overtaken > 0);
    for (int i = 0; i < 3; i++)
        free(stories[i].text);
}

/* ---- without payloads, and operations that take time ---- */

static int many_allreduces(struct weft_context *context, void *user)
{
    struct weft_run *run = allreduce(context, 1 << 24);
    OK(bind_name(run, "send", NULL));
    OK(bind_name(run, "recv", NULL));
    for (int i = 0; i < 2; i++)
        OK(weft_run_execute(run));
    weft_run_destroy(run);
    return meet_and_look(context, user);
}

Test(virtual_faults, thousands_of_ranks_without_payloads)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    int size = 200;
#else
    int size = 4096;
#endif
    uint64_t met;
    struct weft_virtual_config config;
    struct weft_net net;
    weft_virtual_config_init(&config);
    give_net(&config, &net);
    OK(weft_virtual_run(size, &config, meet_and_look, &met));
    config.no_payload = 1;
    net.G = 0.0001;
    OK(weft_virtual_run(size / 4, &config, many_allreduces, &met));
}

static int count_call(struct weft_call *call)
{
    ++*(int *)call->user;
    return WEFT_OK;
}

static uint64_t price(void *user, int rank, const char *op, size_t bytes)
{
    (void)rank;
    CHECK(strcmp(op, "count") == 0);
    return *(uint64_t *)user + bytes;
}

static int compute(struct weft_context *context, void *user)
{
    struct weft_schedule *s = new_schedule(weft_context_rank(context), weft_context_size(context));
    weft_slot_t slot = weft_schedule_add_slot(s, "x", WEFT_I64, 10, WEFT_SLOT_INOUT);
    struct weft_region region = weft_region_at(slot, 0, 10);
    weft_node_t first = add_compute(s, user, &region, 1, 1, 0);
    weft_schedule_add_order(s, first, add_compute(s, user, &region, 1, 1, 0));
    struct weft_run *run = make_run(context, commit(s), NULL);
    int64_t x[10] = {0};
    OK(bind_slot(run, 0, x));
    OK(weft_run_execute(run));
    CHECK(weft_context_now(context) == 2 * (5000 + 80 + 3));
    weft_run_destroy(run);
    return WEFT_OK;
}

Test(virtual_faults, operations_take_the_time_they_are_given)
{
    int calls = 0;
    uint64_t ns = 5000;
    struct weft_op *op = NULL;
    struct weft_op_config settings;
    weft_op_config_init(&settings);
    settings.name = "count";
    settings.compute = count_call;
    settings.user = &calls;
    OK(weft_op_create(&op, &settings));
    struct weft_virtual_config config = with_seed(5);
    config.compute_ns = price;
    config.compute_user = &ns;
    config.node_ns = 3;
    OK(weft_virtual_run(4, &config, compute, op));
    cr_assert_eq(calls, 8);
    weft_op_destroy(op);
}

/* ---- the wait-avoiding object ---- */

enum { ELEMENTS = 40, STEPS = 23, SYNC = 4 };

static int average_models(struct weft_context *context, void *user)
{
    float(*synchronised)[ELEMENTS] =
        user; /* after each synchronisation, as its first rank had it */
    float model[ELEMENTS] = {0};
    struct weft_piece tensor = {model, ELEMENTS};
    struct weft_group_average_config config;
    struct weft_group_average *average = NULL;
    uint64_t rank = (uint64_t)weft_context_rank(context), random = rank + 1;
    weft_group_average_config_init(&config);
    config.tensors = &tensor;
    config.tensor_count = 1;
    config.sync_period = SYNC;
    OK(weft_group_average_create(&average, context, &config));
    for (int step = 0; step < STEPS; step++) {
        struct weft_group_average_result result = {.struct_size = sizeof result};
        for (int i = 0; i < ELEMENTS; i++)
            model[i] += (float)(rank + 1) / (float)(i + step + 1);
        random = random * 6364136223846793005u + 1442695040888963407u;
        OK(weft_context_sleep(context, (random >> 40) % (rank % 8 == 0 ? 3000000 : 300000)));
        OK(weft_group_average_step(average, &result));
        CHECK(result.synchronised == ((step + 1) % SYNC == 0));
        if (!result.synchronised)
            continue;
        float *shared = synchronised[step / SYNC];
        if (shared[0] == 0)
            memcpy(shared, model, sizeof model);
        CHECK(memcmp(shared, model, sizeof model) == 0);
    }
    OK(weft_group_average_destroy(average));
    return WEFT_OK;
}

static void average_on(int size, uint64_t seed)
{
    float synchronised[STEPS / SYNC + 1][ELEMENTS] = {{0}};
    struct weft_virtual_config config = with_seed(seed);
    config.delay_ns = 50000 * (seed % 2);
    config.heavy_share = 0.02 * (double)(seed % 3);
    config.heavy_ns = 2000000;
    config.duplicate_share = 0.3 * (double)(seed % 2);
    config.pauses_per_second = seed % 4 ? 0 : 200;
    config.pause_ns = 1000000;
    int status = weft_virtual_run(size, &config, average_models, synchronised);
    cr_assert_eq(status, WEFT_OK, "P=%d: %s", size, weft_error_text());
}

Test(virtual_faults, wait_avoiding_averages)
{
    static const int sizes[] = {1, 2, 3, 5, 6, 8, 13, 17, 33, 64};
    const char *count = getenv("WEFT_TEST_SEEDS");
    uint64_t seeds = count ? strtoull(count, NULL, 10) : 60;
    for (uint64_t seed = 0; seed < seeds; seed++)
        average_on(sizes[seed % 10], seed);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    average_on(1024, 1000);
#endif
}

/* ---- traces ---- */

static size_t read_trace(const char *directory, int rank, int size, int number, char *text,
                         size_t room)
{
    char path[300];
    snprintf(path, sizeof path, "%s/weft-trace.%d-of-%d.%d.%d.json", directory, rank, size,
             (int)getpid(), number);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file, "%s", path);
    size_t length = fread(text, 1, room, file);
    cr_assert(length > 1000 && length < room);
    fclose(file);
    remove(path);
    return length;
}

Test(virtual_faults, a_seed_determines_the_trace_files)
{
    enum { SIZE = 5, ROOM = 1 << 20 };
    static char texts[2][ROOM];
    char directory[] = "/tmp/weft-virtual-XXXXXX";
    cr_assert_not_null(mkdtemp(directory));
    setenv("WEFT_TRACE", directory, 1);
    for (int i = 0; i < 2; i++) {
        int passed[6] = {0};
        struct weft_virtual_config config = with_seed(77);
        struct weft_net net;
        give_net(&config, &net);
        config.delay_ns = 30000;
        net.o = 0.3;
        OK(weft_virtual_run(SIZE, &config, do_much, passed));
    }
    unsetenv("WEFT_TRACE");
    for (int r = 0; r < SIZE; r++) {
        size_t first = read_trace(directory, r, SIZE, 0, texts[0], ROOM);
        size_t second = read_trace(directory, r, SIZE, 1, texts[1], ROOM);
        cr_assert(first == second && memcmp(texts[0], texts[1], first) == 0, "rank %d", r);
    }
    cr_assert_eq(rmdir(directory), 0);
}

/* ---- memory runs out ---- */

static int try_much(struct weft_context *context, void *user)
{
    (void)user;
    struct weft_template_params params;
    struct weft_run *run = NULL;
    int64_t in[5] = {0}, out[5];
    weft_template_params_init(&params);
    params.count = 5;
    params.dtype = WEFT_I64;
    int status = weft_template_create_run(&run, context, "allreduce", &params);
    if (status == WEFT_OK)
        status = bind_name(run, "send", in);
    if (status == WEFT_OK)
        status = bind_name(run, "recv", out);
    if (status == WEFT_OK)
        status = weft_context_sleep(context, 1000);
    for (int i = 0; i < 2 && status == WEFT_OK; i++)
        status = weft_run_execute(run);
    weft_run_destroy(run);
    return status;
}

Test(virtual_faults, memory_may_run_out_anywhere)
{
    struct weft_virtual_config config = with_seed(1);
    config.reduce_ns_per_byte = 1;
    config.delay_ns = 100;
    int failures = 0;
    long n = 1, left;
    do {
        atomic_store(&weft__alloc_countdown, n);
        int status = weft_virtual_run(3, &config, try_much, NULL);
        left = atomic_load(&weft__alloc_countdown);
        atomic_store(&weft__alloc_countdown, -1);
        cr_assert(status == WEFT_OK || (left <= 0 && weft_error_text()[0] != '\0'),
                  "allocation %ld: %s", n, weft_status_name(status));
        failures += status != WEFT_OK;
        n++;
    } while (left <= 0 && n < 20000);
    cr_assert(n < 20000 && failures > n / 2, "%d of %ld", failures, n);
}
