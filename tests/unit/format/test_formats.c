/* SPDX-License-Identifier: BSD-3-Clause */
/* Schedules as text, JSON and DOT: round trips of handmade and random ones, and malformed input. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/alloc.h"
#include "support/compute.h"
#include "support/documents.h"
#include "support/sweep.h"

static struct weft_op *user_op;

static void setup(void)
{
    user_op = idle_op("quantise");
}

static void teardown(void)
{
    weft_op_destroy(user_op);
}

TestSuite(formats, .init = setup, .fini = teardown);

/* ---- documents ---- */

static int try_read(struct document *document, const char *text)
{
    const struct weft_op *ops[] = {user_op};

    return weft_schedule_read(text, strlen(text), ops, 1, &document->schedules, &document->count);
}

static struct document read_text(const char *text)
{
    struct document document;
    int status = try_read(&document, text);

    cr_assert_eq(status, WEFT_OK, "%s in:\n%s", weft_error_text(), text);
    return document;
}

/* Text -> schedules -> text and text -> schedules -> JSON -> schedules -> text give the same. */
static void expect_round_trips(const char *text)
{
    struct document first = read_text(text);
    char *json = write_document(&first, WEFT_FORMAT_JSON);
    char *dot = write_document(&first, WEFT_FORMAT_DOT);
    struct document second = read_text(json);
    char *again = write_document(&second, WEFT_FORMAT_TEXT);
    char *json_again = write_document(&second, WEFT_FORMAT_JSON);
    char *same = write_document(&first, WEFT_FORMAT_TEXT);

    cr_expect_str_eq(same, text);
    cr_expect_str_eq(again, text);
    cr_expect_str_eq(json_again, json);
    weft_memory_free(json);
    weft_memory_free(json_again);
    weft_memory_free(dot);
    weft_memory_free(again);
    weft_memory_free(same);
    free_document(&first);
    free_document(&second);
}

/* ---- what is written ---- */

static const char everything[] =
    "weft 1\n"
    "schedule \"all \\\"kinds\\\" \\\\ of nodes\" size 4\n"
    "\n"
    "rank 0 {\n"
    "  input send f32 1024\n"
    "  output recv f32 1024\n"
    "  inout in.out-2 bf16 0\n"
    "  scratch tmp f32 256\n"
    "  inout on f16 17 on device\n"
    "  scratch device f32 256 on device\n"
    "  value k max 100\n"
    "  value unbounded\n"
    "  value vast max 18446744073709551614\n"
    "  n0 \"first\": send send[0:256] to 1 tag 0\n"
    "  n1 \"from the left\": recv tmp[0:256] from 3 tag 4294967295\n"
    "  n2: reduce sum recv[256:512] = send[256:512], tmp[0:256] after n1\n"
    "  n3: event channel 2 choice 0\n"
    "  n4: event choice 0\n"
    "  n5: recv up to tmp[0:100] from 2 tag 3 gives k\n"
    "  n6: join after any n0, n1, n3\n"
    "  n7: copy recv[0:100 count k] = tmp[0:100 count k] after n6, n9\n"
    "  n8: compute quantise in tmp[0:3], out recv[3:9] gives unbounded after any\n"
    "  n9: signal to 3 channel 1 after n10\n"
    "  n10: join\n"
    "  n11: compute quantise\n"
    "  result recv[0:1024] = sum of send[0:1024] from ranks 0..3\n"
    "  result recv[0:0] = send[5:5] from rank 2\n"
    "  result recv[0:4] = sum of send[0:4] from ranks 0..3 own recv\n"
    "  result recv[0:4] = sum of send[0:4] from ranks 3, 0, 2 own recv\n"
    "}\n"
    "\n"
    "rank 3 {\n"
    "}\n";

Test(formats, everything_comes_back)
{
    expect_round_trips(everything);
}

Test(formats, opaque_elements_come_back)
{
    expect_round_trips("weft 1\n"
                       "schedule \"opaque\" size 2\n"
                       "\n"
                       "rank 0 {\n"
                       "  input send bytes24 10\n"
                       "  output bytes24 bytes1 7\n"
                       "  inout vast bytes1073741823 8\n"
                       "  n0: send send[2:5] to 1 tag 0\n"
                       "  n1: recv bytes24[0:7] from 1 tag 4\n"
                       "  result bytes24[0:7] = send[0:7] from rank 1\n"
                       "}\n");
}

