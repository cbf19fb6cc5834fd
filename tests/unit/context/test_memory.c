/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of a context on ranks that are threads, where it is ordinary memory. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <weft/device.h>

#include "runtime/base/alloc.h"
#include "support/ranks.h"

static struct alone alone;

static void setup(void)
{
    alone = alone_create(WEFT_PROGRESS_CALLER);
}

static void teardown(void)
{
    alone_destroy(&alone);
}

TestSuite(memory, .init = setup, .fini = teardown);

static void check_zeroed(const char *memory, size_t bytes)
{
    CHECK(memory && (uintptr_t)memory % 64 == 0);
    for (size_t i = 0; i < bytes; i++)
        CHECK(memory[i] == 0);
}

Test(memory, is_zeroed_and_aligned)
{
    static const size_t sizes[] = {0, 1, 63, 64, 4095, 4096, 100000, 5 << 20};
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            char *memory = weft_context_memory_alloc(alone.context, sizes[i], 1);
            check_zeroed(memory, sizes[i]);
            memset(memory, 7, sizes[i]);
            weft_context_memory_free(alone.context, memory);
        }
}

Test(memory, that_is_left_goes_with_the_context)
{
    for (int i = 0; i < 100; i++)
        CHECK(weft_context_memory_alloc(alone.context, 10, 10));
}

Test(memory, of_a_context_that_was_split_is_its_roots)
{
    struct weft_context *child = NULL;
    OK(weft_context_split(alone.context, 0, 0, &child));
    void *first = weft_context_memory_alloc(child, 3, 5);
    void *second = weft_context_memory_alloc(alone.context, 3, 5);
    void *third = weft_context_memory_alloc(child, 3, 5);
    check_zeroed(first, 15);
    weft_context_memory_free(child, second);
    OK(weft_context_destroy(child));
    check_zeroed(third, 15);
    weft_context_memory_free(alone.context, first);
}

/* This program is linked with a libweft of its own, which no libweft-cuda belongs to. */
Test(memory, of_a_device_needs_one)
{
    void *data = &data;
    const char *name = "none";
    CHECK_STATUS(weft_context_device_alloc(alone.context, WEFT_MEMORY_DEVICE, 1, &data),
                 WEFT_ERR_UNSUPPORTED);
    CHECK_TEXT(weft_error_text(), "libweft-cuda");
    CHECK_STATUS(weft_context_device_alloc(alone.context, WEFT_MEMORY_HOST, 1, &data),
                 WEFT_ERR_UNSUPPORTED);
    CHECK_STATUS(weft_context_device_copy(alone.context, &data, &name, 1), WEFT_ERR_UNSUPPORTED);
    CHECK_STATUS(weft_context_device(alone.context, &name), WEFT_ERR_UNSUPPORTED);
    CHECK(data == (void *)&data && strcmp(name, "none") == 0);
    weft_context_device_free(alone.context, NULL);
}

static char logged[200];

static void note(void *user, weft_log_level_t level, int rank, const char *line)
{
    (void)user, (void)rank;
    CHECK(level == WEFT_LOG_ERROR);
    snprintf(logged, sizeof logged, "%s", line);
}

Test(memory, of_others_is_left_alone)
{
    struct weft_context_config config;
    struct weft_local *local = NULL;
    struct weft_context *context = NULL;
    int other = 1;
    weft_context_config_init(&config);
    config.log = note;
    OK(weft_local_create(&local, 1, NULL));
    OK(weft_context_create_local(&context, local, 0, &config));
    weft_context_memory_free(context, &other);
    CHECK_TEXT(logged, "weft_context_memory_free");
    CHECK_TEXT(logged, "is not, or no longer, memory of this context");
    OK(weft_context_destroy(context));
    weft_local_destroy(local);
}

Test(memory, that_is_too_much_is_none)
{
    CHECK(!weft_context_memory_alloc(alone.context, SIZE_MAX, 2));
    CHECK(!weft_context_memory_alloc(alone.context, (size_t)1 << 40, (size_t)1 << 40));
    CHECK(!weft_context_memory_alloc(NULL, 1, 1));
    weft_context_memory_free(alone.context, NULL);
    weft_context_memory_free(NULL, NULL);
}

Test(memory, that_fails_leaves_nothing)
{
    for (int nth = 1; nth <= 2; nth++) {
        atomic_store(&weft__alloc_countdown, nth);
        CHECK(!weft_context_memory_alloc(alone.context, 1, 100));
        atomic_store(&weft__alloc_countdown, -1);
    }
}

enum { THREADS = 4, ROUNDS = 500 };

static void *churn(void *argument)
{
    char *held[8] = {NULL};
    unsigned seed = (unsigned)(uintptr_t)argument + 1;
    for (int i = 0; i < ROUNDS; i++) {
        char **place = &held[rand_r(&seed) % 8];
        weft_context_memory_free(alone.context, *place);
        *place = weft_context_memory_alloc(alone.context, 1 + (size_t)rand_r(&seed) % 300, 1);
        CHECK(*place && **place == 0);
        **place = 1;
    }
    return NULL;
}

Test(memory, is_for_any_thread)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, churn, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}
