/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators, and the contexts that stand for them.
 *
 * The first call on a communicator looks at it; the first blocking collective makes its context,
 * out of the one of MPI_COMM_WORLD: all its ranks are there then, in the same call, so a
 * collective of MPI agrees on the number that tells the communicator from others of the same
 * ranks. So weft takes one duplicate of MPI_COMM_WORLD, and nothing of MPI for any other.
 *
 * What there is hangs on an attribute, which no duplicate inherits and which MPI deletes with the
 * communicator. A thread remembers those that it has used: handles are used again, so a
 * communicator that is freed makes all threads forget.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "tools/pmpi/pmpi.h"

static int keyval = MPI_KEYVAL_INVALID;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pmpi_comm *all;
static _Atomic unsigned epoch; /* communicators that have been freed */
static _Atomic int serial;     /* contexts that this rank has numbered */

/* ---- what a thread remembers ---- */

enum { REMEMBERED = 8 };

static _Thread_local struct {
    MPI_Comm comm;
    unsigned epoch;
    struct pmpi_comm *state;
} remembered[REMEMBERED];

static unsigned place_of(MPI_Comm comm)
{
    uint64_t word = (uint64_t)(uintptr_t)comm * UINT64_C(0x9e3779b97f4a7c15);
    return (unsigned)(word >> 61) % REMEMBERED;
}

/* ---- the end ---- */

static void forget(struct pmpi_comm *state)
{
    pthread_mutex_lock(&lock);
    *(state->previous ? &state->previous->next : &all) = state->next;
    if (state->next)
        state->next->previous = state->previous;
    atomic_fetch_add(&epoch, 1);
    pthread_mutex_unlock(&lock);
    pmpi_stats_keep(state);
    if (state->context && state->context != pmpi_world)
        weft_context_destroy(state->context);
    weft_memory_free(state->lists);
    weft_memory_free(state);
}

static int on_delete(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm;
    (void)key;
    (void)extra;
    forget(value);
    return MPI_SUCCESS;
}

int pmpi_comm_open(void)
{
    return PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_delete, &keyval, NULL);
}

void pmpi_comm_close(void)
{
    while (all) /* the callback takes it from the list */
        PMPI_Comm_delete_attr(all->comm, keyval);
    PMPI_Comm_free_keyval(&keyval);
}

/* ---- the first look ---- */

/* Where the ranks of a communicator are in MPI_COMM_WORLD. 0: not all of them are. */
static int locate(MPI_Comm comm, int size, int *ranks, int *own)
{
    MPI_Group group, world;
    int inside = 1;
    PMPI_Comm_group(comm, &group);
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    for (int r = 0; r < size; r++)
        own[r] = r;
    PMPI_Group_translate_ranks(group, size, own, world, ranks);
    for (int r = 0; r < size; r++)
        inside &= ranks[r] != MPI_UNDEFINED;
    PMPI_Group_free(&group);
    PMPI_Group_free(&world);
    return inside;
}

static int has_outsiders(MPI_Comm comm, int size)
{
    int *ranks = weft_memory_alloc(2 * (size_t)size, sizeof *ranks);
    int inside = ranks && locate(comm, size, ranks, ranks + size);
    weft_memory_free(ranks);
    return !inside;
}

static struct pmpi_comm *look_at(MPI_Comm comm)
{
    int inter = 0, order = MPI_UNEQUAL;
    struct pmpi_comm *state = weft_memory_alloc(1, sizeof *state);
    if (!state || PMPI_Comm_test_inter(comm, &inter) != MPI_SUCCESS) {
        weft_memory_free(state);
        return NULL;
    }
    state->comm = comm;
    PMPI_Comm_rank(comm, &state->rank);
    PMPI_Comm_size(comm, &state->size);
    PMPI_Comm_compare(comm, MPI_COMM_WORLD, &order);
    if (inter)
        state->reason = PMPI_INTER;
    else if (!pmpi_world)
        state->reason = PMPI_NO_CONTEXT;
    else if (order == MPI_IDENT)
        state->context = pmpi_world;
    else if (has_outsiders(comm, state->size))
        state->reason = PMPI_OUTSIDE;
    if (state->reason == PMPI_SERVED) {
        state->lists = weft_memory_alloc(4 * (size_t)state->size, sizeof *state->lists);
        if (!state->lists) {
            weft_memory_free(state);
            return NULL;
        }
    }
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
    if (!state)
        return NULL;
    if (PMPI_Comm_set_attr(comm, keyval, state) != MPI_SUCCESS) {
        weft_memory_free(state->lists);
        weft_memory_free(state);
        return NULL;
    }
    state->next = all;
    if (all)
        all->previous = state;
    all = state;
    return state;
}

struct pmpi_comm *pmpi_comm_find(MPI_Comm comm)
{
    unsigned place = place_of(comm);
    unsigned now = atomic_load_explicit(&epoch, memory_order_acquire);
    if (remembered[place].state && remembered[place].comm == comm && remembered[place].epoch == now)
        return remembered[place].state;
    if (comm == MPI_COMM_NULL)
        return NULL;
    pthread_mutex_lock(&lock);
    struct pmpi_comm *state = find_or_make(comm);
    pthread_mutex_unlock(&lock);
    remembered[place].comm = comm;
    remembered[place].epoch = now;
    remembered[place].state = state;
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

int pmpi_comm_connect(struct pmpi_comm *state)
{
    int *ranks = weft_memory_alloc(2 * (size_t)state->size, sizeof *ranks);
    int mine[2] = {state->rank == 0 ? atomic_fetch_add(&serial, 1) : -1, !ranks};
    int agreed[2] = {0, 1};
    int code = PMPI_Allreduce(mine, agreed, 2, MPI_INT, MPI_MAX, state->comm);
    int status = WEFT_ERR_MEMORY;
    if (code == MPI_SUCCESS && !agreed[1]) {
        locate(state->comm, state->size, ranks, ranks + state->size);
        status = weft_context_subset(pmpi_world, ranks, state->size, agreed[0], &state->context);
    }
    weft_memory_free(ranks);
    if (status == WEFT_OK)
        return 1;
    state->reason = PMPI_NO_CONTEXT;
    return 0;
}

/* ---- errors ---- */

static int class_of(int status)
{
    switch (status) {
    case WEFT_ERR_MEMORY:
        return MPI_ERR_NO_MEM;
    case WEFT_ERR_INVALID:
        return MPI_ERR_ARG;
    default:
        return MPI_ERR_OTHER;
    }
}

/* The class of an error with weft's text: a code of each class, whose text is that of the last. */
static int code_of(int status)
{
    static int codes[3];
    int class = class_of(status);
    int *code = &codes[class == MPI_ERR_NO_MEM ? 0 : class == MPI_ERR_ARG ? 1 : 2];
    char text[MPI_MAX_ERROR_STRING];
    pthread_mutex_lock(&lock);
    if (*code == 0 && PMPI_Add_error_code(class, code) != MPI_SUCCESS)
        *code = class;
    else if (*code != class) {
        snprintf(text, sizeof text, "weft: %s", weft_error_text());
        PMPI_Add_error_string(*code, text);
    }
    int result = *code;
    pthread_mutex_unlock(&lock);
    return result;
}

int pmpi_comm_raise(const struct pmpi_comm *state, int status)
{
    int code = code_of(status);
    PMPI_Comm_call_errhandler(state->comm, code);
    return code;
}
