/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A strict stand-in of cuBLAS, over the stand-in of the driver: a library that is named
 * libcublas.so.13, with the functions that the trainer calls. A product is an operation of the
 * stream, and adds up in another order than a processor's BLAS does.
 *
 * The environment, read when the library is loaded:
 *   STANDIN_CUBLAS_FAIL=n[:code]  the n-th call fails with `code` (14, INTERNAL_ERROR)
 *   STANDIN_QUIET=1, STANDIN_ABORT=1: as of the stand-in of the driver */
#ifndef WEFT_CUBLAS_STANDIN_H
#define WEFT_CUBLAS_STANDIN_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How often cuBLAS was misused. `text` (may be NULL) gets the first texts. */
unsigned standin_cublas_report(char *text, size_t size);
void standin_cublas_forget(void);

/* Handles that were not destroyed. */
unsigned standin_cublas_leaks(void);

/* Calls so far, of all functions, and products that streams have computed. */
unsigned long standin_cublas_calls(void);
unsigned long standin_cublas_products(void);

/* The n-th call from now fails with `code`; what ends a life does so all the same. 0: none. */
void standin_cublas_fail_at(unsigned long n, int code);

/* ---- cuBLAS itself: its enums as int, for its header is not everywhere ---- */

int cublasCreate_v2(void **handle);
int cublasDestroy_v2(void *handle);
int cublasSetStream_v2(void *handle, void *stream);
int cublasSgemm_v2(void *handle, int of_a, int of_b, int m, int n, int k, const float *alpha,
                   const float *a, int lda, const float *b, int ldb, const float *beta, float *c,
                   int ldc);

#ifdef __cplusplus
}
#endif

#endif
