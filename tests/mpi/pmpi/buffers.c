/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory with guards on both sides: a pattern that depends on the place, so that what was moved
 * there from elsewhere shows as well.
 */
#include <stdlib.h>
#include <string.h>

#include "compare.h"

enum { PERIOD = 65536 };

static unsigned char patterns[PERIOD];

static unsigned char pattern(size_t at)
{
    return patterns[at % PERIOD];
}

__attribute__((constructor)) static void make_patterns(void)
{
    for (size_t at = 0; at < PERIOD; at++)
        patterns[at] = (unsigned char)(at * 151 + (at >> 8) * 29 + 85);
}

void buffer_make(struct buffer *buffer, ptrdiff_t low, ptrdiff_t high, size_t shift)
{
    if (high < low)
        high = low = 0;
    buffer->low = GUARD_BYTES + shift;
    buffer->high = buffer->low + (size_t)(high - low);
    buffer->bytes = buffer->high + GUARD_BYTES;
    buffer->memory = test_alloc(buffer->bytes);
    buffer->data = buffer->memory + buffer->low - low;
    buffer_reset(buffer);
}

void buffer_reset(struct buffer *buffer)
{
    for (size_t at = 0; at < buffer->bytes; at += PERIOD)
        memcpy(buffer->memory + at, patterns,
               buffer->bytes - at < PERIOD ? buffer->bytes - at : PERIOD);
}

void buffer_copy(struct buffer *copy, const struct buffer *of)
{
    *copy = *of;
    copy->memory = test_alloc(of->bytes);
    memcpy(copy->memory, of->memory, of->bytes);
    copy->data = copy->memory + (of->data - of->memory);
}

void buffer_free(struct buffer *buffer)
{
    free(buffer->memory);
    memset(buffer, 0, sizeof *buffer);
}

void buffer_randomize(struct buffer *buffer, uint64_t seed)
{
    for (size_t at = buffer->low; at < buffer->high; at++)
        buffer->memory[at] = (unsigned char)test_random(seed, 0, at);
}

bool buffer_guarded(const struct buffer *buffer, const char *what)
{
    for (size_t at = 0; at < buffer->bytes; at++) {
        if (at == buffer->low)
            at = buffer->high;
        if (buffer->memory[at] == pattern(at))
            continue;
        test_mismatch(
            "%s: byte %td of the buffer, whose bytes are %td to %td, was written: "
            "expected 0x%02x, found 0x%02x",
            what, buffer->memory + at - buffer->data, buffer->memory + buffer->low - buffer->data,
            buffer->memory + buffer->high - buffer->data - 1, pattern(at), buffer->memory[at]);
        return false;
    }
    return true;
}

bool buffer_same(const struct buffer *found, const struct buffer *expected, const char *what)
{
    size_t at = 0, differ = 0;

    if (memcmp(found->memory, expected->memory, found->bytes) == 0)
        return true;
    while (found->memory[at] == expected->memory[at])
        at++;
    for (size_t i = at; i < found->bytes; i++)
        differ += found->memory[i] != expected->memory[i];
    test_mismatch("%s: byte %td: expected 0x%02x, found 0x%02x; %zu of %zu bytes differ", what,
                  found->memory + at - found->data, expected->memory[at], found->memory[at], differ,
                  found->high - found->low);
    return false;
}
