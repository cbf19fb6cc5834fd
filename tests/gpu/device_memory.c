/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which device is meant, and where memory is. */
#include "device_test.h"

#include <stdlib.h>

/* ---- devices ---- */

static void refuse_names(void)
{
    static const char *const names[] = {"",        "rocm",    "cuda:", "cuda:x",
                                        "cuda:1x", "cuda:-1", "CUDA",  "cuda:99999999999999999999"};
    struct weft__device *device = NULL;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        REFUSED(weft__device_open(names[i], 0, &device), WEFT_ERR_INVALID, names[i]);
        REFUSED(weft__device_open(names[i], 0, &device), WEFT_ERR_INVALID,
                "expected \"cuda\" or \"cuda:N\"");
    }
    REFUSED(weft__device_open("cuda:2", 0, &device), WEFT_ERR_INVALID,
            "device is cuda:2, expected one of cuda:0 to cuda:1");
    CHECK(!device);
}

static void expect_device(const char *name, int otherwise, const char *expected)
{
    struct weft__device *device = NULL;

    OK(weft__device_open(name, otherwise, &device));
    CHECK(device && strcmp(device->name, expected) == 0);
    if (device)
        device->ops->end(device);
}

void case_names(void)
{
    CUcontext context, left;
    struct weft__device *one, *same, *other;

    refuse_names();
    expect_device(NULL, 0, "cuda:0");
    expect_device(NULL, -1, "cuda:0");
    expect_device("cuda", 1, "cuda:1");
    expect_device("cuda", 4, "cuda:0");
    expect_device("cuda:0", 1, "cuda:0");
    expect_device("cuda:1", 0, "cuda:1");
    one = open_device("cuda:0");
    same = open_device("cuda:0");
    other = open_device("cuda:1");
    CHECK(one == same && one != other);
    OK(driver->cuDevicePrimaryCtxRetain(&context, 1));
    OK(driver->cuCtxPushCurrent(context));
    expect_device("cuda", 0, "cuda:1");
    expect_device("cuda:0", 1, "cuda:0");
    OK(driver->cuCtxPopCurrent(&left));
    OK(driver->cuDevicePrimaryCtxRelease(1));
    one->ops->end(one);
    other->ops->end(other);
    CHECK(standin.leaks(NULL, 0) > 0);
    same->ops->end(same);
    check_clean();
}

void case_no_driver(void)
{
    struct weft__device *device = NULL;

    if (driver_function("cuInit")) {
        fprintf(stderr, "no_driver: skipped, there is a driver\n");
        return;
    }
    REFUSED(weft__device_open("cuda", 0, &device), WEFT_ERR_UNSUPPORTED,
            "there is no CUDA driver: libcuda.so.1: ");
    CHECK(!device);
}

void case_no_device(void)
{
    struct weft__device *device = NULL;

    REFUSED(weft__device_open("cuda", 0, &device), WEFT_ERR_UNSUPPORTED,
            "there is a CUDA driver, and no device");
    CHECK(!device);
}

void case_no_mem_ops(void)
{
    struct weft__device *device = NULL;

    REFUSED(weft__device_open("cuda:1", 0, &device), WEFT_ERR_UNSUPPORTED,
            "cuda:1 has no stream memory operations");
    CHECK(!device);
    check_clean();
}

/* ---- where ---- */

/* A driver may have rounded the size up, and have other memory beside it. */
static void where_exactly(struct weft__device *device, char *memory)
{
    const struct weft__device_ops *ops = device->ops;
    char *before = (char *)((uintptr_t)memory / 4096 * 4096 - 1);

    REFUSED(ops->where(device, memory + 1, 1000), WEFT_ERR_INVALID, "1000 bytes at 0x");
    REFUSED(ops->where(device, memory + 1, 1000), WEFT_ERR_INVALID,
            "are not in one allocation: cuda:0 has 1000 bytes at 0x");
    /* From what is nobody's into it. */
    CHECK(ops->where(device, before, 1) == WEFT__ON_HOST);
    REFUSED(ops->where(device, before, (size_t)(memory - before) + 1), WEFT_ERR_INVALID,
            "are not in one allocation: cuda:0 has 1000 bytes at 0x");
}