Test(formats, by_hand_much_may_be_left_out)
{
    struct document document = read_text("# A comment.\r\n"
                                         "\n"
                                         "weft 1 # another\n"
                                         "schedule \"s\" size 2\n"
                                         "rank 1 {\n"
                                         "  inout x i32 4\n"
                                         "  value v\n"
                                         "  send x to 0\n"
                                         "  early: join after late, # later\n"
                                         "     n0,\n"
                                         "\n"
                                         "     late\n"
                                         "  send: recv x[1:] from 0 tag 1\n"
                                         "  n3 \"quoted\": event choice 9\n"
                                         "  event channel 5 choice 7\n"
                                         "  late \"label\": copy x = x after early\n"
                                         "  result x = x from rank 0\n"
                                         "  result x[2:] = max of x[1:] from ranks 0..1\n"
                                         "}");
    char *text = write_document(&document, WEFT_FORMAT_TEXT);

    cr_expect_str_eq(text, "weft 1\n"
                           "schedule \"s\" size 2\n"
                           "\n"
                           "rank 1 {\n"
                           "  inout x i32 4\n"
                           "  value v\n"
                           "  n0: send x[0:4] to 0 tag 0\n"
                           "  n1 \"early\": join after n0, n5\n"
                           "  n2 \"send\": recv x[1:4] from 0 tag 1\n"
                           "  n3 \"quoted\": event choice 1\n"
                           "  n4: event channel 5 choice 0\n"
                           "  n5 \"label\": copy x[0:4] = x[0:4] after n1\n"
                           "  result x[0:4] = x[0:4] from rank 0\n"
                           "  result x[2:4] = max of x[1:3] from ranks 0..1\n"
                           "}\n");
    weft_memory_free(text);
    free_document(&document);
}

Test(formats, words_of_the_format_are_names_too)
{
    expect_round_trips("weft 1\n"
                       "schedule \"\" size 1\n"
                       "\n"
                       "rank 0 {\n"
                       "  inout up f32 1\n"
                       "  inout of f32 1\n"
                       "  inout count f32 1\n"
                       "  value after\n"
                       "  n0 \"any\": send up[0:1] to 0 tag 0\n"
                       "  n1: recv up[0:1] from 0 tag 0\n"
                       "  n2: recv up to up[0:1] from 0 tag 1 gives after\n"
                       "  n3: copy of[0:1 count after] = count[0:1 count after]\n"
                       "  result up[0:1] = of[0:1] from rank 0\n"
                       "  result up[0:1] = sum of of[0:1] from rank 0\n"
                       "}\n");
}

Test(formats, a_compute_node_of_70_regions)
{
    char text[4096] = "weft 1\nschedule \"many\" size 1\n\nrank 0 {\n  inout x f32 70\n"
                      "  n0: compute quantise";

    for (int i = 0; i < 70; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s x[%d:%d]", i ? ", " : " ",
                 i % 3 && i < 64 ? "in" : "out", i, i + 1);
    strcat(text, "\n}\n");
    expect_round_trips(text);
}

Test(formats, dot_has_clusters_messages_and_double_borders)
{
    struct document document = read_text("weft 1\nschedule \"dot\" size 2\n"
                                         "rank 0 {\n inout x f32 4\n send x to 1 tag 5\n"
                                         " a \"say \\\"hi\\\"\": join after any n0\n}\n"
                                         "rank 1 {\n inout x f32 4\n recv x from 0 tag 5\n"
                                         " event channel 3\n signal to 1 channel 3\n}\n");
    char *dot = write_document(&document, WEFT_FORMAT_DOT);

    cr_expect_not_null(strstr(dot, "digraph \"dot\" {"));
    cr_expect_not_null(strstr(dot, "subgraph cluster_0 {"));
    cr_expect_not_null(strstr(dot, "subgraph cluster_1 {"));
    cr_expect_not_null(strstr(dot, "r0n0 -> r1n0 [style=dashed, constraint=false"));
    cr_expect_not_null(strstr(dot, "r1n2 -> r1n1 [style=dashed, constraint=false"));
    cr_expect_not_null(strstr(dot, "r0n0 -> r0n1;"));
    cr_expect_not_null(strstr(dot, "peripheries=2, label=\"say \\\"hi\\\"\\njoin\""));
    weft_memory_free(dot);
    free_document(&document);
}

