/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rules of weft/sized.h, for every struct that carries its size, every function that takes one
 * and every end of a life. The cases are generated from the headers (make_rules.py); here is what
 * they have in common, and what they are made of.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include "runtime/base/alloc.h"
#include "tests/support/ranks.h"

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

enum { ROOM = 4096, FAR = 64, MOST_ALLOCATIONS = 100000 };

/* A struct that a function reads. */
struct config_rule {
    const char *function;
    const char *speaks_as; /* beginning of the error texts */
    const char *argument;  /* as error texts have it: "config", "config->net" */
    size_t size;
    size_t least;        /* so many bytes must be there */
    const size_t *edges; /* where members end */
    size_t edge_count;
    void (*begin)(void *object); /* sets what must be there, in zeros that have their size */
    int (*call)(const void *given);
};

/* A struct that a function fills. */
struct filled_rule {
    const char *function;
    const char *argument;
    size_t size;
    const size_t *edges;
    size_t edge_count;
    int reads; /* also what stands there: it must be zeros */
    int (*fill)(void *given);
};

/* ---- what functions are called with ---- */

#define API_TEXT "weft 1\nschedule \"api\" size 1\nrank 0 {\n}\n"
#define API_REFUSED_TEXT                                                                           \
    "weft 1\nschedule \"api\" size 2\nrank 0 {\ninout a i32 4\nsend a to 7\n}\n"

static struct api {
    struct weft_local *local;
    struct weft_context *context;
    struct weft_local *more; /* a group of two whose contexts a test makes */
    struct weft_schedule *schedule;
    struct weft_schedule *open; /* to be built on */
    const struct weft_schedule *schedules[1];
    struct weft_plan *plan;
    struct weft_check_report *report; /* of a fault */
    struct weft_trace *trace;
    struct weft_net net;
    struct weft_cost_model cost;
    char folder[64];
    char path[128]; /* of a file of costs */
    float values[8];
    float residual[8];
    uint32_t indices[2];
    float magnitudes[2];
    struct weft_sparse list;
    uint32_t out_indices[16];
    float out_values[16];
    struct weft_sparse out;
} api;

static struct weft_sparse *api_pairs(void)
{
    api.out = (struct weft_sparse){.indices = api.out_indices,
                                   .values = api.out_values,
                                   .capacity = 16,
                                   .index_dtype = WEFT_U32,
                                   .dtype = WEFT_F32};
    return &api.out;
}

static int api_rank(struct weft_context *context, void *user)
{
    (void)context;
    (void)user;
    return WEFT_OK;
}

static int api_reduce(void *user, void *dst, const void *a, const void *b, size_t count,
                      weft_dtype_t dtype)
{
    (void)user;
    (void)dst;
    (void)a;
    (void)b;
    (void)count;
    (void)dtype;
    return WEFT_OK;
}

/* No version of a series ever starts. */
static int api_arm(void *user, struct weft_series *series, struct weft_series_arm *arm)
{
    (void)user;
    (void)series;
    (void)arm;
    return WEFT_IN_PROGRESS;
}

static int api_create_local(const struct weft_context_config *config)
{
    struct weft_local *local = NULL;
    struct weft_context *context = NULL;
    int status;

    OK(weft_local_create(&local, 1, NULL));
    status = weft_context_create_local(&context, local, 0, config);
    OK(weft_context_destroy(context));
    weft_local_destroy(local);
    return status;
}

static int api_add_result(const struct weft_result *result)
{
    struct weft_schedule *schedule = new_schedule(0, 1);
    int status;

    weft_schedule_add_slot(schedule, "data", WEFT_I32, 4, WEFT_SLOT_INOUT);
    status = weft_schedule_add_result(schedule, result);
    cr_expect_eq(weft_schedule_status(schedule), status);
    weft_schedule_destroy(schedule);
    return status;
}

static int api_read(const struct weft_read_options *options, const char *text)
{
    struct weft_schedule **schedules = NULL;
    size_t count = 0;
    int status = weft_schedule_read_with(text, strlen(text), options, &schedules, &count);

    for (size_t i = 0; i < count; i++)
        weft_schedule_destroy(schedules[i]);
    weft_memory_free((void *)schedules);
    return status;
}

static int api_write_goal(const struct weft_goal_options *options)
{
    char *text = NULL;
    size_t length;
    int status = weft_schedule_write_goal(api.schedules, 1, options, &text, &length);

    weft_memory_free(text);
    return status;
}

