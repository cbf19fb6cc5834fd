/* SPDX-License-Identifier: BSD-3-Clause */
/* The reader of the text format: its state, and what its statements are read with. */
#ifndef WEFT_RUNTIME_TEXT_READER_H
#define WEFT_RUNTIME_TEXT_READER_H

#include "runtime/format.h"
#include "runtime/text_lex.h"

/* "after REFERENCE" at node `after`; kept until all nodes of the rank are known. */
struct weft__text_order {
    struct weft__token before;
    weft_node_t after;
};

/* A node that was given a name of its own, in a table of open addressing; `length` 0 is empty. */
struct weft__text_id {
    const char *text;
    size_t length;
    weft_node_t node;
};

struct weft__text_reader {
    struct weft__lexer lexer;
    struct weft__token token; /* the next one, not taken yet */
    struct weft__document *document;
    struct weft_schedule *schedule;
    struct weft__text_order *orders;
    size_t order_count, order_capacity;
    struct weft__text_id *ids;
    size_t id_count, id_capacity;
    struct weft_region *regions;
    size_t region_count, region_capacity;
    char *name; /* a terminated copy of a token */
    size_t name_capacity;
};

/* Takes the next token. */
void weft__text_take(struct weft__text_reader *r);

/* The error that the next token is not `what`. */
int weft__text_expected(const struct weft__text_reader *r, const char *what);

int weft__text_is_word(const struct weft__token *token, const char *word);

/* Takes the next token if it is this word, of this kind; 1 if so. */
int weft__text_take_if_word(struct weft__text_reader *r, const char *word);
int weft__text_take_if(struct weft__text_reader *r, enum weft__token_kind kind);

/* The same, and an error if it is not: `what` was expected. */
int weft__text_take_word(struct weft__text_reader *r, const char *word);
int weft__text_take_kind(struct weft__text_reader *r, enum weft__token_kind kind, const char *what);
int weft__text_take_number(struct weft__text_reader *r, uint64_t max, uint64_t *number);

/* The status of a builder's call, as an error of the document at `token`. */
int weft__text_built(const struct weft__token *token, int status);

/* NAME, NAME[begin:end], NAME[begin:], with " count VALUE" before the bracket closes. */
int weft__text_read_region(struct weft__text_reader *r, struct weft_region *region);

/* The name of an operation. */
int weft__text_read_op(struct weft__text_reader *r, const struct weft_op **op);

/* [WORD number], or `number` as it was. */
int weft__text_read_option(struct weft__text_reader *r, const char *word, uint64_t max,
                           uint64_t *number);

/* A node from the word of its kind up to `after`; its handle, or a status. */
weft_node_t weft__text_read_kind(struct weft__text_reader *r);

#endif
