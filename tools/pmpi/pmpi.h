/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libweft-pmpi: the collectives of programs that know MPI alone, by weft.
 *
 *     program --> MPI_Allreduce   wrap.c      a struct pmpi_call of any of its forms
 *                      |
 *                 comm.c          the context that stands for the communicator, or why none does
 *                 type.c          bytes of its elements; elements of weft's; packed ones
 *                 reduction.c     its operation, on those
 *                      |
 *                 serve.c -----> weft_allreduce        or else PMPI_Allreduce
 *
 * Ranks must go the same way, so what decides is the same on all of them: the communicator, the
 * kind of call, and what MPI demands to be equal. What a rank has for itself (a derived datatype
 * where others have a plain one, MPI_IN_PLACE, displacements) is settled on that rank.
 */
#ifndef WEFT_TOOLS_PMPI_PMPI_H
#define WEFT_TOOLS_PMPI_PMPI_H

#include <mpi.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/weft.h>

/** The collectives: how they are called in enums, in MPI, and after MPI_I. */
#define PMPI_KINDS(X)                                                                              \
    X(ALLGATHER, Allgather, allgather)                                                             \
    X(ALLGATHERV, Allgatherv, allgatherv)                                                          \
    X(ALLREDUCE, Allreduce, allreduce)                                                             \
    X(ALLTOALL, Alltoall, alltoall)                                                                \
    X(ALLTOALLV, Alltoallv, alltoallv)                                                             \
    X(ALLTOALLW, Alltoallw, alltoallw)                                                             \
    X(BARRIER, Barrier, barrier)                                                                   \
    X(BCAST, Bcast, bcast)                                                                         \
    X(EXSCAN, Exscan, exscan)                                                                      \
    X(GATHER, Gather, gather)                                                                      \
    X(GATHERV, Gatherv, gatherv)                                                                   \
    X(REDUCE, Reduce, reduce)                                                                      \
    X(REDUCE_SCATTER, Reduce_scatter, reduce_scatter)                                              \
    X(REDUCE_SCATTER_BLOCK, Reduce_scatter_block, reduce_scatter_block)                            \
    X(SCAN, Scan, scan)                                                                            \
    X(SCATTER, Scatter, scatter)                                                                   \
    X(SCATTERV, Scatterv, scatterv)

enum pmpi_kind {
#define PMPI_ENUM(name, mixed, lower) PMPI_##name,
    PMPI_KINDS(PMPI_ENUM)
#undef PMPI_ENUM
        PMPI_KIND_COUNT
};

/** How a call is made. */
enum pmpi_form { PMPI_BLOCKING, PMPI_NONBLOCKING, PMPI_PERSISTENT, PMPI_FORM_COUNT };

/** Why a call is MPI's. */
#define PMPI_REASONS(X)                                                                            \
    X(PMPI_SERVED, "served")                                                                       \
    X(PMPI_NEVER, "WEFT_PMPI=never")                                                               \
    X(PMPI_OVER, "MPI is not initialised, or being finalised")                                     \
    X(PMPI_INTER, "an intercommunicator")                                                          \
    X(PMPI_OUTSIDE, "processes outside MPI_COMM_WORLD")                                            \
    X(PMPI_NO_CONTEXT, "no context could be made")                                                 \
    X(PMPI_NO_MEMORY, "no memory for it on a rank")                                                \
    X(PMPI_NOT_YET, "no blocking collective has been called on the communicator")                  \
    X(PMPI_NOT_DRIVEN, "several hosts without MPI_THREAD_MULTIPLE, and it does not block")         \
    X(PMPI_ARGUMENT, "an argument for MPI to refuse")                                              \
    X(PMPI_CHOICE, "MPI is expected to be faster")

enum pmpi_reason {
#define PMPI_ENUM(name, text) name,
    PMPI_REASONS(PMPI_ENUM)
#undef PMPI_ENUM
        PMPI_REASON_COUNT
};

/** Operations that MPI has, not counting those of users. */
enum { PMPI_OPS = 14 };

struct pmpi_reduction;

