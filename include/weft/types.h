/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Datatypes and operations: what elements are and how they are combined.
 *
 * Built-in operations work on every datatype that they make sense for; a user's operation brings a
 * function, and says whether it commutes. Elements that weft need not look into (structs, complex,
 * long double) are opaque: they are moved as a whole, and combined by a user's operation only.
 */
#ifndef WEFT_TYPES_H
#define WEFT_TYPES_H

#include <weft/sized.h>
#include <weft/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Every datatype: name, text, bytes an element. The first is the default of configurations. */
#define WEFT_DTYPE_MAP(X)                                                                          \
    X(WEFT_F32, "f32", 4)                                                                          \
    X(WEFT_I8, "i8", 1)                                                                            \
    X(WEFT_I16, "i16", 2)                                                                          \
    X(WEFT_I32, "i32", 4)                                                                          \
    X(WEFT_I64, "i64", 8)                                                                          \
    X(WEFT_U8, "u8", 1)                                                                            \
    X(WEFT_U16, "u16", 2)                                                                          \
    X(WEFT_U32, "u32", 4)                                                                          \
    X(WEFT_U64, "u64", 8)                                                                          \
    X(WEFT_F16, "f16", 2)                                                                          \
    X(WEFT_BF16, "bf16", 2)                                                                        \
    X(WEFT_F64, "f64", 8)

/**
 * The datatype of an element: two's complement integers, IEEE 754 binary16/32/64, bfloat16; or
 * opaque elements, whose datatype weft_dtype_opaque() makes from their size.
 */
typedef enum weft_dtype {
#define WEFT_DTYPE_ENUM(name, text, bytes) name,
    WEFT_DTYPE_MAP(WEFT_DTYPE_ENUM)
#undef WEFT_DTYPE_ENUM
    /** How many there are, of those that are not opaque; itself no datatype. */
    WEFT_DTYPE_COUNT,
    /** Stands in every opaque datatype, beside the bytes of an element; alone no datatype. */
    WEFT_DTYPE_OPAQUE = 0x40000000
} weft_dtype_t;

/** Bytes that an opaque element has at most. */
#define WEFT_DTYPE_OPAQUE_MAX ((size_t)0x3fffffff)

/**
 * The datatype of opaque elements: `weft_dtype_opaque(sizeof(struct particle))`. It stands wherever
 * a datatype may. Two are equal if their sizes are. weft moves such elements and asks for no
 * alignment; built-in operations do not work on them, a user's reduction does. It is called with
 * whole elements, which are aligned as the user's own are in the slots that they bind, up to 16
 * bytes. Any thread.
 *
 * @param bytes of an element, padding included: 1 to WEFT_DTYPE_OPAQUE_MAX.
 * @return the datatype; WEFT_DTYPE_COUNT, which every function refuses, with an error text if
 *         @p bytes is out of range.
 */
WEFT_EXPORT weft_dtype_t weft_dtype_opaque(size_t bytes);

/** 1 if @p dtype is one of weft_dtype_opaque(), else 0. */
WEFT_EXPORT int weft_dtype_is_opaque(weft_dtype_t dtype);

/** Bytes an element of @p dtype takes; 0 if there is no such datatype. */
WEFT_EXPORT size_t weft_dtype_size(weft_dtype_t dtype);

/**
 * "f32" and so on, "bytes24" for opaque elements of 24 bytes; NULL if there is no such datatype.
 * Static storage; of an opaque datatype the calling thread's, until it has asked for eight more.
 */
WEFT_EXPORT const char *weft_dtype_name(weft_dtype_t dtype);

/**
 * The datatype with a name, as weft_dtype_name() writes it.
 * @return WEFT_OK; WEFT_ERR_NOT_FOUND with a text that lists the names; WEFT_ERR_INVALID on NULL.
 */
WEFT_EXPORT int weft_dtype_parse(const char *name, weft_dtype_t *dtype);

/**
 * Converts @p count floating point elements (f16, bf16, f32, f64) from one datatype to another,
 * rounding to nearest even; a NaN stays a NaN. The two do not overlap. Any thread.
 * @return WEFT_OK; WEFT_ERR_UNSUPPORTED (an integer or opaque datatype); WEFT_ERR_INVALID (no
 *         datatype, NULL with count > 0).
 */
WEFT_EXPORT int weft_convert(weft_dtype_t to_dtype, void *to, weft_dtype_t from_dtype,
                             const void *from, size_t count);

