/* SPDX-License-Identifier: BSD-3-Clause */
/* Datatypes and operations as objects. The built-in operations are a constant table, which nobody
 * counts references to; a user's operation lives until its creator and every schedule and plan that
 * uses it have let go of it. */
#include "runtime/graph/op.h"

#include <stdio.h>
#include <string.h>

#include "ops/kernels.h"
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

#define WEFT__NAME_MAX 256

/* ---- datatypes ---- */

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
#define DTYPE_ENTRY(symbol, text, bytes) [symbol] = {.name = (text), .size = (bytes)},
    WEFT_DTYPE_MAP(DTYPE_ENTRY)
#undef DTYPE_ENTRY
};

static const char opaque_prefix[] = "bytes";

/* Bytes of an opaque element; 0 if the datatype is not opaque. */
static size_t opaque_size(weft_dtype_t dtype)
{
    const size_t bytes = (unsigned)dtype ^ (unsigned)WEFT_DTYPE_OPAQUE;

    return bytes <= WEFT_DTYPE_OPAQUE_MAX ? bytes : 0;
}

weft_dtype_t weft_dtype_opaque(size_t bytes)
{
    if (bytes == 0 || bytes > WEFT_DTYPE_OPAQUE_MAX) {
        WEFT__INVALID("%s: `bytes` is %zu, expected 1..%zu", __func__, bytes,
                      WEFT_DTYPE_OPAQUE_MAX);
        return WEFT_DTYPE_COUNT;
    }
    return (weft_dtype_t)((unsigned)WEFT_DTYPE_OPAQUE | (unsigned)bytes);
}

int weft_dtype_is_opaque(weft_dtype_t dtype)
{
    return opaque_size(dtype) != 0;
}

size_t weft_dtype_size(weft_dtype_t dtype)
{
    return (unsigned)dtype < WEFT_DTYPE_COUNT ? dtypes[dtype].size : opaque_size(dtype);
}

/* A name for each size cannot stand in a table. An error text has two or three of them. */
static const char *opaque_name(size_t bytes)
{
    static _Thread_local char names[8][sizeof "bytes1073741823"];
    static _Thread_local unsigned next;
    char *name = names[next++ % 8];

    snprintf(name, sizeof names[0], "%s%u", opaque_prefix, (unsigned)bytes);
    return name;
}

const char *weft_dtype_name(weft_dtype_t dtype)
{
    const size_t bytes = opaque_size(dtype);

    if (bytes)
        return opaque_name(bytes);
    return (unsigned)dtype < WEFT_DTYPE_COUNT ? dtypes[dtype].name : NULL;
}

/* A size has one spelling, without leading zeros. */
static size_t opaque_bytes(const char *text, size_t length)
{
    const size_t prefix = sizeof opaque_prefix - 1;
    size_t bytes = 0;

    if (length <= prefix || memcmp(text, opaque_prefix, prefix) != 0 || text[prefix] == '0')
        return 0;
    for (size_t i = prefix; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return 0;
        bytes = 10 * bytes + (size_t)(text[i] - '0');
        if (bytes > WEFT_DTYPE_OPAQUE_MAX)
            return 0;
    }
    return bytes;
}

int weft__dtype_find(const char *text, size_t length, weft_dtype_t *dtype)
{
    const size_t bytes = opaque_bytes(text, length);

    if (bytes) {
        *dtype = weft_dtype_opaque(bytes);
        return 1;
    }
    for (int i = 0; i < WEFT_DTYPE_COUNT; i++) {
        if (strlen(dtypes[i].name) == length && memcmp(text, dtypes[i].name, length) == 0) {
            *dtype = (weft_dtype_t)i;
            return 1;
        }
    }
    return 0;
}

int weft_dtype_parse(const char *name, weft_dtype_t *dtype)
{
    if (!name)
        return WEFT__INVALID("%s: `name` is NULL, expected the name of a datatype", __func__);
    if (!dtype)
        return WEFT__INVALID("%s: `dtype` is NULL, expected where to store it", __func__);
    if (weft__dtype_find(name, strlen(name), dtype))
        return WEFT_OK;
#define DTYPE_TEXT(symbol, text, bytes) " " text
    return weft__error(WEFT_ERR_NOT_FOUND, "no datatype is called `%.40s`, expected one of:%s %s",
                       name, WEFT_DTYPE_MAP(DTYPE_TEXT), WEFT__OPAQUE_NAMES);
#undef DTYPE_TEXT
}

/* ---- built-in operations ---- */

static const struct weft_op builtins[] = {
#define OP_ENTRY(symbol, text)                                                                     \
    [symbol] = {.name = (text), .flags = WEFT_OP_COMMUTES, .builtin = (symbol)},
    WEFT_OP_MAP(OP_ENTRY)
#undef OP_ENTRY
};

