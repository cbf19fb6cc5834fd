/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations of MPI on elements of weft.
 *
 * MPI's own on numbers are weft's own. All others are applied by MPI itself (MPI_Reduce_local), in
 * an operation of weft on opaque elements: complex numbers, long doubles, pairs, users' functions.
 * Elements of a derived datatype that has gaps travel packed, since what is in the gaps is the
 * receiver's; they are unpacked for the user's function, and packed again.
 */
#include <limits.h>
#include <pthread.h>
#include <string.h>

#include "tools/pmpi/pmpi.h"

/* Bytes of elements that are combined at a time where room for them is needed. */
#define AT_A_TIME ((size_t)64 << 10)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pmpi_reduction *of_users;

/* ---- MPI's own ---- */

/* The number of an operation; -1: it is a user's. */
static int number_of(MPI_Op op, int *kind)
{
    const struct {
        MPI_Op op;
        int kind;
    } own[PMPI_OPS] = {{MPI_SUM, WEFT_SUM},   {MPI_MAX, WEFT_MAX},   {MPI_MIN, WEFT_MIN},
                       {MPI_PROD, WEFT_PROD}, {MPI_LAND, WEFT_LAND}, {MPI_BAND, WEFT_BAND},
                       {MPI_LOR, WEFT_LOR},   {MPI_BOR, WEFT_BOR},   {MPI_LXOR, WEFT_LXOR},
                       {MPI_BXOR, WEFT_BXOR}, {MPI_MAXLOC, -1},      {MPI_MINLOC, -1},
                       {MPI_REPLACE, -1},     {MPI_NO_OP, -1}};
    for (int i = 0; i < PMPI_OPS; i++)
        if (own[i].op == op) {
            *kind = own[i].kind;
            return i;
        }
    *kind = -1;
    return -1;
}

int pmpi_op_is_own(MPI_Op op)
{
    int kind;
    return number_of(op, &kind) >= 0;
}

/* Whether MPI accepts the operation on the datatype. */
static int is_legal(MPI_Op op, MPI_Datatype type)
{
    char nothing[2][64] = {{0}};
    return PMPI_Allreduce(nothing[0], nothing[1], 0, type, op, pmpi_self) == MPI_SUCCESS;
}

/* ---- by MPI ---- */

/* inout = in op inout, of any number of elements. */
static int combine(const struct pmpi_reduction *reduction, const void *in, void *inout,
                   size_t count)
{
    ptrdiff_t extent = reduction->type->extent;
    for (size_t done = 0, some; done < count; done += some) {
        ptrdiff_t at = (ptrdiff_t)done * extent;
        some = count - done < INT_MAX ? count - done : INT_MAX;
        if (PMPI_Reduce_local((const char *)in + at, (char *)inout + at, (int)some,
                              reduction->type->type, reduction->mpi_op) != MPI_SUCCESS)
            return weft_error_set(WEFT_ERR_INVALID, "MPI_Reduce_local failed");
    }
    return WEFT_OK;
}

static int no_memory(void)
{
    return weft_error_set(WEFT_ERR_MEMORY, "no memory for an operation of MPI");
}

/* dst = dst op b, where the order matters. */
static int combine_behind(const struct pmpi_reduction *reduction, char *dst, const char *b,
                          size_t count)
{
    size_t most = AT_A_TIME / reduction->bytes + 1;
    most = most < count ? most : count;
    char *room = weft_memory_alloc(most, reduction->bytes);
    int status = room ? WEFT_OK : no_memory();
    for (size_t done = 0, some; done < count && status == WEFT_OK; done += some) {
        size_t at = done * reduction->bytes;
        some = count - done < most ? count - done : most;
        memcpy(room, b + at, some * reduction->bytes);
        status = combine(reduction, dst + at, room, some);
        memcpy(dst + at, room, some * reduction->bytes);
    }
    weft_memory_free(room);
    return status;
}

static int reduce_plain(void *user, void *dst, const void *a, const void *b, size_t count,
                        weft_dtype_t dtype)
{
    const struct pmpi_reduction *reduction = user;
    (void)dtype;
    if (dst == a && dst != b)
        return weft_op_commutes(reduction->op) ? combine(reduction, b, dst, count)
                                               : combine_behind(reduction, dst, b, count);
    if (dst != b)
        memcpy(dst, b, count * reduction->bytes);
    return combine(reduction, a, dst, count);
}

/* Room for elements of a type, the first byte of which lies at `true_lb`. */
static char *room_for(const struct pmpi_type *type, size_t count, char **first)
{
    size_t step = (size_t)(type->extent < 0 ? -type->extent : type->extent);
    size_t bytes = step * (count - 1) + type->true_extent;
    char *room = weft_memory_alloc(bytes, 1);
    *first = room - type->true_lb;
    if (type->extent < 0)
        *first += (ptrdiff_t)(step * (count - 1));
    return room;
}

