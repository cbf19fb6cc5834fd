/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages whose payload comes in pieces, from a transport that hands out as many bytes as the test
 * says. This rank is 0 of 2; rank 1 is the test.
 */
#include <criterion/criterion.h>
#include <limits.h>

#include "runtime/context/context.h"
#include "support/ranks.h"

enum { PIECE = 4096, LENGTH = 100000, SLICE = 8192 };

struct fake_message {
    struct weft__message message; /* first */
    const char *payload;
    size_t here;  /* bytes that piece() gives out */
    size_t asked; /* the largest offset asked for */
    int released; /* 1 + consumed; 0: not yet */
    int reading;  /* between read(1) and read(0) */
    int withdrawn;
};

struct fake {
    struct weft__transport base; /* first */
    struct weft__bell bell;
    struct fake_message *arriving[8];
    int count;
    struct weft__xfer *fetching;
    struct fake_message *fetched;
    int fetches;
};

static const struct weft_transport about = {.name = "fake"};

static int fake_send(struct weft__transport *transport, struct weft__xfer *xfer)
{
    (void)transport, (void)xfer;
    return WEFT_OK;
}

static int fake_control(struct weft__transport *transport, const struct weft__message *message)
{
    (void)transport, (void)message;
    return WEFT_OK;
}

static int fake_poll(struct weft__transport *transport)
{
    struct fake *fake = (struct fake *)transport;
    int count = fake->count;
    fake->count = 0;
    for (int i = 0; i < count; i++)
        weft__engine_message(transport->engine, &fake->arriving[i]->message);
    if (fake->fetching && fake->fetched->here == fake->fetched->message.bytes) {
        struct weft__xfer *xfer = fake->fetching;
        fake->fetching = NULL;
        for (size_t at = 0, chunk; at < fake->fetched->here; at += chunk) {
            chunk = fake->fetched->here - at;
            memcpy(weft__xfer_chunk(xfer, at, &chunk), fake->fetched->payload + at, chunk);
        }
        weft__engine_fetched(transport->engine, xfer, WEFT_OK);
        count++;
    }
    return count;
}

static int fake_fetch(struct weft__transport *transport, struct weft__message *message,
                      struct weft__xfer *xfer)
{
    struct fake *fake = (struct fake *)transport;
    fake->fetches++;
    fake->fetching = xfer;
    fake->fetched = (struct fake_message *)message;
    return WEFT_IN_PROGRESS;
}

static int fake_read(struct weft__transport *transport, struct weft__message *message, int reading)
{
    struct fake_message *arrived = (struct fake_message *)message;
    (void)transport;
    CHECK(arrived->reading == !reading);
    if (reading && arrived->withdrawn)
        return 0;
    arrived->reading = reading;
    return 1;
}

static const void *fake_piece(struct weft__transport *transport, struct weft__message *message,
                              size_t offset, size_t *bytes)
{
    struct fake_message *arrived = (struct fake_message *)message;
    (void)transport;
    CHECK(arrived->reading && offset >= arrived->asked && offset < message->bytes);
    arrived->asked = offset;
    size_t end = offset / PIECE * PIECE + PIECE;
    if (end > message->bytes)
        end = message->bytes;
    if (end > arrived->here)
        return NULL;
    *bytes = end - offset;
    return arrived->payload + offset;
}

static void fake_release(struct weft__transport *transport, struct weft__message *message,
                         int consumed)
{
    struct fake_message *arrived = (struct fake_message *)message;
    (void)transport;
    CHECK(!arrived->reading && arrived->released == 0);
    arrived->released = 1 + consumed;
}

static int fake_cancel(struct weft__transport *transport, struct weft__xfer *xfer)
{
    struct fake *fake = (struct fake *)transport;
    CHECK(xfer == fake->fetching);
    fake->fetching = NULL;
    return WEFT_OK;
}

static void fake_close(struct weft__transport *transport)
{
    (void)transport;
}

static const struct weft__transport_ops ops = {
    .send = fake_send,
    .control = fake_control,
    .poll = fake_poll,
    .fetch = fake_fetch,
    .piece = fake_piece,
    .release = fake_release,
    .read = fake_read,
    .cancel = fake_cancel,
    .close = fake_close,
};

static struct fake fake;
static struct weft_context *context;
static int32_t payload[LENGTH], first[LENGTH], second[LENGTH];

