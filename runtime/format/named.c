/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library's own operations that are no reductions, by name: a document that names them is read
 * by any program. Each is made once for a document, however often it is named; names that are made
 * of numbers are without end, so they are looked up by a hash.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/hash.h"
#include "runtime/compress/operations.h"
#include "runtime/format/format.h"
#include "runtime/graph/joint.h"

#include <string.h>
#include <weft/compress.h>
#include <weft/sparse.h>

static const char *const sparse[] = {
#define NAME(kind, text) [kind] = (text),
    WEFT_SPARSE_OP_MAP(NAME)
#undef NAME
};

/* An answer of weft_compress_op_parse() that it is none would leave a text. */
static int make(struct weft__named_ops *named, const char *name, struct weft_op **op)
{
    for (int kind = 0; kind < WEFT_SPARSE_OP_COUNT; kind++)
        if (strcmp(sparse[kind], name) == 0)
            return weft_sparse_op((weft_sparse_op_kind_t)kind, op);
    int status = weft__joint_parse(name, op);
    if (status != WEFT_ERR_NOT_FOUND)
        return status;
    if (weft__compress_name_is(name, named->reason, sizeof named->reason))
        return weft_compress_op_parse(name, op);
    return WEFT_ERR_NOT_FOUND;
}

static int keep(struct weft__named_ops *named, uint64_t hash, struct weft_op *op)
{
    if (weft__grow((void **)&named->at, &named->capacity, named->count + 1,
                   sizeof(struct weft_op *)))
        return -1;
    if (weft__table_add(&named->table, hash, (uint32_t)named->count))
        return -1;
    named->at[named->count++] = op;
    return 0;
}

const struct weft_op *weft__named_op(struct weft__named_ops *named, const char *name, size_t length)
{
    const uint64_t hash = weft__hash_bytes(WEFT__HASH_EMPTY, name, length);
    struct weft_op *op = NULL;
    char *text;
    size_t at;
    int status;

    for (uint32_t n = weft__table_first(&named->table, hash, &at); n != WEFT__TABLE_END;
         n = weft__table_next(&named->table, hash, &at)) {
        const char *known = weft_op_name(named->at[n]);

        if (strncmp(known, name, length) == 0 && known[length] == '\0')
            return named->at[n];
    }
    text = weft__malloc(length + 1, 1);
    status = WEFT_ERR_MEMORY;
    if (text) {
        memcpy(text, name, length);
        text[length] = '\0';
        status = make(named, text, &op);
    }
    weft__free(text);
    if (status == WEFT_OK && keep(named, hash, op)) {
        weft_op_destroy(op);
        status = WEFT_ERR_MEMORY;
    }
    named->no_memory |= status == WEFT_ERR_MEMORY;
    return status == WEFT_OK ? op : NULL;
}

void weft__named_ops_free(struct weft__named_ops *named)
{
    while (named->count > 0)
        weft_op_destroy(named->at[--named->count]);
    weft__free((void *)named->at);
    weft__table_free(&named->table);
}
