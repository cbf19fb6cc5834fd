/* SPDX-License-Identifier: BSD-3-Clause */
/* A device as a backend: what the files of the module share. */
#ifndef WEFT_TOOLS_TRAIN_CUDA_DEVICE_H
#define WEFT_TOOLS_TRAIN_CUDA_DEVICE_H

#include "tools/train/backend.h"
#include "tools/train/cuda/libraries.h"
#include "tools/train/cuda/list.h"

/* TRAIN_CUDA_train_relu is the kernel train_relu(). */
#define TRAIN_CUDA_NUMBER(name) TRAIN_CUDA_##name,
enum train_cuda_kernel { TRAIN_CUDA_KERNELS(TRAIN_CUDA_NUMBER) TRAIN_CUDA_KERNEL_COUNT };
#undef TRAIN_CUDA_NUMBER

/* A batch on its way to the device, and what has come of it: pinned memory, used again when the
 * device is done with it. */
struct train_cuda_batch {
    float *images;
    uint8_t *labels;
    double *loss;
    unsigned long long *right;
    /* Before the batch is copied, and behind what was done with it. */
    CUevent begins, ends;
    int is_used;
    int is_gradient; /* whose time is not in `seconds` yet */
};

/* How many are under way: the thread is so many gradients ahead of the device at most. */
enum { TRAIN_CUDA_BATCHES = 2 };

struct train_cuda {
    struct backend backend; /* first */
    const struct train_cuda_libraries *calls;
    char name[16]; /* "cuda:0" */
    int ordinal;
    CUcontext context; /* the device's primary one */
    CUmodule *modules; /* an image each */
    CUfunction kernels[TRAIN_CUDA_KERNEL_COUNT];
    CUstream stream;
    void *cublas;

    struct train_cuda_batch batches[TRAIN_CUDA_BATCHES];
    struct train_cuda_batch *batch; /* the last one */
    void *pinned;                   /* of all of them */
    /* On the device: the batch that was loaded, and what becomes of it. */
    size_t most; /* images of a batch */
    float *images;
    uint8_t *labels;
    double *losses; /* of each image, then the mean */
    unsigned long long *right;
    double seconds; /* of gradients that are over */

    /* Pinned: numbers that are kept for the host, and when they are there. */
    float *kept;
    size_t kept_room;
    CUevent kept_there;

    /* What has failed first; nothing is put on the stream any more. */
    int status;
    char text[256];
};

static inline CUdeviceptr train_cuda_at(const void *memory)
{
    return (CUdeviceptr)(uintptr_t)memory;
}

static inline struct train_cuda *train_cuda_of(struct backend *backend)
{
    return (struct train_cuda *)backend;
}

/* Begins a call: makes the device's context the thread's, where it stays. WEFT_OK, or what has
 * failed before. */
int train_cuda_enter(struct train_cuda *cuda);

/* Notes what has failed, if nothing has before: a status with the thread's text. Returns what has
 * failed. */
int train_cuda_fail(struct train_cuda *cuda, int status);
/* WEFT_OK, or what has failed, also before. */
int train_cuda_status(struct train_cuda *cuda);

/* Notes the error of a call of the driver, or of cuBLAS, if it is one. WEFT_OK, or what has failed,
 * also before. */
int train_cuda_check(struct train_cuda *cuda, CUresult code, const char *call);
int train_cublas_check(struct train_cuda *cuda, int code, const char *call);

/* Calls a function of the driver, unless something has failed. */
#define TRAIN_CUDA_CALL(cuda, name, ...)                                                           \
    ((cuda)->status ? train_cuda_status(cuda)                                                      \
                    : train_cuda_check(cuda, (cuda)->calls->name(__VA_ARGS__), #name))

/* Puts a kernel on the stream, with a thread for each of `work` things, at least one. */
int train_cuda_launch(struct train_cuda *cuda, enum train_cuda_kernel kernel, uint64_t work,
                      void **arguments);
#define TRAIN_CUDA_LAUNCH(cuda, kernel, work, ...)                                                 \
    train_cuda_launch(cuda, TRAIN_CUDA_##kernel, work, (void *[]){__VA_ARGS__})

/* A product as cuBLAS has it, on the stream. */
int train_cuda_product(struct train_cuda *cuda, int of_a, int of_b, size_t m, size_t n, size_t k,
                       const float *a, size_t lda, const float *b, size_t ldb, float beta, float *c,
                       size_t ldc);

/* Device memory, zeroed in the order of the stream. */
int train_cuda_alloc(struct train_cuda *cuda, size_t bytes, void **memory);
int train_cuda_clear(struct train_cuda *cuda, void *memory, size_t bytes);
int train_cuda_copy(struct train_cuda *cuda, void *to, const void *from, size_t bytes);

/* launch.c: the device is current. */
int train_cuda_load_kernels(struct train_cuda *cuda);
void train_cuda_unload_kernels(struct train_cuda *cuda);

/* batches.c */
int train_cuda_make_batches(struct train_cuda *cuda, size_t numbers);
void train_cuda_free_batches(struct train_cuda *cuda);
int train_cuda_load(struct backend *backend, const float *images, size_t numbers,
                    const uint8_t *labels, size_t batch);
int train_cuda_derive_scores(struct backend *backend, const struct operation *last, size_t batch);
int train_cuda_end_gradient(struct backend *backend);
int train_cuda_loss(struct backend *backend, double *loss);
int train_cuda_count_right(struct backend *backend, const struct operation *last, size_t batch,
                           size_t *right);
int train_cuda_seconds(struct backend *backend, double *seconds);

/* products.c, pointwise.c, norm.c */
extern const struct operation_passes train_cuda_dense;
extern const struct operation_passes train_cuda_convolution;
extern const struct operation_passes train_cuda_norm;
extern const struct operation_passes train_cuda_relu;
extern const struct operation_passes train_cuda_add;
extern const struct operation_passes train_cuda_pool;
extern const struct operation_passes train_cuda_mean;

#endif