/* ---- random schedules ---- */

static uint64_t next_random(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static size_t pick(uint64_t *state, size_t count)
{
    return (size_t)(next_random(state) % count);
}

static struct weft_region random_region(uint64_t *state, int slots)
{
    size_t offset = pick(state, 60);

    return weft_region_at((weft_slot_t)pick(state, (size_t)slots), offset,
                          pick(state, 61 - offset));
}

static weft_node_t random_node(struct weft_schedule *s, uint64_t *state, int slots, int size,
                               weft_value_t *next_value)
{
    struct weft_region regions[5];
    struct weft_compute_argument arguments[5];
    int peer = (int)pick(state, (size_t)size);
    uint32_t tag = (uint32_t)next_random(state);
    weft_value_t produces =
        *next_value && *next_value <= 5 && !pick(state, 3) ? (*next_value)++ : 0;

    for (size_t i = 0; i < 5; i++)
        regions[i] = random_region(state, slots);
    switch (pick(state, 9)) {
    case 0:
        if (*next_value > 1)
            regions[0].value = 1;
        return weft_schedule_add_send(s, regions[0], peer, tag);
    case 1:
        return weft_schedule_add_recv(s, regions[0], peer, tag);
    case 2:
        return weft_schedule_add_recv_up_to(s, regions[0], peer, tag, produces);
    case 3:
        regions[0].slot = 0;
        regions[1] = regions[2] = regions[0];
        regions[1].slot = 1;
        return weft_schedule_add_reduce(s, weft_op_builtin((weft_op_kind_t)pick(state, 4)),
                                        regions[0], regions[1], regions[2]);
    case 4:
        regions[1] = regions[0];
        regions[1].slot = (weft_slot_t)pick(state, (size_t)slots);
        return weft_schedule_add_copy(s, regions[0], regions[1]);
    case 5:
        for (size_t i = 0; i < 5; i++)
            arguments[i] = (struct weft_compute_argument){
                regions[i], (weft_access_t)(WEFT_READ + pick(state, WEFT_UPDATE))};
        return weft_schedule_add_compute(s, user_op, arguments, pick(state, 6), produces);
    case 6:
        return weft_schedule_add_event(s, pick(state, 2) ? WEFT_CHANNEL_NONE : tag % 100);
    case 7:
        return weft_schedule_add_signal(s, peer, tag % 100);
    default:
        return weft_schedule_add_join(s);
    }
}

static struct weft_schedule *random_schedule(uint64_t seed, int rank, int size)
{
    static const weft_slot_kind_t kinds[] = {WEFT_SLOT_OUTPUT, WEFT_SLOT_INOUT, WEFT_SLOT_SCRATCH};
    uint64_t state = seed * 1000 + (uint64_t)rank;
    size_t nodes = pick(&state, 60);
    weft_value_t next_value = 1;
    struct weft_schedule *s;
    char name[16];

    cr_assert_eq(weft_schedule_create(&s, rank, size), WEFT_OK);
    weft_schedule_set_name(s, "random");
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "slot%d", i);
        weft_schedule_add_slot(s, name, WEFT_F32, 60, kinds[pick(&state, 3)]);
        weft_schedule_set_memory(s, i, pick(&state, 2) ? WEFT_MEMORY_DEVICE : WEFT_MEMORY_HOST);
    }
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "value%d", i);
        weft_schedule_add_value(s, name, next_random(&state) >> pick(&state, 64));
    }
    for (size_t i = 0; i < nodes; i++) {
        weft_node_t node = random_node(s, &state, 4, size, &next_value);
        struct weft_node_info info = {.struct_size = sizeof info};

        cr_assert_eq(node, (int)i, "seed %" PRIu64 ": %s", seed, weft_error_text());
        if (!pick(&state, 4))
            weft_schedule_set_any(s, node);
        weft_schedule_get_node(s, node, &info);
        if (info.kind == WEFT_NODE_EVENT && pick(&state, 2))
            weft_schedule_add_choice(s, &node, 1);
        snprintf(name, sizeof name, "label %zu \\", pick(&state, 9));
        if (!pick(&state, 3))
            weft_schedule_set_label(s, node, name);
    }
    for (size_t i = pick(&state, 100); nodes > 1 && i > 0; i--) {
        weft_node_t before = (weft_node_t)pick(&state, nodes);
        weft_node_t after = (weft_node_t)pick(&state, nodes);

        if (before != after)
            weft_schedule_add_order(s, before, after);
    }
    for (size_t i = pick(&state, 4); i > 0; i--) {
        struct weft_result result = {.struct_size = sizeof result,
                                     .dst = random_region(&state, 4),
                                     .from = "slot1",
                                     .offset = pick(&state, 50),
                                     .op = weft_op_builtin(WEFT_SUM)};

        result.first = (int)pick(&state, (size_t)size);
        result.ranks = 1 + (int)pick(&state, (size_t)(size - result.first));
        if (result.ranks == 1 && pick(&state, 2))
            result.op = NULL;
        if (pick(&state, 3) == 0)
            result.own = "slot2";
        if (!pick(&state, 4))
            result = (struct weft_result){.struct_size = sizeof result,
                                          .kind = WEFT_RESULT_AFTER_START,
                                          .first = result.first,
                                          .ranks = result.ranks};
        int among[8]; /* every other rank, from the highest */
        int listed = pick(&state, 2) && size > 3 && size <= 8;
        for (int k = 0; listed && 2 * k < size; k++) {
            among[k] = size - 1 - 2 * k;
            result.ranks = k + 1;
            result.among = among;
            if (result.kind == WEFT_RESULT_REGION)
                result.op = weft_op_builtin(WEFT_SUM);
        }
        weft_schedule_add_result(s, &result);
    }
    cr_assert_eq(weft_schedule_status(s), WEFT_OK, "seed %" PRIu64 ": %s", seed, weft_error_text());
    return s;
}