/** A datatype of MPI. */
struct pmpi_type {
    MPI_Datatype type;
    /** Bytes of its data, and from an element to the next. */
    size_t size;
    ptrdiff_t extent;
    /** Where its first byte lies, and the bytes from that to its last. */
    ptrdiff_t true_lb;
    size_t true_extent;
    /** An element lies in memory as it is sent: any number of them are `size` bytes each. */
    int dense;
    /** Predefined. */
    int named;
    /** What it is in weft; WEFT_DTYPE_COUNT: nothing that weft computes with. */
    weft_dtype_t dtype;
    /** With MPI's own operations, once they have been used. */
    _Atomic(struct pmpi_reduction *) reductions[PMPI_OPS];
};

/** An operation of MPI on a datatype, in weft. */
struct pmpi_reduction {
    MPI_Op mpi_op;
    struct pmpi_type *type;
    struct weft_op *own; /* or NULL: `op` is built in */
    const struct weft_op *op;
    /** Of the elements that weft sees: bytes of each, and whether they are packed. */
    weft_dtype_t dtype;
    size_t bytes;
    int packed;
    struct pmpi_reduction *next;
};

/** Sizes in bytes. */
struct pmpi_range {
    size_t from, below;
};

/** Which calls are MPI's (choice.c): of each form and kind the sizes, behind each other. */
struct pmpi_table {
    int ranks;
    const struct pmpi_range *ranges[PMPI_FORM_COUNT * PMPI_KIND_COUNT + 1];
};

struct pmpi_row;
struct pmpi_kept;

/** Counts and places of what is sent and of what is received, and room. */
enum { PMPI_LISTS = 6 };

/** What a communicator of MPI has here. */
struct pmpi_comm {
    MPI_Comm comm;
    int rank, size;
    /** NULL: there is none yet, or `reason` says why there never will be one. */
    struct weft_context *context;
    enum pmpi_reason reason;
    /** PMPI_LISTS of a number for each rank, for the blocking call under way. */
    size_t *lists;
    /** The communicator, calls under way and persistent requests: the last ends it. */
    _Atomic int holds;
    const struct pmpi_table *table; /* once it has a context */
    enum pmpi_reason persists_not;  /* why no more persistent requests are weft's */
    unsigned waits_in;              /* request.c: the pass in which its first call had not ended */
    /** What was done (stats.c); once it has been freed, with others of its name. */
    struct pmpi_row *rows;
    struct pmpi_kept *kept;
    struct pmpi_comm *next, *previous;
};

/** One side of a call, as the program gives it. */
struct pmpi_part {
    void *data;
    /** Elements of a block; or, for each rank, as many, from so many extents (of Alltoallw: bytes)
     *  behind `data`. */
    MPI_Count count;
    const void *counts;
    const void *places;
    MPI_Datatype type;
    const MPI_Datatype *types;
};

/** The same, as weft gets it. */
struct pmpi_wire {
    void *data;
    size_t count;
    const size_t *counts, *places;
    /** Packed; else NULL. That of a persistent request stays. */
    void *packed;
};

/** A call. */
struct pmpi_call {
    enum pmpi_kind kind;
    enum pmpi_form form;
    /** The lists are of MPI_Count and MPI_Aint. */
    int large;
    int root;
    MPI_Op op;
    MPI_Comm comm;
    struct pmpi_part send, recv;
    /** What pmpi_serve() finds. */
    struct pmpi_comm *state;
    enum pmpi_reason reason;
    const struct pmpi_reduction *reduction;
    struct pmpi_wire sent, received;
    size_t *lists; /* PMPI_LISTS of a number for each rank */
    size_t bytes;
    uint64_t began_ns;
};

/* ---- life.c ---- */

/** Other than 0 between MPI_Init and MPI_Finalize, unless WEFT_PMPI=never. */
extern _Atomic int pmpi_active;
/** The context of MPI_COMM_WORLD. NULL: it could not be made. */
extern struct weft_context *pmpi_world;
/** MPI_COMM_SELF, and errors are returned. */
extern MPI_Comm pmpi_self;
/** The thread level that all ranks have. */
extern int pmpi_level;

/** Moves what is MPI's. */
void pmpi_drive_mpi(void);

