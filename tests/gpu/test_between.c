/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages of device memory between processes, whatever these reach each other by:
 *
 *     test_shared_between -n RANKS [direct|staged|aware]        the way that is expected of them
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/support/device_memory.h"
#include "tests/processes/world.h"
#include "tests/support/bind.h"
#include "tests/support/draw.h"

enum { MOST_PIECES = 7, SEGMENT = 256 << 10, VERSIONS = 2 };

static const char *expected_way = "any";

/* ---- memory ---- */

/* Of a rank: some bytes on a device, or on the host. */
struct memory {
    unsigned char *data, *copy;
    size_t bytes;
    int on_device;
};

static struct memory memory_make(size_t bytes, int on_device)
{
    struct memory memory = {.bytes = bytes, .on_device = on_device};

    memory.copy = calloc(bytes + 1, 1);
    memory.data = on_device ? device_alloc(bytes) : calloc(bytes + 1, 1);
    CHECK(memory.copy && memory.data);
    return memory;
}

static void memory_free(struct memory *memory)
{
    if (memory->on_device)
        device_free(memory->data);
    else
        free(memory->data);
    free(memory->copy);
}

/* What the host's copy has is in it, or the other way round. */
static void memory_put(const struct memory *memory)
{
    if (memory->on_device)
        device_put(memory->data, memory->copy, memory->bytes);
    else
        memcpy(memory->data, memory->copy, memory->bytes);
}

static void memory_get(const struct memory *memory)
{
    if (memory->on_device)
        device_get(memory->copy, memory->data, memory->bytes);
    else
        memcpy(memory->copy, memory->data, memory->bytes);
}

static weft_slot_t add_slot(struct weft_schedule *s, const char *name, size_t bytes,
                            weft_slot_kind_t kind, int on_device)
{
    weft_slot_t slot = weft_schedule_add_slot(s, name, WEFT_U8, bytes, kind);

    CHECK(slot >= 0);
    if (on_device)
        OK(weft_schedule_set_memory(s, slot, WEFT_MEMORY_DEVICE));
    return slot;
}

static struct weft_schedule *new_schedule(void)
{
    struct weft_schedule *s = NULL;

    OK(weft_schedule_create(&s, world_rank, world_size));
    return s;
}

static int next_rank(void)
{
    return (world_rank + 1) % world_size;
}

static int previous_rank(void)
{
    return (world_rank + world_size - 1) % world_size;
}

/* ---- one message to the next rank ---- */

struct ring {
    struct weft_run *run;
    struct memory out, in;
    size_t bytes;
};

static struct ring ring_make(struct weft_context *context, size_t bytes, int from_device,
                             int to_device)
{
    struct ring ring = {.bytes = bytes};
    struct weft_schedule *s = new_schedule();
    /* Somewhere in an allocation. */
    weft_slot_t out = add_slot(s, "out", bytes + 5, WEFT_SLOT_INPUT, from_device);
    weft_slot_t in = add_slot(s, "in", bytes + 3, WEFT_SLOT_INOUT, to_device);

    CHECK(weft_schedule_add_send(s, weft_region_at(out, 5, bytes), next_rank(), 1) >= 0);
    CHECK(weft_schedule_add_recv(s, weft_region_at(in, 3, bytes), previous_rank(), 1) >= 0);
    ring.run = world_run(context, s, NULL);
    ring.out = memory_make(bytes + 5, from_device);
    ring.in = memory_make(bytes + 3, to_device);
    OK(bind_slot(ring.run, out, ring.out.data));
    OK(bind_slot(ring.run, in, ring.in.data));
    return ring;
}

static void ring_fill(struct ring *ring, uint64_t version)
{
    world_fill(ring->out.copy + 5, ring->bytes, world_rank, next_rank(), version);
    memory_put(&ring->out);
    memset(ring->in.copy, 0x5a, ring->bytes + 3);
    memory_put(&ring->in);
}

static void ring_look(struct ring *ring, uint64_t version)
{
    memory_get(&ring->in);
    world_same(ring->in.copy + 3, ring->bytes, previous_rank(), world_rank, version);
    CHECK(ring->in.copy[0] == 0x5a && ring->in.copy[2] == 0x5a);
}

static void ring_free(struct ring *ring)
{
    weft_run_destroy(ring->run);
    memory_free(&ring->out);
    memory_free(&ring->in);
}

