/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Devices whose driver fails, several threads, and threads with contexts of their own. */
#include "device_test.h"

#include <pthread.h>
#include <weft/device.h>
#include <weft/memory.h>
#include <weft/sparse.h>

#include "runtime/base/alloc.h"
#include "runtime/graph/op.h"

/* ---- a little of everything ---- */

struct life {
    const char *name, *peer_name; /* of the peer: NULL, none */
    struct weft__device *device, *peer;
    struct weft__stream *stream;
    uint32_t *memory, *other, *pinned, *there;
    struct weft_device_found *found;
    void *room;
    uint64_t *lists, *report;
    _Atomic uint32_t *word;
};

enum { ROOM = 64 << 10, LISTS = 16 };

/* Vectors are combined, filled and copied: 64 numbers become six times what they were, the others
 * stay as they are. */
static int vectors(struct weft_call *call, void *stream)
{
    const struct life *life = call->user;
    const struct weft_argument all = {.data = life->memory, .count = 64, .dtype = WEFT_U32};
    const struct weft_argument other = {.data = life->other, .count = 64, .dtype = WEFT_U32};
    const struct weft_argument floats = {.data = life->other, .count = 64, .dtype = WEFT_F32};
    const struct weft_device_term term = {&floats, 2, WEFT_DEVICE_COUNT};
    struct weft_device_sum sum;
    uint32_t one = 1;
    int status = weft_device_fill(&other, &one, stream);

    weft_device_sum_init(&sum);
    sum.to = &floats;
    sum.terms = &term;
    sum.term_count = 1;
    sum.found = life->found;
    if (status == WEFT_OK)
        status = weft_device_combine(&sum, stream);
    return status == WEFT_OK ? weft_device_copy(&other, &all, stream) : status;
}

static int begin(struct life *life)
{
    const struct weft__device_ops *ops;
    int status = weft__device_open(life->name, 0, &life->device);

    if (status == WEFT_OK && life->peer_name)
        status = weft__device_open(life->peer_name, 0, &life->peer);
    if (status < 0)
        return status;
    ops = life->device->ops;
    if (!(life->memory = ops->alloc(life->device, 256)) ||
        !(life->other = ops->alloc(life->device, 256)) ||
        !(life->found = ops->pin(life->device, sizeof *life->found)) ||
        !(life->pinned = ops->pin(life->device, 256)) ||
        !(life->word = ops->pin(life->device, 64)) ||
        !(life->room = ops->alloc(life->device, ROOM)) ||
        !(life->lists = ops->alloc(life->device, LISTS * sizeof(uint64_t))) ||
        !(life->report = ops->pin(life->device, WEFT__REPORT_WORDS * sizeof(uint64_t))) ||
        (life->peer && !(life->there = ops->alloc(life->peer, 256))))
        return WEFT_ERR_MEMORY;
    atomic_store(life->word, 1);
    return ops->open(life->device, &life->stream);
}

static int look(struct life *life)
{
    const struct weft__device_ops *ops = life->device->ops;
    int status = ops->where(life->device, life->memory, 256);

    if (status >= 0)
        status = ops->where(life->device, life->pinned, 256);
    if (status >= 0)
        status = ops->where(life->device, &status, sizeof status);
    if (status >= 0 && life->peer)
        status = ops->where(life->device, life->there, 256);
    return status < 0 ? status : WEFT_OK;
}

/* Two lists of one pair each, merged; the kernels of an operation are many. */
static int operate(struct life *life)
{
    const struct weft__device_ops *ops = life->device->ops;
    struct weft_argument arguments[5];
    struct weft_op *op = NULL;
    int status = weft_sparse_merge_op(&op);

    for (int i = 0; i < 5; i++)
        arguments[i] = (struct weft_argument){
            .data = life->lists + i, .count = i == 4 ? 2 : 1, .dtype = WEFT_U64, .piece_count = 1};
    arguments[0].count = 2;
    arguments[0].data = life->lists + 6;

    if (status == WEFT_OK) {
        const struct weft_call call = {
            .user = op->user, .arguments = arguments, .argument_count = 5};

        CHECK(ops->room(op, &call) <= ROOM);
        status = ops->operate(life->stream, op, &call, life->room, life->report);
    }
    weft_op_destroy(op);
    return status;
}