const char *pmpi_kind_name(enum pmpi_kind kind);
const char *pmpi_form_name(enum pmpi_form form);
const char *pmpi_reason_text(enum pmpi_reason reason);

/* ---- comm.c ---- */

int pmpi_comm_open(void);
void pmpi_comm_close(void);
/** What a communicator has; NULL: MPI says what is wrong with it. Any thread. */
struct pmpi_comm *pmpi_comm_find(MPI_Comm comm);

/** What a thread has found last: of each of some places the communicator, its state, and how many
 *  communicators had been freed by then. */
enum { PMPI_REMEMBERED = 8 };
struct pmpi_remembered {
    MPI_Comm comm;
    unsigned epoch;
    struct pmpi_comm *state;
};
extern _Thread_local struct pmpi_remembered pmpi_remembered[PMPI_REMEMBERED];
extern _Atomic unsigned pmpi_comm_epoch;

static inline unsigned pmpi_comm_place(MPI_Comm comm)
{
    uint64_t word = (uint64_t)(uintptr_t)comm * UINT64_C(0x9e3779b97f4a7c15);
    return (unsigned)(word >> 61) % PMPI_REMEMBERED;
}

/** The same as pmpi_comm_find() if the thread remembers it, else NULL. */
static inline struct pmpi_comm *pmpi_comm_known(MPI_Comm comm)
{
    const struct pmpi_remembered *place = &pmpi_remembered[pmpi_comm_place(comm)];
    unsigned now = atomic_load_explicit(&pmpi_comm_epoch, memory_order_acquire);
    return place->comm == comm && place->epoch == now ? place->state : NULL;
}
/** Makes the context of a communicator that has none. All its ranks are in the same blocking
 *  collective. @return PMPI_SERVED, or why there is none, on any of them. */
enum pmpi_reason pmpi_comm_connect(MPI_Comm comm, struct pmpi_comm *state);
/** What ranks say, from 0 to 2: a bit for each number. All are in the same call. */
int pmpi_comm_gather(MPI_Comm comm, int mine);
/** The communicator that the program is freeing: functions of its own that MPI calls meanwhile may
 *  use it, which is MPI's then, and its attributes are not looked at. */
extern _Thread_local MPI_Comm pmpi_comm_dying;
/** A blocking function has made a communicator, or MPI_COMM_NULL: makes its context. */
void pmpi_comm_adopt(MPI_Comm comm);
/** Whether the thread drives weft: it is in a function that MPI calls meanwhile, and must end no
 *  context and no run. */
int pmpi_comm_drives(void);
/** What ends once nobody holds it; ended by pmpi_comm_bury(), from a call that does not drive. */
void pmpi_comm_hold(struct pmpi_comm *state);
void pmpi_comm_leave(struct pmpi_comm *state);
void pmpi_comm_bury(void);
/** An error of weft, whose text is the thread's, in MPI's numbers; and with a call of the error
 *  handler of a communicator. */
int pmpi_comm_code(int status);
int pmpi_comm_raise(const struct pmpi_comm *state, int status);
/** Calls a function for each communicator; nothing else changes their list meanwhile. */
void pmpi_comm_each(void (*visit)(struct pmpi_comm *state, void *user), void *user);

/* ---- type.c ---- */

int pmpi_type_open(void);
void pmpi_type_close(void);
/** NULL: no datatype, or not committed: MPI says what is wrong. pmpi_type_lost: there is no memory
 *  to know about it. */
struct pmpi_type *pmpi_type_find(MPI_Datatype type);
extern struct pmpi_type pmpi_type_lost;
/** Elements at `data` to and from packed bytes. @return an error of MPI. */
int pmpi_type_pack(const struct pmpi_type *type, const void *data, size_t count, void *packed);
int pmpi_type_unpack(const struct pmpi_type *type, const void *packed, void *data, size_t count);

/* ---- reduction.c ---- */

/** What operations of users have left. */
void pmpi_reduction_close(void);
/** @param reduction NULL, with WEFT_OK: MPI says what is wrong.
 *  @return WEFT_OK; WEFT_ERR_MEMORY. */
