/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Datatypes of MPI: predefined ones by a table, others by an attribute.
 *
 * An element that lies in memory as it is sent (a plain type, an array of them, a struct without
 * gaps) needs no packing. Whether it does is found out by packing one that knows where each of its
 * bytes lies.
 */
#include <limits.h>
#include <pthread.h>
#include <string.h>

#include "tools/pmpi/pmpi.h"

/* A derived type of so many bytes at most is tried; larger ones are packed, unless they are arrays
 * of something dense. */
#define TRIED ((size_t)1 << 20)

enum { TABLE = 256 };

static int keyval = MPI_KEYVAL_INVALID;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pmpi_type *named[TABLE]; /* by their handle; open addressing */

struct pmpi_type pmpi_type_lost = {.dtype = WEFT_DTYPE_COUNT};

struct predefined {
    MPI_Datatype type;
    weft_dtype_t dtype;
};

/* The integer of so many bytes. */
static weft_dtype_t integer(size_t bytes, int is_signed)
{
    switch (bytes) {
    case 1:
        return is_signed ? WEFT_I8 : WEFT_U8;
    case 2:
        return is_signed ? WEFT_I16 : WEFT_U16;
    case 4:
        return is_signed ? WEFT_I32 : WEFT_U32;
    case 8:
        return is_signed ? WEFT_I64 : WEFT_U64;
    default:
        return WEFT_DTYPE_COUNT;
    }
}

static size_t place_of(MPI_Datatype type)
{
    uint64_t word = (uint64_t)(uintptr_t)type * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(word >> 56) % TABLE;
}

/* ---- what a type is like ---- */

static int measure(struct pmpi_type *type)
{
    MPI_Count size, lb, extent, true_lb, true_extent;
    if (PMPI_Type_size_x(type->type, &size) != MPI_SUCCESS ||
        PMPI_Type_get_extent_x(type->type, &lb, &extent) != MPI_SUCCESS ||
        PMPI_Type_get_true_extent_x(type->type, &true_lb, &true_extent) != MPI_SUCCESS || size < 0)
        return 0;
    type->size = (size_t)size;
    type->extent = (ptrdiff_t)extent;
    type->true_lb = (ptrdiff_t)true_lb;
    type->true_extent = (size_t)true_extent;
    return 1;
}

/* Which byte of its element a byte is, in one of four passes. */
static unsigned char mark(size_t i, int pass)
{
    return (unsigned char)(i >> (8 * pass));
}

/* Whether packing leaves an element as it is. `room` is for two of them. -1: it cannot be packed:
 * not committed, say. */
static int is_packed_alike(const struct pmpi_type *type, unsigned char *room)
{
    unsigned char *packed = room + type->size;
    int alike = 1;
    for (int pass = 0; pass < 4 && alike > 0 && (pass == 0 || type->size >> (8 * pass) > 0);
         pass++) {
        int position = 0;
        for (size_t i = 0; i < type->size; i++)
            room[i] = mark(i, pass);
        if (PMPI_Pack(room, 1, type->type, packed, (int)type->size, &position, pmpi_self) !=
            MPI_SUCCESS)
            return -1;
        alike = (size_t)position == type->size && memcmp(room, packed, type->size) == 0;
    }
    return alike;
}

/* Whether it is committed, which nothing else of MPI tells. */
static int is_usable(MPI_Datatype type)
{
    int position = 0;
    char nothing[1] = {0};
    return PMPI_Pack(nothing, 0, type, nothing, 0, &position, pmpi_self) == MPI_SUCCESS;
}

/* What a contiguous type, or a copy, is made of: MPI_DATATYPE_NULL: it is neither. To be freed if
 * it is not predefined. */
static MPI_Datatype inner_of(MPI_Datatype type, int *combiner)
{
    int integers, addresses, datatypes, number;
    MPI_Aint address;
    MPI_Datatype inner = MPI_DATATYPE_NULL;
    if (PMPI_Type_get_envelope(type, &integers, &addresses, &datatypes, combiner) != MPI_SUCCESS ||
        (*combiner != MPI_COMBINER_CONTIGUOUS && *combiner != MPI_COMBINER_DUP) || integers > 1 ||
        addresses != 0 || datatypes != 1)
        return MPI_DATATYPE_NULL;
    PMPI_Type_get_contents(type, integers, 0, 1, &number, &address, &inner);
    return inner;
}