static int work(struct life *life)
{
    const struct weft__device_ops *ops = life->device->ops;
    struct weft_call call = {.user = life};
    const void *inputs[3] = {life->memory, life->memory, life->memory};
    int status;

    for (uint32_t i = 0; i < 64; i++)
        life->pinned[i] = i;
    life->report[3] = 0;
    if ((status = ops->copy(life->stream, life->lists, life->pinned, LISTS * sizeof(uint64_t))) <
            0 ||
        (status = operate(life)) < 0)
        return status;
    if ((status = ops->copy(life->stream, life->memory, life->pinned, 256)) < 0 ||
        (status = ops->reduce(life->stream, WEFT_SUM, WEFT_U32, life->memory, life->memory,
                              life->memory, 64)) < 0 ||
        (status = ops->reduce_n(life->stream, WEFT_SUM, WEFT_U32, life->memory, inputs, 3, 64)) <
            0 ||
        (status = weft__device_call(life->stream, vectors, &call)) < 0)
        return status;
    if (life->peer && ((status = ops->copy(life->stream, life->there, life->memory, 256)) < 0 ||
                       (status = ops->copy(life->stream, life->memory, life->there, 256)) < 0))
        return status;
    if ((status = ops->copy(life->stream, life->pinned, life->other, 256)) < 0 ||
        (status = ops->hold(life->device, NULL, life->word, 1)) < 0 ||
        (status = ops->write(life->device, NULL, life->word, 2)) < 0)
        return status;
    status = wait_for(life->stream);
    if (status == WEFT_OK) /* what was put on no stream, too: its word goes back now */
        status = wait_for_word(life->stream, life->word, 2);
    for (uint32_t i = 0; i < 64 && status == WEFT_OK; i++)
        CHECK(life->pinned[i] == 6 * i);
    CHECK(status != WEFT_OK || life->report[3] == 2);
    return status;
}

static void finish(struct life *life)
{
    const struct weft__device_ops *ops;

    if (life->device) {
        ops = life->device->ops;
        ops->close(life->stream);
        ops->free(life->device, life->memory);
        ops->free(life->device, life->room);
        ops->free(life->device, life->lists);
        ops->free(life->device, life->other);
        ops->unpin(life->device, life->found);
        ops->unpin(life->device, life->pinned);
        ops->unpin(life->device, life->report);
        ops->unpin(life->device, (void *)life->word);
        if (life->peer) {
            ops->free(life->peer, life->there);
            ops->end(life->peer);
        }
        ops->end(life->device);
    }
}

static int live(const char *name, const char *peer)
{
    struct life life = {.name = name, .peer_name = peer};
    int status = begin(&life);

    if (status == WEFT_OK)
        status = look(&life);
    if (status == WEFT_OK)
        status = work(&life);
    finish(&life);
    return status;
}

/* ---- errors ---- */

/* Names a call, the error and its text, and the device where there is one by then. */
static void check_text(void)
{
    const char *text = weft_error_text();

    CHECK(strncmp(text, "cu", 2) == 0);
    CHECK(strstr(text, ": CUDA_ERROR_") && strchr(text, '('));
}

/* Calls of which every one fails in turn are many, and alike: sanitizers see some of them. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SOME = 1 };
#else
enum { SOME = 0 };
#endif

static void fail_each(int code, int expected, const char *peer)
{
    unsigned long n = 1;
    unsigned long calls, failed;

    do {
        unsigned failures = counts->failures;
        int status;

        calls = standin.calls();
        failed = n++;
        standin.fail_at(failed, code);
        status = live("cuda:0", peer);
        standin.fail_at(0, 0);
        CHECK(status == WEFT_OK || status == expected || status == WEFT_ERR_MEMORY);
        if (status != WEFT_OK)
            check_text();
        /* Most calls look up a kernel: some of them will do. */
        if (status != WEFT_OK && strstr(weft_error_text(), "for weft_"))
            n += random_bits() % 200;
        else if (SOME)
            n += random_bits() % 8;
        else
            n += random_bits() % 3;
        check_clean();
        if (counts->failures != failures) {
            fprintf(stderr, "call %lu with error %d: %d, %s\n", failed, code, status,
                    weft_error_text());
            return;
        }
        /* Until the call was one behind the last. What ends a life may fail, and nobody is told. */
    } while (standin.calls() - calls >= failed);
    CHECK(n > 300);
}