int pmpi_reduction_find(MPI_Op op, struct pmpi_type *type, const struct pmpi_reduction **reduction);
/** A datatype, or an operation, is freed. */
void pmpi_reduction_forget_type(struct pmpi_type *type);
void pmpi_reduction_forget_op(MPI_Op op);
/** Whether it is one of MPI's own. */
int pmpi_op_is_own(MPI_Op op);

/* ---- serve.c ---- */

/** Whether a call is MPI's, by its kind or by `count` elements of `type` (below 0: not told), and
 *  nothing else is to be done. 0: pmpi_serve() finds out. */
int pmpi_is_left(enum pmpi_kind kind, enum pmpi_form form, MPI_Comm comm, MPI_Count count,
                 MPI_Datatype type);
/** Does a call by weft. @return 1: it is done, and `code` is what to return; 0: it is MPI's. */
int pmpi_serve(struct pmpi_call *call, int *code);
/** Who does a call that does not block. */
int pmpi_is_served(struct pmpi_call *call, enum pmpi_form form);
/** Of a call that has been asked about: whether its size decides, or what is wrong with it, which
 *  only some ranks may see; the same on all ranks. */
int pmpi_is_by_size(const struct pmpi_call *call);
/** Calls weft; `request` NULL: the blocking function. */
int pmpi_execute(struct pmpi_call *call, struct weft_request **request);

/* ---- wire.c ---- */

/** Turns the sides of a call into what weft gets. @return 0: MPI says what is wrong, or WEFT_OK,
 *  or an error. */
int pmpi_wire_open(struct pmpi_call *call, enum pmpi_reason *reason);
int pmpi_is_reduction(enum pmpi_kind kind);
/** Whether the datatypes of a side (0: send) are looked at on this rank. */
int pmpi_wire_has_types(const struct pmpi_call *call, int side);
/** Whether there is anything in the block of a rank: else its datatype is not looked at. */
int pmpi_wire_is_block(const struct pmpi_call *call, int side, int rank);
/** Unpacks what has come, if `status` says that it has, and gives memory back. */
int pmpi_wire_close(struct pmpi_call *call, int status);

/** Bytes of a block or vector, the same on all ranks; 0 of a call whose sizes ranks know only for
 *  themselves. @return 0: MPI says what is wrong. */
int pmpi_wire_size(const struct pmpi_call *call, size_t *bytes);

/* ---- choice.c ---- */

/** Collective over MPI_COMM_WORLD, whose place it sets. */
extern int pmpi_choice_world;
void pmpi_choice_open(int rank);
void pmpi_choice_close(void);
/** Where some ranks of the world are, NULL: all in order. By their hosts, and by how many ranks,
 *  whoever they are, the host of the first has. */
int pmpi_choice_place(const int *ranks, int count);
/** The table of a communicator of so many ranks in such a place. */
const struct pmpi_table *pmpi_choice_table(int where, int size);

static inline int pmpi_table_slot(enum pmpi_kind kind, enum pmpi_form form)
{
    return (int)form * PMPI_KIND_COUNT + (int)kind;
}

/** Whether MPI does a call of so many bytes that weft could serve. */
static inline int pmpi_table_has(const struct pmpi_table *table, int slot, size_t bytes)
{
    for (const struct pmpi_range *range = table->ranges[slot]; range < table->ranges[slot + 1];
         range++)
        if (range->from <= bytes && bytes < range->below)
            return 1;
    return 0;
}

/** Whether it does all calls of a kind, whatever their size. */
static inline int pmpi_table_has_all(const struct pmpi_table *table, int slot)
{
    const struct pmpi_range *first = table->ranges[slot];
    return first < table->ranges[slot + 1] && first->from == 0 && first->below == SIZE_MAX;
}

/* ---- stats.c ---- */

/** Other than 0: times are taken, and calls are counted. */
extern int pmpi_counts;
void pmpi_stats_open(int rank);
void pmpi_stats_close(void);
/** A call is over. `reason` PMPI_SERVED: it was weft's. */
void pmpi_stats_count(const struct pmpi_call *call);
/** A communicator is freed: what it did is kept with others of its name and size. */
void pmpi_stats_keep(struct pmpi_comm *state);
uint64_t pmpi_now(void);

#endif
