/* SPDX-License-Identifier: BSD-3-Clause */
/* The reader of the text format: its state, and what its statements are read with. */
#ifndef WEFT_RUNTIME_FORMAT_TEXT_READER_H
#define WEFT_RUNTIME_FORMAT_TEXT_READER_H

#include "runtime/base/hash.h"
#include "runtime/format/format.h"
#include "runtime/format/text_lex.h"

enum { WEFT__TEXT_INDEXES = 3, WEFT__TEXT_DEPTH = 100 };

/* How a node is called: NAME, or NAME[index, ...]. */
struct weft__text_name {
    struct weft__token token;
    int64_t index[WEFT__TEXT_INDEXES];
    int indexes;
};

/* "after NAME" at node `after`; kept until all nodes of the rank are known. */
struct weft__text_order {
    struct weft__text_name before;
    weft_node_t after;
};

/* A node that was given a name of its own, in a table of open addressing; length 0 is empty. */
struct weft__text_id {
    struct weft__text_name name;
    weft_node_t node;
};

/* A name in expressions, and where it comes from. */
enum weft__text_role { WEFT__TEXT_LET, WEFT__TEXT_RANK, WEFT__TEXT_LOOP, WEFT__TEXT_PARAMETER };

/* What it stands for: only parameters are words. */
enum weft__text_sort { WEFT__TEXT_NUMBER, WEFT__TEXT_DTYPE, WEFT__TEXT_OP };

struct weft__text_variable {
    const char *text;
    size_t length;
    int64_t value;            /* also the number of a datatype */
    const struct weft_op *op; /* of an operation; borrowed */
    enum weft__text_role role;
    enum weft__text_sort sort;
    uint64_t stems_from; /* the parameters that its value depends on: bit i is number i, 63 and up
                          * share a bit */
    const char *source;  /* of a parameter: its default as written */
    size_t source_length;
};

/* A block that is being read: its `{`. */
struct weft__text_block {
    struct weft__token open;
    const struct weft__text_block *outer;
};

/* A `}` that does not stand below the statement whose block it closes, line 0 if there is none. If
 * another block is found open at the end, this is likely to be where. */
struct weft__text_slip {
    size_t open, close; /* lines */
};

