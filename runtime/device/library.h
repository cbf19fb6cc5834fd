/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices of CUDA, by libweft-cuda, which is loaded when one is asked for. */
#ifndef WEFT_RUNTIME_DEVICE_LIBRARY_H
#define WEFT_RUNTIME_DEVICE_LIBRARY_H

#include <stdint.h>

#include "runtime/base/companion.h"
#include "runtime/engine/device.h"

/* The device of a name: NULL or "cuda" is that of the calling thread's current CUDA context, else
 * `otherwise`, counted round where there are fewer (a rank on its host, say); "cuda:1" is the
 * second one. Whoever opens one ends it. WEFT_OK; WEFT_ERR_UNSUPPORTED: not built in, no driver, no
 * device; WEFT_ERR_INVALID: another name, no such device. Any thread. */
int weft__device_open(const char *name, int otherwise, struct weft__device **device);

/* What devices there are. */
struct weft__device_about {
    char name[128];
    char bus[32]; /* "0000:01:00.0" */
    uint64_t memory_bytes;
    uint64_t bandwidth; /* of it, bytes a second; 0: not known */
    int major, minor;   /* compute capability */
    int processors;
};

struct weft__device_link {
    int access;  /* of kernels to the peer's memory */
    int atomics; /* all of them, over the link */
    int rank;    /* how it performs, as the driver ranks links */
};

struct weft__devices {
    int count;
    int driver; /* 13000 is 13.0 */
    /* To be freed: of each device, and of each and each other one. */
    struct weft__device_about *devices;
    struct weft__device_link *links;
};

/* Opens nothing. WEFT_ERR_NOT_FOUND: not built in; WEFT_ERR_UNSUPPORTED: no driver, no device. Any
 * thread. */
int weft__device_describe(struct weft__devices *devices);

/* Where an address is, by the devices that are open: 1, of a device; 2, of managed memory; 0, of
 * neither. Negative: weft__error is set. Loads nothing. Any thread. */
int weft__device_locate(const void *address);

/* ---- what libweft looks up in libweft-cuda ---- */

/* Changes with the structures that both reach into. */
#define WEFT__DEVICE_LAYOUT                                                                        \
    (((uint64_t)sizeof(struct weft__device_ops) * 8191 + sizeof(struct weft__stream)) * 8191 +     \
     sizeof(struct weft_call) + sizeof(struct weft__device_about) +                                \
     sizeof(struct weft_device_sum))

/* The version that it is of; fills in its WEFT__DEVICE_LAYOUT. */
WEFT__PRIVATE const char *weft__cuda_build(uint64_t *layout);
/* ordinal -1: as above, or `otherwise`. */
WEFT__PRIVATE int weft__cuda_open(int ordinal, int otherwise, struct weft__device **device);
WEFT__PRIVATE int weft__cuda_describe(struct weft__devices *devices);
WEFT__PRIVATE int weft__cuda_locate(const void *address);

#endif
