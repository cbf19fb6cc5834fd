/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of a context's device for its users, and the copies that they wait for. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <weft/device.h>

#include <cuda.h>

#include "runtime/base/alloc.h"
#include "tests/gpu/support/device_memory.h"
#include "tests/gpu/support/standin_calls.h"
#include "tests/support/draw.h"
#include "tests/support/ranks.h"

static struct alone alone;

static void setup(void)
{
    alone = alone_create(WEFT_PROGRESS_CALLER);
}

static void teardown(void)
{
    alone_destroy(&alone);
    device_check();
}

TestSuite(context_memory, .init = setup, .fini = teardown);

static void *get(struct weft_context *context, weft_memory_t memory, size_t bytes)
{
    void *data = NULL;

    OK(weft_context_device_alloc(context, memory, bytes, &data));
    CHECK(data && (uintptr_t)data % 256 == 0);
    return data;
}

/* ---- places ---- */

enum place { HOST, PINNED, DEVICE, OTHER_DEVICE, PLACES };

static void *place_alloc(enum place place, size_t bytes)
{
    void *memory;

    switch (place) {
    case HOST:
        memory = malloc(bytes + 1);
        CHECK(memory);
        return memory;
    case OTHER_DEVICE:
        device_use(1);
        memory = device_alloc(bytes);
        device_use(0);
        return memory;
    default:
        return get(alone.context, place == PINNED ? WEFT_MEMORY_HOST : WEFT_MEMORY_DEVICE, bytes);
    }
}

static void place_free(enum place place, void *memory)
{
    if (place == HOST)
        free(memory);
    else if (place == OTHER_DEVICE)
        device_free(memory);
    else
        weft_context_device_free(alone.context, memory);
}

/* By way of both places, and of the offsets that are drawn. */
static void copy_over(enum place first, enum place second, size_t bytes)
{
    size_t skip = bytes % 7, shift = bytes % 3;
    unsigned char *from = malloc(bytes + 1), *to = calloc(bytes + 1, 1);
    char *here = place_alloc(first, bytes + skip), *there = place_alloc(second, bytes + shift);

    CHECK(from && to);
    for (size_t i = 0; i < bytes; i++)
        from[i] = (unsigned char)(i * 131 + i / 251);
    OK(weft_context_device_copy(alone.context, here + skip, from, bytes));
    OK(weft_context_device_copy(alone.context, there + shift, here + skip, bytes));
    OK(weft_context_device_copy(alone.context, to, there + shift, bytes));
    CHECK(memcmp(to, from, bytes) == 0);
    place_free(second, there);
    place_free(first, here);
    free(from);
    free(to);
}

static void copy_everywhere(int places)
{
    /* About the parts in which memory of the host is copied: 4 of 256 KiB. */
    static const size_t sizes[] = {0,      1,       4097,    262143,  262144,
                                   262145, 1048575, 1048577, 1310720, 3000001};

    for (int first = 0; first < places; first++)
        for (int second = 0; second < places; second++)
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
                copy_over(first, second, sizes[i]);
}

Test(context_memory, is_copied_between_any_two_places)
{
    copy_everywhere(device_count() > 1 ? PLACES : OTHER_DEVICE);
}

Test(context_memory, is_copied_to_devices_out_of_reach)
{
    setenv("STANDIN_PEERS", "0", 1);
    if (!standin_find()->there)
        cr_skip("its devices reach each other, or they do not");
    copy_everywhere(PLACES);
}

/* ---- lives ---- */

Test(context_memory, names_its_device)
{
    const char *name = NULL;

    OK(weft_context_device(alone.context, NULL));
    OK(weft_context_device(alone.context, &name));
    CHECK(strcmp(name, "cuda:0") == 0);
}

