/* SPDX-License-Identifier: BSD-3-Clause */
/* The tokens of the text format. Blanks and comments separate; a line's end is a token. */
#include "runtime/format/text_lex.h"

#include "runtime/base/error.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN_BYTES = 40 };

static int is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void skip_blanks(struct weft__lexer *lexer)
{
    while (lexer->at < lexer->end &&
           (*lexer->at == ' ' || *lexer->at == '\t' || *lexer->at == '\r'))
        lexer->at++;
    if (lexer->at < lexer->end && *lexer->at == '#')
        while (lexer->at < lexer->end && *lexer->at != '\n')
            lexer->at++;
}

static void lex_number(struct weft__lexer *lexer, struct weft__token *token)
{
    token->kind = WEFT__TOKEN_NUMBER;
    for (; lexer->at < lexer->end && is_digit(*lexer->at); lexer->at++) {
        uint64_t digit = (uint64_t)(*lexer->at - '0');

        if (token->number > (UINT64_MAX - digit) / 10)
            token->overflow = 1;
        else
            token->number = token->number * 10 + digit;
    }
}

static void lex_string(struct weft__lexer *lexer, struct weft__token *token)
{
    for (lexer->at++; lexer->at < lexer->end && *lexer->at != '\n'; lexer->at++) {
        if (*lexer->at == '"') {
            lexer->at++;
            token->kind = WEFT__TOKEN_STRING;
            return;
        }
        if (*lexer->at == '\0')
            return;
        if (*lexer->at == '\\') {
            if (lexer->end - lexer->at < 2 || (lexer->at[1] != '"' && lexer->at[1] != '\\'))
                return;
            lexer->at++;
        }
    }
}

static void lex_mark(struct weft__lexer *lexer, struct weft__token *token)
{
    static const char marks[] = "[]{}:,=()+-*/%^&|<>!";
    static const enum weft__token_kind kinds[] = {
        WEFT__TOKEN_OPEN,  WEFT__TOKEN_CLOSE,   WEFT__TOKEN_BEGIN,  WEFT__TOKEN_FINISH,
        WEFT__TOKEN_COLON, WEFT__TOKEN_COMMA,   WEFT__TOKEN_EQUALS, WEFT__TOKEN_LEFT,
        WEFT__TOKEN_RIGHT, WEFT__TOKEN_OPERATOR};
    enum { LAST = sizeof kinds / sizeof kinds[0] - 1 };
    static const char pairs[][3] = {"==", "!=", "<=", ">=", "<<", ">>", "&&", "||", ".."};
    const char *mark = memchr(marks, *lexer->at, sizeof marks - 1);

    if (mark)
        token->kind = kinds[mark - marks < LAST ? mark - marks : LAST];
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        if (lexer->end - lexer->at < 2 || memcmp(lexer->at, pairs[i], 2) != 0)
            continue;
        token->kind = pairs[i][0] == '.' ? WEFT__TOKEN_DOTS : WEFT__TOKEN_OPERATOR;
        lexer->at++;
        break;
    }
    lexer->at++;
}

struct weft__token weft__lex(struct weft__lexer *lexer)
{
    struct weft__token token = {.kind = WEFT__TOKEN_BAD};

    skip_blanks(lexer);
    token.text = lexer->at;
    token.line = lexer->line;
    token.column = (size_t)(lexer->at - lexer->line_start) + 1;
    if (lexer->at == lexer->end) {
        token.kind = WEFT__TOKEN_END;
    } else if (*lexer->at == '\n') {
        token.kind = WEFT__TOKEN_NEWLINE;
        lexer->line_start = ++lexer->at;
        lexer->line++;
    } else if (is_letter(*lexer->at)) {
        token.kind = WEFT__TOKEN_NAME;
        while (lexer->at < lexer->end && (is_letter(*lexer->at) || is_digit(*lexer->at) ||
                                          *lexer->at == '.' || *lexer->at == '-'))
            lexer->at++;
    } else if (is_digit(*lexer->at)) {
        lex_number(lexer, &token);
    } else if (*lexer->at == '"') {
        lex_string(lexer, &token);
    } else {
        lex_mark(lexer, &token);
    }
    token.length = (size_t)(lexer->at - token.text);
    return token;
}

int weft__lex_error(const struct weft__token *token, const char *expected)
{
    char shown[SHOWN_BYTES + 1];
    size_t length = 0;

    if (token->kind == WEFT__TOKEN_END || token->kind == WEFT__TOKEN_NEWLINE)
        return weft__error(WEFT_ERR_FORMAT,
                           "line %zu, column %zu: found the end of the %s, "
                           "expected %s",
                           token->line, token->column,
                           token->kind == WEFT__TOKEN_END ? "text" : "line", expected);
    for (; length < token->length && length < SHOWN_BYTES; length++) {
        char c = token->text[length];

        shown[length] = '?';
        if (c >= ' ' && c <= '~')
            shown[length] = c;
    }
    shown[length] = '\0';
    return weft__error(WEFT_ERR_FORMAT, "line %zu, column %zu: found `%s`, expected %s",
                       token->line, token->column, shown, expected);
}
