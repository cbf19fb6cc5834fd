/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Devices: GPUs, by CUDA. What is on them is in a library of its own (libweft-cuda), which is
 * loaded when a device is asked for, and loads the driver then.
 */
#ifndef WEFT_DEVICE_H
#define WEFT_DEVICE_H

#include <weft/context.h>
#include <weft/schedule.h>
#include <weft/sparse.h>
#include <weft/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * What devices there are, as a JSON object, for people and their scripts:
 *
 *     gpu      "not built in"; "no device", and why; or "cuda"
 *     why      what is missing: a driver, say; empty where devices are there
 *     driver   the version of CUDA that the driver has, "13.0"; empty without one
 *     devices  a list of objects, empty without any:
 *         device              "cuda:0"
 *         name                the maker's
 *         memory_bytes        in all
 *         bandwidth           bytes a second that its memory can move, by its clock and width;
 *                             0 where the driver does not tell them
 *         compute_capability  "9.0"
 *         processors          streaming multiprocessors
 *         bus                 where it is on the PCI bus
 *         links               to each other device: an object with
 *             device          "cuda:1"
 *             access          kernels reach that device's memory; else copies alone do
 *             atomics         with all atomics, as over NVLink; else, mostly, it is PCIe
 *             rank            how it performs, as the driver ranks links
 *
 * Needs no device and opens none. Blocking (the first call that finds a driver starts it). Any
 * thread.
 * @param text a string that the caller frees with weft_memory_free().
 * @return WEFT_OK, also where there is nothing; WEFT_ERR_INVALID (NULL), WEFT_ERR_MEMORY.
 */
WEFT_EXPORT int weft_devices_describe(char **text);

/**
 * Where memory is, for who is handed an address. Known are the devices that a context of this
 * process has opened: without one all memory is the host's. Opens none. Any thread.
 * @param of_host 1: the processor may touch it; else 0.
 * @param of_device 1: it is memory of a device; else 0. Both are 1 of managed memory.
 * @return WEFT_OK; WEFT_ERR_INVALID (NULL for what is to be written); WEFT_ERR_SYSTEM.
 */
WEFT_EXPORT int weft_devices_locate(const void *address, int *of_host, int *of_device);

/* ---- memory of a context's device ---- */

/**
 * Opens the device of a context (weft_context_config.device), which else the first does that needs
 * it, and says which it is. A context that was split from another has that one's. Not collective;
 * any thread.
 * @param name "cuda:0"; it lives as long as the context. NULL: not asked for.
 * @return WEFT_OK; WEFT_ERR_UNSUPPORTED (no libweft-cuda, no driver, no device: the text says what
 *         is missing); WEFT_ERR_INVALID (a NULL, or the context's device is no name of one that is
 *         there); WEFT_ERR_MEMORY; WEFT_ERR_SYSTEM (the driver has refused).
 */
WEFT_EXPORT int weft_context_device(struct weft_context *context, const char **name);

/**
 * Memory for what runs are bound to: of the context's device, or of the host. It may wait for the
 * device, as the driver does, so it is for beginnings and not for steps. Not collective; any
 * thread.
 * @param memory WEFT_MEMORY_DEVICE: of the device, and not for the processor to touch.
 *        WEFT_MEMORY_HOST: pinned memory of the host, which the device reads and writes by itself,
 *        so that copies need no detour.
 * @param bytes 0 is allowed.
 * @param data the memory, aligned to 256 bytes, of undefined contents. It is freed by
 *        weft_context_device_free(), and what is left when the context that was made on the
 *        transport is destroyed.
 * @return WEFT_OK; WEFT_ERR_INVALID (a NULL, no such kind of memory); WEFT_ERR_MEMORY; as
 *         weft_context_device().
 */
WEFT_EXPORT int weft_context_device_alloc(struct weft_context *context, weft_memory_t memory,
                                          size_t bytes, void **data);

/** Frees memory of weft_context_device_alloc() of the same context, or of one of its family, which
 *  nothing on a stream uses any more: it may be given out again at once. NULL is accepted; what is
 *  no such memory is left alone, and logged as an error. Does not wait for the device. Any
 *  thread. */
WEFT_EXPORT void weft_context_device_free(struct weft_context *context, void *data);

/**
 * Copies between any two places: of the host, pinned or not, of the context's device, and of other
 * devices of this machine. Returns when all is there, and drives nothing meanwhile: what is to be
 * copied has been computed (weft_run_wait() has returned, say). Waits for nothing else that is on
 * the device. Not collective; any thread, several at once.
 * @return WEFT_OK; WEFT_ERR_INVALID (a NULL, places that overlap or are not of one allocation);
 *         WEFT_ERR_SYSTEM or WEFT_ERR_COMPUTE (the device has failed); as weft_context_device().
 *         After an error some bytes may have been copied; no more will be.
 */
WEFT_EXPORT int weft_context_device_copy(struct weft_context *context, void *to, const void *from,
                                         size_t bytes);

/* ---- what device functions put on their streams ---- */

/*
 * For functions of weft_op_config.device that need no more than arithmetic on vectors, and no
 * compiler of CUDA's. They are called from such a function, with the stream that it has been handed
 * or another one of the same device, and wait for nothing. Vectors are arguments of the call, or
 * other memory that kernels of the device reach: a struct weft_argument whose `pieces` is NULL is
 * `count` elements at `data`.
 */

/** What has been found that is not finite, in memory that the device writes: where the processor is
 *  to read it, pinned memory (weft_context_device_alloc(), WEFT_MEMORY_HOST). Begins as
 *  {0, UINT64_MAX}. */
