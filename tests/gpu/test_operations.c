/* SPDX-License-Identifier: BSD-3-Clause */
/* The operations on lists of pairs, by host and device. */
#include <criterion/criterion.h>
#include <weft/sparse.h>

#include "tests/gpu/operations.h"

#if defined(__SANITIZE_ADDRESS__)
enum { ROUNDS = 20 };
#else
enum { ROUNDS = 60 };
#endif
enum { ELEMENTS = 3000 };

/* ---- lists ---- */

static uint32_t *index_of(const struct operation *operation, size_t region)
{
    return operation->operands[region].data;
}

static float *value_of(const struct operation *operation, size_t region)
{
    return (float *)operation->operands[region].data + operation->operands[region].length;
}

static size_t draw_length(struct draw *draw)
{
    static const size_t lengths[] = {0, 1, 2, 3, 255, 256, 511, 512, 513, 1023, 1024, 1025};

    return draw_below(draw, 2) ? lengths[draw_below(draw, 12)] : draw_below(draw, 1300);
}

/* A list of drawn length, in a slot that may be longer. `odd`: with NaNs and infinities; or with
 * an index out of order. */
static void add_list(struct operation *operation, struct draw *draw, size_t length, int odd)
{
    const size_t count = length + (draw_below(draw, 2) ? draw_below(draw, 50) : 0);
    const size_t region = operation->count;
    uint32_t at = draw_below(draw, 8);

    operand_add(operation, WEFT_U64, WEFT_READ, AS_BYTES, count);
    operand_shorten(operation, region, length);
    for (size_t i = 0; i < length; i++) {
        index_of(operation, region)[i] = at;
        value_of(operation, region)[i] =
            draw_below(draw, 4) ? draw_number(draw, odd == 1 && draw_below(draw, 40) == 0)
                                : (float)draw_below(draw, 3);
        at += 1 + draw_below(draw, length > ELEMENTS / 2 ? 1 : 3);
    }
    if (odd == 2 && length > 1) {
        size_t wrong = 1 + draw_below(draw, (unsigned)length - 1);

        index_of(operation, region)[wrong] = index_of(operation, region)[wrong - 1];
    }
}

static void add_out(struct operation *operation, size_t pairs)
{
    operand_add(operation, WEFT_U64, WEFT_WRITE, AS_LIST, pairs);
}

static void add_work(struct operation *operation, size_t pairs)
{
    operand_add(operation, WEFT_U64, WEFT_WRITE, AS_WORK,
                pairs + weft_sparse_merge_workspace(WEFT_U32, WEFT_F32, pairs) / 8 + 32);
}

/* The number of pairs that are wanted. */
static void add_limit(struct operation *operation, size_t limit)
{
    operand_add(operation, WEFT_U8, WEFT_WRITE, AS_WORK, limit);
}

static void add_residual(struct operation *operation, struct draw *draw, size_t elements)
{
    float *at = operand_add(operation, WEFT_F32, WEFT_WRITE, AS_SUMS, elements);

    for (size_t i = 0; i < elements; i++)
        at[i] = draw_number(draw, 0);
}

static size_t draw_limit(struct draw *draw, size_t pairs)
{
    return draw_below(draw, 4) ? draw_below(draw, (unsigned)pairs + 3) : draw_below(draw, 3);
}

static int draw_odd(struct draw *draw)
{
    return (int)draw_below(draw, 6) - 3; /* mostly not */
}

/* ---- one of each ---- */

static void make_merge(struct operation *operation, struct draw *draw)
{
    const size_t a = draw_length(draw), b = draw_length(draw), limit = draw_limit(draw, a + b);
    const int odd = draw_odd(draw);

    add_out(operation, draw_below(draw, 8) ? limit : limit / 2);
    add_list(operation, draw, a, draw_below(draw, 2) ? odd : 0);
    add_list(operation, draw, b, odd);
    add_work(operation, a + b);
    add_limit(operation, limit);
    if (draw_below(draw, 3))
        add_residual(operation, draw, draw_below(draw, 8) ? ELEMENTS : draw_below(draw, 9));
}

static void make_keep(struct operation *operation, struct draw *draw)
{
    static const float thresholds[] = {0, 0.5F, 1, -1, NAN, INFINITY, 0x1p-149F, -0.0F};
    const size_t pairs = draw_length(draw), limit = draw_limit(draw, pairs);

    add_out(operation, limit);
    add_list(operation, draw, pairs, draw_odd(draw));
    float *threshold =
        operand_add(operation, WEFT_F32, WEFT_READ, AS_BYTES, draw_below(draw, 30) ? 1 : 2);
    *threshold = thresholds[draw_below(draw, draw_below(draw, 4) ? 3 : 8)];
    add_work(operation, pairs);
    add_limit(operation, limit);
    add_residual(operation, draw, draw_below(draw, 8) ? ELEMENTS : draw_below(draw, 9));
}

