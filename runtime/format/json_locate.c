/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where in a JSON text something is. The parser keeps no positions; they are needed only when there
 * is an error to report, so then the text, known to be well formed, is walked again.
 */
#include "runtime/format/json_locate.h"

#include <string.h>

struct cursor {
    const char *at, *end;
};

static void skip_blanks(struct cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\r' || *c->at == '\n'))
        c->at++;
}

/* At an opening quote; moves behind the closing one. */
static void skip_string(struct cursor *c)
{
    for (c->at++; c->at < c->end && *c->at != '"'; c->at++)
        if (*c->at == '\\')
            c->at++;
    if (c->at < c->end)
        c->at++;
}

/* Moves behind the value that begins here: to the comma or bracket that follows it. */
static void skip_value(struct cursor *c)
{
    size_t depth = 0;

    while (c->at < c->end) {
        char now = *c->at;

        if (!depth && (now == ',' || now == ']' || now == '}'))
            return;
        if (now == '"') {
            skip_string(c);
            continue;
        }
        if (now == '[' || now == '{')
            depth++;
        if (now == ']' || now == '}')
            depth--;
        c->at++;
    }
}

/* Moves from a container to the value at `step` in it; 0 if there is none. */
static int enter(struct cursor *c, const struct weft__json_step *step)
{
    size_t index = 0;

    for (c->at++, skip_blanks(c); c->at < c->end && *c->at != ']' && *c->at != '}'; index++) {
        int here = !step->key && index == step->index;

        if (step->key) {
            const char *key = c->at + 1;
            size_t length;

            skip_string(c);
            length = (size_t)(c->at - key) - 1;
            here = length == strlen(step->key) && !memcmp(key, step->key, length);
            skip_blanks(c);
            c->at += c->at < c->end; /* the colon */
            skip_blanks(c);
        }
        if (here)
            return 1;
        skip_value(c);
        c->at += c->at < c->end && *c->at == ',';
        skip_blanks(c);
    }
    return 0;
}

size_t weft__json_line(const char *text, size_t length, const struct weft__json_step *path,
                       size_t depth)
{
    struct cursor c = {text, text + length};
    const char *found;
    size_t line = 1;

    skip_blanks(&c);
    found = c.at;
    for (size_t i = 0; i < depth && c.at < c.end; i++) {
        if (*c.at != (path[i].key ? '{' : '[') || !enter(&c, &path[i]))
            break;
        found = c.at;
    }
    for (const char *at = text; at < found; at++)
        line += *at == '\n';
    return line;
}