static void setup(void)
{
    struct weft_context_config config;
    weft_context_config_init(&config);
    config.slice_bytes = SLICE;
    config.spin_ns = config.yield_ns = WEFT_NS_NONE;
    fake = (struct fake){.base = {.ops = &ops,
                                  .about = &about,
                                  .bell = &fake.bell,
                                  .size = 2,
                                  .group = 1,
                                  .local_ranks = 2,
                                  .wakes = 1,
                                  .in_order = 1,
                                  .largest_message = SIZE_MAX}};
    OK(weft__context_create(&context, &fake.base, &config));
    for (int i = 0; i < LENGTH; i++) {
        payload[i] = 3 * i + 1;
        first[i] = -i;
        second[i] = 0;
    }
}

static void teardown(void)
{
    weft_context_destroy(context);
}

TestSuite(pieces, .init = setup, .fini = teardown);

/* A message of rank 1 for the first object, version 0, tag 0. */
static struct fake_message message_of(int list, size_t count)
{
    return (struct fake_message){.message = {.bytes = count * sizeof *payload,
                                             .from = 1,
                                             .kind = WEFT__DATA,
                                             .list = (uint8_t)list},
                                 .payload = (const char *)payload};
}

static void arrive(struct fake_message *message)
{
    fake.arriving[fake.count++] = message;
}

/* Receives `count` elements; if `reduces`, adds them to what is in `first`, through scratch. */
static struct weft_run *receiving(size_t count, int reduces, const struct weft_run_config *config)
{
    struct weft_schedule *s = new_schedule(0, 2);
    weft_slot_t data = weft_schedule_add_slot(s, "data", WEFT_I32, count, WEFT_SLOT_INOUT);
    struct weft_region whole = {data, 0, 0, count};
    if (reduces) {
        weft_slot_t scratch = weft_schedule_add_slot(s, "tmp", WEFT_I32, count, WEFT_SLOT_SCRATCH);
        struct weft_region tmp = {scratch, 0, 0, count};
        weft_node_t receive = weft_schedule_add_recv(s, tmp, 1, 0);
        weft_node_t reduce =
            weft_schedule_add_reduce(s, weft_op_builtin(WEFT_SUM), whole, whole, tmp);
        weft_schedule_add_order(s, receive, reduce);
    } else {
        weft_schedule_add_recv(s, whole, 1, 0);
    }
    return make_run(context, commit(s), config);
}

static void progress(int steps)
{
    for (int i = 0; i < steps; i++)
        CHECK(weft_context_progress(context) >= 0);
}

static uint64_t fused(void)
{
    struct weft_context_stats stats = {.struct_size = sizeof stats};
    OK(weft_context_get_stats(context, &stats));
    return stats.fused;
}

/* As many bytes are here as the test likes; what is here is worked on, and no more. */
static void come(struct weft_run *run, struct fake_message *message)
{
    static const size_t ends[] = {0, PIECE, 3 * PIECE, 20 * PIECE};
    for (size_t i = 0; i < sizeof ends / sizeof *ends && ends[i] < message->message.bytes; i++) {
        message->here = ends[i];
        weft__engine_piece(fake.base.engine, &message->message);
        progress(100);
        CHECK(weft_run_test(run) == WEFT_IN_PROGRESS);
        CHECK(message->asked == ends[i]);
        CHECK(message->released == 0);
    }
    message->here = message->message.bytes;
    weft__engine_piece(fake.base.engine, &message->message);
    OK(weft_run_wait(run, WEFT_NEVER));
    CHECK(message->released == 2);
}

static void receive_in_pieces(int reduces, size_t count, int early)
{
    struct weft_run *run = receiving(count, reduces, NULL);
    struct fake_message message = message_of(WEFT__PIECES, count);
    OK(weft_run_bind(run, 0, first, count, WEFT_I32));
    if (early)
        arrive(&message);
    OK(weft_run_start(run));
    progress(3);
    if (!early)
        arrive(&message);
    come(run, &message);
    for (size_t i = 0; i < count; i++)
        CHECK(first[i] == payload[i] - (reduces ? (int)i : 0));
    CHECK(fused() == (uint64_t)reduces);
    weft_run_destroy(run);
}

Test(pieces, are_copied_as_they_come)
{
    receive_in_pieces(0, LENGTH, 0);
}

Test(pieces, are_copied_when_they_were_there_first)
{
    receive_in_pieces(0, LENGTH - 7, 1);
}

