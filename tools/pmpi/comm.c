/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators, and the contexts that stand for them.
 *
 * The first call on a communicator looks at it. Its context is made out of the one of
 * MPI_COMM_WORLD, where all its ranks are in the same blocking call: in the function that makes the
 * communicator, or in its first blocking collective, where that is none of ours (MPI_Comm_idup).
 * There a collective of MPI agrees on the number that tells the communicator from others of the
 * same ranks. So weft takes one duplicate of MPI_COMM_WORLD, and nothing of MPI for any other.
 *
 * What there is hangs on an attribute, which no duplicate inherits and which MPI deletes with the
 * communicator. A thread remembers those that it has used: handles are used again, so a
 * communicator that is freed makes all threads forget.
 */
#include <pthread.h>

#include "tools/pmpi/request.h"

static int keyval = MPI_KEYVAL_INVALID;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pmpi_comm *all;
static struct pmpi_comm *dead; /* nobody holds them any more */
/* What communicators have for whose own there was no memory: those whose ranks have agreed on that,
 * and those whose ranks would make a context next. */
static struct pmpi_comm lost = {.reason = PMPI_NO_MEMORY}, losing = {.reason = PMPI_SERVED};
static _Atomic int serial; /* contexts that this rank has numbered */

_Atomic unsigned pmpi_comm_epoch;
_Thread_local MPI_Comm pmpi_comm_dying = MPI_COMM_NULL;
_Thread_local struct pmpi_remembered pmpi_remembered[PMPI_REMEMBERED];

/* ---- the end ---- */

/* The communicator is no more. What is under way on it goes on. */
static void forget(struct pmpi_comm *state)
{
    pthread_mutex_lock(&lock);
    *(state->previous ? &state->previous->next : &all) = state->next;
    if (state->next)
        state->next->previous = state->previous;
    atomic_fetch_add(&pmpi_comm_epoch, 1);
    pthread_mutex_unlock(&lock);
    pmpi_stats_keep(state);
    state->comm = MPI_COMM_WORLD; /* whose error handler is called from now on */
    pmpi_comm_leave(state);
    pmpi_comm_bury();
}

void pmpi_comm_hold(struct pmpi_comm *state)
{
    atomic_fetch_add_explicit(&state->holds, 1, memory_order_relaxed);
}

void pmpi_comm_leave(struct pmpi_comm *state)
{
    if (atomic_fetch_sub_explicit(&state->holds, 1, memory_order_acq_rel) > 1)
        return;
    pthread_mutex_lock(&lock);
    state->next = dead;
    dead = state;
    pthread_mutex_unlock(&lock);
}

static int at_once(void *user)
{
    (void)user;
    return 1;
}

int pmpi_comm_drives(void)
{
    return pmpi_world && weft_context_wait(pmpi_world, at_once, NULL, 0) == WEFT_ERR_STATE;
}

void pmpi_comm_bury(void)
{
    pthread_mutex_lock(&lock);
    int any = dead != NULL;
    pthread_mutex_unlock(&lock);
    if (!any || pmpi_comm_drives())
        return;
    pthread_mutex_lock(&lock);
    struct pmpi_comm *state = dead;
    dead = NULL;
    pthread_mutex_unlock(&lock);
    while (state) {
        struct pmpi_comm *next = state->next;
        if (state->context && state->context != pmpi_world)
            weft_context_destroy(state->context);
        weft_memory_free(state->lists);
        weft_memory_free(state);
        state = next;
    }
}

static int on_delete(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm;
    (void)key;
    (void)extra;
    if (value == &lost || value == &losing)
        atomic_fetch_add(&pmpi_comm_epoch, 1);
    else
        forget(value);
    return MPI_SUCCESS;
}

int pmpi_comm_open(void)
{
    return PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_delete, &keyval, NULL);
}

