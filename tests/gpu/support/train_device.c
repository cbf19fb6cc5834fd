/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/gpu/train_device.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* ---- the stand-ins ---- */

static void find(const char *file, const char *name, void *place)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    void *found = library ? dlsym(library, name) : NULL;

    memcpy(place, &found, sizeof found);
}

const struct train_standins *train_standins(void)
{
    static struct train_standins found;
    static const char driver[] = "libcuda.so.1", cublas[] = "libcublas.so.13";

    if (!found.report) {
        find(driver, "standin_report", &found.report);
        find(driver, "standin_leaks", &found.leaks);
        find(driver, "standin_calls", &found.calls);
        find(driver, "standin_calls_of", &found.calls_of);
        find(driver, "standin_operations", &found.operations);
        find(driver, "standin_fail_at", &found.fail_at);
        find(driver, "standin_fault_at", &found.fault_at);
        find(cublas, "standin_cublas_report", &found.cublas_report);
        find(cublas, "standin_cublas_leaks", &found.cublas_leaks);
        find(cublas, "standin_cublas_calls", &found.cublas_calls);
        find(cublas, "standin_cublas_fail_at", &found.cublas_fail_at);
    }
    return found.report && found.cublas_report ? &found : NULL;
}

void train_check_misuse(void)
{
    const struct train_standins *standins = train_standins();
    char text[4096];

    if (!standins)
        return;
    unsigned count = standins->report(text, sizeof text);
    cr_assert_eq(count, 0, "misuse: %s", text);
    count = standins->cublas_report(text, sizeof text);
    cr_assert_eq(count, 0, "misuse of cuBLAS: %s", text);
    cr_assert_eq(standins->cublas_leaks(), 0);
}

void train_check_clean(void)
{
    const struct train_standins *standins = train_standins();
    char text[4096];

    train_check_misuse();
    if (!standins)
        return;
    unsigned count = standins->leaks(text, sizeof text);
    cr_assert_eq(count, 0, "left after \"%s\": %s", weft_error_text(), text);
}

/* ---- memory ---- */

struct backend *train_device_backend(int ordinal, size_t batch, size_t numbers)
{
    const struct train_device_config config = {ordinal, batch, numbers};
    struct backend *backend = NULL;

    DONE(weft_command_cuda.create(&backend, &config));
    return backend;
}

void train_draw(struct train_random *random, float *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        numbers[i] = (float)train_random_normal(random);
}

float *train_put(struct backend *backend, const float *numbers, size_t count)
{
    float *memory = NULL;

    DONE(backend->ops->alloc(backend, count, 0, &memory));
    DONE(backend->ops->put(backend, memory, numbers, count));
    return memory;
}

void train_get(struct backend *backend, float *numbers, const float *from, size_t count)
{
    DONE(backend->ops->get(backend, numbers, from, count));
}

/* ---- models ---- */

struct net_config train_net(const struct net_architecture *architecture, size_t channels)
{
    static const size_t hidden[] = {9, 7};

    return (struct net_config){.architecture = architecture,
                               .image = {TRAIN_SIDE, TRAIN_SIDE, 1},
                               .classes = TRAIN_CLASSES,
                               .hidden = hidden,
                               .hidden_count = 2,
                               .channels = channels};
}

struct model *train_model(const struct net_config *net, size_t batch, uint64_t seed, int on_device)
{
    struct train_random random = train_random_make(seed, TRAIN_RANDOM_WEIGHTS, 1000, 0);
    struct model *model = NULL;

    if (on_device)
        DONE(model_create_by(&model, train_device_backend(0, batch, net_size(&net->image)), net,
                             batch, seed));
    else
        DONE(model_create(&model, net, batch, seed));
    size_t count = model_parameter_count(model);
    float *parameters = malloc(count * sizeof *parameters);
    DONE(model_save(model, parameters));
    for (size_t i = 0; i < count; i++)
        parameters[i] += (float)(0.2 * train_random_normal(&random));
    DONE(model_load(model, parameters));
    free(parameters);
    return model;
}

void train_draw_batch(float *images, uint8_t *labels, size_t count, uint64_t seed)
{
    struct train_random random = train_random_make(seed, TRAIN_RANDOM_SHUFFLE, 0, 0);

    train_draw(&random, images, count * TRAIN_NUMBERS);
    for (size_t i = 0; i < count; i++)
        labels[i] = (uint8_t)train_random_below(&random, TRAIN_CLASSES);
}