const struct weft_op *weft_op_builtin(weft_op_kind_t kind)
{
    return (unsigned)kind < WEFT_OP_COUNT ? &builtins[kind] : NULL;
}

int weft_op_parse(const char *name, const struct weft_op **op)
{
    if (!name)
        return WEFT__INVALID("%s: `name` is NULL, expected the name of an operation", __func__);
    if (!op)
        return WEFT__INVALID("%s: `op` is NULL, expected where to store the operation", __func__);
    for (int i = 0; i < WEFT_OP_COUNT; i++) {
        if (strcmp(name, builtins[i].name) == 0) {
            *op = &builtins[i];
            return WEFT_OK;
        }
    }
#define OP_TEXT(symbol, text) " " text
    return weft__error(WEFT_ERR_NOT_FOUND, "no operation is called `%.40s`, expected one of:%s",
                       name, WEFT_OP_MAP(OP_TEXT));
#undef OP_TEXT
}

/* ---- the user's operations ---- */

void weft_op_config_init_sized(struct weft_op_config *config, size_t size)
{
    weft_sized_init(config, size);
}

static int is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static int check_name(const char *who, const char *name)
{
    if (!name)
        return WEFT__INVALID("%s: `name` is NULL, expected a name for dumps", who);
    if (strlen(name) > WEFT__NAME_MAX)
        return WEFT__INVALID("%s: `name` has %zu characters, expected at most %d", who,
                             strlen(name), WEFT__NAME_MAX);
    for (size_t i = 0; name[i] != '\0' || i == 0; i++) {
        const int digit_or_dash = (name[i] >= '0' && name[i] <= '9') || name[i] == '-';

        if (!is_letter(name[i]) && (i == 0 || !digit_or_dash))
            return WEFT__INVALID("%s: `name` is \"%.40s\", expected a letter or _, then "
                                 "letters, digits, _ and -",
                                 who, name);
    }
    return WEFT_OK;
}

static int check_config(const char *who, const struct weft_op_config *config)
{
    const unsigned known = WEFT_OP_COMMUTES | WEFT_OP_MAY_PEND | WEFT_OP_FOLDS;

    if (check_name(who, config->name) != WEFT_OK)
        return WEFT_ERR_INVALID;
    if ((config->flags & ~known) != 0)
        return WEFT__INVALID("%s: `flags` is 0x%x for \"%s\", expected some of WEFT_OP_COMMUTES, "
                             "_MAY_PEND and _FOLDS",
                             who, config->flags, config->name);
    if (!config->reduce == !config->compute && (config->reduce || !config->device))
        return WEFT__INVALID("%s: `reduce` and `compute` of \"%s\" are %s, expected "
                             "exactly one of them%s",
                             who, config->name, config->reduce ? "both set" : "both NULL",
                             config->reduce ? "" : ", or `device`");
    if (config->reduce && (config->flags & WEFT_OP_MAY_PEND) != 0)
        return WEFT__INVALID("%s: `flags` of the reduction \"%s\" has WEFT_OP_MAY_PEND, "
                             "expected it on a compute function only",
                             who, config->name);
    if (config->reduce && (config->flags & WEFT_OP_FOLDS) != 0)
        return WEFT__INVALID("%s: `flags` of the reduction \"%s\" has WEFT_OP_FOLDS, "
                             "expected it on a compute function only",
                             who, config->name);
    if (config->poll && (config->flags & WEFT_OP_MAY_PEND) == 0)
        return WEFT__INVALID("%s: `poll` of \"%s\" is set, expected WEFT_OP_MAY_PEND in "
                             "`flags` with it",
                             who, config->name);
    return WEFT_OK;
}

int weft_op_create(struct weft_op **op, const struct weft_op_config *given)
{
    struct weft_op_config full, *config = &full;
    struct weft_op *made;
    char *name;

    if (!op)
        return WEFT__INVALID("%s: `op` is NULL, expected where to store the operation", __func__);
    if (!given)
        return WEFT__INVALID("%s: `config` is NULL, expected a configuration", __func__);
    if (weft_sized_read(__func__, "config", given, config, sizeof *config) != WEFT_OK ||
        check_config(__func__, config) != WEFT_OK)
        return WEFT_ERR_INVALID;

    made = weft__calloc(1, sizeof *made);
    if (!made)
        return weft__error_memory("an operation");
    name = weft__strdup(config->name);
    if (!name) {
        weft__free(made);
        return weft__error_memory("the name of an operation");
    }
    made->name = name;
    made->flags = config->flags;
    made->builtin = -1;
    made->reduce = config->reduce;
    made->compute = config->compute;
    made->poll = config->poll;
    made->device = config->device;
    made->user = config->user;
    atomic_init(&made->references, 1);
    *op = made;
    return WEFT_OK;
}

