/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rules of weft/sized.h, for every struct that carries its size, every function that takes one
 * and every end of a life. The cases are generated from the headers (make_rules.py); here is what
 * they have in common. fixture.h is what functions are called with.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>

#include "runtime/base/alloc.h"
#include "tests/api/ends.h"
#include "tests/api/fixture.h"

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

/* How many of the bytes in question still hold what memory was filled with. */
static size_t keep_unwritten(unsigned char *unwritten, const unsigned char *memory, int with,
                             size_t known)
{
    size_t count = 0;

    for (size_t at = 0; at < known; at++)
        count += unwritten[at] = unwritten[at] && memory[at] == with;
    return count;
}

/* Written within the size, what is not known zeroed, and nothing beyond. A time may have the bytes
 * that memory was filled with, but not again and again. */
static void check_fill(const struct filled_rule *rule, size_t size)
{
    static const int with[] = {0xA5, 0x5A, 0xC3, 0x3C, 0x96, 0x69, 0xB4, 0x4B};
    _Alignas(64) unsigned char memory[ROOM];
    unsigned char unwritten[ROOM];
    size_t known = size < rule->size ? size : rule->size, left = rule->reads ? 0 : known;

    memset(unwritten, 1, sizeof unwritten);
    for (size_t i = 0; i < 2 || (left && i < sizeof with / sizeof *with); i++) {
        fill_memory(memory, with[i], size, size, rule->reads);
        cr_assert_eq(rule->fill(memory), WEFT_OK, "%s, %zu bytes of %zu: %s", rule->function, size,
                     rule->size, weft_error_text());
        cr_expect_eq(size_at(memory), size, "%s: struct_size has become %zu", rule->function,
                     size_at(memory));
        cr_expect(is_all(memory, 0, known, size), "%s: what is not known is not zeroed",
                  rule->function);
        cr_expect(is_all(memory, with[i], size, ROOM), "%s, %zu bytes of %zu: wrote beyond",
                  rule->function, size, rule->size);
        if (!rule->reads)
            left = keep_unwritten(unwritten, memory, with[i], known);
    }
    for (size_t at = 0; left && at < known; at++)
        cr_expect(!unwritten[at], "%s, %zu bytes of %zu: byte %zu is not written", rule->function,
                  size, rule->size, at);
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
    cr_expect(strstr(weft_error_text(), "`retry_ns`"), "%s", weft_error_text());
    weft_series_destroy(series);
    api_end();
}

#include "rules.h"