Test(context_memory, is_written_by_runs)
{
    struct weft_schedule *s = new_schedule(0, 1);
    weft_slot_t there = weft_schedule_add_slot(s, "there", WEFT_I32, 3000, WEFT_SLOT_INOUT);
    weft_slot_t here = weft_schedule_add_slot(s, "here", WEFT_I32, 1000, WEFT_SLOT_OUTPUT);
    int32_t *numbers = get(alone.context, WEFT_MEMORY_HOST, 3000 * sizeof *numbers);
    int32_t *data = get(alone.context, WEFT_MEMORY_DEVICE, 3000 * sizeof *data);

    OK(weft_schedule_set_memory(s, there, WEFT_MEMORY_DEVICE));
    weft_schedule_add_reduce(s, weft_op_builtin(WEFT_SUM), weft_region_at(there, 2000, 1000),
                             weft_region_at(there, 0, 1000), weft_region_at(there, 1000, 1000));
    weft_schedule_add_copy(s, weft_region_at(here, 0, 1000), weft_region_at(there, 1000, 1000));
    struct weft_run *run = make_run(alone.context, commit(s), NULL);
    OK(weft_run_bind(run, there, data, 3000, WEFT_I32));
    OK(weft_run_bind(run, here, numbers, 1000, WEFT_I32));
    for (int i = 0; i < 3000; i++)
        numbers[i] = i;
    OK(weft_context_device_copy(alone.context, data, numbers, 3000 * sizeof *data));
    OK(weft_run_execute(run));
    CHECK(numbers[0] == 1000 && numbers[999] == 1999);
    OK(weft_context_device_copy(alone.context, numbers, data, 3000 * sizeof *data));
    for (int i = 0; i < 1000; i++)
        CHECK(numbers[i] == i && numbers[2000 + i] == 2 * i + 1000);
    weft_run_destroy(run);
}

Test(context_memory, that_is_left_goes_with_the_context)
{
    char text[4096] = "";

    struct alone own = alone_create(WEFT_PROGRESS_CALLER);
    for (size_t i = 0; i < 50; i++) {
        get(own.context, WEFT_MEMORY_DEVICE, i * 1000);
        get(own.context, WEFT_MEMORY_HOST, i * 1000);
    }
    alone_destroy(&own);
    cr_expect_eq(standin_find()->leaks(text, sizeof text), 0, "%s", text);
    cr_expect_eq(standin_find()->report(text, sizeof text), 0, "%s", text);
}

Test(context_memory, of_a_context_that_was_split_is_its_roots)
{
    struct weft_context *child = NULL;
    const char *name = NULL;

    OK(weft_context_split(alone.context, 0, 0, &child));
    void *first = get(child, WEFT_MEMORY_DEVICE, 100);
    void *second = get(alone.context, WEFT_MEMORY_HOST, 100);
    OK(weft_context_device(child, &name));
    CHECK(strcmp(name, "cuda:0") == 0);
    weft_context_device_free(child, second);
    OK(weft_context_destroy(child));
    OK(weft_context_device_copy(alone.context, first, "some", 5));
    weft_context_device_free(alone.context, first);
}

/* What is freed is given out again, and the driver is not asked. */
Test(context_memory, is_kept_for_the_next)
{
    void *first = get(alone.context, WEFT_MEMORY_DEVICE, 1 << 20);
    void *second = get(alone.context, WEFT_MEMORY_HOST, 1 << 20);
    unsigned long calls =
        standin_find()->calls_of("cuMemAlloc_v2") + standin_find()->calls_of("cuMemHostAlloc");

    weft_context_device_free(alone.context, first);
    weft_context_device_free(alone.context, second);
    CHECK(get(alone.context, WEFT_MEMORY_DEVICE, 1 << 20) == first);
    CHECK(get(alone.context, WEFT_MEMORY_HOST, 1 << 20) == second);
    CHECK(standin_find()->calls_of("cuMemAlloc_v2") + standin_find()->calls_of("cuMemHostAlloc") ==
          calls);
}

/* ---- what is refused ---- */

#define REFUSED(call, word)                                                                        \
    do {                                                                                           \
        CHECK_STATUS(call, WEFT_ERR_INVALID);                                                      \
        CHECK_TEXT(weft_error_text(), word);                                                       \
    } while (0)

