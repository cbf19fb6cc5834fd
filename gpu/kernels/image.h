/* SPDX-License-Identifier: BSD-3-Clause */
/* What nvcc has made of the kernels, as cuModuleLoadData() takes it: a fatbin for each source. */
#ifndef WEFT_GPU_KERNELS_IMAGE_H
#define WEFT_GPU_KERNELS_IMAGE_H

#include <stddef.h>

/* `name` is that of the source: "reduce". */
struct weft__gpu_image {
    const char *name;
    const void *data;
    size_t bytes;
};

extern const struct weft__gpu_image weft__gpu_images[];
extern const unsigned weft__gpu_image_count;

#endif