Test(pieces, are_reduced_as_they_come)
{
    receive_in_pieces(1, LENGTH, 0);
}

Test(pieces, of_one_element_are_enough)
{
    receive_in_pieces(1, 1, 0);
}

Test(pieces, go_into_a_list)
{
    size_t count = LENGTH;
    struct weft_piece list[] = {{first, 1}, {second + 1, 50000}, {first + 50001, LENGTH - 50001}};
    for (int reduces = 0; reduces < 2; reduces++) {
        struct weft_run *run = receiving(count, reduces, NULL);
        struct fake_message message = message_of(WEFT__PIECES, count);
        message.message.object = (uint64_t)reduces;
        OK(weft_run_bind_list(run, 0, list, 3, WEFT_I32));
        OK(weft_run_start(run));
        arrive(&message);
        come(run, &message);
        weft_run_destroy(run);
        for (size_t i = 0; i < count; i++)
            CHECK((i < 1 || i > 50000 ? first : second)[i] == payload[i] * (1 + reduces));
    }
}

Test(pieces, that_are_awaited_let_others_go_on)
{
    struct weft_run *waits = receiving(LENGTH, 0, NULL);
    struct weft_schedule *s = new_schedule(0, 2);
    weft_slot_t in = weft_schedule_add_slot(s, "in", WEFT_I32, LENGTH, WEFT_SLOT_INPUT);
    weft_slot_t out = weft_schedule_add_slot(s, "out", WEFT_I32, LENGTH, WEFT_SLOT_OUTPUT);
    weft_schedule_add_copy(s, (struct weft_region){out, 0, 0, LENGTH},
                           (struct weft_region){in, 0, 0, LENGTH});
    struct weft_run *copies = make_run(context, commit(s), NULL);
    struct fake_message message = message_of(WEFT__PIECES, LENGTH);
    OK(weft_run_bind(waits, 0, first, LENGTH, WEFT_I32));
    OK(weft_run_bind_input(copies, in, payload, LENGTH, WEFT_I32));
    OK(weft_run_bind(copies, out, second, LENGTH, WEFT_I32));
    OK(weft_run_start(waits));
    arrive(&message);
    progress(3);
    OK(weft_run_start(copies));
    OK(weft_run_wait(copies, WEFT_NEVER));
    CHECK(memcmp(second, payload, sizeof second) == 0);
    message.here = message.message.bytes;
    weft__engine_piece(fake.base.engine, &message.message);
    OK(weft_run_wait(waits, WEFT_NEVER));
    CHECK(memcmp(first, payload, sizeof first) == 0);
    weft_run_destroy(copies);
    weft_run_destroy(waits);
}

Test(pieces, that_are_awaited_let_the_driver_sleep)
{
    struct weft_run *run = receiving(LENGTH, 1, NULL);
    struct fake_message message = message_of(WEFT__PIECES, LENGTH);
    struct weft_context_stats before = {.struct_size = sizeof before}, after = before;
    OK(weft_run_bind(run, 0, first, LENGTH, WEFT_I32));
    OK(weft_run_start(run));
    arrive(&message);
    progress(3);
    OK(weft_context_get_stats(context, &before));
    CHECK_STATUS(weft_run_wait(run, UINT64_C(20000000)), WEFT_IN_PROGRESS);
    OK(weft_context_get_stats(context, &after));
    CHECK(after.steps - before.steps < 20);
    message.here = message.message.bytes;
    weft__engine_piece(fake.base.engine, &message.message);
    OK(weft_run_wait(run, WEFT_NEVER));
    weft_run_destroy(run);
}

