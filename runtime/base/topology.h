/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine: where a helper thread runs and where scratch memory lives. Any thread may call. */
#ifndef WEFT_RUNTIME_BASE_TOPOLOGY_H
#define WEFT_RUNTIME_BASE_TOPOLOGY_H

#include <sched.h>
#include <stddef.h>

/* Hardware threads that this process may use (its affinity mask); at least 1. */
int weft__topology_threads(void);

/* Hardware threads that are there, whoever may use them: the same in all processes of a machine. */
int weft__topology_cores(void);

/* Whether that are as many as ranks. More ranks than the machine has threads are no question to the
 * system: hwloc would look at every thread of the process. */
int weft__topology_holds(int ranks);

/*
 * The hardware thread (operating-system index) on which a helper of the calling thread should run,
 * or -1: leave it to the system. `ranks` is how many ranks share the machine. A single rank gets
 * another core that shares the caller's L3, else another hardware thread of the caller's core, else
 * any other core. One rank of several gets another hardware thread of its core if it is bound to
 * that core, and -1 otherwise: which cores the other ranks use cannot be known here.
 */
int weft__topology_helper(int ranks);

/* Moves the calling thread to its share of the hardware threads, one of `ranks` that start
 * together, and leaves it free to be moved again: where threads begin matters, and the system puts
 * those that one thread starts side by side. */
void weft__topology_place(int rank, int ranks);

/* Moves the calling thread to a hardware thread that it may use and that is not among `taken`, best
 * on a core of which none is, and leaves it free to be moved again. Which it is, or -1: there is
 * none, and the thread has not moved. */
int weft__topology_move(const cpu_set_t *taken);
/* The same, to a certain one. 1: it has moved; 0: it must not be there. */
int weft__topology_move_to(int thread);

/* Binds the calling thread to a hardware thread; -1: does nothing. WEFT_OK, or WEFT_ERR_SYSTEM. */
int weft__topology_bind(int thread);

/*
 * Memory on the caller's NUMA node, zeroed, aligned to 64 bytes. NULL where placement does not
 * matter (less than 1 MiB, or one node) or cannot be had: allocate normally then. The size goes to
 * the free.
 */
void *weft__topology_alloc(size_t bytes);
void weft__topology_free(void *memory, size_t bytes);

#endif
