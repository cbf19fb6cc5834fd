/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Functions of MPI that wait, and have no form that does not: while they do, the thread that drives
 * weft (rescue.c) may call functions of the program, which is in MPI.
 */
#include "tools/pmpi/request.h"

#define IN_MPI(Name, names)                                                                        \
    pmpi_rescue_enter();                                                                           \
    int code = PMPI_##Name names;                                                                  \
    pmpi_rescue_leave();

#define GUARDED(Name, parameters, names)                                                           \
    WEFT_EXPORT int MPI_##Name parameters                                                          \
    {                                                                                              \
        IN_MPI(Name, names)                                                                        \
        return code;                                                                               \
    }

/* ---- communicators ---- */

/* Functions that make one, which gets its context there: all its ranks are in them. */
#define MAKES(Name, parameters, names)                                                             \
    WEFT_EXPORT int MPI_##Name parameters                                                          \
    {                                                                                              \
        IN_MPI(Name, names)                                                                        \
        if (code == MPI_SUCCESS)                                                                   \
            pmpi_comm_adopt(*made);                                                                \
        return code;                                                                               \
    }

MAKES(Comm_create, (MPI_Comm comm, MPI_Group group, MPI_Comm *made), (comm, group, made))
MAKES(Comm_create_group, (MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *made),
      (comm, group, tag, made))
MAKES(Comm_dup, (MPI_Comm comm, MPI_Comm *made), (comm, made))
MAKES(Comm_dup_with_info, (MPI_Comm comm, MPI_Info info, MPI_Comm *made), (comm, info, made))
MAKES(Comm_split, (MPI_Comm comm, int colour, int key, MPI_Comm *made), (comm, colour, key, made))
MAKES(Comm_split_type, (MPI_Comm comm, int kind, int key, MPI_Info info, MPI_Comm *made),
      (comm, kind, key, info, made))

/* What threads remember of it is over, also for functions of the program that MPI calls before
 * ours. */
#define ENDS(Name)                                                                                 \
    WEFT_EXPORT int MPI_##Name(MPI_Comm *comm)                                                     \
    {                                                                                              \
        MPI_Comm before = pmpi_comm_dying;                                                         \
        if (comm)                                                                                  \
            pmpi_comm_dying = *comm;                                                               \
        atomic_fetch_add(&pmpi_comm_epoch, 1);                                                     \
        IN_MPI(Name, (comm))                                                                       \
        pmpi_comm_dying = before;                                                                  \
        return code;                                                                               \
    }

ENDS(Comm_free)
ENDS(Comm_disconnect)

GUARDED(Intercomm_create,
        (MPI_Comm comm, int leader, MPI_Comm peer, int remote, int tag, MPI_Comm *made),
        (comm, leader, peer, remote, tag, made))
MAKES(Intercomm_merge, (MPI_Comm comm, int high, MPI_Comm *made), (comm, high, made))
MAKES(Cart_create,
      (MPI_Comm comm, int count, const int sizes[], const int periods[], int reorder,
       MPI_Comm *made),
      (comm, count, sizes, periods, reorder, made))
MAKES(Cart_sub, (MPI_Comm comm, const int remain[], MPI_Comm *made), (comm, remain, made))
MAKES(Graph_create,
      (MPI_Comm comm, int count, const int index[], const int edges[], int reorder, MPI_Comm *made),
      (comm, count, index, edges, reorder, made))
MAKES(Dist_graph_create,
      (MPI_Comm comm, int count, const int sources[], const int degrees[], const int destinations[],
       const int weights[], MPI_Info info, int reorder, MPI_Comm *made),
      (comm, count, sources, degrees, destinations, weights, info, reorder, made))
MAKES(Dist_graph_create_adjacent,
      (MPI_Comm comm, int in, const int sources[], const int in_weights[], int out,
       const int destinations[], const int out_weights[], MPI_Info info, int reorder,
       MPI_Comm *made),
      (comm, in, sources, in_weights, out, destinations, out_weights, info, reorder, made))
GUARDED(Comm_accept, (const char *port, MPI_Info info, int root, MPI_Comm comm, MPI_Comm *made),
        (port, info, root, comm, made))
GUARDED(Comm_connect, (const char *port, MPI_Info info, int root, MPI_Comm comm, MPI_Comm *made),
        (port, info, root, comm, made))
GUARDED(Comm_join, (int fd, MPI_Comm *made), (fd, made))
GUARDED(Comm_spawn,
        (const char *command, char *argv[], int most, MPI_Info info, int root, MPI_Comm comm,
         MPI_Comm *made, int codes[]),
        (command, argv, most, info, root, comm, made, codes))
GUARDED(Comm_spawn_multiple,
        (int count, char *commands[], char **argvs[], const int most[], const MPI_Info infos[],
         int root, MPI_Comm comm, MPI_Comm *made, int codes[]),
        (count, commands, argvs, most, infos, root, comm, made, codes))

/* ---- messages ---- */