static int alloc_fails(unsigned long n)
{
    long left;
    int status;

    atomic_store(&weft__alloc_countdown, (long)n);
    status = live("cuda:0", "cuda:1");
    left = atomic_load(&weft__alloc_countdown);
    atomic_store(&weft__alloc_countdown, -1);
    CHECK(left > 0 ? status == WEFT_OK : status == WEFT_ERR_MEMORY);
    if (status != WEFT_OK)
        CHECK(strstr(weft_error_text(), "out of memory"));
    check_clean();
    return status;
}

void case_no_memory(void)
{
    unsigned long n = 1;

    while (alloc_fails(n) != WEFT_OK && n < 100)
        n++;
    CHECK(n > 6 && n < 100);
}

/* Whatever fails is told, and is no error. */
void case_describe(void)
{
    char *text = NULL;
    unsigned long calls, n = 0;

    do {
        calls = standin.calls();
        standin.fail_at(++n, CUDA_ERROR_UNKNOWN);
        weft_error_set_text(WEFT_OK, "before");
        OK(weft_devices_describe(&text));
        standin.fail_at(0, 0);
        CHECK(strcmp(weft_error_text(), "before") == 0);
        CHECK(strstr(text, "{\"gpu\":\"no device\",\"why\":\"cu") == text ||
              strstr(text, "{\"gpu\":\"cuda\",\"why\":\"\"") == text);
        weft_memory_free(text);
        text = NULL;
    } while (standin.calls() - calls >= n);
    CHECK(n > 10);
    REFUSED(weft_devices_describe(NULL), WEFT_ERR_INVALID, "argument `text` is NULL");
    check_clean();
}

void case_every_call_fails(void)
{
    fail_each(CUDA_ERROR_UNKNOWN, WEFT_ERR_SYSTEM, NULL);
    fail_each(CUDA_ERROR_OUT_OF_MEMORY, WEFT_ERR_MEMORY, "cuda:1");
    fail_each(CUDA_ERROR_ILLEGAL_ADDRESS, WEFT_ERR_COMPUTE, NULL);
}

/* An operation of a stream fails, and with it the context. */
void case_faults(void)
{
    unsigned failed = 0;

    for (unsigned n = 1; n < 12; n++) {
        int status;

        standin.fault_at(n, CUDA_ERROR_ILLEGAL_ADDRESS);
        status = live("cuda:1", NULL);
        standin.fault_at(0, 0);
        CHECK(status == WEFT_OK || status == WEFT_ERR_COMPUTE);
        if (status != WEFT_OK) {
            failed++;
            CHECK(strstr(weft_error_text(), ": CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory "
                                            "access was encountered) "));
            CHECK(strstr(weft_error_text(), "on cuda:1"));
        }
        check_clean();
        OK(live("cuda:1", "cuda:0"));
    }
    CHECK(failed > 4);
    check_clean();
}

/* ---- threads ---- */

static void *lives(void *data)
{
    const char *const *names = data;

    for (int i = 0; i < 8; i++)
        OK(live(names[i % 2], i % 3 ? names[1 - i % 2] : NULL));
    return NULL;
}

void case_threads(void)
{
    static const char *const names[] = {"cuda:0", "cuda:1"};
    pthread_t threads[6];

    for (int i = 0; i < 6; i++)
        CHECK(pthread_create(&threads[i], NULL, lives, (void *)(uintptr_t)names) == 0);
    for (int i = 0; i < 6; i++)
        pthread_join(threads[i], NULL);
    check_clean();
}

/* The thread's own context is what it was, whatever is called. */
void case_contexts_kept(void)
{
    CUcontext context = NULL;
    CUcontext now = NULL;

    OK(weft__cuda_driver(&driver));
    for (int device = 0; device < 2; device++) {
        OK(driver->cuDevicePrimaryCtxRetain(&context, device));
        OK(driver->cuCtxPushCurrent(context));
        OK(live("cuda:1", "cuda:0"));
        OK(driver->cuCtxGetCurrent(&now));
        CHECK(now == context);
        OK(driver->cuCtxPopCurrent(&now));
        CHECK(now == context);
        OK(driver->cuCtxGetCurrent(&now));
        CHECK(!now);
        OK(driver->cuDevicePrimaryCtxRelease(device));
    }
    check_clean();
}
