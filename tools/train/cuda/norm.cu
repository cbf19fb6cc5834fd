/* SPDX-License-Identifier: BSD-3-Clause */
/* Group normalisation, as tools/train/norm.c has it: of each image and group of `width` channels.
 * A block has an image at a time. `kept` has the mean and the scale of every channel of each image,
 * `scratch` four numbers of every channel of each: sums of the channels, then those of their
 * groups. */
#include "tools/train/cuda/kernel.cuh"

/* Of channel c: the sum of its group's `sums`, each times its `gain` (NULL: as it is). */
WEFT_DEVICE float group_sum(const float *sums, const float *gain, uint32_t width, uint32_t c)
{
    const uint32_t first = c / width * width;
    float sum = 0;

    for (uint32_t i = first; i < first + width; i++)
        sum += gain ? sums[i] * gain[i] : sums[i];
    return sum;
}

#define EACH_CHANNEL(c, channels)                                                                  \
    uint32_t c = threadIdx.x;                                                                      \
    c < (channels);                                                                                \
    c += TRAIN_CUDA_THREADS

/* y = gain (x - mean) r + shift. `factor` is 1 / numbers of a group. */
TRAIN_KERNEL train_norm(float *to, const float *from, const float *gain, const float *shift,
                        float *kept, float *scratch, uint64_t images, uint32_t pixels,
                        uint32_t channels, uint32_t width, float factor, float epsilon)
{
    const uint64_t size = (uint64_t)pixels * channels;

    for (uint64_t image = blockIdx.x; image < images; image += gridDim.x) {
        const float *x = from + image * size;
        float *mean = kept + image * 2 * channels;
        float *scale = mean + channels;
        float *sums = scratch + image * 4 * channels;

        for (EACH_CHANNEL(c, channels)) {
            float sum = 0;

            for (uint32_t p = 0; p < pixels; p++)
                sum += x[(uint64_t)p * channels + c];
            sums[c] = sum;
        }
        __syncthreads();
        for (EACH_CHANNEL(c, channels))
            mean[c] = group_sum(sums, NULL, width, c) * factor;
        __syncthreads();
        for (EACH_CHANNEL(c, channels)) {
            float sum = 0;

            for (uint32_t p = 0; p < pixels; p++) {
                const float apart = x[(uint64_t)p * channels + c] - mean[c];

                sum += apart * apart;
            }
            sums[c] = sum;
        }
        __syncthreads();
        for (EACH_CHANNEL(c, channels))
            scale[c] = 1 / sqrtf(group_sum(sums, NULL, width, c) * factor + epsilon);
        __syncthreads();
        for (uint64_t i = threadIdx.x; i < size; i += TRAIN_CUDA_THREADS) {
            const uint32_t c = (uint32_t)(i % channels);

            to[image * size + i] = (x[i] - mean[c]) * scale[c] * gain[c] + shift[c];
        }
    }
}

/* dx = r (g - mean(g) - x' mean(g x')), g = dy gain; and of each image, in its scratch, sum dy and
 * sum dy x'. */
TRAIN_KERNEL train_norm_back(float *below, const float *delta, const float *from, const float *gain,
                             const float *kept, float *scratch, int adds, uint64_t images,
                             uint32_t pixels, uint32_t channels, uint32_t width, float factor)
{
    const uint64_t size = (uint64_t)pixels * channels;

    for (uint64_t image = blockIdx.x; image < images; image += gridDim.x) {
        const float *x = from + image * size;
        const float *dy = delta + image * size;
        const float *mean = kept + image * 2 * channels;
        const float *scale = mean + channels;
        float *sums = scratch + image * 4 * channels;
        float *products = sums + channels;
        float *group_sums = products + channels;
        float *group_products = group_sums + channels;

        for (EACH_CHANNEL(c, channels)) {
            float sum = 0, product = 0;

            for (uint32_t p = 0; p < pixels; p++) {
                const uint64_t i = (uint64_t)p * channels + c;

                sum += dy[i];
                product += dy[i] * ((x[i] - mean[c]) * scale[c]);
            }
            sums[c] = sum;
            products[c] = product;
        }
        __syncthreads();
        for (EACH_CHANNEL(c, channels)) {
            group_sums[c] = group_sum(sums, gain, width, c) * factor;
            group_products[c] = group_sum(products, gain, width, c) * factor;
        }
        __syncthreads();
        for (uint64_t i = threadIdx.x; i < size; i += TRAIN_CUDA_THREADS) {
            const uint32_t c = (uint32_t)(i % channels);
            const float normal = (x[i] - mean[c]) * scale[c];
            const float part = dy[i] * gain[c] - group_sums[c] - normal * group_products[c];
            float *to = below + image * size + i;

            *to = (adds ? *to : 0) + scale[c] * part;
        }
    }
}

/* The gradients of gains and shifts: what train_norm_back() has left of all images. */
TRAIN_KERNEL train_norm_sums(float *gains, float *shifts, const float *scratch, uint64_t images,
                             uint64_t channels)
{
    for (TRAIN_EACH(c, channels)) {
        float gain = 0, shift = 0;

        for (uint64_t image = 0; image < images; image++) {
            shift += scratch[image * 4 * channels + c];
            gain += scratch[image * 4 * channels + channels + c];
        }
        gains[c] = gain;
        shifts[c] = shift;
    }
}
