/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions: which kernel does one, and with how large a grid. */
#include "gpu/cuda_device.h"

#include "gpu/kernels/arguments.h"
#include "runtime/base/error.h"

/* A grid is to have a thread for each vector, and goes round where that would be more blocks. */
enum { THREADS = 256, WARP = 32, MOST_BLOCKS = 65536, VECTOR = 16 };

/* The kernel of two inputs + 1; 0: there is none. Integers of both signs share what is the same for
 * both. */
#define KERNEL(operation) WEFT__GPU_weft_reduce_##operation + 1
#define BOTH(kind, name, bits)                                                                     \
    [kind][WEFT_I##bits] = KERNEL(name##_u##bits), [kind][WEFT_U##bits] = KERNEL(name##_u##bits)
#define EACH(kind, name, bits)                                                                     \
    [kind][WEFT_I##bits] = KERNEL(name##_i##bits), [kind][WEFT_U##bits] = KERNEL(name##_u##bits)
#define INTEGERS(bits)                                                                             \
    BOTH(WEFT_SUM, sum, bits), BOTH(WEFT_PROD, prod, bits), EACH(WEFT_MIN, min, bits),             \
        EACH(WEFT_MAX, max, bits), BOTH(WEFT_LAND, land, bits), BOTH(WEFT_LOR, lor, bits),         \
        BOTH(WEFT_LXOR, lxor, bits), BOTH(WEFT_BAND, band, bits), BOTH(WEFT_BOR, bor, bits),       \
        BOTH(WEFT_BXOR, bxor, bits)
#define FLOATS(dtype, format)                                                                      \
    [WEFT_SUM][dtype] = KERNEL(sum_##format), [WEFT_PROD][dtype] = KERNEL(prod_##format),          \
    [WEFT_MIN][dtype] = KERNEL(min_##format), [WEFT_MAX][dtype] = KERNEL(max_##format),            \
    [WEFT_LAND][dtype] = KERNEL(land_##format), [WEFT_LOR][dtype] = KERNEL(lor_##format),          \
    [WEFT_LXOR][dtype] = KERNEL(lxor_##format)

static const short kernels[WEFT_OP_COUNT][WEFT_DTYPE_COUNT] = {
    INTEGERS(8),           INTEGERS(16),          INTEGERS(32),
    INTEGERS(64),          FLOATS(WEFT_F16, f16), FLOATS(WEFT_BF16, bf16),
    FLOATS(WEFT_F32, f32), FLOATS(WEFT_F64, f64),
};

/* Negative, with weft__error set. */
static int kernel_of(weft_op_kind_t kind, weft_dtype_t dtype)
{
    const char *name;

    if ((unsigned)kind < WEFT_OP_COUNT && (unsigned)dtype < WEFT_DTYPE_COUNT &&
        kernels[kind][dtype])
        return kernels[kind][dtype] - 1;
    name = weft_dtype_name(dtype);
    return weft__error(WEFT_ERR_INVALID, "a device cannot reduce %s by operation %d (%s)",
                       name ? name : "no datatype", (int)kind,
                       (unsigned)kind < WEFT_OP_COUNT ? weft_op_name(weft_op_builtin(kind))
                                                      : "none");
}

/* So many threads have something to do. Where the arrays do not begin alike, elements are taken one
 * by one. */
static size_t work_of(size_t count, size_t size, int alike)
{
    return alike ? count / (VECTOR / size) + 1 : count;
}

static int is_alike(const void *a, const void *b)
{
    return ((uintptr_t)a - (uintptr_t)b) % VECTOR == 0;
}

/* By whole warps; a block has no more of them than have something to do. */
static int launch(struct weft__cuda_stream *on, int kernel, size_t work, void **arguments)
{
    size_t warps = (work - 1) / WARP + 1, blocks = (work - 1) / THREADS + 1;
    unsigned threads = warps < THREADS / WARP ? WARP * (unsigned)warps : THREADS;
    int entered = weft__cuda_enter(on->cuda);
    int status;

    if (entered < 0)
        return entered;
    status = weft__cuda_launch(on->cuda, on->handle, (enum weft__gpu_kernel)kernel,
                               blocks < MOST_BLOCKS ? (unsigned)blocks : MOST_BLOCKS, threads, 0,
                               arguments);
    weft__cuda_leave(on->cuda, entered);
    return status;
}

int weft__cuda_reduce(struct weft__stream *stream, weft_op_kind_t kind, weft_dtype_t dtype,
                      void *dst, const void *a, const void *b, size_t count)
{
    uint64_t elements = count;
    void *arguments[] = {&dst, &a, &b, &elements};
    int kernel = kernel_of(kind, dtype);

    if (kernel < 0 || count == 0)
        return kernel < 0 ? kernel : WEFT_OK;
    return launch((struct weft__cuda_stream *)stream, kernel,
                  work_of(count, weft_dtype_size(dtype), is_alike(dst, a) && is_alike(dst, b)),
                  arguments);
}

int weft__cuda_reduce_n(struct weft__stream *stream, weft_op_kind_t kind, weft_dtype_t dtype,
                        void *dst, const void *const *inputs, unsigned n, size_t count)
{
    struct weft_gpu_inputs given = {.count = n};
    uint64_t elements = count;
    void *arguments[] = {&dst, &given, &elements};
    int kernel = kernel_of(kind, dtype);
    int alike = 1;

    if (kernel < 0)
        return kernel;
    if (n < 2 || n > WEFT_GPU_MOST_INPUTS)
        return weft__error(WEFT_ERR_INVALID,
                           "a device cannot reduce %u inputs at once, only 2 to %d", n,
                           WEFT_GPU_MOST_INPUTS);
    if (count == 0)
        return WEFT_OK;
    for (unsigned i = 0; i < n; i++) {
        given.from[i] = inputs[i];
        alike = alike && is_alike(dst, inputs[i]);
    }
    return launch((struct weft__cuda_stream *)stream, kernel + 1,
                  work_of(count, weft_dtype_size(dtype), alike), arguments);
}
