/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Status codes: what a function of weft returns.
 *
 * 0 is success, a positive status is not an error (work in progress, an event that had been
 * retired), a negative status is an error whose text weft_error_text() gives to the thread that saw
 * it.
 *
 * What is made is given back by the `_destroy` function of its name, memory and texts by
 * weft_memory_free(). All of them accept NULL. A destroy that is collective over the ranks (of a
 * context, of averages and gossip) returns a status: WEFT_OK, or what the object has failed with,
 * and the object is gone in any case. All others return nothing.
 */
#ifndef WEFT_STATUS_H
#define WEFT_STATUS_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#    define WEFT_EXPORT                  __attribute__((visibility("default")))
#    define WEFT_PRINTF(position, first) __attribute__((__format__(__printf__, position, first)))
#else
#    define WEFT_EXPORT
#    define WEFT_PRINTF(position, first)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** Every status: name, code, text. */
#define WEFT_STATUS_MAP(X)                                                                         \
    X(WEFT_OK, 0, "success")                                                                       \
    X(WEFT_IN_PROGRESS, 1, "in progress: not finished yet")                                        \
    X(WEFT_RETIRED, 2, "the event had been retired or fired before: nothing was done")             \
    X(WEFT_ERR_INVALID, -1, "invalid argument")                                                    \
    X(WEFT_ERR_MEMORY, -2, "out of memory")                                                        \
    X(WEFT_ERR_STATE, -3, "not possible in this state")                                            \
    X(WEFT_ERR_CYCLE, -4, "the schedule has a cycle")                                              \
    X(WEFT_ERR_DUPLICATE, -5, "two messages with the same peer and tag")                           \
    X(WEFT_ERR_UNSUPPORTED, -6, "not supported")                                                   \
    X(WEFT_ERR_TRUNCATED, -7, "a message was longer or shorter than its receive")                  \
    X(WEFT_ERR_TRANSPORT, -8, "transport failure")                                                 \
    X(WEFT_ERR_TIMEOUT, -9, "deadline passed")                                                     \
    X(WEFT_ERR_CANCELLED, -10, "cancelled")                                                        \
    X(WEFT_ERR_PEER, -11, "a peer failed")                                                         \
    X(WEFT_ERR_COMPUTE, -12, "a compute operation failed")                                         \
    X(WEFT_ERR_FORMAT, -13, "malformed input")                                                     \
    X(WEFT_ERR_IO, -14, "input or output failed")                                                  \
    X(WEFT_ERR_SYSTEM, -15, "an operating system call failed")                                     \
    X(WEFT_ERR_NOT_FOUND, -16, "no such thing")                                                    \
    X(WEFT_ERR_DEADLOCK, -17, "deadlock: what is waited for will never come")

/** A status code. Functions return it as `int`. */
typedef enum weft_status {
#define WEFT_STATUS_ENUM(name, code, text) name = code,
    WEFT_STATUS_MAP(WEFT_STATUS_ENUM)
#undef WEFT_STATUS_ENUM
} weft_status_t;

/** The name of a status ("WEFT_ERR_INVALID"), or "WEFT_UNKNOWN". Static storage, any thread. */
WEFT_EXPORT const char *weft_status_name(int status);

/** One line of text for a status. Static storage, any thread. */
WEFT_EXPORT const char *weft_status_text(int status);

/**
 * What the latest error returned to the calling thread was about: names the argument, its value and
 * what was expected, or the node, peer and plan of a run that failed. Never NULL; empty before the
 * first error. Valid until the next failing call in this thread.
 *
 * A call that succeeds, or returns a positive status, leaves the text as it was: whatever it tried
 * and got over leaves none, and what cleans up after an error does not take its text away. So the
 * text says something after an error, and nothing about a call that returned none.
 */
WEFT_EXPORT const char *weft_error_text(void);

/**
 * Sets the error text of the calling thread and returns @p status: for builders of schedules and
 * objects on top of weft, so that their errors are read as weft's own are. Cut at 511 characters.
 */
WEFT_EXPORT int weft_error_set(int status, const char *format, ...) WEFT_PRINTF(2, 3);

/** As weft_error_set() with a text that is taken as it is: for languages that cannot call functions
 *  of any number of arguments. NULL is an empty text. */
WEFT_EXPORT int weft_error_set_text(int status, const char *text);

#ifdef __cplusplus
}
#endif

#endif
