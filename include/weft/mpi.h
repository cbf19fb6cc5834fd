/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Contexts over MPI: one rank of a communicator. The only header that needs <mpi.h>.
 */
#ifndef WEFT_MPI_H
#define WEFT_MPI_H

#include <mpi.h>
#include <weft/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What only this transport has. */
struct weft_mpi_config {
    size_t struct_size;
    /** Bits of an MPI tag used for payload messages, the same on all processes. Default: as many as
     *  MPI_TAG_UB allows. For tests. */
    unsigned tag_bits;
};

/** All defaults, as weft_context_config_init(). */
WEFT_EXPORT void weft_mpi_config_init_sized(struct weft_mpi_config *mpi, size_t size);
#define weft_mpi_config_init(mpi) weft_mpi_config_init_sized((mpi), sizeof *(mpi))

/**
 * The context of the calling process in @p comm, an intracommunicator of any size, which is
 * duplicated. Collective over @p comm, blocking. Any number of contexts per process.
 *
 * Helper progress needs MPI_THREAD_MULTIPLE, since the helper calls MPI while the application may;
 * caller progress from several threads, too. With MPI_THREAD_SINGLE or _FUNNELED the context must
 * be used by the main thread alone.
 * @param config NULL: the defaults.
 * @param mpi NULL: the defaults. The same on all processes.
 * @return WEFT_OK; WEFT_ERR_STATE (MPI not initialised or finalised; the thread level is too low:
 *         the text names both); WEFT_ERR_INVALID (MPI_COMM_NULL, an intercommunicator, more
 *         tag_bits than MPI_TAG_UB has, or not the same on all: the text names two ranks; a
 *         WEFT_HOSTS that is no list of as many hosts as MPI_COMM_WORLD has processes);
 *         WEFT_ERR_TRANSPORT (an MPI call failed); WEFT_ERR_MEMORY; WEFT_ERR_SYSTEM.
 */
WEFT_EXPORT int weft_context_create_mpi(struct weft_context **context, MPI_Comm comm,
                                        const struct weft_context_config *config,
                                        const struct weft_mpi_config *mpi);

#ifdef __cplusplus
}
#endif

#endif