/* Orders as a set, ascending and each once. */
static int compare_edges(const void *left, const void *right)
{
    const weft_node_t *a = left, *b = right;

    if (a[1] != b[1])
        return a[1] < b[1] ? -1 : 1;
    return (a[0] > b[0]) - (a[0] < b[0]);
}

static size_t edge_set(const struct weft_schedule *s, weft_node_t (*edges)[2])
{
    size_t count = weft_schedule_edge_count(s), kept = 0;

    for (size_t i = 0; i < count; i++)
        weft_schedule_get_edge(s, i, &edges[i][0], &edges[i][1]);
    qsort(edges, count, sizeof *edges, compare_edges);
    for (size_t i = 0; i < count; i++)
        if (!kept || compare_edges(edges[kept - 1], edges[i]) != 0)
            memmove(edges[kept++], edges[i], sizeof *edges);
    return kept;
}

/* Through the public queries: equal in everything but the order of orders. */
static void expect_equal(const struct weft_schedule *a, const struct weft_schedule *b,
                         uint64_t seed)
{
    static weft_node_t edges[2][1000][2];
    size_t count = edge_set(a, edges[0]);

    cr_assert_eq(edge_set(b, edges[1]), count, "seed %" PRIu64, seed);
    cr_expect_eq(memcmp(edges[0], edges[1], count * sizeof edges[0][0]), 0, "seed %" PRIu64, seed);
    cr_expect_eq(weft_schedule_rank(a), weft_schedule_rank(b));
    cr_expect_eq(weft_schedule_size(a), weft_schedule_size(b));
    cr_expect_str_eq(weft_schedule_name(a), weft_schedule_name(b));
    cr_assert_eq(weft_schedule_node_count(a), weft_schedule_node_count(b));
    cr_assert_eq(weft_schedule_result_count(a), weft_schedule_result_count(b));
    cr_assert_eq(weft_schedule_slot_count(a), weft_schedule_slot_count(b));
    for (size_t i = 0; i < weft_schedule_slot_count(a); i++) {
        struct weft_slot_info x = {.struct_size = sizeof x}, y = {.struct_size = sizeof y};

        weft_schedule_get_slot(a, (weft_slot_t)i, &x);
        weft_schedule_get_slot(b, (weft_slot_t)i, &y);
        cr_expect(x.dtype == y.dtype && x.kind == y.kind && x.count == y.count &&
                      x.memory == y.memory && strcmp(x.name, y.name) == 0,
                  "seed %" PRIu64 " slot %zu", seed, i);
    }
    for (size_t n = 0; n < weft_schedule_node_count(a); n++) {
        struct weft_node_info x = {.struct_size = sizeof x}, y = {.struct_size = sizeof y};

        weft_schedule_get_node(a, (weft_node_t)n, &x);
        weft_schedule_get_node(b, (weft_node_t)n, &y);
        cr_assert(x.kind == y.kind && x.any == y.any && x.up_to == y.up_to && x.peer == y.peer &&
                      x.tag == y.tag && x.channel == y.channel && x.choice == y.choice &&
                      x.produces == y.produces && x.region_count == y.region_count &&
                      x.op == y.op && !x.label == !y.label,
                  "seed %" PRIu64 " node %zu", seed, n);
        if (x.label)
            cr_expect_str_eq(x.label, y.label);
        for (size_t i = 0; i < x.region_count; i++)
            cr_expect(x.accesses[i] == y.accesses[i] && x.regions[i].slot == y.regions[i].slot &&
                          x.regions[i].value == y.regions[i].value &&
                          x.regions[i].offset == y.regions[i].offset &&
                          x.regions[i].count == y.regions[i].count,
                      "seed %" PRIu64 " node %zu region %zu", seed, n, i);
    }
}

