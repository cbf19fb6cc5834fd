/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What libweft shows to its companions: libraries beside it (libweft-mpi) that hold transports with
 * needs of their own. They reach inside, so they are of the same build.
 */
#ifndef WEFT_RUNTIME_BASE_COMPANION_H
#define WEFT_RUNTIME_BASE_COMPANION_H

/* Marks what stands as WEFT_PRIVATE in runtime/libweft.map, and nothing else. Within libweft calls
 * go straight there, since nobody takes its place. */
#if !defined(__GNUC__)
#    define WEFT__PRIVATE
#elif defined(WEFT_COMPANION)
#    define WEFT__PRIVATE __attribute__((visibility("default")))
#else
#    define WEFT__PRIVATE __attribute__((visibility("protected")))
#endif

#endif
