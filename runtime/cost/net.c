/* SPDX-License-Identifier: BSD-3-Clause */
/* Networks: their defaults, and how they are written. */
#include <weft/sim.h>

#include "runtime/base/error.h"
#include "runtime/cost/loggops.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void weft_net_init_sized(struct weft_net *net, size_t size)
{
    weft_sized_init(net, size);
}

/* The parameters: how each is written, where it goes (S apart), and how large it may be. */
static const struct parameter {
    char letter;
    size_t offset;
    double max;
    const char *unit;
} parameters[] = {
    {'L', offsetof(struct weft_net, L), 1e12, "microseconds"},
    {'o', offsetof(struct weft_net, o), 1e12, "microseconds"},
    {'g', offsetof(struct weft_net, g), 1e12, "microseconds"},
    {'G', offsetof(struct weft_net, G), 1e9, "microseconds a byte"},
    {'O', offsetof(struct weft_net, O), 1e9, "microseconds a byte"},
    {'S', offsetof(struct weft_net, S), 0, "bytes"},
};

#define OFFLOAD "offload="

enum { PARAMETERS = sizeof parameters / sizeof *parameters };

int weft__net_read(const char *who, const char *name, const struct weft_net *given,
                   struct weft_net *net)
{
    char member[64];
    int status = weft_sized_read(who, name, given, net, sizeof *net);

    for (int i = 0; status == WEFT_OK && i < PARAMETERS; i++) {
        double value;

        if (parameters[i].letter == 'S')
            continue;
        memcpy(&value, (const char *)net + parameters[i].offset, sizeof value);
        snprintf(member, sizeof member, "%s->%c", name, parameters[i].letter);
        status = weft_sized_real(who, member, value, 0, parameters[i].max);
    }
    snprintf(member, sizeof member, "%s->flags", name);
    return status
               ? status
               : weft_sized_flags(who, member, net->flags, WEFT_NET_LOGGOPSIM | WEFT_NET_OFFLOAD);
}

/* The number of S: `length` digits. */
static int parse_bytes(const char *digits, size_t length, uint64_t *bytes)
{
    uint64_t sum = 0;

    if (!length)
        return -1;
    for (size_t i = 0; i < length; i++) {
        uint64_t digit = (uint64_t)(digits[i] - '0');

        if (digits[i] < '0' || digits[i] > '9' || sum > (UINT64_MAX - digit) / 10)
            return -1;
        sum = sum * 10 + digit;
    }
    *bytes = sum;
    return 0;
}

int weft__net_number(const char *text, size_t length, double max, double *number)
{
    char copy[64], *end = NULL, *point;
    double value;

    if (!length || length >= sizeof copy || strspn(text, "0123456789.eE+-") < length)
        return -1;
    memcpy(copy, text, length);
    copy[length] = '\0';
    point = strchr(copy, '.');
    if (point) /* what strtod() wants is the locale's affair */
        *point = *localeconv()->decimal_point;
    value = strtod(copy, &end);
    if (*end || signbit(value) || !(value <= max))
        return -1;
    *number = value;
    return 0;
}

/* The number of "offload=1". */
static int parse_offload(const char *word, size_t length, struct weft_net *net, unsigned *seen)
{
    int shown = length < 40 ? (int)length : 40;
    const char *number = word + strlen(OFFLOAD);

    if (length != strlen(OFFLOAD) + 1 || (*number != '0' && *number != '1'))
        return WEFT__INVALID("network: `%.*s`, expected offload=0 or offload=1", shown, word);
    if (*seen >> PARAMETERS & 1)
        return WEFT__INVALID("network: `%.*s` gives offload a second time, expected each once",
                             shown, word);
    *seen |= 1u << PARAMETERS;
    net->flags = *number == '1' ? net->flags | WEFT_NET_OFFLOAD : net->flags & ~WEFT_NET_OFFLOAD;
    return WEFT_OK;
}

static int is_offload(const char *word, size_t length)
{
    return length >= strlen(OFFLOAD) && !memcmp(word, OFFLOAD, strlen(OFFLOAD));
}

/* The parameter of a word, "L=1.5"; NULL: it has none. */
static const struct parameter *parameter_of(const char *word, size_t length)
{
    for (int i = 0; i < PARAMETERS && length > 1 && word[1] == '='; i++)
        if (parameters[i].letter == word[0])
            return &parameters[i];
    return NULL;
}

int weft__net_knows(const char *word, size_t length)
{
    return is_offload(word, length) || parameter_of(word, length);
}

int weft__net_take(const char *word, size_t length, struct weft_net *net, unsigned *seen)
{
    int shown = length < 40 ? (int)length : 40;
    const struct parameter *parameter = parameter_of(word, length);
    int status;

    if (is_offload(word, length))
        return parse_offload(word, length, net, seen);
    if (!parameter)
        return WEFT__INVALID("network: `%.*s`, expected one of " WEFT__NET_WORDS " and a number",
                             shown, word);
    if (*seen >> (parameter - parameters) & 1)
        return WEFT__INVALID("network: `%.*s` gives %c a second time, expected each once", shown,
                             word, parameter->letter);
    *seen |= 1u << (parameter - parameters);
    if (parameter->letter == 'S') {
        if (parse_bytes(word + 2, length - 2, &net->S))
            return WEFT__INVALID("network: `%.*s`, expected a number of bytes (0..%llu)", shown,
                                 word, (unsigned long long)UINT64_MAX);
        if (net->S == 0)
            net->S = WEFT_NET_NO_EAGER;
        return WEFT_OK;
    }
    status = weft__net_number(word + 2, length - 2, parameter->max,
                              (double *)((char *)net + parameter->offset));
    if (status)
        return WEFT__INVALID("network: `%.*s`, expected %s from 0 to %g", shown, word,
                             parameter->unit, parameter->max);
    return WEFT_OK;
}

int weft_net_parse(const char *text, struct weft_net *net)
{
    struct weft_net parsed;
    unsigned seen = 0;
    int status;

    if (!text || !net)
        return WEFT__INVALID("%s: argument `%s` is NULL, expected %s", __func__,
                             text ? "net" : "text", text ? "a network" : "\"L=...,G=...\"");
    status = weft__net_read(__func__, "net", net, &parsed);
    if (status)
        return status;
    for (;;) {
        size_t length = strcspn(text, ",");

        status = weft__net_take(text, length, &parsed, &seen);
        if (status)
            return status;
        if (!text[length])
            break;
        text += length + 1;
    }
    return weft_sized_fill(__func__, "net", net, &parsed, sizeof parsed);
}
