/* SPDX-License-Identifier: BSD-3-Clause */
/* From scores: derivatives, losses, and who is right. A thread has an image. */
#include "tools/train/cuda/kernel.cuh"

/* The derivatives of the mean loss, (softmax - onehot) / batch, and the loss of each image. */
TRAIN_KERNEL train_softmax(float *delta, double *losses, const float *scores, const uint8_t *labels,
                           uint64_t classes, uint64_t batch)
{
    for (TRAIN_EACH(row, batch)) {
        const float *score = scores + row * classes;
        float *to = delta + row * classes;
        float highest = score[0];
        float sum = 0;

        for (uint64_t i = 1; i < classes; i++)
            highest = score[i] > highest ? score[i] : highest;
        for (uint64_t i = 0; i < classes; i++) {
            to[i] = expf(score[i] - highest);
            sum += to[i];
        }
        for (uint64_t i = 0; i < classes; i++)
            to[i] = (to[i] / sum - (float)(i == labels[row])) / (float)batch;
        losses[row] = log((double)sum) - (double)(score[labels[row]] - highest);
    }
}

/* By one block: a thread adds up every 256th, and the first thread adds up what they have. */
TRAIN_KERNEL train_mean_loss(double *mean, const double *losses, uint64_t batch)
{
    WEFT_SHARED(double, parts, TRAIN_CUDA_THREADS);
    double sum = 0;

    for (uint64_t row = threadIdx.x; row < batch; row += TRAIN_CUDA_THREADS)
        sum += losses[row];
    parts[threadIdx.x] = sum;
    __syncthreads();
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        for (int i = 1; i < TRAIN_CUDA_THREADS; i++)
            sum += parts[i];
        *mean = sum / (double)batch;
    }
}

/* *right grows by their number; it is not set to 0 before. */
TRAIN_KERNEL train_count_right(unsigned long long *right, const float *scores,
                               const uint8_t *labels, uint64_t classes, uint64_t batch)
{
    for (TRAIN_EACH(row, batch)) {
        const float *score = scores + row * classes;
        uint64_t best = 0;

        for (uint64_t i = 1; i < classes; i++)
            best = score[i] > score[best] ? i : best;
        if (best == labels[row])
            atomicAdd(right, 1ull);
    }
}