/* Where reading can go back to. */
struct weft__text_place {
    struct weft__lexer lexer;
    struct weft__token token;
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
    struct weft__table id_table;
    struct weft_compute_argument *arguments;
    size_t argument_count, argument_capacity;
    char *name; /* a terminated copy of a token */
    size_t name_capacity;
    /* Expressions and blocks. */
    struct weft__text_variable *variables; /* the innermost last */
    size_t variable_count, variable_capacity;
    const struct weft__text_block *block; /* the innermost, or NULL */
    struct weft__text_slip slip;          /* the first */
    const char *taken;                    /* the end of the token that was taken last */
    uint64_t touched; /* the parameters that the statement at hand depends on, as in stems_from */
    size_t parameter_count;
    int listing;     /* only parameters are wanted */
    int too_large;   /* the number that was refused was above what its place allows */
    int depth;       /* of blocks and parentheses */
    int idle;        /* > 0: the value of what is read is not wanted */
    int repeating;   /* > 0: what is read has been read before, or will be */
    size_t repeated; /* bytes that were read so */
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
/* A number, or an expression. */
int weft__text_take_number(struct weft__text_reader *r, uint64_t max, uint64_t *number);

/* The status of a builder's call, as an error of the document at `token`. */
int weft__text_built(const struct weft__token *token, int status);

/* NAME, NAME[begin:end], NAME[begin:], with " count VALUE" before the bracket closes. */
int weft__text_read_region(struct weft__text_reader *r, struct weft_region *region);

/* [WORD number], or `number` as it was. */
int weft__text_read_option(struct weft__text_reader *r, const char *word, uint64_t max,
                           uint64_t *number);

/* ---- names (text_name.c) ---- */

/* A token, terminated; a string without its quotes and backslashes. NULL without memory. Valid
 * until the next call. */
const char *weft__text_copy_token(struct weft__text_reader *r, const struct weft__token *token);
const char *weft__text_copy_string(struct weft__text_reader *r, const struct weft__token *token);

/* NAME or NAME[EXPRESSION, ...] of a node. */
int weft__text_read_name(struct weft__text_reader *r, struct weft__text_name *name);
/* Gives a node its name, which is also its label; n<index> is what it is called anyway. */
int weft__text_name_node(struct weft__text_reader *r, const struct weft__text_name *name,
                         weft_node_t node);
/* The node with a name, of those read so far; -1 if there is none. */
weft_node_t weft__text_find_node(const struct weft__text_reader *r,
                                 const struct weft__text_name *name);
/* The error that a name, told with its indexes worked out, is not `expected`. */
int weft__text_wrong_name(struct weft__text_reader *r, const struct weft__text_name *name,
                          const char *expected);
/* At the end of a rank: the orders that were noted. */
int weft__text_apply_orders(struct weft__text_reader *r);

/* ---- results (text_result.c) ---- */

/* After `result`. */
int weft__text_read_result(struct weft__text_reader *r);

/* ---- expressions (text_expression.c) ---- */

int weft__text_read_expression(struct weft__text_reader *r, int64_t *value);
/* The rest of one whose first operand has been taken. */
int weft__text_read_rest(struct weft__text_reader *r, int64_t *value);
/* The variable with this name, or NULL. `token` may go on with characters that names of variables
 * cannot have; `length` is where these begin. */
const struct weft__text_variable *weft__text_find(const struct weft__text_reader *r,
                                                  const struct weft__token *token, size_t *length);
/* Whether a function of expressions is called. */
int weft__text_is_call(const struct weft__token *token);
/* Makes a variable; it lasts until variable_count is set back. Its `text` is borrowed. */
int weft__text_define(struct weft__text_reader *r, const struct weft__text_variable *variable);
/* One deeper, with an error where that is too deep. */
int weft__text_deeper(struct weft__text_reader *r);

/* ---- parameters (text_param.c) ---- */

/* The name of a datatype or of an operation, or of a parameter that is one. */
int weft__text_read_dtype(struct weft__text_reader *r, weft_dtype_t *dtype);
int weft__text_read_op(struct weft__text_reader *r, const struct weft_op **op);
/* After `param`: NAME = DEFAULT. The value is what the document's reader was given, if it was. */
int weft__text_read_param(struct weft__text_reader *r);
/* When all are declared: an error if something is given that is not. */
int weft__text_check_given(const struct weft__text_reader *r);
/* Those that are declared, in one block of memory that the caller frees. */
int weft__text_list(const struct weft__text_reader *r, struct weft_parameter **parameters,
                    size_t *count);

/* ---- blocks (text_block.c) ---- */

/* A name for a variable that is not one yet. */
int weft__text_take_variable(struct weft__text_reader *r, struct weft__token *name);

/* `for`, `if`, `let`: 1 with *status if the statement is one of these, 0 if not. */
int weft__text_read_block(struct weft__text_reader *r, int *status);
int weft__text_read_let(struct weft__text_reader *r);
/* Takes the `{` of a block. */
int weft__text_open(struct weft__text_reader *r, struct weft__token *open);
/* Statements up to `}`, which is taken; `{` has been. Variables made in between end there. */
int weft__text_read_body(struct weft__text_reader *r, const struct weft__token *open);
/* The same, without reading them. */
int weft__text_skip_body(struct weft__text_reader *r, const struct weft__token *open);
struct weft__text_place weft__text_place(const struct weft__text_reader *r);
void weft__text_return(struct weft__text_reader *r, const struct weft__text_place *place);
/* An error if repetitions have made the document too long. */
int weft__text_check_repeated(const struct weft__text_reader *r);
/* Repetitions of a block begin; one of them is done: an error if all will need more memory than
 * there is. `open`: its `{`. */
void weft__text_begin_progress(const struct weft__text_reader *r, struct weft__progress *progress,
                               uint64_t total);
int weft__text_check_progress(const struct weft__text_reader *r, struct weft__progress *progress,
                              const struct weft__token *open);

/* ---- errors (text_place.c) ---- */

/* Adds to the error at hand which rank and which values of loops are meant: the line alone does not
 * tell. */
void weft__text_tell_place(const struct weft__text_reader *r);
/* The error that a block is not closed where `what` stands. */
int weft__text_unclosed(const struct weft__text_reader *r, const struct weft__token *open);
/* Notes a `}` that does not stand below its block's statement. */
void weft__text_note_slip(struct weft__text_reader *r, const struct weft__token *open,
                          const struct weft__token *close);

/* ---- statements (text_read.c) ---- */

int weft__text_read_statement(struct weft__text_reader *r);
/* The end of a line, or what may stand in its place. */
int weft__text_end_line(struct weft__text_reader *r);
void weft__text_skip_lines(struct weft__text_reader *r);

/* A node from the word of its kind up to `after`; its handle, or a status. */
weft_node_t weft__text_read_kind(struct weft__text_reader *r);

#endif