static void where_device(struct weft__device *device)
{
    const struct weft__device_ops *ops = device->ops;
    char *memory = ops->alloc(device, 1000);
    char *empty = ops->alloc(device, 0);

    CHECK(memory && (uintptr_t)memory % 256 == 0 && empty && (uintptr_t)empty % 256 == 0);
    CHECK(ops->where(device, memory, 1000) == WEFT__ON_DEVICE);
    CHECK(ops->where(device, memory + 999, 1) == WEFT__ON_DEVICE);
    CHECK(ops->where(device, memory + 7, 0) == WEFT__ON_DEVICE);
    CHECK(ops->where(device, memory + 1, 999) == WEFT__ON_DEVICE);
    REFUSED(ops->where(device, memory, SIZE_MAX), WEFT_ERR_INVALID, "are not in one allocation");
    if (standin.there)
        where_exactly(device, memory);
    ops->free(device, memory);
    ops->free(device, empty);
    ops->free(device, NULL);
}

static void where_host(struct weft__device *device)
{
    const struct weft__device_ops *ops = device->ops;
    char here[64];
    char *pinned = ops->pin(device, 4096);
    char *registered = aligned_alloc(4096, 4 * 4096);
    CUresult (*add)(void *, size_t, unsigned) =
        (CUresult(*)(void *, size_t, unsigned))(uintptr_t)driver_function("cuMemHostRegister_v2");
    CUresult (*take)(void *) =
        (CUresult(*)(void *))(uintptr_t)driver_function("cuMemHostUnregister");

    CHECK(ops->where(device, here, sizeof here) == WEFT__ON_HOST);
    CHECK(ops->where(device, NULL, 0) == WEFT__ON_HOST);
    CHECK(pinned != NULL);
    memset(pinned, 1, 4096);
    CHECK(ops->where(device, pinned, 4096) == WEFT__ON_HOST_PINNED);
    CHECK(ops->where(device, pinned + 4095, 1) == WEFT__ON_HOST_PINNED);
    ops->unpin(device, pinned);
    ops->unpin(device, NULL);
    CHECK(add && take && registered);
    OK(driver->cuCtxPushCurrent(weft__cuda_of(device)->context));
    CHECK(ops->where(device, registered, 4 * 4096) == WEFT__ON_HOST);
    OK((int)add(registered + 4096, 2 * 4096, CU_MEMHOSTREGISTER_PORTABLE));
    CHECK(ops->where(device, registered + 4096, 2 * 4096) == WEFT__ON_HOST_PINNED);
    CHECK(ops->where(device, registered + 8000, 100) == WEFT__ON_HOST_PINNED);
    CHECK(ops->where(device, registered, 2 * 4096) == WEFT__ON_HOST);
    CHECK(ops->where(device, registered + 2 * 4096, 2 * 4096) == WEFT__ON_HOST);
    OK((int)take(registered + 4096));
    OK(driver->cuCtxPopCurrent(&(CUcontext){0}));
    free(registered);
}

void case_where(void)
{
    struct weft__device *device = open_device("cuda:0");
    const struct weft__device_ops *ops = device->ops;
    void *memory = ops->alloc(device, (size_t)1 << 40);

    CHECK(!memory && strstr(weft_error_text(), "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (out of "
                                               "memory) of 1099511627776 bytes on cuda:0"));
    where_device(device);
    where_host(device);
    ops->end(device);
    check_clean();
}

/* ---- other devices ---- */

enum { PEER_COUNT = 1000 };

static void fill(struct weft__device *device, float *memory, float *pinned, float first)
{
    for (int i = 0; i < PEER_COUNT; i++)
        pinned[i] = first + (float)i;
    copy_now(device, memory, pinned, PEER_COUNT * sizeof *pinned);
}

