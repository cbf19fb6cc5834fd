/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * What objects on models (weft/group_average.h, weft/gossip.h, weft/sparse_average.h) have in
 * common: what the models of the ranks are to begin with, and what becomes of NaNs.
 */
#ifndef WEFT_MODEL_H
#define WEFT_MODEL_H

#ifdef __cplusplus
extern "C" {
#endif

/** What models are when an object is created. The same on all ranks. */
typedef enum weft_initial {
    /** The same on all ranks, bit for bit: their hashes are compared, and a difference is refused
     *  with WEFT_ERR_INVALID, which names two ranks. */
    WEFT_INITIAL_SAME,
    /** That of rank 0, which is written to the tensors of all. */
    WEFT_INITIAL_BROADCAST,
    /** What it is on each rank: not looked at. */
    WEFT_INITIAL_ANY
} weft_initial_t;

/** What becomes of a NaN. */
typedef enum weft_nan_policy {
    /** The call fails with WEFT_ERR_COMPUTE, and says how many there are. */
    WEFT_NAN_ERROR,
    /** It counts as +0, and is counted. */
    WEFT_NAN_ZERO,
    /** Of averages of models alone: it is not looked for, and goes wherever the model goes. */
    WEFT_NAN_SPREAD
} weft_nan_policy_t;

#ifdef __cplusplus
}
#endif

#endif