/** Every built-in operation: name, text. All commute and associate, floating point up to rounding.
 */
#define WEFT_OP_MAP(X)                                                                             \
    X(WEFT_SUM, "sum")                                                                             \
    X(WEFT_PROD, "prod")                                                                           \
    X(WEFT_MIN, "min")                                                                             \
    X(WEFT_MAX, "max")                                                                             \
    X(WEFT_LAND, "land")                                                                           \
    X(WEFT_LOR, "lor")                                                                             \
    X(WEFT_LXOR, "lxor")                                                                           \
    X(WEFT_BAND, "band")                                                                           \
    X(WEFT_BOR, "bor")                                                                             \
    X(WEFT_BXOR, "bxor")

/**
 * A built-in reduction. Integers wrap. min and max of floating point return the NaN if one operand
 * is NaN. Logical operations treat any non-zero element (NaN too) as true and give 0 or 1. Bitwise
 * operations take integers only. f16 and bf16 are widened to f32 for one operation and rounded to
 * nearest even once.
 */
typedef enum weft_op_kind {
#define WEFT_OP_ENUM(name, text) name,
    WEFT_OP_MAP(WEFT_OP_ENUM)
#undef WEFT_OP_ENUM
        WEFT_OP_COUNT
} weft_op_kind_t;

/** An operation of compute nodes: built in, or the user's. Immutable, counted by reference. */
struct weft_op;

/** The built-in operation of a kind, with static lifetime; NULL if there is no such kind. */
WEFT_EXPORT const struct weft_op *weft_op_builtin(weft_op_kind_t kind);

/** One argument of a compute call: a region of a slot as it is bound in this run. */
struct weft_argument {
    /** First element; NULL if the region lies in several pieces of a list (then use `pieces`). */
    void *data;
    /** Elements; for a region with a value, that value. */
    size_t count;
    weft_dtype_t dtype;
    /** The pieces of the region, in order; one piece where `data` is set. */
    const struct weft_piece *pieces;
    size_t piece_count;
};

/** A contiguous piece of memory: one tensor of a list that is bound to a slot. */
struct weft_piece {
    void *data;
    /** Elements (of the slot's datatype). */
    size_t count;
};

/** What a compute function is called with. Valid until the node has finished. */
struct weft_call {
    /** The `user` pointer of the operation. */
    void *user;
    /** The regions, in the order given to weft_schedule_add_compute(). */
    struct weft_argument *arguments;
    size_t argument_count;
    /** Where the function stores the value that the node produces, if it has one; else NULL. */
    uint64_t *value;
    /** The version of the run. */
    uint64_t version;
    /** The rank and size of the schedule. */
    int rank;
    int size;
    /** Free for the function between its start and its `poll`: zero when the function is called. */
    uintptr_t state;
    /** The number of the node in the schedule, as weft_schedule_add_compute() has returned it: what
     *  tells apart calls of one operation in one run. */
    int32_t node;
};

/**
 * A compute function. Called by whichever thread drives the engine: it must not block and must not
 * call weft functions on the same context other than weft_call_complete().
 * @return WEFT_OK; WEFT_IN_PROGRESS if it finishes later (its operation has WEFT_OP_MAY_PEND);
 *         anything else fails the run, with the text that the function has set by
 *         weft_error_set(), if it has.
 */
typedef int (*weft_compute_fn)(struct weft_call *call);

/**
 * A reduction function: dst[i] = a[i] op b[i] for i < count, where a comes from lower ranks than b.
 * dst may be the same pointer as a or b, and overlaps them in no other way.
 * @return WEFT_OK, or anything else to fail the run, with the text that the function has set by
 *         weft_error_set(), if it has.
 */
typedef int (*weft_reduce_fn)(void *user, void *dst, const void *a, const void *b, size_t count,
                              weft_dtype_t dtype);

/**
 * What a device does in place of a compute or reduction function, where regions are memory of a
 * device: puts its work on @p stream and returns, without waiting for anything. The node ends when
 * the stream has got there. Called as compute functions are, with the device current.
 * @param call of a reduction, too: its arguments are dst, a and b. Regions are memory of the
 *        device; `value`, if there is one, is memory that both can write, of the host's address.
 * @param stream a CUstream or cudaStream_t (weft/cuda.h). Valid during the call. weft/device.h has
 *        arithmetic that can be put there.
 * @return WEFT_OK, or anything else to fail the run, as a compute function.
 */
