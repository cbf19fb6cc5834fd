/* SPDX-License-Identifier: BSD-3-Clause */
/* Sums of vectors, and steps of gradient descent. A vector is exactly another or overlaps none. */
#include "tools/train/cuda/kernel.cuh"

TRAIN_KERNEL train_add(float *to, const float *other, uint64_t count)
{
    for (TRAIN_EACH(i, count))
        to[i] += other[i];
}

TRAIN_KERNEL train_scale(float *to, const float *from, float factor, uint64_t count)
{
    for (TRAIN_EACH(i, count))
        to[i] = from[i] * factor;
}

/* data = data + (factor sum - posted). */
TRAIN_KERNEL train_shift(float *data, const float *sum, float factor, const float *posted,
                         uint64_t count)
{
    for (TRAIN_EACH(i, count))
        data[i] += sum[i] * factor - posted[i];
}

TRAIN_KERNEL train_swap(float *a, float *b, uint64_t count)
{
    for (TRAIN_EACH(i, count)) {
        const float kept = a[i];

        a[i] = b[i];
        b[i] = kept;
    }
}

/* v = momentum v + gradient, w = w - rate v. */
TRAIN_KERNEL train_update(float *weights, float *velocities, const float *gradients, float rate,
                          float momentum, uint64_t count)
{
    for (TRAIN_EACH(i, count)) {
        const float velocity = momentum * velocities[i] + gradients[i];

        velocities[i] = velocity;
        weights[i] -= rate * velocity;
    }
}