void pmpi_comm_close(void)
{
    while (all) { /* the callback takes it from the list; MPI has none that came too late */
        struct pmpi_comm *state = all;
        PMPI_Comm_delete_attr(state->comm, keyval);
        if (all == state)
            forget(state);
    }
    PMPI_Comm_free_keyval(&keyval);
}

/* ---- the first look ---- */

/* Where the ranks of a communicator are in MPI_COMM_WORLD, in pieces of a bounded size: nothing is
 * allocated, since all ranks must come to the same. 0: not all of them are. ranks NULL: just that.
 */
static int locate(MPI_Comm comm, int size, int *ranks)
{
    enum { PIECE = 256 };
    MPI_Group group, world;
    int there[PIECE], own[PIECE], inside = 1;
    PMPI_Comm_group(comm, &group);
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    for (int done = 0, count; done < size && inside; done += count) {
        count = size - done < PIECE ? size - done : PIECE;
        for (int i = 0; i < count; i++)
            own[i] = done + i;
        PMPI_Group_translate_ranks(group, count, own, world, there);
        for (int i = 0; i < count; i++) {
            inside &= there[i] != MPI_UNDEFINED;
            if (ranks)
                ranks[done + i] = there[i];
        }
    }
    PMPI_Group_free(&group);
    PMPI_Group_free(&world);
    return inside;
}

/* Why it can have no context, or PMPI_SERVED; needs no memory. */
static enum pmpi_reason judge(MPI_Comm comm, int size, int order)
{
    int inter = 0;
    PMPI_Comm_test_inter(comm, &inter);
    if (inter)
        return PMPI_INTER;
    if (!pmpi_world)
        return PMPI_NO_CONTEXT;
    return order == MPI_IDENT || locate(comm, size, NULL) ? PMPI_SERVED : PMPI_OUTSIDE;
}

static struct pmpi_comm *look_at(MPI_Comm comm)
{
    int size = 0, order = MPI_UNEQUAL;
    PMPI_Comm_size(comm, &size);
    PMPI_Comm_compare(comm, MPI_COMM_WORLD, &order);
    enum pmpi_reason reason = judge(comm, size, order);
    struct pmpi_comm *state = weft_memory_alloc(1, sizeof *state);
    if (!state)
        return reason == PMPI_SERVED ? &losing : &lost;
    state->comm = comm;
    state->holds = 1;
    state->size = size;
    state->reason = reason;
    PMPI_Comm_rank(comm, &state->rank);
    if (reason != PMPI_SERVED)
        return state;
    if (order == MPI_IDENT) {
        state->context = pmpi_world;
        state->table = pmpi_choice_table(pmpi_choice_world, size);
    }
    state->lists = weft_memory_alloc(PMPI_LISTS * (size_t)size, sizeof *state->lists);
    return state;
}

/* Under the lock, so that of two threads one looks. */
static struct pmpi_comm *find_or_make(MPI_Comm comm)
{
    struct pmpi_comm *state = NULL;
    int found = 0;
    if (PMPI_Comm_get_attr(comm, keyval, &state, &found) != MPI_SUCCESS)
        return NULL;
    if (found)
        return state;
    state = look_at(comm);
    int is_own = state != &lost && state != &losing;
    if (PMPI_Comm_set_attr(comm, keyval, state) != MPI_SUCCESS) {
        if (is_own) {
            weft_memory_free(state->lists);
            weft_memory_free(state);
        }
        return NULL;
    }
    if (!is_own)
        return state;
    state->next = all;
    if (all)
        all->previous = state;
    all = state;
    return state;
}

struct pmpi_comm *pmpi_comm_find(MPI_Comm comm)
{
    unsigned now = atomic_load_explicit(&pmpi_comm_epoch, memory_order_acquire);
    struct pmpi_comm *state = pmpi_comm_known(comm);
    if (state || comm == MPI_COMM_NULL || comm == pmpi_comm_dying)
        return state;
    pthread_mutex_lock(&lock);
    state = find_or_make(comm);
    pthread_mutex_unlock(&lock);
    pmpi_remembered[pmpi_comm_place(comm)] = (struct pmpi_remembered){comm, now, state};
    return state;
}