static int is_dense(MPI_Datatype handle, int depth)
{
    struct pmpi_type type = {.type = handle};
    int combiner = MPI_COMBINER_NAMED;
    if (!measure(&type) || type.size != type.true_extent || type.true_lb != 0 || type.extent < 0 ||
        (size_t)type.extent != type.size || depth > 64)
        return 0;
    MPI_Datatype inner = inner_of(handle, &combiner);
    if (combiner == MPI_COMBINER_NAMED || type.size == 0)
        return 1;
    if (inner != MPI_DATATYPE_NULL) {
        int integers, addresses, datatypes, dense = is_dense(inner, depth + 1);
        PMPI_Type_get_envelope(inner, &integers, &addresses, &datatypes, &combiner);
        if (combiner != MPI_COMBINER_NAMED)
            PMPI_Type_free(&inner);
        if (dense)
            return 1;
    }
    if (depth > 0 || type.size > TRIED) /* an inner one need not be committed */
        return 0;
    unsigned char *room = weft_memory_alloc(2, type.size);
    int alike = room ? is_packed_alike(&type, room) : 0;
    weft_memory_free(room);
    return alike > 0;
}

/* ---- predefined ones ---- */

static int add_named(MPI_Datatype handle, weft_dtype_t dtype)
{
    size_t place = place_of(handle);
    if (handle == MPI_DATATYPE_NULL)
        return 1;
    while (named[place] && named[place]->type != handle)
        place = (place + 1) % TABLE;
    if (named[place])
        return 1;
    struct pmpi_type *type = weft_memory_alloc(1, sizeof *type);
    if (!type)
        return 0;
    type->type = handle;
    type->named = 1;
    if (!measure(type)) { /* this MPI does not have it */
        weft_memory_free(type);
        return 1;
    }
    type->dtype = dtype;
    type->dense = is_dense(handle, 0);
    if (dtype != WEFT_DTYPE_COUNT && weft_dtype_size(dtype) != type->size)
        type->dtype = WEFT_DTYPE_COUNT;
    named[place] = type;
    return 1;
}

static int add_integers(void)
{
    const MPI_Datatype is_signed[] = {
        MPI_CHAR,     MPI_SIGNED_CHAR, MPI_SHORT,   MPI_INT,      MPI_LONG,     MPI_LONG_LONG,
        MPI_INT8_T,   MPI_INT16_T,     MPI_INT32_T, MPI_INT64_T,  MPI_AINT,     MPI_OFFSET,
        MPI_COUNT,    MPI_INTEGER,     MPI_LOGICAL, MPI_INTEGER1, MPI_INTEGER2, MPI_INTEGER4,
        MPI_INTEGER8, MPI_CHARACTER,   MPI_WCHAR};
    const MPI_Datatype is_unsigned[] = {MPI_UNSIGNED_CHAR, MPI_UNSIGNED_SHORT,     MPI_UNSIGNED,
                                        MPI_UNSIGNED_LONG, MPI_UNSIGNED_LONG_LONG, MPI_UINT8_T,
                                        MPI_UINT16_T,      MPI_UINT32_T,           MPI_UINT64_T,
                                        MPI_C_BOOL,        MPI_CXX_BOOL,           MPI_BYTE,
                                        MPI_PACKED};
    int added = 1;
    for (int pass = 0; pass < 2; pass++) {
        const MPI_Datatype *types = pass == 0 ? is_signed : is_unsigned;
        size_t count = pass == 0 ? sizeof is_signed / sizeof *is_signed
                                 : sizeof is_unsigned / sizeof *is_unsigned;
        for (size_t i = 0; i < count; i++) {
            MPI_Count size = 0;
            if (types[i] != MPI_DATATYPE_NULL)
                PMPI_Type_size_x(types[i], &size);
            added &= add_named(types[i], integer((size_t)size, pass == 0));
        }
    }
    return added;
}

static int add_others(void)
{
    const struct predefined table[] = {
        {MPI_FLOAT, WEFT_F32},
        {MPI_DOUBLE, WEFT_F64},
        {MPI_REAL, WEFT_F32},
        {MPI_DOUBLE_PRECISION, WEFT_F64},
        {MPI_REAL4, WEFT_F32},
        {MPI_REAL8, WEFT_F64},
        {MPI_LONG_DOUBLE, WEFT_DTYPE_COUNT},
        {MPI_C_FLOAT_COMPLEX, WEFT_DTYPE_COUNT},
        {MPI_C_DOUBLE_COMPLEX, WEFT_DTYPE_COUNT},
        {MPI_C_LONG_DOUBLE_COMPLEX, WEFT_DTYPE_COUNT},
        {MPI_COMPLEX, WEFT_DTYPE_COUNT},
        {MPI_DOUBLE_COMPLEX, WEFT_DTYPE_COUNT},
        {MPI_FLOAT_INT, WEFT_DTYPE_COUNT},
        {MPI_DOUBLE_INT, WEFT_DTYPE_COUNT},
        {MPI_LONG_INT, WEFT_DTYPE_COUNT},
        {MPI_2INT, WEFT_DTYPE_COUNT},
        {MPI_SHORT_INT, WEFT_DTYPE_COUNT},
        {MPI_LONG_DOUBLE_INT, WEFT_DTYPE_COUNT},
        {MPI_2REAL, WEFT_DTYPE_COUNT},
        {MPI_2DOUBLE_PRECISION, WEFT_DTYPE_COUNT},
        {MPI_2INTEGER, WEFT_DTYPE_COUNT},
    };
    int added = 1;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        added &= add_named(table[i].type, table[i].dtype);
    return added;
}