static int reduce_packed(void *user, void *dst, const void *a, const void *b, size_t count,
                         weft_dtype_t dtype)
{
    const struct pmpi_reduction *reduction = user;
    const struct pmpi_type *type = reduction->type;
    size_t most = AT_A_TIME / reduction->bytes + 1;
    char *in, *inout;
    (void)dtype;
    most = most < count ? most : count;
    char *rooms[2] = {room_for(type, most, &in), room_for(type, most, &inout)};
    int status = rooms[0] && rooms[1] ? WEFT_OK : no_memory();
    for (size_t done = 0, some; done < count && status == WEFT_OK; done += some) {
        size_t at = done * reduction->bytes;
        some = count - done < most ? count - done : most;
        pmpi_type_unpack(type, (const char *)a + at, in, some);
        pmpi_type_unpack(type, (const char *)b + at, inout, some);
        status = combine(reduction, in, inout, some);
        pmpi_type_pack(type, inout, some, (char *)dst + at);
    }
    weft_memory_free(rooms[0]);
    weft_memory_free(rooms[1]);
    return status;
}

static int make_op(struct pmpi_reduction *reduction)
{
    struct weft_op_config config;
    int commutes = 0;
    PMPI_Op_commutative(reduction->mpi_op, &commutes);
    weft_op_config_init(&config);
    config.name = "mpi-op";
    config.flags = commutes ? WEFT_OP_COMMUTES : 0;
    config.reduce = reduction->packed ? reduce_packed : reduce_plain;
    config.user = reduction;
    int status = weft_op_create(&reduction->own, &config);
    reduction->op = reduction->own;
    return status;
}

/* ---- what there is ---- */

/* The one of weft, if it has that. */
static int is_built_in(int kind, const struct pmpi_type *type)
{
    return kind >= 0 && type->dtype != WEFT_DTYPE_COUNT &&
           weft_op_supports(weft_op_builtin((weft_op_kind_t)kind), type->dtype);
}

static int settle(struct pmpi_reduction *reduction, int kind)
{
    const struct pmpi_type *type = reduction->type;
    if (is_built_in(kind, type)) {
        reduction->op = weft_op_builtin((weft_op_kind_t)kind);
        reduction->dtype = type->dtype;
        reduction->bytes = type->size;
        return WEFT_OK;
    }
    reduction->packed = !type->dense && !type->named;
    reduction->bytes = reduction->packed ? type->size : (size_t)type->extent;
    if (reduction->bytes == 0 || reduction->bytes > WEFT_DTYPE_OPAQUE_MAX)
        return WEFT_ERR_UNSUPPORTED;
    reduction->dtype = weft_dtype_opaque(reduction->bytes);
    return make_op(reduction);
}

/* As pmpi_reduction_find(). */
static int make(MPI_Op op, struct pmpi_type *type, int kind, struct pmpi_reduction **made)
{
    *made = NULL;
    if (!is_legal(op, type->type))
        return WEFT_OK;
    struct pmpi_reduction *reduction = weft_memory_alloc(1, sizeof *reduction);
    if (!reduction)
        return no_memory();
    reduction->mpi_op = op;
    reduction->type = type;
    int status = settle(reduction, kind);
    if (status == WEFT_OK)
        *made = reduction;
    else
        weft_memory_free(reduction);
    return status == WEFT_ERR_UNSUPPORTED ? WEFT_OK : status;
}

static void drop(struct pmpi_reduction *reduction)
{
    if (reduction)
        weft_op_destroy(reduction->own);
    weft_memory_free(reduction);
}

static int find_of_user(MPI_Op op, struct pmpi_type *type, struct pmpi_reduction **found)
{
    *found = of_users;
    while (*found && ((*found)->mpi_op != op || (*found)->type != type))
        *found = (*found)->next;
    if (*found)
        return WEFT_OK;
    int status = make(op, type, -1, found);
    if (*found) {
        (*found)->next = of_users;
        of_users = *found;
    }
    return status;
}

int pmpi_reduction_find(MPI_Op op, struct pmpi_type *type, const struct pmpi_reduction **reduction)
{
    int kind, status = WEFT_OK, number = number_of(op, &kind);
    struct pmpi_reduction *found = NULL;
    if (number >= 0) /* acquire pairs with the release below */
        found = atomic_load_explicit(&type->reductions[number], memory_order_acquire);
    *reduction = found;
    if (found || op == MPI_OP_NULL)
        return WEFT_OK;
    pthread_mutex_lock(&lock);
    if (number < 0) {
        status = find_of_user(op, type, &found);
    } else {
        found = atomic_load_explicit(&type->reductions[number], memory_order_relaxed);
        if (!found)
            status = make(op, type, kind, &found);
        atomic_store_explicit(&type->reductions[number], found, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    *reduction = found;
    return status;
}

/* Those of users with an operation or with a datatype. */
static void forget(MPI_Op op, const struct pmpi_type *type)
{
    struct pmpi_reduction **link = &of_users;
    pthread_mutex_lock(&lock);
    while (*link) {
        struct pmpi_reduction *reduction = *link;
        if (type ? reduction->type != type : reduction->mpi_op != op) {
            link = &reduction->next;
            continue;
        }
        *link = reduction->next;
        drop(reduction);
    }
    pthread_mutex_unlock(&lock);
}

void pmpi_reduction_forget_op(MPI_Op op)
{
    forget(op, NULL);
}

void pmpi_reduction_forget_type(struct pmpi_type *type)
{
    forget(MPI_OP_NULL, type);
    for (int i = 0; i < PMPI_OPS; i++)
        drop(atomic_exchange(&type->reductions[i], NULL));
}

void pmpi_reduction_close(void)
{
    while (of_users)
        forget(of_users->mpi_op, NULL);
}
