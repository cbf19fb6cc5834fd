/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of a model on a device, in which calls of the driver and of cuBLAS, allocations and
 * operations of the stream fail, one at a time: every failure is told, with the call and the
 * device, and nothing is left.
 */
#include "tests/gpu/train_device.h"

#include "runtime/base/alloc.h"

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2 };

/* Everything that a training does with a model. */
static int use(struct model *model)
{
    struct backend *backend = model_backend(model);
    size_t count = model_parameter_count(model);
    float *parameters = model_parameters(model)[0].data, *flat = calloc(2 * count, sizeof *flat);
    float images[3 * BATCH * TRAIN_NUMBERS];
    uint8_t labels[3 * BATCH];
    const float *kept;
    double number;
    uint64_t sum;
    int status = WEFT_OK;

    train_draw_batch(images, labels, 3 * BATCH, 1);
    for (int step = 0; step < 3 && status == WEFT_OK; step++) {
        status = model_gradient(model, images, labels, BATCH, NULL, NULL);
        if (status == WEFT_OK)
            status = model_update(model, 0.1f, 0.9f);
        if (status == WEFT_OK)
            status = backend->ops->keep(backend, parameters, count);
    }
    if (status == WEFT_OK)
        status = backend->ops->kept(backend, &kept);
    if (status == WEFT_OK)
        status = model_loss(model, &number);
    if (status == WEFT_OK)
        status = backend->ops->seconds(backend, &number);
    if (status == WEFT_OK)
        status = model_accuracy(model, images, labels, 3 * BATCH, &number);
    if (status == WEFT_OK)
        status = model_save_all(model, flat);
    if (status == WEFT_OK)
        status = model_load_all(model, flat);
    if (status == WEFT_OK)
        status = model_checksum(model, &sum);
    if (status == WEFT_OK)
        status = backend->ops->settle(backend);
    free(flat);
    return status;
}

static int live(size_t architecture)
{
    struct net_config net = train_net(net_architectures()[architecture], 2);
    const struct train_device_config config = {0, BATCH, TRAIN_NUMBERS};
    struct backend *backend;
    struct model *model;

    int status = weft_command_cuda.create(&backend, &config);
    if (status == WEFT_OK)
        status = model_create_by(&model, backend, &net, BATCH, 1);
    if (status != WEFT_OK)
        return status;
    status = use(model);
    if (status != WEFT_OK) {
        /* It says so from then on. */
        char text[256];
        snprintf(text, sizeof text, "%s", weft_error_text());
        cr_assert_eq(model_update(model, 0.1f, 0.9f), status);
        cr_assert_str_eq(weft_error_text(), text);
    }
    model_destroy(model);
    return status;
}

static const struct train_standins *need_standins(void)
{
    const struct train_standins *standins = train_standins();

    if (!standins)
        cr_skip("nothing can be made to fail on a device");
    return standins;
}

static void check_text(const char *begins, const char *code, unsigned long n)
{
    const char *text = weft_error_text();
    const char *call = strstr(text, begins);

    /* Behind what was being made. */
    cr_assert(call && strstr(call, code) && strstr(call, "cuda:0"), "%lu: %s", n, text);
}

/* With one of two errors. What ends a life may fail, and nobody is told. */
Test(train_faults, calls_of_the_driver)
{
    static const struct {
        int code, status;
        const char *name;
    } errors[] = {{CUDA_ERROR_UNKNOWN, WEFT_ERR_SYSTEM, ": CUDA_ERROR_UNKNOWN ("},
                  {CUDA_ERROR_OUT_OF_MEMORY, WEFT_ERR_MEMORY, ": CUDA_ERROR_OUT_OF_MEMORY ("}};
    const struct train_standins *standins = need_standins();
    unsigned long before = standins->calls();
    unsigned failed = 0;

    DONE(live(0));
    unsigned long all = standins->calls() - before;
    for (unsigned long n = 1; n <= all; n++) {
        size_t e = n / 2 % 2;
        standins->fail_at(n, errors[e].code);
        int status = live(0);
        standins->fail_at(0, 0);
        /* What cuBLAS calls fails cuBLAS. */
        int by_cublas = status != WEFT_OK && strstr(weft_error_text(), "cublas");
        if (status != WEFT_OK)
            check_text(by_cublas ? "cublas" : "cu", by_cublas ? ": CUBLAS_STATUS_" : errors[e].name,
                       n);
        cr_assert(status == WEFT_OK || by_cublas || status == errors[e].status, "call %lu: %d, %s",
                  n, status, weft_error_text());
        failed += status != WEFT_OK;
        train_check_clean();
        /* Most calls look up a kernel, of which a few will do; the steps are three alike. */
        int looks_up = status != WEFT_OK && strstr(weft_error_text(), "cuModuleGetFunction");
        n += n % (looks_up ? 24 : 9);
    }
    cr_assert_gt(failed, 20);
}

