/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations of the trainer's models by a device, beside the processor's. Where both add up in one
 * order their bits are the same. Products and sums of columns are not added up in one order: each
 * element of both is within (n + 2) u of the sum of magnitudes of its n terms (Higham, "Accuracy
 * and Stability of Numerical Algorithms", 3.5; u = FLT_EPSILON / 2), which the processor's
 * operation on magnitudes gives. So they are within twice that of each other.
 */
#include "tests/gpu/train_device.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- an operation by a backend ---- */

enum { TENSORS = 2, MOST_BATCH = 300 };

struct setting {
    const char *name;
    struct net_operation is;
    struct net_shape in, out;
    size_t batch;
    size_t tensors[TENSORS];
    int first; /* its input is the image: nobody wants the derivatives */
    int adds, adds_other;
    size_t terms[4]; /* of an element of the output, of both gradients, and of the derivative; 0:
                        bits are the same */
};

/* Numbers of an operation, as they are put in and as they come out. */
struct numbers {
    float *from, *to, *from_delta, *to_delta, *other, *other_delta;
    float *parameters[TENSORS], *gradients[TENSORS];
};

static size_t size_from(const struct setting *setting)
{
    return setting->batch * net_size(&setting->in);
}

static size_t size_to(const struct setting *setting)
{
    return setting->batch * net_size(&setting->out);
}

static float *draw(struct train_random *random, size_t count, int magnitudes)
{
    float *made = malloc((count ? count : 1) * sizeof *made);

    train_draw(random, made, count);
    for (size_t i = 0; i < count && magnitudes; i++)
        made[i] = fabsf(made[i]);
    return made;
}

static struct numbers draw_numbers(const struct setting *setting, uint64_t seed, int magnitudes)
{
    struct train_random random = train_random_make(seed, TRAIN_RANDOM_WEIGHTS, 0, 0);
    struct numbers made;

    made.from = draw(&random, size_from(setting), magnitudes);
    made.to = draw(&random, size_to(setting), magnitudes);
    made.from_delta = draw(&random, size_from(setting), magnitudes);
    made.to_delta = draw(&random, size_to(setting), magnitudes);
    made.other = draw(&random, size_to(setting), magnitudes);
    made.other_delta = draw(&random, size_to(setting), magnitudes);
    for (int t = 0; t < TENSORS; t++) {
        made.parameters[t] = draw(&random, setting->tensors[t], magnitudes);
        made.gradients[t] = draw(&random, setting->tensors[t], magnitudes);
    }
    return made;
}

static void free_numbers(struct numbers *numbers)
{
    free(numbers->from);
    free(numbers->to);
    free(numbers->from_delta);
    free(numbers->to_delta);
    free(numbers->other);
    free(numbers->other_delta);
    for (int t = 0; t < TENSORS; t++) {
        free(numbers->parameters[t]);
        free(numbers->gradients[t]);
    }
}

static float *put(struct backend *backend, const float *numbers, size_t count)
{
    return count ? train_put(backend, numbers, count) : NULL;
}

static const struct operation_kind *const kinds[NET_KINDS] = {
    [NET_DENSE] = &operation_dense, [NET_CONVOLUTION] = &operation_convolution,
    [NET_NORM] = &operation_norm,   [NET_RELU] = &operation_relu,
    [NET_ADD] = &operation_add,     [NET_POOL] = &operation_pool,
    [NET_MEAN] = &operation_mean,
};

/* Both passes; the results take the place of the numbers. */
static void compute(struct backend *backend, const struct setting *setting, struct numbers *numbers)
{
    const struct operation_passes *passes = backend->ops->passes[setting->is.kind];
    const struct operation_kind *kind = kinds[setting->is.kind];
    const int in_place = setting->is.from == setting->is.to;
    struct operation operation = {.is = &setting->is,
                                  .in = setting->in,
                                  .out = setting->out,
                                  .backend = backend,
                                  .adds = setting->adds,
                                  .adds_other = setting->adds_other};
    size_t froms = size_from(setting), tos = size_to(setting);
    float *from = put(backend, numbers->from, froms);
    float *from_delta = put(backend, numbers->from_delta, froms);
    float *other = put(backend, numbers->other, tos);

    operation.to = put(backend, numbers->to, tos);
    operation.to_delta = put(backend, numbers->to_delta, tos);
    operation.from = in_place ? operation.to : from;
    operation.from_delta = in_place ? operation.to_delta : setting->first ? NULL : from_delta;
    operation.other = other;
    operation.other_delta = put(backend, numbers->other_delta, tos);
    for (int t = 0; t < TENSORS; t++) {
        operation.parameters[t] = put(backend, numbers->parameters[t], setting->tensors[t]);
        operation.gradients[t] = put(backend, numbers->gradients[t], setting->tensors[t]);
    }
    size_t scratch = kind->scratch ? kind->scratch(&operation) : 0;
    size_t kept = kind->kept ? kind->kept(&operation) : 0;
    DONE(backend->ops->alloc(backend, setting->batch * scratch + 1, 0, &operation.scratch));
    DONE(backend->ops->alloc(backend, setting->batch * kept + 1, 0, &operation.kept));

    DONE(passes->forward(&operation, setting->batch));
    train_get(backend, numbers->to, operation.to, tos);
    DONE(passes->backward(&operation, setting->batch));
    train_get(backend, numbers->from_delta, in_place ? operation.to_delta : from_delta, froms);
    train_get(backend, numbers->other_delta, operation.other_delta, tos);
    for (int t = 0; t < TENSORS; t++)
        if (setting->tensors[t])
            train_get(backend, numbers->gradients[t], operation.gradients[t], setting->tensors[t]);

    float *all[] = {from,
                    from_delta,
                    other,
                    operation.to,
                    operation.to_delta,
                    operation.other_delta,
                    operation.parameters[0],
                    operation.parameters[1],
                    operation.gradients[0],
                    operation.gradients[1],
                    operation.scratch,
                    operation.kept};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        backend->ops->free(backend, all[i], 0);
}

/* ---- comparing ---- */

static void compare(const struct setting *setting, const char *what, const float *device,
                    const float *processor, const float *magnitudes, size_t count, size_t terms)
{
    for (size_t i = 0; i < count; i++) {
        double bound = 1.01 * (double)(terms + 2) * (double)FLT_EPSILON * (double)magnitudes[i];
        int same = memcmp(&device[i], &processor[i], sizeof *device) == 0;
        cr_assert(same || (terms && fabs((double)device[i] - (double)processor[i]) <= bound),
                  "%s: %s [%zu]: %a, not %a, bound %g", setting->name, what, i, (double)device[i],
                  (double)processor[i], terms ? bound : 0.0);
    }
}

static void check(struct backend *device, const struct setting *setting, uint64_t seed)
{
    struct numbers there = draw_numbers(setting, seed, 0), here = draw_numbers(setting, seed, 0);
    struct numbers magnitudes = draw_numbers(setting, seed, 1);
    struct backend *cpu = NULL;

    DONE(backend_create_cpu(&cpu, NULL));
    compute(device, setting, &there);
    compute(cpu, setting, &here);
    compute(cpu, setting, &magnitudes);
    compare(setting, "output", there.to, here.to, magnitudes.to, size_to(setting),
            setting->terms[0]);
    for (int t = 0; t < TENSORS; t++)
        compare(setting, t ? "second gradient" : "first gradient", there.gradients[t],
                here.gradients[t], magnitudes.gradients[t], setting->tensors[t],
                setting->terms[1 + t]);
    compare(setting, "derivative", there.from_delta, here.from_delta, magnitudes.from_delta,
            size_from(setting), setting->terms[3]);
    compare(setting, "other derivative", there.other_delta, here.other_delta,
            magnitudes.other_delta, size_to(setting), 0);
    cpu->ops->destroy(cpu);
    free_numbers(&there);
    free_numbers(&here);
    free_numbers(&magnitudes);
}

static void check_ways(struct setting setting)
{
    struct backend *device = train_device_backend(0, MOST_BATCH, 1);

    for (int way = 0; way < 4; way++) {
        setting.adds = way & 1;
        setting.adds_other = way >> 1;
        check(device, &setting, (uint64_t)way + 1);
        if (setting.is.kind != NET_ADD && way == 1)
            break;
    }
    DONE(device->ops->settle(device));
    device->ops->destroy(device);
    train_check_clean();
}

/* ---- products ---- */

static void check_dense(size_t batch, size_t in, size_t out, int first)
{
    check_ways((struct setting){.name = "dense",
                                .is = {.kind = NET_DENSE, .to = 1, .bias = 1},
                                .in = {1, 1, in},
                                .out = {1, 1, out},
                                .batch = batch,
                                .tensors = {in * out, out},
                                .first = first,
                                .terms = {in + 1, batch, batch, out + 1}});
}

Test(train_operations, dense)
{
    check_dense(1, 1, 1, 0);
    check_dense(3, 7, 5, 0);
    check_dense(5, 64, 33, 1);
    check_dense(MOST_BATCH, 3, 40, 0); /* more rows than threads, more columns than a warp */
}

static void check_convolution(size_t batch, struct net_shape in, size_t out, size_t window,
                              size_t stride, int bias)
{
    size_t rows = (in.rows + stride - 1) / stride, columns = (in.columns + stride - 1) / stride;
    size_t inputs = window * window * in.channels;

    check_ways((struct setting){
        .name = "convolution",
        .is = {.kind = NET_CONVOLUTION, .to = 1, .window = window, .stride = stride, .bias = bias},
        .in = in,
        .out = {rows, columns, out},
        .batch = batch,
        .tensors = {inputs * out, bias ? out : 0},
        .terms = {inputs + 1, batch * rows * columns, batch * rows * columns,
                  out + window * window + 1}});
}

Test(train_operations, convolution)
{
    for (int bias = 0; bias <= 1; bias++) {
        check_convolution(1, (struct net_shape){1, 1, 1}, 1, 3, 1, bias);
        check_convolution(3, (struct net_shape){8, 8, 1}, 5, 3, 1, bias);
        check_convolution(2, (struct net_shape){5, 7, 3}, 8, 3, 2, bias);
        check_convolution(2, (struct net_shape){6, 3, 8}, 4, 5, 1, bias);
        check_convolution(2, (struct net_shape){4, 5, 4}, 34, 1, 2, bias);
        check_convolution(1, (struct net_shape){2, 9, 2}, 3, 5, 3, bias);
    }
}

/* ---- the others: the same bits ---- */

static void check_shapes(enum net_kind kind, int in_place)
{
    static const struct net_shape shapes[] = {{1, 1, 1},  {8, 8, 16}, {5, 7, 3},
                                              {4, 4, 20}, {1, 6, 5},  {3, 2, 40}};

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct net_shape in = shapes[i];
        struct net_shape out = kind == NET_POOL
                                   ? (struct net_shape){in.rows / 2, in.columns / 2, in.channels}
                               : kind == NET_MEAN ? (struct net_shape){1, 1, in.channels}
                                                  : in;
        size_t tensor = kind == NET_NORM ? in.channels : 0;

        if (net_size(&out) > 0)
            check_ways((struct setting){.name = kind == NET_POOL   ? "pool"
                                                : kind == NET_MEAN ? "mean"
                                                : kind == NET_NORM ? "norm"
                                                : kind == NET_ADD  ? "add"
                                                                   : "relu",
                                        .is = {.kind = kind, .to = !in_place},
                                        .in = in,
                                        .out = out,
                                        .batch = 3,
                                        .tensors = {tensor, tensor}});
    }
}

