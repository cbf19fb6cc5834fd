/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Built-in operations, each a node alone: computed by the host and by a device from the same
 * memory, and compared: status, text, value, and all that was written.
 */
#ifndef WEFT_TESTS_GPU_OPERATIONS_H
#define WEFT_TESTS_GPU_OPERATIONS_H

#include <math.h>

#include "tests/support/bind.h"
#include "tests/support/draw.h"
#include "tests/support/placed.h"
#include "tests/support/ranks.h"

enum { MOST_REGIONS = 2 + WEFT_SPARSE_FAN };

/* How what is left of a region is compared. */
enum compared {
    AS_WORK, /* not at all */
    AS_LIST, /* as many pairs as the node has produced */
    AS_SUMS, /* floats, any NaN for a NaN */
    AS_DOUBLES,
    AS_BYTES
};

struct operand {
    weft_dtype_t dtype;
    weft_access_t access;
    enum compared compared;
    size_t count;  /* of the slot, which has `data` */
    size_t length; /* that the region has, by a value if it is less than the slot */
    void *data;
    enum placed place;
};

struct outcome {
    int status;
    char text[600];
    uint64_t value, nans;
    void *data[MOST_REGIONS];
};

struct operation {
    struct weft_op *op; /* taken */
    struct operand operands[MOST_REGIONS];
    size_t count;
    int produces;
    int again;            /* so many times more, on what is there by then */
    const uint64_t *nans; /* where it counts them, or NULL */
};

/* The memory of an operand, of zeros. */
void *operand_add(struct operation *operation, weft_dtype_t dtype, weft_access_t access,
                  enum compared compared, size_t count);
/* Another length. */
void operand_shorten(struct operation *operation, size_t index, size_t length);

/* On the device, or on both sides. */
void draw_places(struct operation *operation, struct draw *draw);

/* By host and device: fails where they differ. Returns the status. `what` is for the text. */
int compare_sides(struct weft_context *context, struct operation *operation, const char *what);
/* On the device, as it is placed. */
void execute_placed(struct weft_context *context, const struct operation *operation,
                    struct outcome *outcome);
void outcome_free(const struct operation *operation, struct outcome *outcome);
void operation_free(struct operation *operation);

static inline void *first_operand(const struct operation *operation, size_t index)
{
    return operation->operands[index].data;
}

/* A number, now and then one at which something changes; with `odd`, also one that is none. */
static inline float draw_number(struct draw *draw, int odd)
{
    static const float numbers[] = {
        0, -0.0F, 1, -1, 0x1p-149F, -0x1p-126F, 0x1.fffffep127F, 1e9F, INFINITY, -INFINITY, NAN};

    if (draw_below(draw, 8) == 0)
        return numbers[draw_below(draw, odd ? 11 : 8)];
    return (float)(2 * draw_real(draw) - 1);
}

#endif