void pmpi_comm_each(void (*visit)(struct pmpi_comm *state, void *user), void *user)
{
    pthread_mutex_lock(&lock);
    for (struct pmpi_comm *state = all; state; state = state->next)
        visit(state, user);
    pthread_mutex_unlock(&lock);
}

/* ---- the context ---- */

/* What ranks must have in common to make a context: the maximum of each of three numbers. Begun as
 * one that does not block, since MPI's would poll without rest. */
static int agree(MPI_Comm comm, int mine[3], int agreed[3])
{
    MPI_Request request;
    int code = PMPI_Iallreduce(mine, agreed, 3, MPI_INT, MPI_MAX, comm, &request);
    return code == MPI_SUCCESS ? pmpi_wait(&request, MPI_STATUS_IGNORE) : code;
}

int pmpi_comm_gather(MPI_Comm comm, int mine)
{
    int agreed[3] = {0};
    if (agree(comm, (int[]){mine == 0, mine == 1, mine == 2}, agreed) != MPI_SUCCESS)
        return 7;
    return agreed[0] | agreed[1] << 1 | agreed[2] << 2;
}

/* The ranks of a communicator without a record here agree that it has no context. */
static enum pmpi_reason lose(MPI_Comm comm)
{
    int agreed[3];
    agree(comm, (int[]){-1, -1, 1}, agreed);
    PMPI_Comm_set_attr(comm, keyval, &lost);
    return PMPI_NO_MEMORY;
}

/* Rank 0 gives the number that tells the context apart, and where it is (choice.c). */
enum pmpi_reason pmpi_comm_connect(MPI_Comm comm, struct pmpi_comm *state)
{
    if (state == &losing)
        return lose(comm);
    int *ranks = weft_memory_alloc((size_t)state->size, sizeof *ranks);
    int mine[3] = {-1, -1, !ranks || !state->lists}, agreed[3] = {0, 0, 1};
    if (ranks)
        locate(comm, state->size, ranks);
    if (ranks && state->rank == 0) {
        mine[0] = atomic_fetch_add(&serial, 1);
        mine[1] = pmpi_choice_place(ranks, state->size);
    }
    if (agree(comm, mine, agreed) != MPI_SUCCESS || agreed[2])
        state->reason = PMPI_NO_MEMORY;
    else if (weft_context_subset(pmpi_world, ranks, state->size, agreed[0], &state->context) !=
             WEFT_OK)
        state->reason = PMPI_NO_CONTEXT;
    weft_memory_free(ranks);
    if (state->context)
        state->table = pmpi_choice_table(agreed[1], state->size);
    return state->reason;
}

void pmpi_comm_adopt(MPI_Comm comm)
{
    if (!atomic_load_explicit(&pmpi_active, memory_order_acquire) || comm == MPI_COMM_NULL)
        return;
    struct pmpi_comm *state = pmpi_comm_find(comm);
    if (state && state->reason == PMPI_SERVED && !state->context)
        pmpi_comm_connect(comm, state);
}

/* ---- errors ---- */

static int class_of(int status)
{
    switch (status) {
    case WEFT_ERR_MEMORY:
        return MPI_ERR_NO_MEM;
    case WEFT_ERR_TRUNCATED:
        return MPI_ERR_TRUNCATE;
    case WEFT_ERR_INVALID:
        return MPI_ERR_ARG;
    default:
        return MPI_ERR_OTHER;
    }
}

/* The class itself: MPICH 4.0.2 has no text for codes that are added to a class of its own. */
int pmpi_comm_code(int status)
{
    if (pmpi_world)
        weft_context_log(pmpi_world, WEFT_LOG_WARNING, weft_error_text());
    return class_of(status);
}

int pmpi_comm_raise(const struct pmpi_comm *state, int status)
{
    int code = pmpi_comm_code(status);
    PMPI_Comm_call_errhandler(state->comm, code);
    return code;
}