Test(train_operations, relu)
{
    check_shapes(NET_RELU, 1);
}

Test(train_operations, add)
{
    check_shapes(NET_ADD, 1);
}

Test(train_operations, pool)
{
    check_shapes(NET_POOL, 0);
}

Test(train_operations, mean)
{
    check_shapes(NET_MEAN, 0);
}

Test(train_operations, norm)
{
    check_shapes(NET_NORM, 0);
}

/* Of equal pixels the first; zeros have signs, and what is no number stays. */
Test(train_operations, ties_and_special_numbers)
{
    static const float values[] = {0.0f, -0.0f, 1.0f, 1.0f, -1.0f, INFINITY, -INFINITY, 1e-40f};
    const struct setting settings[] = {
        {.name = "relu", .is = {.kind = NET_RELU}, .in = {4, 4, 2}, .out = {4, 4, 2}, .batch = 2},
        {.name = "pool",
         .is = {.kind = NET_POOL, .to = 1},
         .in = {4, 4, 2},
         .out = {2, 2, 2},
         .batch = 2}};
    struct backend *device = train_device_backend(0, 2, 1), *cpu = NULL;

    DONE(backend_create_cpu(&cpu, NULL));
    for (size_t s = 0; s < 2; s++) {
        struct numbers here = draw_numbers(&settings[s], 1, 0);
        struct numbers there = draw_numbers(&settings[s], 1, 0);
        for (size_t i = 0; i < size_from(&settings[s]); i++)
            here.from[i] = there.from[i] = values[i * i % 11 % 8];
        for (size_t i = 0; i < size_to(&settings[s]); i++)
            here.to[i] = there.to[i] = values[(i * i + 3) % 13 % 8];
        compute(device, &settings[s], &there);
        compute(cpu, &settings[s], &here);
        compare(&settings[s], "output", there.to, here.to, NULL, 0, 0);
        for (size_t i = 0; i < size_to(&settings[s]); i++)
            cr_assert_eq(memcmp(&there.to[i], &here.to[i], sizeof(float)), 0);
        for (size_t i = 0; i < size_from(&settings[s]); i++)
            cr_assert_eq(memcmp(&there.from_delta[i], &here.from_delta[i], sizeof(float)), 0);
        free_numbers(&here);
        free_numbers(&there);
    }
    cpu->ops->destroy(cpu);
    device->ops->destroy(device);
    train_check_clean();
}