struct weft_device_found {
    /** NaNs and infinities: their number is added. */
    uint64_t count;
    /** The place of the first of them: elements that stand before it in its vector, if that is less
     *  than what was here. */
    uint64_t first;
};

/** Of a weft_device_term: what is not finite in it is told to weft_device_sum.found. */
#define WEFT_DEVICE_COUNT 1u
/** Of a weft_device_term: what is not finite in it counts as +0. */
#define WEFT_DEVICE_CLEAR 2u

/** One of the vectors that are added. */
struct weft_device_term {
    /** Of f16, bf16, f32 or f64. */
    const struct weft_argument *vector;
    /** 0: 1. */
    double factor;
    /** WEFT_DEVICE_COUNT, WEFT_DEVICE_CLEAR. */
    unsigned flags;
};

/** Terms that a sum has at most. */
enum { WEFT_DEVICE_TERMS = 8 };

/**
 * A linear combination of vectors of one length:
 *
 *     to = (terms[0] + terms[1] + ...) factor / divisor - less          or to + that, with `adds`
 *
 * computed in f64 if one of the vectors is of f64, else in f32, from left to right and rounded
 * after every operation, and once more to the datatype of `to`: the bits that a plain loop gives on
 * the host, but that any NaN stands for any other. Factors and divisors that are 1 are left out, so
 * a term that is alone is converted as by weft_convert(). Members that are 0 mean their defaults.
 */
struct weft_device_sum {
    size_t struct_size;
    /** Written; it may be one of the vectors that are read, and overlaps them in no other way.
     *  NULL: nothing is, and terms are only looked at. */
    const struct weft_argument *to;
    /** At least one, at most WEFT_DEVICE_TERMS. */
    const struct weft_device_term *terms;
    size_t term_count;
    /** Default 1. */
    double factor;
    /** Default 1. */
    double divisor;
    /** Default NULL: none. */
    const struct weft_argument *less;
    /** 1: what is computed is added to what `to` has. */
    int adds;
    /** Where terms that have WEFT_DEVICE_COUNT are counted. Of the host, it is pinned memory. */
    struct weft_device_found *found;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_device_sum_init_sized(struct weft_device_sum *sum, size_t size);
#define weft_device_sum_init(sum) weft_device_sum_init_sized((sum), sizeof *(sum))

/**
 * Puts a linear combination on a stream. Reads every vector once.
 * @param stream a CUstream or cudaStream_t.
 * @return WEFT_OK: it is there, what it needs has been copied; WEFT_ERR_INVALID (the text names the
 *         member: another length or datatype, NULL, too many terms); WEFT_ERR_STATE (not in a
 *         device function); WEFT_ERR_SYSTEM, WEFT_ERR_COMPUTE (the driver has refused).
 */
WEFT_EXPORT int weft_device_combine(const struct weft_device_sum *sum, void *stream);

/**
 * Fills a vector with copies of one element, of 1, 2, 4 or 8 bytes.
 * @param element of the host, copied.
 * @return as weft_device_combine(); WEFT_ERR_UNSUPPORTED (elements of another size).
 */
WEFT_EXPORT int weft_device_fill(const struct weft_argument *to, const void *element, void *stream);

/**
 * Copies a vector, of any datatype, to another one of the same that it does not overlap.
 * @return as weft_device_combine().
 */
WEFT_EXPORT int weft_device_copy(const struct weft_argument *to, const struct weft_argument *from,
                                 void *stream);

/** Numbers that weft_device_squares() adds to. */
enum { WEFT_DEVICE_SQUARES = 1024 };

/**
 * Squares the elements of a vector of f16, bf16, f32 or f64 and adds them up, in f64 and in an
 * order that its pieces and their alignment say: the same bits every time, but in the last places
 * other ones than those of a plain loop. Reads the vector once.
 * @param flags 0 or WEFT_DEVICE_CLEAR.
 * @param sums WEFT_DEVICE_SQUARES numbers, zeros at first; from the first to the last they add up
 *        to the sum. Of the host, it is pinned memory.
 * @return as weft_device_combine().
 */
WEFT_EXPORT int weft_device_squares(const struct weft_argument *vector, unsigned flags,
                                    double *sums, void *stream);

/**
 * to[index] += scale * value for every pair, as weft_sparse_scatter_add(): f16 and bf16 are
 * computed in f32 and rounded once, f32 and f64 round the product and the sum.
 * @param pairs indices, no two alike and below to->count, which nobody looks at; values of the
 *        datatype of `to`, or f32. Both lie where kernels of the device reach, until the stream has
 *        got there: of the host, in pinned memory. Aligned as their elements are.
 * @param to of f16, bf16, f32 or f64; in one piece (`pieces` is NULL).
 * @return as weft_device_combine(); WEFT_ERR_UNSUPPORTED (a vector in pieces).
 */
WEFT_EXPORT int weft_device_scatter_add(const struct weft_sparse *pairs, double scale,
                                        const struct weft_argument *to, void *stream);

/**
 * to[index] = value for every pair: bit by bit, or converted from f32 as by weft_convert().
 * @param pairs as for weft_device_scatter_add(); `values` may be NULL: zeros.
 * @param to as for weft_device_scatter_add().
 * @return as weft_device_scatter_add().
 */
WEFT_EXPORT int weft_device_scatter(const struct weft_sparse *pairs, const struct weft_argument *to,
                                    void *stream);

#ifdef __cplusplus
}
#endif

#endif