GUARDED(Sendrecv_replace,
        (void *data, int count, MPI_Datatype type, int to, int send_tag, int from, int recv_tag,
         MPI_Comm comm, MPI_Status *status),
        (data, count, type, to, send_tag, from, recv_tag, comm, status))
GUARDED(Buffer_detach, (void *buffer, int *size), (buffer, size))

/* ---- neighbours ---- */

#define NEIGHBOURS(Name)                                                                           \
    GUARDED(Name,                                                                                  \
            (const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count, \
             MPI_Datatype recv_type, MPI_Comm comm),                                               \
            (send, send_count, send_type, recv, recv_count, recv_type, comm))
NEIGHBOURS(Neighbor_allgather)
NEIGHBOURS(Neighbor_alltoall)
GUARDED(Neighbor_allgatherv,
        (const void *send, int send_count, MPI_Datatype send_type, void *recv, const int counts[],
         const int places[], MPI_Datatype recv_type, MPI_Comm comm),
        (send, send_count, send_type, recv, counts, places, recv_type, comm))
GUARDED(Neighbor_alltoallv,
        (const void *send, const int send_counts[], const int send_places[], MPI_Datatype send_type,
         void *recv, const int recv_counts[], const int recv_places[], MPI_Datatype recv_type,
         MPI_Comm comm),
        (send, send_counts, send_places, send_type, recv, recv_counts, recv_places, recv_type,
         comm))
GUARDED(Neighbor_alltoallw,
        (const void *send, const int send_counts[], const MPI_Aint send_places[],
         const MPI_Datatype send_types[], void *recv, const int recv_counts[],
         const MPI_Aint recv_places[], const MPI_Datatype recv_types[], MPI_Comm comm),
        (send, send_counts, send_places, send_types, recv, recv_counts, recv_places, recv_types,
         comm))

/* ---- windows ---- */

GUARDED(Win_create,
        (void *base, MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, MPI_Win *window),
        (base, size, unit, info, comm, window))
GUARDED(Win_allocate,
        (MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *window),
        (size, unit, info, comm, base, window))
GUARDED(Win_allocate_shared,
        (MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void *base, MPI_Win *window),
        (size, unit, info, comm, base, window))
GUARDED(Win_create_dynamic, (MPI_Info info, MPI_Comm comm, MPI_Win *window), (info, comm, window))
GUARDED(Win_free, (MPI_Win * window), (window))
GUARDED(Win_fence, (int assertion, MPI_Win window), (assertion, window))
GUARDED(Win_start, (MPI_Group group, int assertion, MPI_Win window), (group, assertion, window))
GUARDED(Win_complete, (MPI_Win window), (window))
GUARDED(Win_wait, (MPI_Win window), (window))
GUARDED(Win_lock, (int kind, int rank, int assertion, MPI_Win window),
        (kind, rank, assertion, window))
GUARDED(Win_lock_all, (int assertion, MPI_Win window), (assertion, window))
GUARDED(Win_unlock, (int rank, MPI_Win window), (rank, window))
GUARDED(Win_unlock_all, (MPI_Win window), (window))
GUARDED(Win_flush, (int rank, MPI_Win window), (rank, window))
GUARDED(Win_flush_all, (MPI_Win window), (window))
GUARDED(Win_flush_local, (int rank, MPI_Win window), (rank, window))
GUARDED(Win_flush_local_all, (MPI_Win window), (window))

/* ---- files ---- */

#define COLLECTIVE_IO(Name, constant)                                                              \
    GUARDED(                                                                                       \
        Name,                                                                                      \
        (MPI_File file, constant void *data, int count, MPI_Datatype type, MPI_Status *status),    \
        (file, data, count, type, status))
#define COLLECTIVE_IO_AT(Name, constant)                                                           \
    GUARDED(Name,                                                                                  \
            (MPI_File file, MPI_Offset offset, constant void *data, int count, MPI_Datatype type,  \
             MPI_Status *status),                                                                  \
            (file, offset, data, count, type, status))
GUARDED(File_open, (MPI_Comm comm, const char *name, int mode, MPI_Info info, MPI_File *file),
        (comm, name, mode, info, file))
GUARDED(File_close, (MPI_File * file), (file))
GUARDED(File_set_size, (MPI_File file, MPI_Offset size), (file, size))
GUARDED(File_preallocate, (MPI_File file, MPI_Offset size), (file, size))
GUARDED(File_set_view,
        (MPI_File file, MPI_Offset place, MPI_Datatype element, MPI_Datatype type, const char *form,
         MPI_Info info),
        (file, place, element, type, form, info))
GUARDED(File_sync, (MPI_File file), (file))
COLLECTIVE_IO(File_read_all, )
COLLECTIVE_IO(File_write_all, const)
COLLECTIVE_IO(File_read_ordered, )
COLLECTIVE_IO(File_write_ordered, const)
COLLECTIVE_IO_AT(File_read_at_all, )
COLLECTIVE_IO_AT(File_write_at_all, const)