Test(context_memory, refuses_what_cannot_be)
{
    char *data = get(alone.context, WEFT_MEMORY_DEVICE, 1000);
    char here[2000] = "";
    void *out = &out;

    REFUSED(weft_context_device(NULL, NULL), "`context` is NULL");
    REFUSED(weft_context_device_alloc(NULL, WEFT_MEMORY_DEVICE, 1, &out), "`context` is NULL");
    REFUSED(weft_context_device_alloc(alone.context, WEFT_MEMORY_HOST, 1, NULL), "`data` is NULL");
    REFUSED(weft_context_device_alloc(alone.context, (weft_memory_t)2, 1, &out), "`memory` is 2");
    CHECK_STATUS(weft_context_device_alloc(alone.context, WEFT_MEMORY_DEVICE, SIZE_MAX, &out),
                 WEFT_ERR_MEMORY);
    CHECK_TEXT(weft_error_text(), "18446744073709551615 bytes on cuda:0");
    CHECK(out == (void *)&out);
    REFUSED(weft_context_device_copy(NULL, here, data, 1), "`context` is NULL");
    REFUSED(weft_context_device_copy(alone.context, NULL, data, 1), "`to` is NULL");
    REFUSED(weft_context_device_copy(alone.context, here, NULL, 1), "`from` is NULL");
    OK(weft_context_device_copy(alone.context, NULL, NULL, 0));
    if (standin_find()->there) { /* a driver may have rounded the size up */
        REFUSED(weft_context_device_copy(alone.context, here, data, 1001), "`from`: 1001 bytes");
        REFUSED(weft_context_device_copy(alone.context, data + 1, here, 1000), "`to`: 1000 bytes");
    }
    REFUSED(weft_context_device_copy(alone.context, data, data + 99, 100), "overlap");
    REFUSED(weft_context_device_copy(alone.context, data + 99, data, 100), "overlap");
    OK(weft_context_device_copy(alone.context, data, data + 100, 100));
    OK(weft_context_device_copy(alone.context, data, data, 100));
}

static char logged[200];

static void note(void *user, weft_log_level_t level, int rank, const char *line)
{
    (void)user, (void)rank;
    CHECK(level == WEFT_LOG_ERROR);
    snprintf(logged, sizeof logged, "%s", line);
}

Test(context_memory, of_others_is_left_alone)
{
    struct weft_context_config config;
    struct weft_local *local = NULL;
    struct weft_context *context = NULL;

    weft_context_config_init(&config);
    config.log = note;
    OK(weft_local_create(&local, 1, NULL));
    OK(weft_context_create_local(&context, local, 0, &config));
    weft_context_device_free(context, NULL);
    weft_context_device_free(context, logged);
    CHECK_TEXT(logged, "is not, or no longer, memory of this context's device");
    void *data = get(context, WEFT_MEMORY_HOST, 1);
    weft_context_device_free(alone.context, NULL);
    weft_context_device_free(context, data);
    logged[0] = '\0';
    weft_context_device_free(context, data);
    CHECK_TEXT(logged, "is not, or no longer");
    weft_context_destroy(context);
    weft_local_destroy(local);
}

Test(context_memory, of_a_device_that_is_not_there)
{
    struct weft_context_config config;
    struct weft_local *local = NULL;
    struct weft_context *context = NULL;
    void *data = &data;

    weft_context_config_init(&config);
    config.device = "cuda:99";
    OK(weft_local_create(&local, 1, NULL));
    OK(weft_context_create_local(&context, local, 0, &config));
    REFUSED(weft_context_device(context, NULL), "device is cuda:99");
    REFUSED(weft_context_device_alloc(context, WEFT_MEMORY_DEVICE, 1, &data), "cuda:99");
    REFUSED(weft_context_device_copy(context, logged, "x", 1), "cuda:99");
    CHECK(data == (void *)&data);
    weft_context_destroy(context);
    weft_local_destroy(local);
}

/* ---- what fails ---- */

/* A context of its own, in which all is used: the whole of it again for each call that fails. */
static int live(void)
{
    enum { BYTES = 700000 };
    struct alone own = alone_create(WEFT_PROGRESS_CALLER);
    char *here = malloc(BYTES), *back = malloc(BYTES);
    void *data = NULL, *pinned = NULL;
    int status;

    CHECK(here && back);
    for (int i = 0; i < BYTES; i++)
        here[i] = (char)(i * 7);
    if ((status = weft_context_device_alloc(own.context, WEFT_MEMORY_DEVICE, BYTES, &data)) == 0 &&
        (status = weft_context_device_alloc(own.context, WEFT_MEMORY_HOST, BYTES, &pinned)) == 0 &&
        (status = weft_context_device_copy(own.context, data, here, BYTES)) == 0 &&
        (status = weft_context_device_copy(own.context, pinned, data, BYTES)) == 0 &&
        (status = weft_context_device_copy(own.context, back, data, BYTES)) == 0) {
        CHECK(memcmp(back, here, BYTES) == 0 && memcmp(pinned, here, BYTES) == 0);
        weft_context_device_free(own.context, pinned);
    }
    alone_destroy(&own);
    free(here);
    free(back);
    return status;
}