static void check_ring(struct weft_context *context, size_t bytes, int from_device, int to_device)
{
    struct ring ring = ring_make(context, bytes, from_device, to_device);

    for (uint64_t version = 0; version < VERSIONS; version++) {
        ring_fill(&ring, version);
        OK(weft_run_execute(ring.run));
        ring_look(&ring, version);
    }
    ring_free(&ring);
}

static const size_t sizes[] = {0,           1,
                               31,          8191,
                               8192,        8193,
                               65535,       65537,
                               SEGMENT - 1, SEGMENT,
                               SEGMENT + 1, 3 * SEGMENT + 12345,
                               9 * SEGMENT, (5 << 20) + 1};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Sanitizers take ten times as long, and more for the fibers of kernels: one size of so many where
 * all have been sent before. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STRIDE = 4 };
#else
enum { STRIDE = 1 };
#endif

static void case_sizes(struct weft_context *context)
{
    struct weft_context_stats stats = {.struct_size = sizeof stats};

    for (int i = 0; i < SIZES; i++)
        check_ring(context, sizes[i], 1, 1);
    OK(weft_context_get_stats(context, &stats));
    CHECK(stats.device_direct + stats.device_staged == VERSIONS * (SIZES - 1));
    if (strcmp(expected_way, "direct") == 0)
        CHECK(stats.device_staged == 0);
    if (strcmp(expected_way, "staged") == 0)
        CHECK(stats.device_direct == 0);
    if (strcmp(expected_way, "aware") == 0) /* what is small goes by the host */
        CHECK(stats.device_direct == VERSIONS * (SIZES - 5));
    world_ok("device to device, %d sizes", SIZES);
}

static void case_sides(struct weft_context *context)
{
    for (int i = STRIDE > 1; i < SIZES; i += STRIDE) {
        check_ring(context, sizes[i], 1, 0);
        check_ring(context, sizes[i], 0, 1);
        /* One side here, the other one there. */
        check_ring(context, sizes[i], world_rank % 2, world_rank % 2);
    }
    world_ok("from and to the host, of %d sizes one of %d", SIZES, STRIDE);
}

/* ---- lists of pieces ---- */

static size_t pieces_of(const struct memory *memory, struct weft_piece pieces[MOST_PIECES],
                        struct draw *random)
{
    size_t count = 1 + draw_word(random) % MOST_PIECES, done = 0;

    for (size_t i = 0; i < count; i++) {
        size_t bytes =
            i + 1 < count ? draw_word(random) % (memory->bytes - done + 1) : memory->bytes - done;
        pieces[i] = (struct weft_piece){memory->data + done, bytes};
        done += bytes;
    }
    return count;
}

static void check_lists(struct weft_context *context, size_t bytes, uint64_t seed)
{
    struct draw random = {seed * 1000 + (uint64_t)world_rank};
    struct weft_schedule *s = new_schedule();
    struct weft_piece pieces[MOST_PIECES];
    struct memory out = memory_make(bytes, 1), in = memory_make(bytes, 1);
    weft_slot_t from = add_slot(s, "out", bytes, WEFT_SLOT_INPUT, 1);
    weft_slot_t to = add_slot(s, "in", bytes, WEFT_SLOT_OUTPUT, 1);
    struct weft_run *run;

    weft_schedule_add_send(s, weft_region_at(from, 0, bytes), next_rank(), 0);
    weft_schedule_add_recv(s, weft_region_at(to, 0, bytes), previous_rank(), 0);
    run = world_run(context, s, NULL);
    OK(bind_list(run, from, pieces, pieces_of(&out, pieces, &random)));
    OK(bind_list(run, to, pieces, pieces_of(&in, pieces, &random)));
    world_fill(out.copy, bytes, world_rank, next_rank(), seed);
    memory_put(&out);
    OK(weft_run_execute(run));
    memory_get(&in);
    world_same(in.copy, bytes, previous_rank(), world_rank, seed);
    weft_run_destroy(run);
    memory_free(&out);
    memory_free(&in);
}

static void case_lists(struct weft_context *context)
{
    uint64_t seed = 0;

    for (int i = 0; i < SIZES; i += STRIDE)
        for (int again = 0; again < 2; again++)
            check_lists(context, sizes[i] + 1, ++seed);
    world_ok("lists of pieces");
}

/* ---- counts that are known at run time ---- */

