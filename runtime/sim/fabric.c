/* SPDX-License-Identifier: BSD-3-Clause */
/* Fabrics: their defaults, what they may be, and how they are written. */
#include "runtime/sim/fabric.h"

#include "runtime/base/error.h"
#include "runtime/cost/loggops.h"
#include "runtime/sim/route.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char *const kind_names[] = {
    [WEFT_FABRIC_TORUS] = "torus", [WEFT_FABRIC_FAT_TREE] = "fat-tree"};

void weft_fabric_init_sized(struct weft_fabric *fabric, size_t size)
{
    weft_sized_init(fabric, size);
}

const char *weft_fabric_kind_name(weft_fabric_kind_t kind)
{
    return (int)kind >= 0 && kind <= WEFT_FABRIC_FAT_TREE ? kind_names[kind] : NULL;
}

/* ---- what they may be ---- */

static int check_extents(const char *who, const char *name, const struct weft_fabric *fabric)
{
    int64_t hosts = 1;

    if (fabric->levels < 1 || fabric->levels > WEFT_FABRIC_LEVELS)
        return WEFT__INVALID("%s: %s->levels is %d, expected 1..%d extents", who, name,
                             fabric->levels, WEFT_FABRIC_LEVELS);
    for (int i = 0; i < fabric->levels; i++) {
        if (fabric->extents[i] < 1 || fabric->extents[i] > WEFT__FABRIC_HOSTS / hosts)
            return WEFT__INVALID("%s: %s->extents[%d] is %d, expected at least 1, and a product of "
                                 "at most %lld hosts",
                                 who, name, i, fabric->extents[i], (long long)WEFT__FABRIC_HOSTS);
        hosts *= fabric->extents[i];
    }
    if (fabric->kind == WEFT_FABRIC_FAT_TREE && fabric->extents[0] % fabric->oversubscription)
        return WEFT__INVALID("%s: %s->oversubscription is %d, expected a divisor of the %d hosts "
                             "of a leaf switch",
                             who, name, fabric->oversubscription, fabric->extents[0]);
    return WEFT_OK;
}

int weft__fabric_read(const char *who, const char *name, const struct weft_fabric *given,
                      struct weft_fabric *fabric)
{
    char member[64];
    int status = weft_sized_read(who, name, given, fabric, sizeof *fabric);

    if (!status && ((int)fabric->kind < 0 || fabric->kind > WEFT_FABRIC_FAT_TREE))
        status = WEFT__INVALID("%s: %s->kind is %d, expected a weft_fabric_kind_t", who, name,
                               (int)fabric->kind);
    snprintf(member, sizeof member, "%s->flags", name);
    status = status ? status : weft_sized_flags(who, member, fabric->flags, WEFT_FABRIC_RANDOM);
    snprintf(member, sizeof member, "%s->ranks_per_host", name);
    status = status ? status : weft_sized_number(who, member, fabric->ranks_per_host, 0, INT32_MAX);
    snprintf(member, sizeof member, "%s->oversubscription", name);
    status =
        status ? status : weft_sized_number(who, member, fabric->oversubscription, 0, INT32_MAX);
    snprintf(member, sizeof member, "%s->hop_us", name);
    status = status ? status : weft_sized_real(who, member, fabric->hop_us, 0, 1e9);
    snprintf(member, sizeof member, "%s->link_us_per_byte", name);
    status = status ? status : weft_sized_real(who, member, fabric->link_us_per_byte, 0, 1e9);
    if (status)
        return status;
    fabric->ranks_per_host += !fabric->ranks_per_host;
    fabric->oversubscription += !fabric->oversubscription;
    return fabric->kind == WEFT_FABRIC_NONE ? WEFT_OK : check_extents(who, name, fabric);
}

/* ---- how they are written ---- */

/* A word of the text. */
struct word {
    const char *at;
    size_t length;
};

/* The words, and which of them there were. */
enum { TORUS, FAT_TREE, OVERSUBSCRIPTION, RANKS_PER_HOST, HOP, LINK, PLACE, WORDS };

static const struct {
    const char *name;
    const char *expected;
} words[WORDS] = {
    [TORUS] = {"torus=", "extents of 1 to 8 dimensions, as in torus=32x32"},
    [FAT_TREE] = {"fat-tree=", "extents of 1 to 8 levels, as in fat-tree=32x32"},
    [OVERSUBSCRIPTION] = {"oversubscription=", "a factor (1..2147483647)"},
    [RANKS_PER_HOST] = {"ranks-per-host=", "a number of ranks (1..2147483647)"},
    [HOP] = {"hop=", "microseconds from 0 to 1e+09"},
    [LINK] = {"link=", "microseconds a byte, more than 0, to 1e+09"},
    [PLACE] = {"place=", "linear, or random:SEED"},
};

static int which(const struct word *word)
{
    for (int i = 0; i < WORDS; i++) {
        size_t length = strlen(words[i].name);

        if (word->length >= length && !memcmp(word->at, words[i].name, length))
            return i;
    }
    return WORDS;
}

/* Digits, at most `most`, up to the end or an `x`; how many there are, 0: it is no number. */
static size_t parse_whole(const char *text, size_t length, uint64_t most, uint64_t *number)
{
    uint64_t sum = 0;
    size_t i;

    for (i = 0; i < length && text[i] != 'x'; i++) {
        uint64_t digit = (uint64_t)(text[i] - '0');

        if (text[i] < '0' || text[i] > '9' || digit > most || sum > (most - digit) / 10)
            return 0;
        sum = sum * 10 + digit;
    }
    *number = sum;
    return i;
}

