/* SPDX-License-Identifier: BSD-3-Clause */
/* The tokens of the text format. A lexer is a value: looking ahead is working on a copy. */
#ifndef WEFT_RUNTIME_FORMAT_TEXT_LEX_H
#define WEFT_RUNTIME_FORMAT_TEXT_LEX_H

#include <stddef.h>
#include <stdint.h>

enum weft__token_kind {
    WEFT__TOKEN_NAME,   /* [A-Za-z_][A-Za-z0-9_.-]* */
    WEFT__TOKEN_NUMBER, /* [0-9]+ */
    WEFT__TOKEN_STRING, /* with its quotes */
    WEFT__TOKEN_OPEN,   /* [ */
    WEFT__TOKEN_CLOSE,  /* ] */
    WEFT__TOKEN_BEGIN,  /* { */
    WEFT__TOKEN_FINISH, /* } */
    WEFT__TOKEN_COLON,
    WEFT__TOKEN_COMMA,
    WEFT__TOKEN_EQUALS,
    WEFT__TOKEN_DOTS,     /* .. */
    WEFT__TOKEN_LEFT,     /* ( */
    WEFT__TOKEN_RIGHT,    /* ) */
    WEFT__TOKEN_OPERATOR, /* of an expression: + - * / % ^ & | << >> == != < <= > >= && || ! */
    WEFT__TOKEN_NEWLINE,
    WEFT__TOKEN_END,
    WEFT__TOKEN_BAD /* a byte that begins none of these, or a string that does not end */
};

struct weft__token {
    enum weft__token_kind kind;
    int overflow; /* a number beyond 64 bits */
    const char *text;
    size_t length;
    size_t line, column; /* from 1 */
    uint64_t number;
};

struct weft__lexer {
    const char *at, *end, *line_start;
    size_t line;
};

/* The next token; at the end, WEFT__TOKEN_END for ever. */
struct weft__token weft__lex(struct weft__lexer *lexer);

/* "line L, column C: found `x`, expected ..." as the thread's error; returns WEFT_ERR_FORMAT. */
int weft__lex_error(const struct weft__token *token, const char *expected);

#endif