Test(train_faults, every_call_of_cublas)
{
    const struct train_standins *standins = need_standins();
    unsigned long before = standins->cublas_calls();

    DONE(live(0));
    unsigned long all = standins->cublas_calls() - before;
    cr_assert_gt(all, 20);
    for (unsigned long n = 1; n <= all; n++) {
        standins->cublas_fail_at(n, n % 2 ? 14 : 3);
        int status = live(0);
        standins->cublas_fail_at(0, 0);
        cr_assert_eq(status, n == all ? WEFT_OK : n % 2 ? WEFT_ERR_SYSTEM : WEFT_ERR_MEMORY);
        if (n < all)
            check_text("cublas",
                       n % 2 ? ": CUBLAS_STATUS_INTERNAL_ERROR ("
                             : ": CUBLAS_STATUS_ALLOC_FAILED (out of memory) on cuda:0",
                       n);
        train_check_clean();
    }
}

/* An operation of the stream fails, and with it the context: found by some later call. */
Test(train_faults, operations_of_the_stream)
{
    const struct train_standins *standins = need_standins();
    unsigned long before = standins->operations();

    DONE(live(2));
    unsigned long all = standins->operations() - before;
    cr_assert_gt(all, 500);
    for (unsigned long n = 1; n <= all; n += 1 + n % 97) {
        standins->fault_at(n, CUDA_ERROR_ILLEGAL_ADDRESS);
        int status = live(2);
        standins->fault_at(0, 0);
        cr_assert(status == WEFT_ERR_SYSTEM, "operation %lu: %d, %s", n, status, weft_error_text());
        train_check_clean();
    }
    DONE(live(2));
    train_check_clean();
}

/* cuBLAS comes upon a device that has ended, and says what it likes: what has ended it is told. */
Test(train_faults, cublas_on_a_device_that_has_ended)
{
    static const int codes[] = {1, 3, 13, 14};
    const struct train_standins *standins = need_standins();

    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        standins->fault_at(1, CUDA_ERROR_ILLEGAL_ADDRESS);
        standins->cublas_fail_at(1, codes[i]);
        int status = live(2);
        standins->cublas_fail_at(0, 0);
        standins->fault_at(0, 0);
        cr_assert_eq(status, WEFT_ERR_SYSTEM, "%d: %d, %s", codes[i], status, weft_error_text());
        check_text("cu", ": CUDA_ERROR_ILLEGAL_ADDRESS (", (unsigned long)codes[i]);
        train_check_clean();
    }
}

Test(train_faults, no_memory)
{
    unsigned long n = 0;
    long left;

    do {
        atomic_store(&weft__alloc_countdown, (long)++n);
        int status = live(2);
        left = atomic_load(&weft__alloc_countdown);
        atomic_store(&weft__alloc_countdown, -1);
        cr_assert_eq(status, left > 0 ? WEFT_OK : WEFT_ERR_MEMORY);
        if (status != WEFT_OK)
            cr_assert(strstr(weft_error_text(), "no memory for "), "%s", weft_error_text());
        train_check_clean();
    } while (left <= 0 && n < 100);
    cr_assert(n > 8 && n < 100, "%lu", n);
}