/* Begun, and neither consumed nor read any more when the run has ended. */
static void end_early(int reduces, int list, size_t here, int withdrawn, int fails)
{
    struct weft_run_config config;
    weft_run_config_init(&config);
    config.deadline_ns = fails ? 0 : 1000000;
    uint64_t before = weft_context_now(context); /* the deadline is later than this and its time */
    struct weft_run *run = receiving(LENGTH, reduces, &config);
    struct fake_message message = message_of(list, LENGTH);
    struct weft__message failure = {
        .from = 1, .bytes = 1, .kind = WEFT__FAIL, .tag = -WEFT_ERR_COMPUTE};
    struct fake_message news = {.message = failure};
    OK(weft_run_bind(run, 0, first, LENGTH, WEFT_I32));
    message.here = here;
    message.withdrawn = withdrawn;
    OK(weft_run_start(run));
    arrive(&message);
    progress(10);
    CHECK(message.released == 0 ||
          (!fails && weft_context_now(context) - before >= config.deadline_ns));
    if (fails) {
        arrive(&news);
        CHECK_STATUS(weft_run_wait(run, WEFT_NEVER), WEFT_ERR_PEER);
    } else {
        CHECK_STATUS(weft_run_wait(run, WEFT_NEVER), WEFT_ERR_TIMEOUT);
    }
    CHECK(message.released == 1);
    weft__engine_piece(fake.base.engine, &message.message); /* late: nobody cares */
    progress(3);
    OK(weft_run_reclaim(run));
    weft_run_destroy(run);
}

Test(pieces, that_never_come_end_with_the_deadline)
{
    end_early(0, WEFT__PIECES, 3 * PIECE, 0, 0);
}

Test(pieces, that_never_come_end_a_reduction)
{
    end_early(1, WEFT__PIECES, 0, 0, 0);
}

Test(pieces, that_are_withdrawn_end_with_the_news)
{
    end_early(1, WEFT__PIECES, LENGTH * sizeof *payload, 1, 1);
}

Test(pieces, end_with_the_news_of_a_failure)
{
    end_early(0, WEFT__PIECES, PIECE, 0, 1);
}

Test(pieces, that_are_fetched_end_with_the_deadline)
{
    end_early(0, WEFT__PIECES_OR_FETCH, PIECE, 0, 0);
}

Test(pieces, that_are_only_copied_are_fetched)
{
    for (int reduces = 0; reduces < 2; reduces++) {
        struct weft_run *run = receiving(LENGTH, reduces, NULL);
        struct fake_message message = message_of(WEFT__PIECES_OR_FETCH, LENGTH);
        message.message.object = (uint64_t)reduces;
        message.here = message.message.bytes;
        OK(weft_run_bind(run, 0, first, LENGTH, WEFT_I32));
        OK(weft_run_start(run));
        arrive(&message);
        OK(weft_run_wait(run, WEFT_NEVER));
        CHECK(fake.fetches == 1);
        for (int i = 0; i < LENGTH; i++)
            CHECK(first[i] == payload[i] * (1 + reduces));
        weft_run_destroy(run);
    }
}

static int add_threes(void *user, void *out, const void *left, const void *right, size_t count,
                      weft_dtype_t dtype)
{
    const int32_t *a = left, *b = right;
    (void)user, (void)dtype;
    for (size_t i = 0; i < 3 * count; i++)
        ((int32_t *)out)[i] = a[i] + b[i];
    return WEFT_OK;
}

/* Elements that a piece does not hold a whole number of are received first, then reduced. */
Test(pieces, do_not_cut_elements)
{
    enum { COUNT = LENGTH / 3 };
    weft_dtype_t three = weft_dtype_opaque(3 * sizeof(int32_t));
    struct weft_op *op = NULL;
    struct weft_op_config config;
    weft_op_config_init(&config);
    config.name = "threes";
    config.flags = WEFT_OP_COMMUTES;
    config.reduce = add_threes;
    OK(weft_op_create(&op, &config));
    struct weft_schedule *s = new_schedule(0, 2);
    weft_slot_t data = weft_schedule_add_slot(s, "data", three, COUNT, WEFT_SLOT_INOUT);
    weft_slot_t scratch = weft_schedule_add_slot(s, "tmp", three, COUNT, WEFT_SLOT_SCRATCH);
    struct weft_region whole = {data, 0, 0, COUNT}, tmp = {scratch, 0, 0, COUNT};
    weft_node_t receive = weft_schedule_add_recv(s, tmp, 1, 0);
    weft_schedule_add_order(s, receive, weft_schedule_add_reduce(s, op, whole, whole, tmp));
    struct weft_run *run = make_run(context, commit(s), NULL);
    struct fake_message message = message_of(WEFT__PIECES, 3 * COUNT);
    OK(weft_run_bind(run, data, first, COUNT, three));
    OK(weft_run_start(run));
    arrive(&message);
    come(run, &message);
    for (int i = 0; i < 3 * COUNT; i++)
        CHECK(first[i] == payload[i] - i);
    weft_run_destroy(run);
    weft_op_destroy(op);
}
