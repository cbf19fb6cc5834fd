/* SPDX-License-Identifier: BSD-3-Clause */
/* What suites of the trainer on devices share: models by the processor and by a device, and the
 * stand-ins, where the process has these and no driver and no cuBLAS. */
#ifndef WEFT_TRAIN_DEVICE_TEST_H
#define WEFT_TRAIN_DEVICE_TEST_H

#include "tools/train/backend.h"
#include "tools/train/device.h"
#include "tools/train/model.h"
#include "tools/train/random.h"

#include <criterion/criterion.h>

/* The call returns WEFT_OK. */
#define DONE(call) cr_assert_eq(call, WEFT_OK, "%s: %s", #call, weft_error_text())

/* Of the stand-ins of the driver and of cuBLAS; NULL on a device. */
struct train_standins {
    unsigned (*report)(char *text, size_t size);
    unsigned (*leaks)(char *text, size_t size);
    unsigned long (*calls)(void);
    unsigned long (*calls_of)(const char *name);
    unsigned long (*operations)(void);
    void (*fail_at)(unsigned long n, int code);
    void (*fault_at)(unsigned long n, int code);
    unsigned (*cublas_report)(char *text, size_t size);
    unsigned (*cublas_leaks)(void);
    unsigned long (*cublas_calls)(void);
    void (*cublas_fail_at)(unsigned long n, int code);
};
const struct train_standins *train_standins(void);

/* Nothing was misused; and nothing is left of models and backends. */
void train_check_misuse(void);
void train_check_clean(void);

/* On cuda:0 unless it is said; images of so many numbers. */
struct backend *train_device_backend(int ordinal, size_t batch, size_t numbers);

/* Normal numbers, and memory of a backend with some of them in it. */
void train_draw(struct train_random *random, float *numbers, size_t count);
float *train_put(struct backend *backend, const float *numbers, size_t count);
void train_get(struct backend *backend, float *numbers, const float *from, size_t count);

/* Nets for images of 8 x 8 pixels, small enough for a grid of fibers. */
enum { TRAIN_SIDE = 8, TRAIN_NUMBERS = TRAIN_SIDE * TRAIN_SIDE, TRAIN_CLASSES = 5 };
struct net_config train_net(const struct net_architecture *architecture, size_t channels);
/* By the processor, and by a device, of the same parameters: all of them drawn. */
struct model *train_model(const struct net_config *net, size_t batch, uint64_t seed, int on_device);
/* @p images of them, each with a label. */
void train_draw_batch(float *images, uint8_t *labels, size_t count, uint64_t seed);

#endif
