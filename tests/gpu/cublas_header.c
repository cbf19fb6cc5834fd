/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the trainer declares of cuBLAS is what cublas_v2.h does: compiled where that is, never run.
 */
#include <cublas_v2.h>

#include "tools/train/cuda/libraries.h"

/* The header's types are these... */
#define SAME(function, type)                                                                       \
    _Static_assert(__builtin_types_compatible_p(__typeof__(function), type), #function)

typedef cublasStatus_t create(cublasHandle_t *);
typedef cublasStatus_t destroy(cublasHandle_t);
typedef cublasStatus_t set_stream(cublasHandle_t, cudaStream_t);
typedef cublasStatus_t sgemm(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                             const float *, const float *, int, const float *, int, const float *,
                             float *, int);

SAME(cublasCreate_v2, create);
SAME(cublasDestroy_v2, destroy);
SAME(cublasSetStream_v2, set_stream);
SAME(cublasSgemm_v2, sgemm);

/* ... and the trainer's the same with pointers for handles, and int for enums. */
#define PASSES(name, type)                                                                         \
    _Static_assert(__builtin_types_compatible_p(train_cublas_##name, type), #name)

PASSES(create, int (*)(void **));
PASSES(destroy, int (*)(void *));
PASSES(set_stream, int (*)(void *, CUstream));
PASSES(sgemm, int (*)(void *, int, int, int, int, int, const float *, const float *, int,
                      const float *, int, const float *, float *, int));

_Static_assert(sizeof(cublasStatus_t) == sizeof(int) && sizeof(cublasOperation_t) == sizeof(int) &&
                   sizeof(cublasHandle_t) == sizeof(void *),
               "an ABI passes both alike");
_Static_assert((int)CUBLAS_OP_N == TRAIN_CUBLAS_AS_IT_IS &&
                   (int)CUBLAS_OP_T == TRAIN_CUBLAS_TRANSPOSED,
               "operations");
_Static_assert(CUBLAS_STATUS_SUCCESS == 0 && CUBLAS_STATUS_NOT_INITIALIZED == 1 &&
                   CUBLAS_STATUS_ALLOC_FAILED == 3 && CUBLAS_STATUS_INVALID_VALUE == 7 &&
                   CUBLAS_STATUS_ARCH_MISMATCH == 8 && CUBLAS_STATUS_MAPPING_ERROR == 11 &&
                   CUBLAS_STATUS_EXECUTION_FAILED == 13 && CUBLAS_STATUS_INTERNAL_ERROR == 14 &&
                   CUBLAS_STATUS_NOT_SUPPORTED == 15,
               "statuses that have texts");