static void case_up_to(struct weft_context *context)
{
    const size_t most = 2 * SEGMENT + 77;
    struct weft_schedule *s = new_schedule();
    struct memory out = memory_make(most, 1), in = memory_make(most, 1);
    weft_slot_t from = add_slot(s, "out", most, WEFT_SLOT_INPUT, 1);
    weft_slot_t to = add_slot(s, "in", most, WEFT_SLOT_OUTPUT, 1);
    weft_value_t count = weft_schedule_add_value(s, "count", most);
    weft_value_t came = weft_schedule_add_value(s, "came", most);
    struct weft_region region = weft_region_at(from, 0, most);
    struct weft_run *run;

    region.value = count;
    weft_schedule_add_send(s, region, next_rank(), 0);
    weft_schedule_add_recv_up_to(s, weft_region_at(to, 0, most), previous_rank(), 0, came);
    run = world_run(context, s, NULL);
    OK(bind_slot(run, from, out.data));
    OK(bind_slot(run, to, in.data));
    for (int i = 0; i < SIZES && sizes[i] <= most; i++) {
        world_fill(out.copy, sizes[i], world_rank, next_rank(), (uint64_t)i);
        memory_put(&out);
        OK(weft_run_bind_value(run, count, sizes[i]));
        OK(weft_run_execute(run));
        CHECK(weft_run_get_value(run, came) == sizes[i]);
        memory_get(&in);
        world_same(in.copy, sizes[i], previous_rank(), world_rank, (uint64_t)i);
    }
    weft_run_destroy(run);
    memory_free(&out);
    memory_free(&in);
    world_ok("up to a capacity");
}

/* ---- many at once, in an order that no queue likes ---- */

/* Every rank sends to every one, itself included, and all its sends begin at once; what it receives
 * it wants in the opposite order. */
static void case_many(struct weft_context *context, size_t bytes, int per_peer)
{
    int count = per_peer * world_size;
    struct weft_schedule *s = new_schedule();
    struct memory out = memory_make(bytes * (size_t)count, 1);
    struct memory in = memory_make(bytes * (size_t)count, 1);
    weft_slot_t from = add_slot(s, "out", out.bytes, WEFT_SLOT_INPUT, 1);
    weft_slot_t to = add_slot(s, "in", in.bytes, WEFT_SLOT_OUTPUT, 1);
    weft_node_t last = WEFT_NODE_NONE;
    struct weft_run *run;

    for (int i = 0; i < count; i++)
        weft_schedule_add_send(s, weft_region_at(from, (size_t)i * bytes, bytes), i % world_size,
                               (uint32_t)(i / world_size));
    for (int i = count - 1; i >= 0; i--) {
        weft_node_t receive =
            weft_schedule_add_recv(s, weft_region_at(to, (size_t)i * bytes, bytes), i % world_size,
                                   (uint32_t)(i / world_size));
        if (last != WEFT_NODE_NONE)
            OK(weft_schedule_add_order(s, last, receive));
        last = receive;
    }
    run = world_run(context, s, NULL);
    OK(bind_slot(run, from, out.data));
    OK(bind_slot(run, to, in.data));
    for (uint64_t version = 0; version < 2; version++) {
        for (int i = 0; i < count; i++)
            world_fill(out.copy + (size_t)i * bytes, bytes, world_rank, i % world_size,
                       version + (uint64_t)(i / world_size));
        memory_put(&out);
        OK(weft_run_execute(run));
        memory_get(&in);
        for (int i = 0; i < count; i++)
            world_same(in.copy + (size_t)i * bytes, bytes, i % world_size, world_rank,
                       version + (uint64_t)(i / world_size));
    }
    weft_run_destroy(run);
    memory_free(&out);
    memory_free(&in);
    world_ok("%d messages of %zu bytes to each at once", per_peer, bytes);
}

/* ---- reductions ---- */

static void check_sum(struct weft_context *context, const char *algo, size_t count)
{
    struct weft_template_params params;
    struct weft_schedule *s = NULL;
    struct memory memory = memory_make(count * sizeof(int32_t), 1);
    int32_t *numbers = (int32_t *)(void *)memory.copy;
    struct weft_run *run;

    weft_template_params_init(&params);
    params.count = count;
    params.dtype = WEFT_I32;
    params.op = weft_op_builtin(WEFT_SUM);
    params.in_place = 1;
    params.algo = algo;
    OK(weft_template_build("allreduce", world_rank, world_size, &params, &s));
    OK(weft_schedule_set_memory(s, WEFT_SLOT_ALL, WEFT_MEMORY_DEVICE));
    run = world_run(context, s, NULL);
    OK(bind_slot(run, 0, memory.data));
    for (int version = 0; version < 2; version++) {
        for (size_t i = 0; i < count; i++)
            numbers[i] = world_rank + version + (int32_t)(i % 1000);
        memory_put(&memory);
        OK(weft_run_execute(run));
        memory_get(&memory);
        for (size_t i = 0; i < count; i++)
            CHECK(numbers[i] ==
                  world_size * (world_size - 1) / 2 + world_size * (version + (int32_t)(i % 1000)));
    }
    weft_run_destroy(run);
    memory_free(&memory);
}

