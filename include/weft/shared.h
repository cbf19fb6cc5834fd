/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Contexts of processes on one machine, which exchange messages through memory that all of them
 * map; and what those who start such processes need. No MPI is involved.
 *
 * Memory has no name in any file system and sockets have none either, so nothing is left behind by
 * whatever is killed. Only processes of one user can have a context together.
 */
#ifndef WEFT_SHARED_H
#define WEFT_SHARED_H

#include <weft/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How a payload travels that is too large to be copied into a message and does not lie in memory
 *  of weft_context_memory_alloc(). */
typedef enum weft_shared_large {
    /** As is found best when the context is made. */
    WEFT_SHARED_LARGE_DEFAULT,
    /** The receiver reads it from the sender's memory, by process_vm_readv(), where the kernel
     *  allows it. */
    WEFT_SHARED_LARGE_READ,
    /** The sender copies it into memory of the context, from which the receiver takes it, in pieces
     *  one behind the other. */
    WEFT_SHARED_LARGE_COPY
} weft_shared_large_t;

/**
 * A way by which ranks tell each other what they need to meet: a collective all-gather. Sets the
 * @p bytes bytes at @p all + i * @p bytes to what rank i has at @p mine, for every rank i; @p all
 * has room for all ranks. @p bytes is the same on all ranks. Blocking until all ranks have called.
 * Could be the store of torch.distributed, PMIx, MPI_Allgather() or files.
 * @param user weft_shared_config.user.
 * @return WEFT_OK, or an error (below 0), on all ranks alike if that is possible.
 */
typedef int (*weft_gather_fn)(void *user, const void *mine, size_t bytes, void *all);

/** How the ranks of weft_context_create_shared() meet, and what they exchange messages by. Members
 *  that are 0 mean their defaults. */
struct weft_shared_config {
    size_t struct_size;
    /** They meet by this name, which is the same on all of them, and any text; only processes of
     *  the same user on this machine find each other. It may be used again once the context has
     *  been made. NULL: by `gather`. */
    const char *name;
    /** They meet by this callback, which is called twice, in this thread; NULL: by `name`. One of
     *  the two must be given, and only one. */
    weft_gather_fn gather;
    /** For `gather`. */
    void *user;
    /** How long one waits for the others where they meet by name; WEFT_NEVER: for ever. Default:
     *  60 s. */
    uint64_t meet_ns;
    /** Messages up to so many bytes are copied into the memory of their receiver, so that the send
     *  ends at once; larger ones are copied or reduced by the receiver. At most 1 MiB; the same on
     *  all ranks; WEFT_EAGER_NONE: all are. Default: 8 KiB. */
    size_t eager_bytes;
    /** Bytes of such messages that one rank may have under way to another before further sends wait
     *  for their receives; at most 1 TiB; the same on all ranks. Default: 512 KiB. */
    size_t ahead_bytes;
    /** Addresses reserved on each rank for memory of weft_context_memory_alloc(); the least of all
     *  ranks counts, and less than 1 MiB as 1 MiB. Memory is taken as it is used. At most 4 TiB;
     *  more than the process may have is an error. Default: half of the machine's memory, or less
     *  if the process may not have so much. */
    size_t arena_bytes;
    /** The same on all ranks. */
    weft_shared_large_t large;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_shared_config_init_sized(struct weft_shared_config *shared, size_t size);
#define weft_shared_config_init(shared) weft_shared_config_init_sized((shared), sizeof *(shared))

/**
 * The context of one rank among processes of this machine, which are there already: whoever
 * started them, they call this with their number and a way to meet. Ranks may also be threads of
 * one process, each with a context of its own. Collective over the ranks, blocking until all have
 * called: all get a context, or none does, with the same status and a text that names the rank
 * where it began. Only if a rank dies while the last word goes round may some have one and others
 * none: these have left then, and what waits for them fails. Any number of contexts per process,
 * one after the other, or at once under different names. Costs two gathers and a message from each
 * rank to each, by sockets that are closed again.
 *
 * What stays open is a file descriptor for each other rank, by which the end of its process is
 * known, and one more.
 * @param rank from 0; no two have the same.
 * @param size how many ranks there are, at most 1024; the same on all of them.
 * @param config NULL: the defaults.
 * @param shared how to meet, and more.
 * @return WEFT_OK; WEFT_ERR_INVALID (NULL; rank or size; neither or both of name and gather; a
 *         setting out of its range, or not the same on all; two ranks with the same number, or
 *         different sizes: the text names them; or the ranks of another job, which has the same
 *         name at the same time, were there first); WEFT_ERR_TIMEOUT (not all have come: the text
 *         names those that have not); WEFT_ERR_PEER (a rank has ended meanwhile); WEFT_ERR_STATE
 *         (a process of another user, or of another version of weft); WEFT_ERR_MEMORY;
 *         WEFT_ERR_SYSTEM (a limit of the process or the machine: the text names it); what
 *         `gather` has returned.
 */
WEFT_EXPORT int weft_context_create_shared(struct weft_context **context, int rank, int size,
                                           const struct weft_context_config *config,
                                           const struct weft_shared_config *shared);

/* ---- launching ---- */

/**
 * Processes that are started together, on this machine, so that
 * weft_context_create_world(..., "shared", ...) finds the others in each of them: `weft launch` is
 * written with this. Starts no process itself: whoever does so gives each its environment, and says
 * how it has ended, so that the others can tell.
 */
struct weft_launch;

/**
 * Prepares a launch of @p size processes.
 * @param launch to be freed with weft_launch_destroy().
 * @param size from 1, at most 1024.
 * @return WEFT_OK; WEFT_ERR_INVALID; WEFT_ERR_MEMORY; WEFT_ERR_SYSTEM.
 */
WEFT_EXPORT int weft_launch_create(struct weft_launch **launch, int size);

/**
 * The environment of a process: a string "NAME=VALUE", for putenv() or the environment of exec, to
 * stand in place of what is there under the same name. They are WEFT_RANK, WEFT_SIZE, WEFT_LAUNCH,
 * whose value is private to weft, and WEFT_LOCAL_RANK, which weft does not read: the rank once
 * more, as all are on one machine, for programs that choose a device by it.
 * @param rank which process, from 0.
 * @param index which string, from 0.
 * @return the string, which is the launch's; NULL past the last, or if an argument is not valid.
 *         Any thread.
 */
WEFT_EXPORT const char *weft_launch_variable(const struct weft_launch *launch, int rank, int index);

/**
 * Says that a process has ended, as soon as waitpid() has told so: the others' errors then say how,
 * and nobody waits for it who makes a context of the launch.
 * @param wait_status what waitpid() has given.
 * @return WEFT_OK; WEFT_ERR_INVALID (NULL, no such rank). Any thread; does not block.
 */
WEFT_EXPORT int weft_launch_ended(struct weft_launch *launch, int rank, int wait_status);

/** Frees a launch; its processes may go on. NULL is accepted. */
WEFT_EXPORT void weft_launch_destroy(struct weft_launch *launch);

#ifdef __cplusplus
}
#endif

#endif