/* ---- scores ---- */

/* Exponentials may differ by 2 ulp (CUDA C++ Programming Guide, expf), their sum and the quotient
 * accordingly; the loss is a logarithm of the sum. */
static void check_scores(size_t classes, size_t batch)
{
    struct train_random random = train_random_make(classes, TRAIN_RANDOM_WEIGHTS, batch, 0);
    struct operation last = {.out = {1, 1, classes}};
    struct backend *backends[2] = {NULL, train_device_backend(0, batch, 1)};
    size_t count = batch * classes;
    float *scores = draw(&random, count, 0), *deltas[2];
    uint8_t *labels = malloc(batch);
    double losses[2];
    size_t right[2];

    for (size_t i = 0; i < count; i++)
        scores[i] = roundf(4 * scores[i]); /* some are the highest together */
    for (size_t i = 0; i < batch; i++)
        labels[i] = (uint8_t)train_random_below(&random, classes);
    DONE(backend_create_cpu(&backends[0], NULL));
    for (int b = 0; b < 2; b++) {
        struct backend *backend = backends[b];

        DONE(backend->ops->load(backend, scores, 1, labels, batch));
        last.to = train_put(backend, scores, count);
        DONE(backend->ops->alloc(backend, count, 0, &last.to_delta));
        DONE(backend->ops->derive_scores(backend, &last, batch));
        DONE(backend->ops->end_gradient(backend));
        DONE(backend->ops->loss(backend, &losses[b]));
        DONE(backend->ops->count_right(backend, &last, batch, &right[b]));
        deltas[b] = malloc(count * sizeof(float));
        train_get(backend, deltas[b], last.to_delta, count);
        backend->ops->free(backend, last.to, 0);
        backend->ops->free(backend, last.to_delta, 0);
        backend->ops->destroy(backend);
    }
    cr_assert_eq(right[0], right[1]);
    cr_assert_float_eq(losses[0], losses[1], 8 * (double)FLT_EPSILON * (1 + fabs(losses[0])));
    for (size_t i = 0; i < count; i++)
        cr_assert_float_eq(deltas[0][i], deltas[1][i], 8 * FLT_EPSILON / (float)batch,
                           "%zu classes [%zu]: %a, not %a", classes, i, (double)deltas[1][i],
                           (double)deltas[0][i]);
    for (int b = 0; b < 2; b++)
        free(deltas[b]);
    free(labels);
    free(scores);
    train_check_clean();
}