static void case_sums(struct weft_context *context)
{
    const struct weft_template *allreduce = weft_template_find("allreduce");
    static const size_t counts[] = {1, 5000, 100003};

    for (size_t a = 0; a < allreduce->algorithm_count; a++)
        for (size_t i = 0; i + (STRIDE > 1) < sizeof counts / sizeof *counts; i++)
            check_sum(context, allreduce->algorithms[a].name, counts[i]);
    world_ok("allreduce, %zu algorithms", allreduce->algorithm_count);
}

/* ---- contexts of some ranks ---- */

static void case_split(struct weft_context *context)
{
    struct weft_context *part = NULL;
    int rank = world_rank, size = world_size;

    OK(weft_context_split(context, world_rank % 2, -world_rank, &part));
    world_rank = weft_context_rank(part);
    world_size = weft_context_size(part);
    check_ring(part, 3 * SEGMENT + 1, 1, 1);
    check_ring(part, 100, 1, 1);
    check_ring(part, SEGMENT, 1, 0);
    weft_context_destroy(part);
    world_rank = rank;
    world_size = size;
    world_ok("in contexts of some ranks");
}

/* ---- memory that is freed, and allocated again at the same address ---- */

static void case_freed(struct weft_context *context)
{
    for (int again = 0; again < 2; again++)
        check_ring(context, 3 * SEGMENT + 5, 1, 1);
    world_ok("memory that was freed and allocated again");
}

/* ---- runs that fail ---- */

/* One rank gives up in the middle: the others hear of it, nobody waits for ever, and the next run
 * works. */
static void case_failures(struct weft_context *context)
{
    struct weft_object *owner = NULL;

    for (int round = 0; round < world_size + 1; round++) {
        struct weft_run_config config;
        struct weft_schedule *s = new_schedule();
        size_t bytes = 20 * SEGMENT;
        weft_slot_t from = add_slot(s, "out", bytes, WEFT_SLOT_INPUT, 1);
        weft_slot_t to = add_slot(s, "in", bytes, WEFT_SLOT_OUTPUT, 1);
        struct memory out = memory_make(bytes, 1), in = memory_make(bytes, 1);
        struct weft_run *run;

        weft_schedule_add_send(s, weft_region_at(from, 0, bytes), next_rank(), 0);
        weft_schedule_add_recv(s, weft_region_at(to, 0, bytes), previous_rank(), 0);
        weft_run_config_init(&config);
        OK(weft_object_create(&owner, context, NULL));
        config.object = owner;
        run = world_run(context, s, &config);
        OK(bind_slot(run, from, out.data));
        OK(bind_slot(run, to, in.data));
        OK(weft_run_start(run));
        if (world_rank == round % world_size) {
            for (int step = 0; step < 3 * round; step++)
                OK(weft_context_progress(context) < 0 ? WEFT_ERR_SYSTEM : WEFT_OK);
            OK(weft_object_fail(owner, WEFT_ERR_COMPUTE, "it gives up"));
        }
        int status = weft_run_wait(run, WEFT_NEVER);
        CHECK(status == WEFT_OK || status == WEFT_ERR_PEER || status == WEFT_ERR_COMPUTE ||
              status == WEFT_ERR_CANCELLED);
        while (weft_run_reclaim(run) == WEFT_IN_PROGRESS)
            sched_yield();
        weft_run_destroy(run);
        weft_object_destroy(owner);
        memory_free(&out);
        memory_free(&in);
    }
    check_ring(context, 20 * SEGMENT, 1, 1);
    world_ok("runs that fail");
}

int main(int argc, char **argv)
{
    struct weft_context *context;

    world_init(&argc, &argv, WORLD_THREADS);
    expected_way = argc > 1 ? argv[1] : expected_way;
    device_use(world_rank % device_count());
    context = world_context(NULL);
    case_sizes(context);
    case_sides(context);
    case_lists(context);
    case_up_to(context);
    case_many(context, SEGMENT + 3, 12 / world_size + 1);
    case_many(context, 9000, 60 / world_size + 1);
    case_sums(context);
    case_split(context);
    case_freed(context);
    case_failures(context);
    world_meet_driving(context);
    weft_context_destroy(context);
    device_check();
    CHECK(device_left() == 0);
    return world_end();
}
