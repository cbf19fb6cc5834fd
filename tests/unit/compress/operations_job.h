/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations on compressed vectors, alone in a schedule, for suites that run them. */
#ifndef WEFT_TESTS_UNIT_COMPRESS_OPERATIONS_JOB_H
#define WEFT_TESTS_UNIT_COMPRESS_OPERATIONS_JOB_H

#include "runtime/base/hash.h"
#include "support/ranks.h"
#include "tests/support/bind.h"

enum { MOST_REGIONS = 6 };

/* A region of a node, all of a slot of its own. */
struct part {
    void *data;
    size_t count;
    weft_dtype_t dtype;
    weft_access_t access;
};

#define F32(pointer, elements, how)                                                                \
    (struct part)                                                                                  \
    {                                                                                              \
        (void *)(uintptr_t)(pointer), elements, WEFT_F32, how                                      \
    }
#define BYTES(pointer, elements, how)                                                              \
    (struct part)                                                                                  \
    {                                                                                              \
        pointer, elements, WEFT_U8, how                                                            \
    }
#define F64(pointer, elements, how)                                                                \
    (struct part)                                                                                  \
    {                                                                                              \
        pointer, elements, WEFT_F64, how                                                           \
    }

static inline struct weft_op *make_op(weft_compress_op_kind_t kind,
                                      const struct weft_quantiser *quantiser, size_t slice)
{
    struct weft_compress_op_config config;
    struct weft_op *op = NULL;

    weft_compress_op_config_init(&config);
    config.kind = kind;
    config.quantiser = quantiser;
    config.slice = slice;
    OK(weft_compress_op(&config, &op));
    return op;
}

/* Nodes of one operation on the same slots, behind so many joins. */
static inline struct weft_schedule *make_schedule(const struct weft_op *op,
                                                  const struct part *parts, size_t count, int joins)
{
    struct weft_schedule *s = new_schedule(0, 1);
    struct weft_compute_argument arguments[MOST_REGIONS];
    char name[8];

    CHECK(count <= MOST_REGIONS);
    for (size_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "s%zu", i);
        weft_slot_t slot =
            weft_schedule_add_slot(s, name, parts[i].dtype, parts[i].count, WEFT_SLOT_INOUT);
        arguments[i] = (struct weft_compute_argument){
            .region = weft_region_at(slot, 0, parts[i].count), .access = parts[i].access};
    }
    for (int i = 0; i < joins; i++)
        weft_schedule_add_join(s);
    CHECK(weft_schedule_add_compute(s, op, arguments, count, 0) >= 0);
    return s;
}

/* Runs one node; the status of the run. */
static inline int execute(const struct weft_op *op, const struct part *parts, size_t count)
{
    struct alone alone = alone_create(WEFT_PROGRESS_CALLER);
    struct weft_run *run =
        make_run(alone.context, commit(make_schedule(op, parts, count, 0)), NULL);

    for (size_t i = 0; i < count; i++)
        OK(bind_slot(run, (weft_slot_t)i, parts[i].data));
    int status = weft_run_execute(run);
    char text[512];

    snprintf(text, sizeof text, "%s", weft_error_text());
    weft_run_destroy(run);
    alone_destroy(&alone);
    if (status != WEFT_OK)
        weft_error_set(status, "%s", text);
    return status;
}

static inline float draw(uint64_t *state)
{
    return (float)(int32_t)weft__random(state) * 0x1p-31F;
}

static inline float *numbers(size_t count, uint64_t seed)
{
    float *at = calloc(count + 1, sizeof *at);

    CHECK(at);
    for (size_t i = 0; i < count; i++)
        at[i] = draw(&seed);
    return at;
}

static inline int same(const void *a, const void *b, size_t bytes)
{
    return bytes == 0 || memcmp(a, b, bytes) == 0;
}

#endif