static void make_part(struct operation *operation, struct draw *draw)
{
    const size_t pairs = draw_length(draw), limit = draw_limit(draw, pairs);
    const size_t bounds = draw_below(draw, 30) ? 2 + draw_below(draw, 3) : 1;
    const int limited = draw_below(draw, 2) != 0;

    add_out(operation, limited || draw_below(draw, 3) ? pairs + 1 : limit);
    add_list(operation, draw, pairs, draw_odd(draw));
    uint64_t *bound = operand_add(operation, WEFT_U64, WEFT_READ, AS_BYTES, bounds);
    for (size_t i = 0; i < bounds; i++)
        bound[i] = draw_below(draw, ELEMENTS / 4 * (unsigned)(i + 1));
    if (draw_below(draw, 10) && bound[0] > bound[bounds - 1])
        bound[0] = bound[bounds - 1] / 2;
    if (!limited)
        return;
    add_work(operation, pairs);
    add_limit(operation, limit);
    if (draw_below(draw, 30))
        add_residual(operation, draw, draw_below(draw, 8) ? ELEMENTS : draw_below(draw, 9));
}

static void make_sum(struct operation *operation, struct draw *draw)
{
    const unsigned lists = draw_below(draw, 4) ? draw_below(draw, 7) : WEFT_SPARSE_FAN;
    const int odd = draw_odd(draw);
    size_t pairs = 0;

    add_out(operation, 0);
    add_work(operation, ELEMENTS * WEFT_SPARSE_FAN / 2);
    for (unsigned i = 0; i < lists; i++) {
        add_list(operation, draw, draw_length(draw) / (lists > 8 ? 8 : 1),
                 draw_below(draw, 4) ? 0 : odd);
        pairs += operation->operands[2 + i].length;
    }
    free(operation->operands[0].data);
    operation->operands[0].count = operation->operands[0].length =
        draw_below(draw, 20) || odd == 2 ? pairs + draw_below(draw, 4) : pairs / 2;
    operation->operands[0].data = calloc(pairs + 5, sizeof(uint64_t));
}

static void make_join(struct operation *operation, struct draw *draw)
{
    const size_t a = draw_length(draw), b = draw_length(draw);
    const unsigned common = draw_below(draw, 10);

    add_out(operation, draw_below(draw, 20) ? a + b : (a + b) / 2);
    add_list(operation, draw, a, draw_odd(draw));
    add_list(operation, draw, b, draw_odd(draw));
    for (size_t i = 0; i < a && common; i++)
        index_of(operation, 1)[i] = 2 * index_of(operation, 1)[i] + (draw_below(draw, 2) ? 0 : 0);
    for (size_t i = 0; i < b && common; i++)
        index_of(operation, 2)[i] = 2 * index_of(operation, 2)[i] + 1;
}

static void make_bounds(struct operation *operation, struct draw *draw)
{
    const size_t bounds = draw_below(draw, 30) ? 2 + draw_below(draw, 600) : draw_below(draw, 2);
    const size_t pairs = draw_length(draw);
    uint64_t *bound = operand_add(operation, WEFT_U64, WEFT_READ, AS_BYTES, bounds);

    for (size_t i = 0; i < bounds; i++)
        bound[i] = ELEMENTS * i / (bounds > 1 ? bounds - 1 : 1);
    if (bounds > 0 && draw_below(draw, 3) == 0)
        bound[draw_below(draw, (unsigned)bounds)] = draw_below(draw, ELEMENTS + 2);
    add_list(operation, draw, pairs, draw_odd(draw));
    if (pairs > 0 && draw_below(draw, 8) == 0)
        index_of(operation, 1)[pairs - 1] = ELEMENTS;
    operand_add(operation, WEFT_F32, WEFT_READ, AS_BYTES, ELEMENTS);
    operation->produces = 0;
}

/* ---- selection ---- */

enum { MANY = 70000 };

/* Numbers of all kinds; few different ones; or almost all zeros. */
static void fill_vector(struct draw *draw, float *at, size_t count)
{
    const unsigned kind = draw_below(draw, 4), odd = draw_below(draw, 4) == 0;

    for (size_t i = 0; i < count; i++)
        at[i] = kind == 0   ? draw_number(draw, odd && draw_below(draw, 40) == 0)
                : kind == 1 ? (float)draw_below(draw, 3) - 1
                : kind == 2 ? 1 + 0x1p-23F * (float)draw_below(draw, 9)
                            : (float)(draw_below(draw, 200) == 0) * draw_number(draw, 0);
}

