/* SPDX-License-Identifier: BSD-3-Clause */
/* Vectors that are compressed in parts: what the parameters say of them, and what they cost. */
#include "schedules/common/template.h"

/* Multiply-adds a microsecond of one core, about: what projecting costs beside its memory. By `weft
 * bench compress` on AVX-512: 1.6 to 2.4 GB/s of values at d = 96 and 99 are 4e4 to 5.8e4. */
#define PRODUCTS_PER_US 4e4

enum { SLICE = 64, RATIO = 8, RANK = 2 };

/* What counts are checked against: sums of f32 that fit a size. */
#define MOST ((size_t)PTRDIFF_MAX / sizeof(float))

/* ---- parameters ---- */

static int check_block(const struct weft__template *template, size_t index,
                       const struct weft_compressed_block *block)
{
    const char *name = template->public.name;
    if (block->components > block->slice)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: blocks[%zu].components is %zu, expected at most its slice, %zu",
                              name, index, block->components, block->slice);
    if (block->components && block->slice > MOST / block->components)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: blocks[%zu] has slices of %zu elements and %zu components, "
                              "expected at most %zu elements of a basis",
                              name, index, block->slice, block->components, MOST);
    if (template->flags & WEFT__WHOLE_ROWS && block->slice && block->count % block->slice)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: blocks[%zu].count is %zu, expected a multiple of its slice, "
                              "%zu: whole rows",
                              name, index, block->count, block->slice);
    return WEFT_OK;
}

/* The elements of all blocks become the count. */
static int check_list(const struct weft__template *template, struct weft_template_params *params)
{
    const char *name = template->public.name;
    size_t elements = 0, sent = 0;
    if (params->block_count > INT32_MAX)
        return weft_error_set(WEFT_ERR_INVALID, "%s: block_count is %zu, expected at most %d", name,
                              params->block_count, INT32_MAX);
    for (size_t b = 0; b < params->block_count; b++) {
        const struct weft_compressed_block *block = &params->blocks[b];
        int status = check_block(template, b, block);
        if (status)
            return status;
        if (block->count > MOST - elements)
            return weft_error_set(WEFT_ERR_INVALID,
                                  "%s: blocks[%zu].count is %zu, behind %zu elements of other "
                                  "blocks, expected at most %zu together",
                                  name, b, block->count, elements, MOST);
        elements += block->count;
        if (block->components && weft__block_slices(block) > (MOST - sent) / block->components)
            return weft_error_set(WEFT_ERR_INVALID,
                                  "%s: blocks[%zu] has %zu slices of %zu components, behind %zu of "
                                  "other blocks, expected at most %zu together",
                                  name, b, weft__block_slices(block), block->components, sent,
                                  MOST);
        sent += weft__block_sent(block);
    }
    params->count = elements;
    return WEFT_OK;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

int weft__blocks_check(const struct weft__template *template, struct weft_template_params *params)
{
    const char *name = template->public.name;
    if (params->blocks)
        return check_list(template, params);
    if (params->block_count)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: blocks is NULL, and block_count is %zu, expected 0", name,
                              params->block_count);
    if (!params->slice)
        params->slice = SLICE;
    if (!params->components && template->flags & WEFT__WHOLE_ROWS)
        params->components = least(RANK, params->slice);
    else if (!params->components)
        params->components = params->slice < RATIO ? 1 : params->slice / RATIO;
    if (params->components > params->slice)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: components is %zu, expected at most the slice, %zu", name,
                              params->components, params->slice);
    if (params->slice > MOST / params->components)
        return weft_error_set(WEFT_ERR_INVALID,
                              "%s: slice is %zu with %zu components, expected at most %zu elements "
                              "of a basis",
                              name, params->slice, params->components, MOST);
    return WEFT_OK;
}

struct weft__blocks weft__blocks_of(const struct weft__template *template,
                                    const struct weft_template_params *params)
{
    if (params->blocks)
        return (struct weft__blocks){.list = params->blocks, .count = params->block_count};
    struct weft__blocks blocks = {.count = 1,
                                  .own[0] = {params->count, params->slice, params->components}};
    size_t rest = params->count % params->slice;
    if (template->flags & WEFT__WHOLE_ROWS && rest) {
        blocks.own[0].count -= rest;
        blocks.own[1] = (struct weft_compressed_block){.count = rest};
        blocks.count = 2;
    }
    return blocks;
}

size_t weft__blocks_sent(const struct weft__blocks *blocks)
{
    size_t sent = 0;
    for (size_t b = 0; b < blocks->count; b++)
        sent += weft__block_sent(weft__blocks_at(blocks, b));
    return sent;
}

/* ---- costs ---- */

double weft__blocks_cost(const struct weft__shape *shape)
{
    const struct weft__blocks *blocks = &shape->blocks;
    double products = 0, bytes = 0;
    for (size_t b = 0; b < blocks->count; b++) {
        const struct weft_compressed_block *block = weft__blocks_at(blocks, b);
        products += (double)block->count * (double)block->components;
        bytes += (double)sizeof(float) * (double)block->count;
    }
    return bytes * shape->cost->copy_us_per_byte + products / PRODUCTS_PER_US;
}