/* "32x32". */
static int parse_extents(const char *text, size_t length, struct weft_fabric *fabric)
{
    int count = 0;

    for (;;) {
        uint64_t extent;
        size_t digits = parse_whole(text, length, INT_MAX, &extent);

        if (!digits || !extent || count == WEFT_FABRIC_LEVELS)
            return -1;
        fabric->extents[count++] = (int)extent;
        if (digits == length)
            break;
        text += digits + 1;
        length -= digits + 1;
    }
    fabric->levels = count;
    return 0;
}

static int parse_count(const char *text, size_t length, int *count)
{
    uint64_t number;

    if (!length || parse_whole(text, length, INT_MAX, &number) < length || !number)
        return -1;
    *count = (int)number;
    return 0;
}

static int parse_place(const char *text, size_t length, struct weft_fabric *fabric)
{
    static const char random[] = "random:";
    size_t head = sizeof random - 1;

    if (length == strlen("linear") && !memcmp(text, "linear", length)) {
        fabric->flags &= ~WEFT_FABRIC_RANDOM;
        return 0;
    }
    if (length <= head || memcmp(text, random, head) ||
        parse_whole(text + head, length - head, UINT64_MAX, &fabric->seed) < length - head)
        return -1;
    fabric->flags |= WEFT_FABRIC_RANDOM;
    return 0;
}

/* What stands behind the `=` of a word. */
static int parse_value(int kind, const char *text, size_t length, struct weft_fabric *fabric)
{
    switch (kind) {
    case TORUS:
    case FAT_TREE:
        fabric->kind = kind == TORUS ? WEFT_FABRIC_TORUS : WEFT_FABRIC_FAT_TREE;
        return parse_extents(text, length, fabric);
    case OVERSUBSCRIPTION:
        return parse_count(text, length, &fabric->oversubscription);
    case RANKS_PER_HOST:
        return parse_count(text, length, &fabric->ranks_per_host);
    case HOP:
        return weft__net_number(text, length, 1e9, &fabric->hop_us);
    case LINK:
        return weft__net_number(text, length, 1e9, &fabric->link_us_per_byte) ||
                       !(fabric->link_us_per_byte > 0)
                   ? -1
                   : 0;
    default:
        return parse_place(text, length, fabric);
    }
}

static int take_word(const struct word *word, struct weft_fabric *fabric, unsigned *seen)
{
    int kind = which(word), shown = word->length < 40 ? (int)word->length : 40;
    size_t head;

    if (kind == WORDS)
        return WEFT__INVALID("network: `%.*s`, expected one of " WEFT__NET_WORDS
                             " and a number, or torus=, fat-tree=, oversubscription=, "
                             "ranks-per-host=, hop=, link=, place=",
                             shown, word->at);
    if (*seen >> kind & 1)
        return WEFT__INVALID("network: `%.*s` gives %.*s a second time, expected each once", shown,
                             word->at, (int)strlen(words[kind].name) - 1, words[kind].name);
    *seen |= 1u << kind;
    head = strlen(words[kind].name);
    if (parse_value(kind, word->at + head, word->length - head, fabric))
        return WEFT__INVALID("network: `%.*s`, expected %s", shown, word->at, words[kind].expected);
    return WEFT_OK;
}

/* Whether the words go together. */
static int check_words(unsigned seen, struct weft_fabric *fabric)
{
    struct weft_fabric checked;
    struct weft__routes routes;
    int status;

    if (seen >> TORUS & 1 && seen >> FAT_TREE & 1)
        return WEFT__INVALID("network: torus= and fat-tree=, expected one of them");
    for (int i = OVERSUBSCRIPTION; i < WORDS && fabric->kind == WEFT_FABRIC_NONE; i++)
        if (seen >> i & 1)
            return WEFT__INVALID("network: %s without torus= or fat-tree=, expected one of them "
                                 "with it",
                                 words[i].name);
    if (seen >> OVERSUBSCRIPTION & 1 && fabric->kind != WEFT_FABRIC_FAT_TREE)
        return WEFT__INVALID("network: oversubscription= without fat-tree=, expected that with it");
    status = weft__fabric_read("network", "fabric", fabric, &checked);
    return status || checked.kind == WEFT_FABRIC_NONE
               ? status
               : weft__routes_of("network", "fabric", &checked, &routes);
}

static int parse_words(const char *text, struct weft_fabric *fabric, struct weft_net *net)
{
    unsigned seen = 0, seen_net = 0;

    for (;;) {
        struct word word = {text, strcspn(text, ",")};
        int status = weft__net_knows(word.at, word.length)
                         ? weft__net_take(word.at, word.length, net, &seen_net)
                         : take_word(&word, fabric, &seen);

        if (status)
            return status;
        if (!text[word.length])
            return check_words(seen, fabric);
        text += word.length + 1;
    }
}

int weft_fabric_parse(const char *text, struct weft_fabric *fabric, struct weft_net *net)
{
    struct weft_fabric parsed, unused;
    struct weft_net parsed_net;
    int status;

    if (!text || !fabric || !net)
        return WEFT__INVALID("%s: argument `%s` is NULL, expected a text, a fabric and a network",
                             __func__,
                             !text     ? "text"
                             : !fabric ? "fabric"
                                       : "net");
    if ((status = weft__net_read(__func__, "net", net, &parsed_net)) ||
        (status = weft__fabric_read(__func__, "fabric", fabric, &unused)) ||
        (status = weft_sized_read(__func__, "fabric", fabric, &parsed, sizeof parsed)) ||
        (status = parse_words(text, &parsed, &parsed_net)))
        return status;
    weft_sized_fill(__func__, "fabric", fabric, &parsed, sizeof parsed);
    return weft_sized_fill(__func__, "net", net, &parsed_net, sizeof parsed_net);
}
