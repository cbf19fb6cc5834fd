/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Streams: their order, what is put on them, and streams of users. */
#include "device_test.h"

#include <sched.h>
#include <stdlib.h>

/* A number is copied along, from place to place; tickets are passed in order. */
void case_streams(void)
{
    enum { PLACES = 40 };
    struct weft__device *device = open_device("cuda:0");
    const struct weft__device_ops *ops = device->ops;
    uint32_t *memory = ops->alloc(device, PLACES * sizeof *memory);
    uint32_t *pinned = ops->pin(device, 2 * sizeof *pinned);
    struct weft__stream *stream = NULL;
    uint32_t seen = 0;

    OK(ops->open(device, &stream));
    CHECK(stream->device == device && stream->issued == 0 && weft__stream_passed(stream, 0));
    CHECK(!weft__stream_passed(stream, 1));
    pinned[0] = 77;
    pinned[1] = 0;
    OK(ops->copy(stream, memory, pinned, sizeof *pinned));
    OK(ops->mark(stream));
    for (int i = 1; i < PLACES; i++) {
        OK(ops->copy(stream, memory + i, memory + i - 1, sizeof *memory));
        OK(ops->mark(stream));
        CHECK(stream->issued == (uint32_t)i + 1);
    }
    OK(ops->copy(stream, pinned + 1, memory + PLACES - 1, sizeof *pinned));
    OK(ops->copy(stream, pinned + 1, pinned + 1, sizeof *pinned));
    OK(ops->copy(stream, pinned + 1, pinned, 0));
    OK(ops->mark(stream));
    while (!weft__stream_passed(stream, PLACES + 1)) {
        uint32_t now = atomic_load_explicit(stream->reached, memory_order_acquire);

        CHECK(now >= seen && now <= PLACES + 1);
        seen = now;
        OK(ops->failed(stream));
        sched_yield();
    }
    CHECK(pinned[1] == 77);
    OK(ops->failed(stream));
    CHECK(!standin.there || standin.calls_of("cuStreamSynchronize") == 2);
    ops->close(stream);
    ops->free(device, memory);
    ops->unpin(device, pinned);
    ops->end(device);
    check_clean();
}

/* More than a page of words has; each has its own, which begins at 0 though it was another's. */
void case_many_streams(void)
{
    enum { STREAMS = 150 };
    struct weft__device *device = open_device("cuda:0");
    const struct weft__device_ops *ops = device->ops;
    static struct weft__stream *streams[STREAMS];
    unsigned long pins = standin.calls_of("cuMemHostAlloc");

    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < STREAMS; i++)
            if (!streams[i])
                OK(ops->open(device, &streams[i]));
        for (int i = 0; i < STREAMS; i++)
            for (int k = 0; k < i % 3; k++)
                OK(ops->mark(streams[i]));
        for (int i = 0; i < STREAMS; i++) {
            OK(wait_for(streams[i]));
            CHECK(*streams[i]->reached == streams[i]->issued);
            CHECK((uintptr_t)streams[i]->reached % 64 == 0);
            for (int k = 0; k < i; k++)
                CHECK(!streams[k] || streams[k]->reached != streams[i]->reached);
            if (random_bits() % 2 || round == 2) {
                ops->close(streams[i]);
                streams[i] = NULL;
            }
        }
    }
    CHECK(!standin.there || standin.calls_of("cuMemHostAlloc") - pins == 2);
    ops->end(device);
    check_clean();
}

/* ---- reductions ---- */

static const size_t lengths[] = {0, 1, 2, 15, 16, 17, 255, 256, 257, 4095, 4096, 4097, 10000};
enum { MOST = 10000, ROOM = MOST * 8 + 64, ARRAYS = 9 };

