/* SPDX-License-Identifier: BSD-3-Clause */
/* Structs that kernels take by value: C, for those who launch them. */
#ifndef WEFT_TOOLS_TRAIN_CUDA_SHAPES_H
#define WEFT_TOOLS_TRAIN_CUDA_SHAPES_H

#include <stdint.h>

/* A value of an image: its rows, columns and channels, which are innermost. */
struct train_image {
    uint32_t rows, columns, channels;
};

/* The windows of a convolution: as many as the pixels of what it makes, each with the pixel at its
 * place times the stride in its middle. */
struct train_windows {
    struct train_image image;
    uint32_t rows, columns; /* of what it makes */
    uint32_t side, stride;
};

#endif