typedef int (*weft_device_fn)(struct weft_call *call, void *stream);

/** a op b equals b op a: the order of ranks need not be kept. */
#define WEFT_OP_COMMUTES 1u
/** The compute function may return WEFT_IN_PROGRESS. */
#define WEFT_OP_MAY_PEND 2u
/**
 * Of a compute function only: it folds regions together as wholes, as a merge of sparse vectors
 * does. Each region that it writes then stands for everything that was folded into the regions it
 * reads, whatever elements it kept. Checking follows which contributions have been folded in, and
 * how often; what operations of one name have folded, others of that name take in.
 */
#define WEFT_OP_FOLDS 4u

/** How an operation is made. */
struct weft_op_config {
    size_t struct_size;
    /** A name for dumps, [A-Za-z_][A-Za-z0-9_-]*; copied. */
    const char *name;
    /** WEFT_OP_COMMUTES, WEFT_OP_MAY_PEND, WEFT_OP_FOLDS. */
    unsigned flags;
    /** Exactly one of `reduce` and `compute`; neither, if there is `device`: then it is a compute
     *  operation of devices alone. */
    weft_reduce_fn reduce;
    weft_compute_fn compute;
    /** Asks a pending compute whether it has finished; NULL if weft_call_complete() tells. */
    weft_compute_fn poll;
    /** Handed to the functions; borrowed for as long as the operation lives. */
    void *user;
    /** NULL: regions of this operation are memory of the host. */
    weft_device_fn device;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_op_config_init_sized(struct weft_op_config *config, size_t size);
#define weft_op_config_init(config) weft_op_config_init_sized((config), sizeof *(config))

/**
 * Makes an operation. The caller owns the reference returned; schedules and plans that use it hold
 * their own.
 * @return WEFT_OK, WEFT_ERR_INVALID, WEFT_ERR_MEMORY.
 */
WEFT_EXPORT int weft_op_create(struct weft_op **op, const struct weft_op_config *config);

/** Takes another reference, which is given back by weft_op_destroy(): for who keeps an operation of
 *  somebody else. NULL and built-in operations are accepted. Any thread. @return @p op. */
WEFT_EXPORT const struct weft_op *weft_op_retain(const struct weft_op *op);

/** Gives the caller's reference back. NULL and built-in operations are accepted. */
WEFT_EXPORT void weft_op_destroy(const struct weft_op *op);

/** The name of an operation. Owned by it. */
WEFT_EXPORT const char *weft_op_name(const struct weft_op *op);

/** 1 if the operation commutes, else 0. */
WEFT_EXPORT int weft_op_commutes(const struct weft_op *op);

/** 1 if the operation is a reduction that works on @p dtype, else 0. */
WEFT_EXPORT int weft_op_supports(const struct weft_op *op, weft_dtype_t dtype);

/** The built-in operation with a name, as weft_dtype_parse(). */
WEFT_EXPORT int weft_op_parse(const char *name, const struct weft_op **op);

/**
 * Applies a reduction to local memory: dst[i] = a[i] op b[i]. Any thread.
 * @return WEFT_OK, WEFT_ERR_INVALID (not a reduction, datatype not supported), or what it returned.
 */
WEFT_EXPORT int weft_op_reduce(const struct weft_op *op, weft_dtype_t dtype, void *dst,
                               const void *a, const void *b, size_t count);

/**
 * Tells the engine that a pending compute has finished with @p status. From any thread, once for
 * each call that returned WEFT_IN_PROGRESS (it may come before that return).
 */
WEFT_EXPORT void weft_call_complete(struct weft_call *call, int status);

/** SIMD levels of the built-in reductions. */
typedef enum weft_simd { WEFT_SIMD_SCALAR, WEFT_SIMD_AVX2, WEFT_SIMD_AVX512 } weft_simd_t;

/** The level in use: the best that the processor has, WEFT_SIMD (from the environment, once a
 *  context has been made) and the mask allow. */
WEFT_EXPORT weft_simd_t weft_simd_level(void);

/** "scalar", "avx2", "avx512". */
WEFT_EXPORT const char *weft_simd_name(weft_simd_t level);

/**
 * Forces a level at most @p level, for tests and comparisons; process-wide, takes effect for calls
 * that begin later. @return the level now in use.
 */
WEFT_EXPORT weft_simd_t weft_simd_limit(weft_simd_t level);

#ifdef __cplusplus
}
#endif

#endif