static void make_vectors(struct operation *operation, struct draw *draw, size_t count, size_t most)
{
    const unsigned which = draw_below(draw, 8);
    const size_t residuals = which == 0 ? 0 : count;
    const size_t values = which == 1 ? 0 : which == 2 ? count + 1 : count;

    operand_add(operation, WEFT_U64, WEFT_WRITE, AS_LIST, most);
    fill_vector(draw, operand_add(operation, WEFT_F32, WEFT_UPDATE, AS_SUMS, residuals), residuals);
    fill_vector(draw, operand_add(operation, WEFT_F32, WEFT_READ, AS_BYTES, values), values);
    operand_add(operation, WEFT_U64, WEFT_WRITE, AS_WORK,
                weft_sparse_select_workspace(NULL, WEFT_F32, count, most) / 8 + 1);
}

static size_t draw_count(struct draw *draw)
{
    return draw_below(draw, 30) ? draw_length(draw) : MANY + draw_below(draw, 5000);
}

/* The hint is tried by a second call, and a third. */
static void make_select(struct operation *operation, struct draw *draw)
{
    static const float hints[] = {0, 0.5F, 1, -1, NAN, INFINITY, 1e-9F};
    const size_t count = draw_count(draw);
    const size_t k = draw_below(draw, 3) ? draw_limit(draw, count) : draw_limit(draw, count / 8);

    make_vectors(operation, draw, count, draw_below(draw, 8) ? k : k / 2);
    add_limit(operation, k);
    if (draw_below(draw, 3) == 0)
        return;
    float *hint = operand_add(operation, WEFT_F32, WEFT_UPDATE, AS_WORK,
                              draw_below(draw, 30) ? 1 : draw_below(draw, 2) * 2);
    if (operation->operands[operation->count - 1].count == 1)
        *hint = hints[draw_below(draw, 7)];
    operation->again = (int)draw_below(draw, 3);
}

static void make_above(struct operation *operation, struct draw *draw)
{
    static const float thresholds[] = {0.9F, 1, 0.5F, 0, INFINITY, 0x1p-149F, -1, NAN, -0.0F};
    const size_t count = draw_count(draw);
    const size_t most = draw_below(draw, 3) ? draw_limit(draw, count / 4) : count;

    make_vectors(operation, draw, count, most);
    float *threshold =
        operand_add(operation, WEFT_F32, WEFT_READ, AS_BYTES, draw_below(draw, 30) ? 1 : 2);
    *threshold = thresholds[draw_below(draw, 9)];
}

static void (*const makers[])(struct operation *operation, struct draw *draw) = {
    [WEFT_SPARSE_MERGE] = make_merge,   [WEFT_SPARSE_PART] = make_part,
    [WEFT_SPARSE_SUM] = make_sum,       [WEFT_SPARSE_KEEP] = make_keep,
    [WEFT_SPARSE_JOIN] = make_join,     [WEFT_SPARSE_BOUNDS] = make_bounds,
    [WEFT_SPARSE_SELECT] = make_select, [WEFT_SPARSE_ABOVE] = make_above,
};

static struct operation make(weft_sparse_op_kind_t kind, struct draw *draw)
{
    static uint64_t nans;
    static unsigned counted; /* every other selection, so that what is drawn stays as it is */
    const int selects = kind == WEFT_SPARSE_SELECT || kind == WEFT_SPARSE_ABOVE;
    struct operation operation = {.produces = 1, .again = draw_below(draw, 4) == 0};

    operation.nans = selects && counted++ % 2 ? &nans : NULL;
    const struct weft_sparse_op_config config = {.struct_size = sizeof config,
                                                 .kind = kind,
                                                 .nan = draw_below(draw, 3) ? WEFT_NAN_ERROR
                                                                            : WEFT_NAN_ZERO,
                                                 .nans = operation.nans ? &nans : NULL};

    OK(weft_sparse_op_create(&operation.op, &config));
    makers[kind](&operation, draw);
    draw_places(&operation, draw);
    return operation;
}

/* Each kind succeeds and fails. */
static void lists(struct ranks *ranks, struct weft_context *context, int rank)
{
    (void)ranks, (void)rank;
    device_use(0);
    for (int kind = 0; kind < WEFT_SPARSE_OP_COUNT; kind++) {
        int succeeded = 0, failed = 0;

        for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
            struct draw draw = {seed * 100 + (uint64_t)kind};
            struct operation operation = make((weft_sparse_op_kind_t)kind, &draw);
            char what[64];

            snprintf(what, sizeof what, "%s, seed %llu", weft_op_name(operation.op),
                     (unsigned long long)seed);
            *(compare_sides(context, &operation, what) == WEFT_OK ? &succeeded : &failed) += 1;
            operation_free(&operation);
        }
        CHECK(succeeded > ROUNDS / 4 && failed > ROUNDS / 20);
    }
}

Test(operations, lists)
{
    ranks_run_once(lists, 1, NULL);
    device_check();
}