/* Bits of floating point are those of small numbers. */
static void fill(void *memory, weft_dtype_t dtype, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float value = (float)((int)(random_bits() % 17) - 8);
        uint64_t bits = random_bits();

        switch (dtype) {
        case WEFT_F16:
        case WEFT_BF16:
        case WEFT_F64:
            OK(weft_convert(dtype, (char *)memory + i * weft_dtype_size(dtype), WEFT_F32, &value,
                            1));
            break;
        case WEFT_F32:
            ((float *)memory)[i] = value;
            break;
        default:
            memcpy((char *)memory + i * weft_dtype_size(dtype), &bits, weft_dtype_size(dtype));
        }
    }
}

struct arrays {
    struct weft__device *device;
    struct weft__stream *stream;
    char *memory[ARRAYS], *pinned[ARRAYS], *expected;
};

static void arrays_open(struct arrays *arrays)
{
    arrays->device = open_device("cuda:0");
    OK(arrays->device->ops->open(arrays->device, &arrays->stream));
    for (int i = 0; i < ARRAYS; i++) {
        arrays->memory[i] = arrays->device->ops->alloc(arrays->device, ROOM);
        arrays->pinned[i] = arrays->device->ops->pin(arrays->device, ROOM);
    }
    arrays->expected = malloc(ROOM);
}

static void arrays_close(struct arrays *arrays)
{
    const struct weft__device_ops *ops = arrays->device->ops;

    for (int i = 0; i < ARRAYS; i++) {
        ops->free(arrays->device, arrays->memory[i]);
        ops->unpin(arrays->device, arrays->pinned[i]);
    }
    free(arrays->expected);
    ops->close(arrays->stream);
    ops->end(arrays->device);
    check_clean();
}

/* dst = a op b on the device and on the host. `same`: dst is 0: neither, 1: a, 2: b. */
static void reduce_once(struct arrays *arrays, weft_op_kind_t kind, weft_dtype_t dtype,
                        size_t count, int same)
{
    const struct weft__device_ops *ops = arrays->device->ops;
    size_t size = weft_dtype_size(dtype);
    size_t bytes = count * size;
    char *at[3];

    for (int i = 0; i < 3; i++)
        at[i] = arrays->memory[i] + random_bits() % 16 / size * size;
    for (int i = 1; i < 3; i++) {
        fill(arrays->pinned[i], dtype, count);
        OK(ops->copy(arrays->stream, at[i], arrays->pinned[i], bytes));
    }
    OK(weft_op_reduce(weft_op_builtin(kind), dtype, arrays->expected, arrays->pinned[1],
                      arrays->pinned[2], count));
    OK(ops->reduce(arrays->stream, kind, dtype, at[same], at[1], at[2], count));
    OK(ops->copy(arrays->stream, arrays->pinned[0], at[same], bytes));
    OK(wait_for(arrays->stream));
    CHECK(memcmp(arrays->pinned[0], arrays->expected, bytes) == 0);
}

void case_reduce(void)
{
    struct arrays arrays;
    char what[64];

    arrays_open(&arrays);
    for (int kind = 0; kind < WEFT_OP_COUNT; kind++)
        for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++) {
            const struct weft_op *op = weft_op_builtin((weft_op_kind_t)kind);

            if (!weft_op_supports(op, (weft_dtype_t)dtype)) {
                snprintf(what, sizeof what, "cannot reduce %s", weft_dtype_name(dtype));
                REFUSED(arrays.device->ops->reduce(arrays.stream, kind, dtype, arrays.memory[0],
                                                   arrays.memory[1], arrays.memory[2], 1),
                        WEFT_ERR_INVALID, what);
                continue;
            }
            for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
                if (i < 7 || random_bits() % 4 == 0)
                    reduce_once(&arrays, kind, dtype, lengths[i], (int)(random_bits() % 3));
        }
    REFUSED(arrays.device->ops->reduce(arrays.stream, WEFT_OP_COUNT, WEFT_F32, NULL, NULL, NULL, 1),
            WEFT_ERR_INVALID, "cannot reduce f32");
    REFUSED(arrays.device->ops->reduce(arrays.stream, WEFT_SUM, weft_dtype_opaque(24), NULL, NULL,
                                       NULL, 1),
            WEFT_ERR_INVALID, "cannot reduce bytes24");
    REFUSED(arrays.device->ops->reduce(arrays.stream, (weft_op_kind_t)-1, (weft_dtype_t)-1, NULL,
                                       NULL, NULL, 0),
            WEFT_ERR_INVALID, "cannot reduce");
    arrays_close(&arrays);
}