/* ---- derived ones ---- */

static int on_delete(MPI_Datatype type, int key, void *value, void *extra)
{
    (void)type;
    (void)key;
    (void)extra;
    pmpi_reduction_forget_type(value);
    weft_memory_free(value);
    return MPI_SUCCESS;
}

static struct pmpi_type *make(MPI_Datatype handle)
{
    int integers, addresses, datatypes, combiner;
    struct pmpi_type *type = weft_memory_alloc(1, sizeof *type);
    if (!type)
        return &pmpi_type_lost;
    type->type = handle;
    type->dtype = WEFT_DTYPE_COUNT;
    if (!measure(type) || PMPI_Type_get_envelope(handle, &integers, &addresses, &datatypes,
                                                 &combiner) != MPI_SUCCESS) {
        weft_memory_free(type);
        return NULL;
    }
    type->named = combiner == MPI_COMBINER_NAMED;
    type->dense = is_dense(handle, 0);
    if (PMPI_Type_set_attr(handle, keyval, type) != MPI_SUCCESS) {
        weft_memory_free(type);
        return &pmpi_type_lost;
    }
    return type;
}

static struct pmpi_type *find_derived(MPI_Datatype handle)
{
    struct pmpi_type *type = NULL;
    int found = 0;
    pthread_mutex_lock(&lock);
    if (is_usable(handle) && PMPI_Type_get_attr(handle, keyval, &type, &found) == MPI_SUCCESS &&
        !found)
        type = make(handle);
    pthread_mutex_unlock(&lock);
    return type;
}

struct pmpi_type *pmpi_type_find(MPI_Datatype type)
{
    size_t place = place_of(type);
    if (type == MPI_DATATYPE_NULL)
        return NULL;
    for (; named[place]; place = (place + 1) % TABLE)
        if (named[place]->type == type)
            return named[place];
    return find_derived(type);
}

int pmpi_type_open(void)
{
    if (!add_integers() || !add_others())
        return MPI_ERR_NO_MEM;
    return PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, on_delete, &keyval, NULL);
}

void pmpi_type_close(void)
{
    for (size_t i = 0; i < TABLE; i++) {
        if (named[i])
            pmpi_reduction_forget_type(named[i]);
        weft_memory_free(named[i]);
        named[i] = NULL;
    }
    PMPI_Type_free_keyval(&keyval);
}

/* ---- packing ---- */

/* So many elements are packed in one call of MPI. */
static size_t at_once(const struct pmpi_type *type)
{
    size_t most = type->size == 0 ? INT_MAX : INT_MAX / type->size;
    return most > 0 ? most : 1;
}

int pmpi_type_pack(const struct pmpi_type *type, const void *data, size_t count, void *packed)
{
    for (size_t done = 0, some; done < count; done += some) {
        const char *from = (const char *)data + (ptrdiff_t)done * type->extent;
        char *to = (char *)packed + done * type->size;
        some = count - done < at_once(type) ? count - done : at_once(type);
#if MPI_VERSION >= 4
        MPI_Count position = 0;
        int code = PMPI_Pack_c(from, (MPI_Count)some, type->type, to,
                               (MPI_Count)(some * type->size), &position, pmpi_self);
#else
        int position = 0;
        int code = PMPI_Pack(from, (int)some, type->type, to, (int)(some * type->size), &position,
                             pmpi_self);
#endif
        if (code != MPI_SUCCESS)
            return code;
    }
    return MPI_SUCCESS;
}

int pmpi_type_unpack(const struct pmpi_type *type, const void *packed, void *data, size_t count)
{
    for (size_t done = 0, some; done < count; done += some) {
        const char *from = (const char *)packed + done * type->size;
        char *to = (char *)data + (ptrdiff_t)done * type->extent;
        some = count - done < at_once(type) ? count - done : at_once(type);
#if MPI_VERSION >= 4
        MPI_Count position = 0;
        int code = PMPI_Unpack_c(from, (MPI_Count)(some * type->size), &position, to,
                                 (MPI_Count)some, type->type, pmpi_self);
#else
        int position = 0;
        int code = PMPI_Unpack(from, (int)(some * type->size), &position, to, (int)some, type->type,
                               pmpi_self);
#endif
        if (code != MPI_SUCCESS)
            return code;
    }
    return MPI_SUCCESS;
}
