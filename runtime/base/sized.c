/* SPDX-License-Identifier: BSD-3-Clause */
/* The one place that knows how structs grow: sized.h states the policy. */
#include <weft/sized.h>

#include "runtime/base/error.h"

#include <string.h>

/* No struct is larger: beyond it the size is not one, and nothing is read. */
#define MOST ((size_t)1 << 16)

static size_t size_of(const void *object)
{
    size_t size;

    memcpy(&size, object, sizeof size);
    return size;
}

/* A struct that begins with a size_t is aligned as one, and something comes behind it. */
static int is_size(size_t size)
{
    return size > sizeof size && size % sizeof size == 0 && size <= MOST;
}

void weft_sized_init(void *object, size_t size)
{
    if (!object || size < sizeof size)
        return;
    memset(object, 0, size);
    memcpy(object, &size, sizeof size);
}

static int check_zero(const char *who, const char *name, const void *given, size_t size)
{
    const unsigned char *bytes = given;

    for (size_t at = size; at < size_of(given); at++)
        if (bytes[at])
            return WEFT__INVALID("%s: %s->struct_size is %zu, expected %zu, or zeros beyond: byte "
                                 "%zu sets what this version does not know",
                                 who, name, size_of(given), size, at);
    return WEFT_OK;
}

int weft_sized_read(const char *who, const char *name, const void *given, void *object, size_t size)
{
    int status;

    weft_sized_init(object, size);
    if (!given)
        return WEFT_OK;
    if (!is_size(size_of(given)))
        return WEFT__INVALID("%s: %s->struct_size is %zu, expected %zu, as its _init macro sets it",
                             who, name, size_of(given), size);
    status = check_zero(who, name, given, size);
    if (status != WEFT_OK)
        return status;
    memcpy(object, given, size_of(given) < size ? size_of(given) : size);
    memcpy(object, &size, sizeof size);
    return WEFT_OK;
}

int weft_sized_check(const char *who, const char *name, const void *out)
{
    if (out && !is_size(size_of(out)))
        return WEFT__INVALID("%s: %s->struct_size is %zu, expected sizeof *%s", who, name,
                             size_of(out), name);
    return WEFT_OK;
}

int weft_sized_fill(const char *who, const char *name, void *out, const void *from, size_t size)
{
    int status = weft_sized_check(who, name, out);
    size_t given;

    if (status != WEFT_OK || !out)
        return status;
    given = size_of(out);
    memset(out, 0, given);
    memcpy(out, from, given < size ? given : size);
    memcpy(out, &given, sizeof given);
    return WEFT_OK;
}

int weft_sized_number(const char *who, const char *member, int64_t value, int64_t least,
                      int64_t most)
{
    if (value >= least && value <= most)
        return WEFT_OK;
    if (most == INT64_MAX || most == INT32_MAX)
        return WEFT__INVALID("%s: %s is %lld, expected %lld or more", who, member, (long long)value,
                             (long long)least);
    return WEFT__INVALID("%s: %s is %lld, expected %lld to %lld", who, member, (long long)value,
                         (long long)least, (long long)most);
}

int weft_sized_real(const char *who, const char *member, double value, double least, double most)
{
    if (value >= least && value <= most)
        return WEFT_OK;
    return WEFT__INVALID("%s: %s is %g, expected %g to %g", who, member, value, least, most);
}

int weft_sized_flags(const char *who, const char *member, unsigned value, unsigned known)
{
    if (!(value & ~known))
        return WEFT_OK;
    return WEFT__INVALID("%s: %s is 0x%x, expected none but 0x%x", who, member, value, known);
}

int weft_sized_time(const char *who, const char *member, uint64_t ns, uint64_t special)
{
    if (ns < WEFT_NS_NONE || ns == special)
        return WEFT_OK;
    return WEFT__INVALID("%s: %s is %s, expected a number of nanoseconds%s", who, member,
                         ns == WEFT_NEVER ? "WEFT_NEVER" : "WEFT_NS_NONE",
                         special == WEFT_NEVER     ? ", or WEFT_NEVER"
                         : special == WEFT_NS_NONE ? ", or WEFT_NS_NONE"
                                                   : "");
}