static void reduce_many(struct arrays *arrays, weft_op_kind_t kind, weft_dtype_t dtype, unsigned n,
                        size_t count)
{
    const struct weft__device_ops *ops = arrays->device->ops;
    size_t size = weft_dtype_size(dtype);
    size_t shift = random_bits() % 2 * size;
    unsigned dst = (unsigned)(random_bits() % (n + 1));
    const void *inputs[ARRAYS];

    for (unsigned i = 0; i <= n; i++) {
        fill(arrays->pinned[i], dtype, count);
        OK(ops->copy(arrays->stream, arrays->memory[i] + shift, arrays->pinned[i], count * size));
        inputs[i] = arrays->memory[i] + shift;
    }
    memcpy(arrays->expected, arrays->pinned[0], count * size);
    for (unsigned i = 1; i < n; i++)
        OK(weft_op_reduce(weft_op_builtin(kind), dtype, arrays->expected, arrays->expected,
                          arrays->pinned[i], count));
    OK(ops->reduce_n(arrays->stream, kind, dtype, arrays->memory[dst] + shift, inputs, n, count));
    OK(ops->copy(arrays->stream, arrays->pinned[n], arrays->memory[dst] + shift, count * size));
    OK(wait_for(arrays->stream));
    CHECK(memcmp(arrays->pinned[n], arrays->expected, count * size) == 0);
}

void case_reduce_n(void)
{
    static const weft_dtype_t dtypes[] = {WEFT_F32, WEFT_F16, WEFT_I8, WEFT_U64, WEFT_I16};
    static const weft_op_kind_t kinds[] = {WEFT_SUM, WEFT_MIN, WEFT_MAX, WEFT_LXOR};
    struct arrays arrays;

    arrays_open(&arrays);
    for (unsigned n = 2; n <= 8; n++)
        for (int i = 0; i < 12; i++)
            reduce_many(&arrays, kinds[random_bits() % 4], dtypes[random_bits() % 5], n,
                        lengths[random_bits() % 13]);
    for (unsigned n = 0; n < 12; n += 3)
        if (n < 2 || n > 8)
            REFUSED(
                arrays.device->ops->reduce_n(arrays.stream, WEFT_SUM, WEFT_F32, NULL, NULL, n, 1),
                WEFT_ERR_INVALID, "only 2 to 8");
    arrays_close(&arrays);
}

/* ---- functions of users ---- */

struct called {
    struct weft__device *device;
    void *memory;
    int status;
};

static int function(struct weft_call *call, void *stream)
{
    const struct called *called = call->user;
    struct weft__cuda *cuda = weft__cuda_current();
    void *same = called->memory;
    uint64_t count = 8;
    void *arguments[] = {&same, &same, &same, &count};
    CUcontext context = NULL;

    CHECK(cuda == weft__cuda_of(called->device));
    OK(driver->cuCtxGetCurrent(&context));
    CHECK(context == cuda->context);
    OK(weft__cuda_launch(cuda, stream, WEFT__GPU_weft_reduce_sum_u32, 0, 0, 0, NULL));
    OK(weft__cuda_launch(cuda, stream, WEFT__GPU_weft_reduce_sum_u32, 1, 32, 0, arguments));
    return called->status;
}