static void expect_all(const float *pinned, float first, float step)
{
    int wrong = 0;

    for (int i = 0; i < PEER_COUNT; i++)
        wrong += pinned[i] != first + step * (float)i;
    CHECK(wrong == 0);
}

/* One device copies from and to the other one's memory, and pinned memory to it. */
static void copy_between(struct weft__device *near, struct weft__device *far, float *here,
                         float *there, float *pinned)
{
    size_t bytes = PEER_COUNT * sizeof *pinned;

    fill(far, there, pinned, 5);
    copy_now(near, here, there, bytes);
    memset(pinned, 0, bytes);
    copy_now(near, pinned, here, bytes);
    expect_all(pinned, 5, 1);
    fill(near, here, pinned, 9);
    copy_now(near, there, here, bytes);
    memset(pinned, 0, bytes);
    copy_now(near, pinned, there, bytes);
    expect_all(pinned, 9, 1);
    for (int i = 0; i < PEER_COUNT; i++)
        pinned[i] = 3;
    copy_now(near, there, pinned, bytes);
    memset(pinned, 0, bytes);
    copy_now(far, pinned, there, bytes);
    expect_all(pinned, 3, 0);
}

void case_where_peer(void)
{
    struct weft__device *near = open_device("cuda:0");
    struct weft__device *far = open_device("cuda:1");
    const struct weft__device_ops *ops = near->ops;
    size_t bytes = PEER_COUNT * sizeof(float);
    float *here = ops->alloc(near, bytes);
    float *there = ops->alloc(far, bytes);
    float *pinned = ops->pin(far, bytes);
    struct weft__stream *stream = NULL;

    /* The program may have done so before. */
    OK(driver->cuCtxPushCurrent(weft__cuda_of(near)->context));
    OK(driver->cuCtxEnablePeerAccess(weft__cuda_of(far)->context, 0));
    OK(driver->cuCtxPopCurrent(&(CUcontext){0}));
    for (int again = 0; again < 2; again++)
        CHECK(ops->where(near, there, bytes) == WEFT__ON_PEER);
    CHECK(ops->where(far, here, bytes) == WEFT__ON_PEER);
    CHECK(ops->where(near, pinned, bytes) == WEFT__ON_HOST_PINNED);
    if (standin.there) {
        CHECK(standin.calls_of("cuCtxEnablePeerAccess") == 3);
        REFUSED(ops->where(near, there + 1, bytes), WEFT_ERR_INVALID, "cuda:1 has 4000 bytes");
    }
    copy_between(near, far, here, there, pinned);
    fill(near, here, pinned, 1);
    fill(far, there, pinned, 2);
    OK(ops->open(near, &stream));
    OK(ops->reduce(stream, WEFT_SUM, WEFT_F32, here, here, there, PEER_COUNT));
    OK(ops->copy(stream, pinned, here, bytes));
    OK(wait_for(stream));
    expect_all(pinned, 3, 2);
    ops->close(stream);
    ops->free(near, here);
    ops->free(far, there);
    ops->unpin(far, pinned);
    ops->end(far);
    ops->end(near);
    check_clean();
}

void case_where_apart(void)
{
    struct weft__device *near = open_device("cuda:1");
    struct weft__device *far = open_device("cuda:0");
    const struct weft__device_ops *ops = near->ops;
    size_t bytes = PEER_COUNT * sizeof(float);
    float *here = ops->alloc(near, bytes);
    float *there = ops->alloc(far, bytes);
    float *pinned = ops->pin(near, bytes);

    for (int again = 0; again < 2; again++)
        CHECK(ops->where(near, there, bytes) == WEFT__ON_PEER_APART);
    CHECK(ops->where(near, here, bytes) == WEFT__ON_DEVICE);
    copy_between(near, far, here, there, pinned);
    ops->unpin(near, pinned);
    ops->free(near, here);
    ops->free(far, there);
    ops->end(far);
    ops->end(near);
    check_clean();
}