Test(formats, random_schedules_come_back)
{
    for (uint64_t seed = 1; seed <= SWEPT(300, 60); seed++) {
        struct document document, copies[2];
        struct weft_schedule *schedules[5];
        char *text, *json;

        document.schedules = schedules;
        document.count = 1 + seed % 5;
        for (size_t i = 0; i < document.count; i++)
            schedules[i] = random_schedule(seed, (int)i, 5);
        text = write_document(&document, WEFT_FORMAT_TEXT);
        json = write_document(&document, WEFT_FORMAT_JSON);
        copies[0] = read_text(text);
        copies[1] = read_text(json);
        for (size_t c = 0; c < 2; c++) {
            char *again = write_document(&copies[c], WEFT_FORMAT_TEXT);

            cr_assert_eq(copies[c].count, document.count);
            cr_expect_str_eq(again, text, "seed %" PRIu64, seed);
            for (size_t i = 0; i < document.count; i++)
                expect_equal(schedules[i], copies[c].schedules[i], seed);
            weft_memory_free(again);
            free_document(&copies[c]);
        }
        for (size_t i = 0; i < document.count; i++)
            weft_schedule_destroy(schedules[i]);
        weft_memory_free(text);
        weft_memory_free(json);
    }
}

Test(formats, a_hundred_thousand_nodes_come_back)
{
    struct document document = {.count = 1};
    struct weft_schedule *schedule;
    weft_node_t root;
    char *text;

    cr_assert_eq(weft_schedule_create(&schedule, 0, 1), WEFT_OK);
    document.schedules = &schedule;
    root = weft_schedule_add_join(schedule);
    for (int i = 1; i < 100000; i++)
        weft_schedule_add_order(schedule, root, weft_schedule_add_join(schedule));
    weft_schedule_add_join(schedule);
    for (int i = 1; i < 100000; i++)
        weft_schedule_add_order(schedule, 100000 - i, 100000);
    text = write_document(&document, WEFT_FORMAT_TEXT);
    weft_schedule_destroy(schedule);
    expect_round_trips(text);
    weft_memory_free(text);
}

/* ---- input that ends early, misuse, memory ---- */

Test(formats, every_truncation_of_a_document_is_refused_or_read)
{
    struct document document = read_text(everything);
    char *texts[] = {write_document(&document, WEFT_FORMAT_TEXT),
                     write_document(&document, WEFT_FORMAT_JSON)};

    for (size_t t = 0; t < 2; t++) {
        size_t length = strlen(texts[t]);

        for (size_t cut = 0; cut < length; cut++) {
            const struct weft_op *ops[] = {user_op};
            struct document read;
            int status = weft_schedule_read(texts[t], cut, ops, 1, &read.schedules, &read.count);

            cr_assert(status == WEFT_OK || status == WEFT_ERR_FORMAT);
            if (status == WEFT_OK)
                free_document(&read);
            else
                cr_assert_not_null(strstr(weft_error_text(), "line "), "%s", weft_error_text());
        }
        weft_memory_free(texts[t]);
    }
    free_document(&document);
}

