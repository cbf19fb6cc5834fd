/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Devices of CUDA that train. What knows CUDA is a module (tools/train/cuda/), which is loaded when
 * a device is asked for, and loads the driver and cuBLAS: the command is linked with none of them.
 */
#ifndef WEFT_TOOLS_TRAIN_DEVICE_H
#define WEFT_TOOLS_TRAIN_DEVICE_H

#include <stddef.h>

struct backend;
struct weft_context;

/** What a backend on a device is made for. */
struct train_device_config {
    /** cuda:N, from 0. */
    int ordinal;
    /** Most images of a batch, and numbers of each. */
    size_t batch;
    size_t numbers;
};

struct train_device_module {
    /** weft's version, and the size of this struct, of the build that it is from. */
    const char *version;
    size_t size;
    /**
     * How many devices there are, at least one, on which models can be trained.
     * @return WEFT_OK, or WEFT_ERR_UNSUPPORTED with a text that says what is missing.
     */
    int (*count)(int *devices);
    /**
     * Makes a backend on a device, whose context becomes the calling thread's current one, and is
     * that in the calls to come. Any thread; then one at a time.
     * @return WEFT_OK; as count(); WEFT_ERR_INVALID (no such device); WEFT_ERR_MEMORY;
     *         WEFT_ERR_SYSTEM (the driver or cuBLAS has failed).
     */
    int (*create)(struct backend **backend, const struct train_device_config *config);
};

/** What it is found by in the module. */
#define TRAIN_DEVICE_SYMBOL "weft_command_cuda"
extern const struct train_device_module weft_command_cuda;

/* ---- of the trainer ---- */

/** What can be said of a device before there are ranks: that "cuda" or "cuda:N" is a name of one,
 *  and that models can be trained on it. @return WEFT_OK; WEFT_ERR_INVALID (another name, no such
 *  device); WEFT_ERR_UNSUPPORTED with a text that says what is missing. */
int train_device_check(const char *name);

/** What contexts are told: NULL of "cuda", for which their ranks have that of WEFT_DEVICE, or else
 *  that of their models (weft_context_config.device). */
const char *train_device_of_contexts(const char *name);

/** Makes a backend on the device of that name; "cuda": that of WEFT_DEVICE, or else the ranks of a
 *  host have its devices in turn. @param streams that a rank will have beside it.
 *  @return as train_device_check(), and as create(). */
int train_device_create(struct backend **backend, const char *name, struct weft_context *context,
                        size_t batch, size_t numbers, int streams);

#endif