Test(train_operations, scores)
{
    check_scores(1, 1);
    check_scores(10, 7);
    check_scores(3, MOST_BATCH);
}

/* ---- vectors ---- */

enum { COUNT = 1000 };

static void same(struct backend *device, const float *there, const float *here, const char *what)
{
    static float got[COUNT];

    train_get(device, got, there, COUNT);
    cr_assert_eq(memcmp(got, here, sizeof got), 0, "%s", what);
}

Test(train_operations, vectors)
{
    struct train_random random = train_random_make(1, TRAIN_RANDOM_WEIGHTS, 0, 0);
    struct backend *device = train_device_backend(0, 1, 1), *cpu = NULL;
    const struct backend_ops *on = device->ops, *by;
    float *here[3], *there[3];
    const float *kept = NULL;

    DONE(backend_create_cpu(&cpu, NULL));
    by = cpu->ops;
    for (int i = 0; i < 3; i++) {
        here[i] = draw(&random, COUNT, 0);
        there[i] = train_put(device, here[i], COUNT);
    }
    DONE(by->update(cpu, here[0], here[1], here[2], COUNT, 0.1f, 0.9f));
    DONE(on->update(device, there[0], there[1], there[2], COUNT, 0.1f, 0.9f));
    same(device, there[0], here[0], "weights");
    same(device, there[1], here[1], "velocities");
    DONE(by->scale(cpu, here[1], here[0], 0.3f, COUNT));
    DONE(on->scale(device, there[1], there[0], 0.3f, COUNT));
    same(device, there[1], here[1], "scale");
    DONE(by->scale(cpu, here[1], here[1], 0.7f, COUNT));
    DONE(on->scale(device, there[1], there[1], 0.7f, COUNT));
    same(device, there[1], here[1], "scale, in place");
    DONE(by->shift(cpu, here[0], here[1], 0.25f, here[2], COUNT));
    DONE(on->shift(device, there[0], there[1], 0.25f, there[2], COUNT));
    same(device, there[0], here[0], "shift");
    DONE(by->swap(cpu, here[0], here[2], COUNT));
    DONE(on->swap(device, there[0], there[2], COUNT));
    same(device, there[0], here[0], "swap");
    same(device, there[2], here[2], "swap");
    DONE(by->copy(cpu, here[1], here[2], COUNT));
    DONE(on->copy(device, there[1], there[2], COUNT));
    same(device, there[1], here[1], "copy");

    /* What is kept is as it was, also where there was no room for it before. */
    for (size_t count = COUNT / 2; count <= COUNT; count += COUNT / 2) {
        DONE(on->keep(device, there[0], count));
        DONE(on->clear(device, there[0], count));
        DONE(on->kept(device, &kept));
        cr_assert_eq(memcmp(kept, here[0], count * sizeof *kept), 0);
        DONE(on->put(device, there[0], here[0], count));
    }
    DONE(by->clear(cpu, here[2], COUNT));
    DONE(on->clear(device, there[2], COUNT));
    same(device, there[2], here[2], "clear");
    for (int i = 0; i < 3; i++) {
        on->free(device, there[i], 0);
        free(here[i]);
    }
    on->free(device, NULL, 0);
    on->destroy(device);
    on->destroy(NULL);
    by->destroy(cpu);
    train_check_clean();
}