void case_call(void)
{
    struct weft__device *device = open_device(second_device());
    const struct weft__device_ops *ops = device->ops;
    struct called called = {device, ops->alloc(device, 32), WEFT_OK};
    struct weft_call call = {.user = &called};
    uint32_t *pinned = ops->pin(device, 32);
    struct weft__stream *stream = NULL;
    CUcontext context = NULL;

    for (uint32_t i = 0; i < 8; i++)
        pinned[i] = i;
    OK(ops->open(device, &stream));
    OK(ops->copy(stream, called.memory, pinned, 32));
    CHECK(!weft__cuda_current());
    OK(ops->call(stream, function, &call));
    called.status = -1234;
    CHECK(ops->call(stream, function, &call) == -1234);
    CHECK(!weft__cuda_current());
    OK(driver->cuCtxGetCurrent(&context));
    CHECK(!context);
    OK(ops->copy(stream, pinned, called.memory, 32));
    OK(wait_for(stream));
    for (uint32_t i = 0; i < 8; i++)
        CHECK(pinned[i] == 4 * i);
    ops->close(stream);
    ops->free(device, called.memory);
    ops->unpin(device, pinned);
    ops->end(device);
    check_clean();
}

/* ---- streams of users ---- */

/* The stream waits for the host, then writes. */
static void hold_and_write(struct weft__device *device, CUstream stream, _Atomic uint32_t *words,
                           uint32_t value)
{
    const struct weft__device_ops *ops = device->ops;

    atomic_store(&words[0], value - 1);
    atomic_store(&words[1], 0);
    OK(ops->hold(device, stream, &words[0], value));
    OK(ops->write(device, stream, &words[1], value));
    for (int i = 0; i < 100; i++) {
        CHECK(atomic_load(&words[1]) == 0);
        sched_yield();
    }
    atomic_store(&words[0], value + 1);
    while (atomic_load(&words[1]) != value)
        sched_yield();
}

void case_write_hold(void)
{
    struct weft__device *device = open_device("cuda:0");
    struct weft__device *other = open_device(second_device());
    const struct weft__device_ops *ops = device->ops;
    _Atomic uint32_t *words = ops->pin(device, 2 * sizeof *words);
    CUstream streams[2];

    for (int i = 0; i < 2; i++) {
        OK(driver->cuCtxPushCurrent(weft__cuda_of(i ? other : device)->context));
        OK(driver->cuStreamCreate(&streams[i], CU_STREAM_DEFAULT));
        OK(driver->cuCtxPopCurrent(&(CUcontext){0}));
    }
    hold_and_write(device, NULL, words, 5);
    hold_and_write(device, CU_STREAM_LEGACY, words, 6);
    hold_and_write(device, streams[0], words, UINT32_MAX);
    hold_and_write(device, streams[0], words, 0x80000001u);
    hold_and_write(device, streams[1], words, 9);
    hold_and_write(other, streams[0], words, 10);
    for (int i = 0; i < 2; i++) {
        OK(driver->cuCtxPushCurrent(weft__cuda_of(i ? other : device)->context));
        OK(driver->cuStreamDestroy(streams[i]));
        OK(driver->cuCtxPopCurrent(&(CUcontext){0}));
    }
    ops->unpin(device, (void *)words);
    ops->end(other);
    ops->end(device);
    check_clean();
}

/* Kernels that were loaded with the device: their first launch waits for nothing, also while a
 * stream is held that only the host lets go. */
void case_kernels_loaded(void)
{
    struct weft__device *device = open_device("cuda:0");
    const struct weft__device_ops *ops = device->ops;
    _Atomic uint32_t *word = ops->pin(device, sizeof *word);
    uint32_t *memory = ops->alloc(device, 64);
    struct weft__stream *stream = NULL;

    atomic_init(word, 0);
    OK(ops->open(device, &stream));
    copy_now(device, memory, word, sizeof *word);
    OK(ops->hold(device, NULL, word, 1));
    for (int kind = 0; kind < WEFT_OP_COUNT; kind++)
        OK(ops->reduce(stream, kind, WEFT_U32, memory, memory, memory, 1));
    OK(wait_for(stream));
    atomic_store(word, 1);
    ops->close(stream);
    ops->free(device, memory);
    ops->unpin(device, (void *)word);
    ops->end(device);
    check_clean();
}