static int api_allocate(void **memory)
{
    void *made = weft_memory_alloc(1, 8);

    if (!made)
        return WEFT_ERR_MEMORY;
    *memory = made;
    return WEFT_OK;
}

static int api_make_op(struct weft_op **op)
{
    const struct weft_op_config config = {
        .struct_size = sizeof config, .name = "api", .reduce = api_reduce};

    return weft_op_create(op, &config);
}

static int api_make_series(struct weft_series **series)
{
    const struct weft_series_config config = {
        .struct_size = sizeof config, .plans = &api.plan, .plan_count = 1, .arm = api_arm};

    return weft_series_create(series, api.context, &config);
}

static int api_simulate(struct weft_sim_result **result)
{
    const struct weft_sim_config config = {
        .struct_size = sizeof config, .ranks = 1, .schedules = api.schedules};

    return weft_simulate(&config, result);
}

/* The first of a group of its own: each rank is made once. */
static int api_make_context(struct weft_context **context)
{
    int status;

    weft_local_destroy(api.more);
    api.more = NULL;
    status = weft_local_create(&api.more, 2, NULL);
    return status ? status : weft_context_create_local(context, api.more, 0, NULL);
}

/* Objects on the context, with tensors where they must have one. */
#define AVERAGE(name, ...)                                                                         \
    static const struct name##_config *api_default_##name##_config(void)                           \
    {                                                                                              \
        static const struct weft_piece tensor = {api.values, 8};                                   \
        static const struct name##_config config = {                                               \
            .struct_size = sizeof config, .tensors = &tensor, .tensor_count = 1, __VA_ARGS__};     \
        return &config;                                                                            \
    }                                                                                              \
    static struct name *api_##name(void)                                                           \
    {                                                                                              \
        struct name *average = NULL;                                                               \
        OK(name##_create(&average, api.context, api_default_##name##_config()));                   \
        return average;                                                                            \
    }

AVERAGE(weft_gossip, .neighbours = 0)
AVERAGE(weft_pair_average, .seed = 1)
AVERAGE(weft_group_average, .seed = 1)
AVERAGE(weft_sparse_average, .scope = WEFT_SPARSE_TENSOR, .k = 2)

static int api_report(struct weft_group_average *average, uint64_t timeout_ns)
{
    char *text = NULL;
    int status = weft_group_average_report(average, timeout_ns, &text);

    weft_memory_free(text);
    return status;
}

static void make_schedule(void)
{
    struct weft_schedule *s = new_schedule(0, 1);
    weft_slot_t data = weft_schedule_add_slot(s, "data", WEFT_I32, 4, WEFT_SLOT_INOUT);
    const struct weft_result result = {.struct_size = sizeof result,
                                       .dst = weft_region_at(data, 0, 4),
                                       .from = "data",
                                       .ranks = 1};

    weft_schedule_add_value(s, "value", 4);
    weft_schedule_add_event(s, WEFT_CHANNEL_NONE);
    OK(weft_schedule_add_result(s, &result));
    api.schedules[0] = api.schedule = s;
    OK(weft_schedule_commit(s, &api.plan));
}

/* Two nodes that race for a slot. */
static void make_report(void)
{
    struct weft_schedule *s = new_schedule(0, 1);
    const struct weft_schedule *all[] = {s};
    weft_slot_t a = weft_schedule_add_slot(s, "a", WEFT_I32, 4, WEFT_SLOT_INOUT);
    weft_slot_t b = weft_schedule_add_slot(s, "b", WEFT_I32, 4, WEFT_SLOT_INOUT);

    weft_schedule_add_copy(s, weft_region_at(a, 0, 4), weft_region_at(b, 0, 4));
    weft_schedule_add_copy(s, weft_region_at(a, 0, 4), weft_region_at(b, 0, 4));
    OK(weft_check(all, 1, NULL, &api.report));
    CHECK(weft_check_report_fault_count(api.report) > 0);
    weft_schedule_destroy(s);
}

static void api_begin(void)
{
    const struct weft_trace_span span = {.struct_size = sizeof span};
    struct alone alone = alone_create(WEFT_PROGRESS_HELPER);

    memset(&api, 0, sizeof api);
    api.local = alone.local;
    api.context = alone.context;
    OK(weft_local_create(&api.more, 2, NULL));
    make_schedule();
    make_report();
    api.open = new_schedule(0, 1);
    OK(weft_trace_create(&api.trace));
    OK(weft_trace_add(api.trace, &span));
    weft_net_init(&api.net);
    weft_cost_model_init(&api.cost, "local");
    snprintf(api.folder, sizeof api.folder, "/tmp/weft-rules-XXXXXX");
    CHECK(mkdtemp(api.folder));
    snprintf(api.path, sizeof api.path, "%s/cost", api.folder);
    OK(weft_cost_model_write(api.path, "local", &api.cost, &api.net, 0));
    for (int i = 0; i < 8; i++)
        api.values[i] = (float)(i + 1);
    for (int i = 0; i < 2; i++) {
        api.indices[i] = (uint32_t)i;
        api.magnitudes[i] = (float)(i + 1);
    }
    api.list = (struct weft_sparse){.indices = api.indices,
                                    .values = api.magnitudes,
                                    .count = 2,
                                    .capacity = 2,
                                    .index_dtype = WEFT_U32,
                                    .dtype = WEFT_F32};
}

static void api_end(void)
{
    weft_check_report_destroy(api.report);
    weft_plan_destroy(api.plan);
    weft_schedule_destroy(api.schedule);
    weft_schedule_destroy(api.open);
    weft_trace_destroy(api.trace);
    OK(weft_context_destroy(api.context));
    weft_local_destroy(api.local);
    weft_local_destroy(api.more);
    unlink(api.path);
    rmdir(api.folder);
}

/* ---- the rules ---- */

/* A struct whose members end at an edge. */
static size_t rounded(size_t edge)
{
    return (edge + sizeof edge - 1) / sizeof edge * sizeof edge;
}

static void set_size(void *object, size_t size)
{
    memcpy(object, &size, sizeof size);
}

static size_t size_at(const void *object)
{
    size_t size;

    memcpy(&size, object, sizeof size);
    return size;
}

/* Memory that ends with the object, so that a sanitizer sees who looks beyond. */
static void *copy_of(const void *object, size_t size)
{
    void *copy = malloc(size);

    CHECK(copy);
    memcpy(copy, object, size);
    return copy;
}

static void begin(const struct config_rule *rule, void *object, size_t room)
{
    memset(object, 0, room);
    set_size(object, rule->size);
    rule->begin(object);
}

static int call_with(const struct config_rule *rule, const void *object, size_t size)
{
    void *copy = copy_of(object, size);
    int status;

    set_size(copy, size);
    status = rule->call(copy);
    free(copy);
    return status;
}

/* Whether the error text names the function, then what, then its value, then what was expected. */
static int is_told(const char *function, const char *what, const char *value)
{
    const char *text = weft_error_text();

    if (strncmp(text, function, strlen(function)) || text[strlen(function)] != ':')
        return 0;
    text = strstr(text, what);
    text = text ? strstr(text + strlen(what), value) : NULL;
    return text && strstr(text, "expected");
}

/* A struct_size that is refused; @p object has so many bytes, or at least a size. */
static void refuse_size(const struct config_rule *rule, const void *object, size_t size,
                        size_t there, const char *what)
{
    char member[64], value[64];
    void *copy = copy_of(object, there);
    int status;

    set_size(copy, size);
    snprintf(member, sizeof member, "%s->struct_size", rule->argument);
    snprintf(value, sizeof value, " is %zu,", size);
    weft_error_set_text(WEFT_OK, "");
    status = rule->call(copy);
    cr_expect(status == WEFT_ERR_INVALID && is_told(rule->function, member, value),
              "%s, %s: %s, \"%s\"", rule->function, what, weft_status_name(status),
              weft_error_text());
    free(copy);
}

static void check_shorter(const struct config_rule *rule, const unsigned char *object)
{
    for (size_t i = 0; i < rule->edge_count; i++) {
        _Alignas(64) unsigned char followed[ROOM];
        size_t size = rounded(rule->edges[i]);
        int expected = size >= rule->least ? WEFT_OK : WEFT_ERR_INVALID;

        cr_expect_eq(call_with(rule, object, size), expected, "%s, %zu bytes of %zu: %s",
                     rule->function, size, rule->size, weft_error_text());
        memset(followed, 0xA5, sizeof followed);
        memcpy(followed, object, size);
        set_size(followed, size);
        cr_expect_eq(rule->call(followed), expected, "%s, %zu bytes of %zu before others: %s",
                     rule->function, size, rule->size, weft_error_text());
    }
}

static void check_longer(const struct config_rule *rule, unsigned char *object)
{
    static const size_t more[] = {sizeof(size_t), FAR};

    for (size_t i = 0; i < COUNT_OF(more); i++) {
        size_t size = rule->size + more[i];

        cr_expect_eq(call_with(rule, object, size), WEFT_OK, "%s, %zu zeros beyond: %s",
                     rule->function, more[i], weft_error_text());
        object[size - 1] = 1;
        refuse_size(rule, object, size, size, "the last byte beyond set");
        object[size - 1] = 0;
        object[rule->size] = 1;
        refuse_size(rule, object, size, size, "the first byte beyond set");
        object[rule->size] = 0;
    }
}

static void check_config(const struct config_rule *rule)
{
    _Alignas(64) unsigned char object[ROOM];

    begin(rule, object, sizeof object);
    cr_assert_eq(call_with(rule, object, rule->size), WEFT_OK, "%s, all defaults: %s",
                 rule->function, weft_error_text());
    refuse_size(rule, object, 0, rule->size, "no size");
    refuse_size(rule, object, 0, sizeof(size_t), "no size and nothing behind it");
    refuse_size(rule, object, 4, rule->size, "a size within the size");
    refuse_size(rule, object, sizeof(size_t), rule->size, "a size and no members");
    refuse_size(rule, object, rule->size - 1, rule->size, "a size that no struct can have");
    refuse_size(rule, object, SIZE_MAX - 7, rule->size, "a size beyond memory");
    check_shorter(rule, object);
    check_longer(rule, object);
}

/* A value that a member must not have. */
static void check_member(const struct config_rule *rule, const void *object, const char *member,
                         const char *format, ...)
{
    char value[64];
    va_list arguments;
    int status;

    va_start(arguments, format);
    vsnprintf(value, sizeof value, format, arguments);
    va_end(arguments);
    weft_error_set_text(WEFT_OK, "");
    status = rule->call(object);
    cr_expect(status == WEFT_ERR_INVALID && (is_told(rule->function, member, value) ||
                                             is_told(rule->speaks_as, member, value)),
              "%s, `%s` of %s: %s, \"%s\"", rule->function, member, value, weft_status_name(status),
              weft_error_text());
}

static void fill_memory(unsigned char *memory, int with, size_t size, size_t inside, int reads)
{
    memset(memory, with, ROOM);
    if (reads)
        memset(memory, 0, inside);
    set_size(memory, size);
}

static int is_all(const unsigned char *memory, int value, size_t from, size_t upto)
{
    for (size_t at = from; at < upto; at++)
        if (memory[at] != value)
            return 0;
    return 1;
}

/* Written within the size, what is not known zeroed, and nothing beyond. */
static void check_fill(const struct filled_rule *rule, size_t size)
{
    _Alignas(64) unsigned char memory[2][ROOM];
    static const int with[] = {0xA5, 0x5A};
    size_t known = size < rule->size ? size : rule->size;

    for (int i = 0; i < 2; i++) {
        fill_memory(memory[i], with[i], size, size, rule->reads);
        cr_assert_eq(rule->fill(memory[i]), WEFT_OK, "%s, %zu bytes of %zu: %s", rule->function,
                     size, rule->size, weft_error_text());
        cr_expect_eq(size_at(memory[i]), size, "%s: struct_size has become %zu", rule->function,
                     size_at(memory[i]));
        cr_expect(is_all(memory[i], 0, known, size), "%s: what is not known is not zeroed",
                  rule->function);
        cr_expect(is_all(memory[i], with[i], size, ROOM), "%s, %zu bytes of %zu: wrote beyond",
                  rule->function, size, rule->size);
    }
    for (size_t at = 0; !rule->reads && at < known; at++)
        cr_expect(memory[0][at] != with[0] || memory[1][at] != with[1],
                  "%s, %zu bytes of %zu: byte %zu is not written", rule->function, size, rule->size,
                  at);
}

/* A size that is refused: nothing is written. */
static void refuse_fill(const struct filled_rule *rule, size_t size)
{
    _Alignas(64) unsigned char memory[ROOM];
    char member[64], value[64];
    int status;

    fill_memory(memory, 0xA5, size, rule->size, rule->reads);
    snprintf(member, sizeof member, "%s->struct_size", rule->argument);
    snprintf(value, sizeof value, " is %zu,", size);
    weft_error_set_text(WEFT_OK, "");
    status = rule->fill(memory);
    cr_expect(status == WEFT_ERR_INVALID && is_told(rule->function, member, value),
              "%s, a size of %zu: %s, \"%s\"", rule->function, size, weft_status_name(status),
              weft_error_text());
    cr_expect_eq(size_at(memory), size);
    cr_expect(is_all(memory, rule->reads ? 0 : 0xA5, sizeof size, rule->size) &&
                  is_all(memory, 0xA5, rule->size, ROOM),
              "%s, a size of %zu: refused, and written", rule->function, size);
}

static void check_filled(const struct filled_rule *rule)
{
    refuse_fill(rule, 0);
    refuse_fill(rule, sizeof(size_t));
    refuse_fill(rule, rule->size - 1);
    refuse_fill(rule, SIZE_MAX - 7);
    for (size_t i = 0; i < rule->edge_count; i++)
        check_fill(rule, rounded(rule->edges[i]));
    check_fill(rule, rule->size);
    check_fill(rule, rule->size + sizeof(size_t));
    check_fill(rule, rule->size + FAR);
}

static void check_init_of(const char *function, void (*init)(void *, size_t), size_t known,
                          const unsigned char *whole, size_t size)
{
    _Alignas(64) unsigned char memory[ROOM];
    size_t inside = size < known ? size : known;

    memset(memory, 0xA5, sizeof memory);
    init(memory, size);
    cr_expect(is_all(memory, 0xA5, size, ROOM), "%s, %zu bytes: wrote beyond", function, size);
    if (size < sizeof size) {
        cr_expect(is_all(memory, 0xA5, 0, ROOM), "%s, %zu bytes: wrote", function, size);
        return;
    }
    cr_expect_eq(size_at(memory), size, "%s, %zu bytes: says %zu", function, size, size_at(memory));
    cr_expect_eq(memcmp(memory + sizeof size, whole + sizeof size, inside - sizeof size), 0,
                 "%s, %zu bytes: other defaults than in %zu", function, size, known);
    cr_expect(is_all(memory, 0, inside, size), "%s, %zu bytes: not zeroed beyond %zu", function,
              size, known);
}

static void check_init(const char *function, void (*init)(void *, size_t), size_t known,
                       const size_t *edges, size_t edge_count)
{
    _Alignas(64) unsigned char whole[ROOM];

    memset(whole, 0x5A, sizeof whole);
    init(whole, known);
    init(NULL, known);
    for (size_t size = 0; size <= sizeof size; size += 4)
        check_init_of(function, init, known, whole, size);
    for (size_t i = 0; i < edge_count; i++)
        check_init_of(function, init, known, whole, rounded(edges[i]));
    check_init_of(function, init, known, whole, known + sizeof(size_t));
    check_init_of(function, init, known, whole, known + FAR);
}

/* No time at all is not one to wait for. */
static void check_time(const char *function, const char *argument, int (*wait)(uint64_t))
{
    int status;

    weft_error_set_text(WEFT_OK, "");
    status = wait(WEFT_NS_NONE);
    cr_expect(status == WEFT_ERR_INVALID && is_told(function, argument, "WEFT_NS_NONE"),
              "%s, WEFT_NS_NONE: %s, \"%s\"", function, weft_status_name(status),
              weft_error_text());
}

/* NULL; destroyed as soon as it is made; and every allocation of its making failing in turn: what
 * was built by then is gone (leaks are the sanitizer's business), and nothing is handed out. */
static void check_end(const char *function, int (*make)(void *), int (*end)(void *))
{
    void *made = NULL;
    long n;

    cr_expect_eq(end(NULL), WEFT_OK, "%s(NULL)", function);
    cr_assert_eq(make(&made), WEFT_OK, "%s: %s", function, weft_error_text());
    cr_expect_eq(end(made), WEFT_OK, "%s of what was just made", function);
    for (n = 1; n < MOST_ALLOCATIONS; n++) {
        int status, left;

        made = &api;
        atomic_store(&weft__alloc_countdown, n);
        status = make(&made);
        left = atomic_load(&weft__alloc_countdown) > 0;
        atomic_store(&weft__alloc_countdown, -1);
        if (status == WEFT_OK) {
            cr_expect_eq(end(made), WEFT_OK);
            if (left)
                break;
            continue;
        }
        cr_expect_eq(status, WEFT_ERR_MEMORY, "%s, allocation %ld: %s", function, n,
                     weft_error_text());
        cr_expect_eq(made, (void *)&api, "%s, allocation %ld: handed out", function, n);
    }
    cr_assert_lt(n, MOST_ALLOCATIONS);
}

/* ---- ends between the beginning and the end ---- */

/* The others of its group do not exist yet, and never will: it has something for them. */
static void end_context_before_its_peers(void)
{
    struct weft_schedule *s = new_schedule(0, 2);
    struct weft_context *context = NULL;
    struct weft_run *run;

    weft_schedule_add_signal(s, 1, 0);
    OK(weft_context_create_local(&context, api.more, 0, NULL));
    run = make_run(context, commit(s), NULL);
    OK(weft_run_execute(run));
    weft_run_destroy(run);
    cr_expect_eq(weft_context_destroy(context), WEFT_OK);
}

static void end_context_with_a_run_under_way(void)
{
    static int data[4];
    struct weft_context *context = NULL;
    struct weft_run *run = NULL;

    OK(weft_context_create_local(&context, api.more, 0, NULL));
    OK(weft_run_create(&run, context, api.plan, NULL));
    OK(weft_run_bind(run, 0, data, 4, WEFT_I32));
    OK(weft_run_start(run));
    cr_expect_eq(weft_context_destroy(context), WEFT_OK);
}

static void end_local_of_which_one_rank_was(void)
{
    struct weft_local *local = NULL;
    struct weft_context *context = NULL;

    OK(weft_local_create(&local, 3, NULL));
    OK(weft_context_create_local(&context, local, 1, NULL));
    OK(weft_context_destroy(context));
    weft_local_destroy(local);
}

static void end_gossip_that_is_posted(void)
{
    struct weft_gossip *gossip = api_weft_gossip();

    OK(weft_gossip_post(gossip));
    cr_expect_eq(weft_gossip_destroy(gossip), WEFT_OK);
}

static void end_pair_average_that_is_posted(void)
{
    struct weft_pair_average *average = api_weft_pair_average();

    OK(weft_pair_average_post(average));
    cr_expect_eq(weft_pair_average_destroy(average), WEFT_OK);
}

static void end_group_average_that_is_posted(void)
{
    struct weft_group_average *average = api_weft_group_average();

    OK(weft_group_average_post(average));
    cr_expect_eq(weft_group_average_destroy(average), WEFT_OK);
}

static void end_sparse_average_that_is_posted(void)
{
    struct weft_sparse_average *average = api_weft_sparse_average();

    OK(weft_sparse_average_post_tensor(average, 0));
    cr_expect_eq(weft_sparse_average_destroy(average), WEFT_OK);
}

static void end_texts(void)
{
    char *text = NULL;
    size_t length;

    OK(weft_schedule_write(api.schedules, 1, WEFT_FORMAT_TEXT, &text, &length));
    weft_memory_free(text);
}

static void end_op_that_a_schedule_holds(void)
{
    struct weft_op *op = NULL;
    weft_slot_t slot = weft_schedule_add_slot(api.open, "a", WEFT_I32, 4, WEFT_SLOT_INOUT);
    struct weft_region all = weft_region_at(slot, 0, 4);

    OK(api_make_op(&op));
    CHECK(weft_schedule_add_reduce(api.open, op, all, all, all) >= 0);
    weft_op_destroy(op);
    weft_op_destroy(weft_op_builtin(WEFT_SUM));
}

static void end_plan_that_a_run_holds(void)
{
    struct weft_plan *plan = NULL;
    struct weft_run *run;

    OK(weft_schedule_commit(api.schedule, &plan));
    run = make_run(api.context, plan, NULL);
    cr_expect_eq(weft_plan_rank(weft_run_plan(run)), 0);
    weft_run_destroy(run);
}

/* Its slot is not bound, so it cannot start. */
static void end_run_that_is_half_bound(void)
{
    struct weft_run *run = NULL;

    OK(weft_run_create(&run, api.context, api.plan, NULL));
    cr_expect_eq(weft_run_start(run), WEFT_ERR_INVALID);
    weft_run_destroy(run);
}

/* It waits for an event that nobody fires. */
static void end_run_that_is_under_way(void)
{
    static int data[4];
    struct weft_run *run = NULL;

    OK(weft_run_create(&run, api.context, api.plan, NULL));
    OK(weft_run_bind(run, 0, data, 4, WEFT_I32));
    OK(weft_run_start(run));
    cr_expect_eq(weft_run_test(run), WEFT_IN_PROGRESS);
    weft_run_destroy(run);
}

static void end_series_that_is_started(void)
{
    struct weft_series *series = NULL;

    OK(api_make_series(&series));
    OK(weft_series_start(series));
    weft_series_destroy(series);
}

static void end_schedule_that_has_an_error(void)
{
    struct weft_schedule *schedule = new_schedule(0, 1);

    weft_schedule_add_slot(schedule, "a", WEFT_I32, 4, WEFT_SLOT_INOUT);
    cr_expect_lt(weft_schedule_add_send(schedule, weft_region_at(7, 0, 1), 0, 0), 0);
    cr_expect_lt(weft_schedule_status(schedule), 0);
    weft_schedule_destroy(schedule);
}

static void end_tracker_whose_schedule_has_an_error(void)
{
    struct weft_tracker *tracker = NULL;
    weft_slot_t slot = weft_schedule_add_slot(api.open, "a", WEFT_I32, 4, WEFT_SLOT_INOUT);

    OK(weft_tracker_create(&tracker, api.open));
    weft_tracker_add(tracker, weft_schedule_add_send(api.open, weft_region_at(slot, 0, 4), 0, 0));
    cr_expect_lt(
        weft_tracker_add(tracker, weft_schedule_add_send(api.open, weft_region_at(7, 0, 1), 0, 1)),
        0);
    weft_tracker_destroy(tracker);
}

static void end_sim_result_that_is_incomplete(void)
{
    struct weft_schedule *s = new_schedule(0, 1);
    const struct weft_schedule *all[] = {s};
    const struct weft_sim_config config = {
        .struct_size = sizeof config, .ranks = 1, .schedules = all};
    struct weft_sim_result *result = NULL;
    weft_slot_t slot = weft_schedule_add_slot(s, "a", WEFT_I32, 4, WEFT_SLOT_INOUT);

    weft_schedule_add_recv(s, weft_region_at(slot, 0, 4), 0, 0);
    OK(weft_simulate(&config, &result));
    cr_expect_not(result->complete);
    weft_sim_result_destroy(result);
    weft_schedule_destroy(s);
}

static void end_trace_of_half_a_file(void)
{
    char *text = NULL;
    size_t length;
    struct weft_trace *trace = NULL;

    OK(weft_trace_write_text(api.trace, &text, &length));
    OK(weft_trace_create(&trace));
    cr_expect_eq(weft_trace_read_text(trace, text, length / 2), WEFT_ERR_FORMAT);
    weft_trace_destroy(trace);
    weft_memory_free(text);
}

/* ---- structs of the library ---- */

Test(owned, say_which_members_are_there)
{
    struct weft_sim_result *result = NULL;

    api_begin();
    OK(api_simulate(&result));
    cr_expect_eq(result->struct_size, sizeof *result);
    weft_sim_result_destroy(result);
    cr_expect_gt(weft_transport_count(), 0);
    for (size_t i = 0; i < weft_transport_count(); i++)
        cr_expect_eq(weft_transport_at(i)->struct_size, sizeof(struct weft_transport));
    api_end();
}

/* A series whose `arm` answers so is not asked again: it has failed. */
static int arm_with_no_time(void *user, struct weft_series *series, struct weft_series_arm *arm)
{
    (void)user;
    (void)series;
    arm->retry_ns = WEFT_NS_NONE;
    return WEFT_IN_PROGRESS;
}

Test(time, weft_series_arm)
{
    struct weft_series_config config = {.struct_size = sizeof config, .plan_count = 1};
    struct weft_series *series = NULL;

    api_begin();
    config.plans = &api.plan;
    config.arm = arm_with_no_time;
    OK(weft_series_create(&series, api.context, &config));
    cr_expect_eq(weft_series_start(series), WEFT_ERR_INVALID);
    cr_expect(strstr(weft_error_text(), "could not be armed"), "%s", weft_error_text());
    weft_series_destroy(series);
    api_end();
}

#include "rules.h"