Test(formats, write_refuses_what_is_no_document)
{
    struct weft_schedule *a, *b;
    const struct weft_schedule *both[2];
    char *text = NULL;

    cr_assert_eq(weft_schedule_create(&a, 1, 2), WEFT_OK);
    cr_assert_eq(weft_schedule_create(&b, 0, 2), WEFT_OK);
    both[0] = a;
    both[1] = b;
    cr_expect_eq(weft_schedule_write(NULL, 1, WEFT_FORMAT_TEXT, &text, NULL), WEFT_ERR_INVALID);
    cr_expect_eq(weft_schedule_write(both, 0, WEFT_FORMAT_TEXT, &text, NULL), WEFT_ERR_INVALID);
    cr_expect_eq(weft_schedule_write(both, 1, WEFT_FORMAT_TEXT, NULL, NULL), WEFT_ERR_INVALID);
    cr_expect_eq(weft_schedule_write(both, 1, (weft_format_t)4, &text, NULL), WEFT_ERR_INVALID);
    cr_expect_not_null(strstr(weft_error_text(), "`format` is 4"));
    cr_expect_eq(weft_schedule_write(both, 2, WEFT_FORMAT_TEXT, &text, NULL), WEFT_ERR_INVALID);
    cr_expect_not_null(strstr(weft_error_text(), "ascending"));
    both[0] = b;
    both[1] = a;
    cr_expect_eq(weft_schedule_write(both, 2, WEFT_FORMAT_TEXT, &text, NULL), WEFT_OK);
    weft_memory_free(text);
    text = NULL;
    weft_schedule_set_name(a, "other");
    cr_expect_eq(weft_schedule_write(both, 2, WEFT_FORMAT_TEXT, &text, NULL), WEFT_ERR_INVALID);
    cr_expect_not_null(strstr(weft_error_text(), "\"other\""));
    weft_schedule_add_join(a);
    weft_schedule_add_order(a, 0, 0);
    cr_expect_eq(weft_schedule_write(both + 1, 1, WEFT_FORMAT_TEXT, &text, NULL), WEFT_ERR_INVALID);
    cr_expect_null(text);
    weft_schedule_destroy(a);
    weft_schedule_destroy(b);
}

Test(formats, read_refuses_missing_arguments)
{
    const struct weft_op *ops[] = {NULL};
    struct document document;

    cr_expect_eq(weft_schedule_read(NULL, 0, NULL, 0, &document.schedules, &document.count),
                 WEFT_ERR_INVALID);
    cr_expect_eq(weft_schedule_read("", 0, NULL, 0, NULL, &document.count), WEFT_ERR_INVALID);
    cr_expect_eq(weft_schedule_read("", 0, NULL, 0, &document.schedules, NULL), WEFT_ERR_INVALID);
    cr_expect_eq(weft_schedule_read("", 0, ops, 1, &document.schedules, &document.count),
                 WEFT_ERR_INVALID);
    cr_expect_not_null(strstr(weft_error_text(), "`ops[0]` is NULL"));
}

Test(formats, every_allocation_may_fail)
{
    struct document document = read_text(everything);
    char *json = write_document(&document, WEFT_FORMAT_JSON);
    const char *texts[] = {everything, json};

    for (size_t t = 0; t < 2; t++) {
        int status = WEFT_ERR_MEMORY;

        for (long n = 1; status == WEFT_ERR_MEMORY; n++) {
            struct document read;
            char *text = NULL;

            cr_assert_lt(n, 1000);
            atomic_store(&weft__alloc_countdown, n);
            status = try_read(&read, texts[t]);
            if (!status) {
                status = weft_schedule_write((const struct weft_schedule *const *)read.schedules,
                                             read.count, WEFT_FORMAT_DOT, &text, NULL);
                free_document(&read);
                weft_memory_free(text);
            }
            atomic_store(&weft__alloc_countdown, -1);
            cr_assert(status == WEFT_OK || status == WEFT_ERR_MEMORY, "%ld: %s", n,
                      weft_error_text());
        }
    }
    weft_memory_free(json);
    free_document(&document);
}