static void check_used(unsigned long n)
{
    char text[4096] = "";

    cr_assert_eq(standin_find()->report(text, sizeof text), 0, "call %lu: %s", n, text);
}

static void check_clean(unsigned long n)
{
    char text[4096] = "";

    cr_assert_eq(standin_find()->leaks(text, sizeof text), 0, "call %lu: %s", n, text);
    check_used(n);
}

/* The device is open all the time: what fails when one is opened is another suite's. */
Test(context_memory, is_given_back_whatever_call_fails)
{
    const struct standin *standin = standin_find();
    struct alone holder = alone_create(WEFT_PROGRESS_CALLER);
    unsigned long n = 1, calls;

    if (!standin->there)
        cr_skip("a driver does not fail when it is told to");
    setenv("STANDIN_DELAY_US", "1", 1);
    OK(weft_context_device(holder.context, NULL));
    do {
        int status;

        calls = standin->calls();
        standin->fail_at(n, CUDA_ERROR_UNKNOWN);
        status = live();
        standin->fail_at(0, 0);
        CHECK(status == WEFT_OK || status == WEFT_ERR_SYSTEM || status == WEFT_ERR_MEMORY);
        if (status != WEFT_OK)
            CHECK_TEXT(weft_error_text(), ": CUDA_ERROR_UNKNOWN");
        check_used(n);
        /* Until the call was one behind the last. What ends a life may fail, and nobody is told. */
    } while (standin->calls() - calls >= n++);
    CHECK(n > 60);
    alone_destroy(&holder);
    check_clean(n);
}

Test(context_memory, says_that_its_device_has_failed)
{
    const struct standin *standin = standin_find();
    unsigned failed = 0;

    if (!standin->there)
        cr_skip("a device does not fail when it is told to");
    for (unsigned n = 1; n < 12; n++) {
        standin->fault_at(n, CUDA_ERROR_ILLEGAL_ADDRESS);
        int status = live();
        standin->fault_at(0, 0);
        CHECK(status == WEFT_OK || status == WEFT_ERR_COMPUTE);
        failed += status != WEFT_OK;
        check_clean(n);
        OK(live());
    }
    CHECK(failed > 4);
}

Test(context_memory, that_the_host_lacks_is_an_error)
{
    int status = WEFT_ERR_MEMORY;

    device_count(); /* what the driver needs for itself */
    for (long n = 1; status != WEFT_OK && n < 60; n++) {
        struct alone own = alone_create(WEFT_PROGRESS_CALLER);
        void *data = NULL;
        char here[100] = "";

        atomic_store(&weft__alloc_countdown, n);
        status = weft_context_device_alloc(own.context, WEFT_MEMORY_DEVICE, 100, &data);
        if (status == WEFT_OK)
            status = weft_context_device_copy(own.context, data, here, sizeof here);
        atomic_store(&weft__alloc_countdown, -1);
        CHECK(status == WEFT_OK ? n > 4 : status == WEFT_ERR_MEMORY);
        if (status != WEFT_OK)
            CHECK_TEXT(weft_error_text(), "out of memory");
        alone_destroy(&own);
    }
    OK(status);
    device_check();
}

/* ---- threads ---- */

static void *copy_and_copy(void *argument)
{
    char *here = malloc(500000), *back = malloc(500000);

    CHECK(here && back);
    memset(here, (int)(uintptr_t)argument, 500000);
    for (size_t round = 0; round < 20; round++) {
        size_t bytes = round % 2 ? 500000 : 100;
        char *data = get(alone.context, WEFT_MEMORY_DEVICE, bytes);

        OK(weft_context_device_copy(alone.context, data, here, bytes));
        memset(back, 0, bytes);
        OK(weft_context_device_copy(alone.context, back, data, bytes));
        CHECK(memcmp(here, back, bytes) == 0);
        weft_context_device_free(alone.context, data);
    }
    free(here);
    free(back);
    return NULL;
}

Test(context_memory, is_of_all_threads)
{
    pthread_t threads[6];

    for (uintptr_t i = 0; i < 6; i++)
        CHECK(pthread_create(&threads[i], NULL, copy_and_copy, (void *)(i + 1)) == 0);
    for (int i = 0; i < 6; i++)
        pthread_join(threads[i], NULL);
}