const struct weft_op *weft_op_retain(const struct weft_op *op)
{
    if (op && op->builtin < 0) {
        struct weft_op *counted = (struct weft_op *)op;

        /* Relaxed: who retains holds a reference already, or was handed one in order. */
        atomic_fetch_add_explicit(&counted->references, 1, memory_order_relaxed);
    }
    return op;
}

void weft_op_destroy(const struct weft_op *op)
{
    struct weft_op *counted = (struct weft_op *)op;

    if (!op || op->builtin >= 0)
        return;
    /* Release pairs with the acquire of the last one: all uses come before the freeing. */
    if (atomic_fetch_sub_explicit(&counted->references, 1, memory_order_acq_rel) != 1)
        return;
    weft__free((char *)counted->name);
    weft__free(counted->owned);
    weft__free(counted);
}

/* ---- what an operation is and does ---- */

const char *weft_op_name(const struct weft_op *op)
{
    return op ? op->name : NULL;
}

int weft_op_commutes(const struct weft_op *op)
{
    return op && (op->flags & WEFT_OP_COMMUTES) != 0;
}

int weft_op_supports(const struct weft_op *op, weft_dtype_t dtype)
{
    if (!op || weft_dtype_size(dtype) == 0)
        return 0;
    if (op->builtin >= 0)
        return weft__reduce_kernel_find((weft_op_kind_t)op->builtin, dtype) != NULL;
    return op->reduce != NULL;
}

const char *weft__op_hint(const struct weft_op *op, weft_dtype_t dtype)
{
    return op && op->builtin >= 0 && weft_dtype_is_opaque(dtype)
               ? ", whose elements are opaque: expected an operation of weft_op_create()"
               : "";
}

/* Whether blocks of @bytes at these addresses share some bytes but are not the same block. */
static int overlap_badly(const void *dst, const void *source, size_t bytes)
{
    const uintptr_t p = (uintptr_t)dst;
    const uintptr_t q = (uintptr_t)source;

    return p != q && (p < q ? q - p : p - q) < bytes;
}

static int check_reduce(const char *who, const struct weft_op *op, weft_dtype_t dtype,
                        const void *dst, const void *a, const void *b, size_t count)
{
    const size_t element = weft_dtype_size(dtype);

    if (!op)
        return WEFT__INVALID("%s: `op` is NULL, expected an operation", who);
    if (element == 0)
        return WEFT__INVALID("%s: `dtype` is %d, expected a weft_dtype_t", who, (int)dtype);
    if (!weft_op_supports(op, dtype))
        return WEFT__INVALID("%s: `op` is \"%s\", which %s %s%s", who, op->name,
                             op->compute ? "is not a reduction, so it cannot take"
                                         : "does not work on",
                             weft_dtype_name(dtype), weft__op_hint(op, dtype));
    if (count > SIZE_MAX / element)
        return WEFT__INVALID("%s: `count` is %zu, more %s than memory can hold", who, count,
                             weft_dtype_name(dtype));
    if (count > 0 && (!dst || !a || !b))
        return WEFT__INVALID("%s: `%s` is NULL with `count` %zu, expected memory", who,
                             !dst ? "dst" : (!a ? "a" : "b"), count);
    if (overlap_badly(dst, a, count * element) || overlap_badly(dst, b, count * element))
        return WEFT__INVALID("%s: `dst` overlaps an operand in part, expected it to be "
                             "`a`, to be `b`, or to touch neither",
                             who);
    return WEFT_OK;
}

int weft_convert(weft_dtype_t to_dtype, void *to, weft_dtype_t from_dtype, const void *from,
                 size_t count)
{
    if (count > 0 && (!to || !from))
        return WEFT__INVALID("%s: `%s` is NULL with `count` %zu, expected memory", __func__,
                             !to ? "to" : "from", count);
    if (!weft_dtype_size(to_dtype) || !weft_dtype_size(from_dtype))
        return WEFT__INVALID("%s: `%s` is %d, expected a weft_dtype_t", __func__,
                             weft_dtype_size(to_dtype) ? "from_dtype" : "to_dtype",
                             (int)(weft_dtype_size(to_dtype) ? from_dtype : to_dtype));
    if (!weft__convert(to_dtype, to, from_dtype, from, count))
        return weft__error(WEFT_ERR_UNSUPPORTED, "%s: %s to %s, expected floating point datatypes",
                           __func__, weft_dtype_name(from_dtype), weft_dtype_name(to_dtype));
    return WEFT_OK;
}

int weft_op_reduce(const struct weft_op *op, weft_dtype_t dtype, void *dst, const void *a,
                   const void *b, size_t count)
{
    const int status = check_reduce(__func__, op, dtype, dst, a, b, count);

    if (status != WEFT_OK)
        return status;
    if (op->builtin < 0)
        return op->reduce(op->user, dst, a, b, count, dtype);
    if (count > 0)
        weft__reduce_kernel_find((weft_op_kind_t)op->builtin, dtype)(dst, a, b, count);
    return WEFT_OK;
}
