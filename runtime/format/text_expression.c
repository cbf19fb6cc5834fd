/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Expressions of the text format: whole numbers of 64 bits, worked out while they are read.
 * Division rounds down and a remainder is never negative, so that (rank - 1) % size is the rank to
 * the left. Bits bind tighter than comparisons, unlike in C. What overflows is an error.
 */
#include "runtime/format/text_reader.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

#include <stdio.h>
#include <string.h>

enum operation {
    OR,
    AND,
    EQUAL,
    UNEQUAL,
    LESS,
    AT_MOST,
    GREATER,
    AT_LEAST,
    BIT_OR,
    BIT_XOR,
    BIT_AND,
    SHIFT_LEFT,
    SHIFT_RIGHT,
    ADD,
    SUBTRACT,
    MULTIPLY,
    DIVIDE,
    REMAINDER
};

/* A higher level binds tighter. */
static const struct operator
{
    char text[3];
    int level;
}
operators[] = {
    [OR] = {"||", 1},          [AND] = {"&&", 2},      [EQUAL] = {"==", 3},
    [UNEQUAL] = {"!=", 3},     [LESS] = {"<", 3},      [AT_MOST] = {"<=", 3},
    [GREATER] = {">", 3},      [AT_LEAST] = {">=", 3}, [BIT_OR] = {"|", 4},
    [BIT_XOR] = {"^", 5},      [BIT_AND] = {"&", 6},   [SHIFT_LEFT] = {"<<", 7},
    [SHIFT_RIGHT] = {">>", 7}, [ADD] = {"+", 8},       [SUBTRACT] = {"-", 8},
    [MULTIPLY] = {"*", 9},     [DIVIDE] = {"/", 9},    [REMAINDER] = {"%", 9},
};

static int read_binary(struct weft__text_reader *r, int level, int64_t *value);

/* ---- names ---- */

static size_t variable_length(const struct weft__token *token)
{
    size_t length = 0;

    while (length < token->length && token->text[length] != '-' && token->text[length] != '.')
        length++;
    return length;
}

const struct weft__text_variable *weft__text_find(const struct weft__text_reader *r,
                                                  const struct weft__token *token, size_t *length)
{
    *length = variable_length(token);
    for (size_t i = r->variable_count; i-- > 0;)
        if (r->variables[i].length == *length &&
            !memcmp(r->variables[i].text, token->text, *length))
            return &r->variables[i];
    return NULL;
}

int weft__text_define(struct weft__text_reader *r, const struct weft__text_variable *variable)
{
    if (weft__grow((void **)&r->variables, &r->variable_capacity, r->variable_count + 1,
                   sizeof *r->variables))
        return weft__error_memory("the variables of a document");
    r->variables[r->variable_count++] = *variable;
    return WEFT_OK;
}

int weft__text_deeper(struct weft__text_reader *r)
{
    if (++r->depth <= WEFT__TEXT_DEPTH)
        return WEFT_OK;
    return weft__error(WEFT_ERR_FORMAT,
                       "line %zu, column %zu: more than %d blocks and parentheses within each "
                       "other, expected fewer",
                       r->token.line, r->token.column, WEFT__TEXT_DEPTH);
}

/* ---- operations ---- */

static int fail(const struct weft__text_reader *r, const struct weft__token *at, const char *what)
{
    if (r->idle)
        return WEFT_OK;
    return weft__error(WEFT_ERR_FORMAT, "line %zu, column %zu: %s", at->line, at->column, what);
}

static int64_t shift_right(int64_t a, int64_t b)
{
    int by = b > 63 ? 63 : (int)b;

    return a >= 0 ? (int64_t)((uint64_t)a >> by) : (int64_t) ~(~(uint64_t)a >> by);
}

static int divide(const struct weft__text_reader *r, const struct weft__token *at, int64_t a,
                  int64_t b, int64_t *quotient, int64_t *remainder)
{
    *quotient = *remainder = 0;
    if (b <= 0)
        return fail(r, at, "division by zero or less, expected a positive number on the right");
    *quotient = a / b - (a % b < 0);
    *remainder = a % b + (a % b < 0 ? b : 0);
    return WEFT_OK;
}

static int apply(const struct weft__text_reader *r, const struct weft__token *at,
                 enum operation operation, int64_t a, int64_t b, int64_t *value)
{
    int64_t other;
    int overflow = 0;

    switch (operation) {
    case OR:
        *value = a || b;
        break;
    case AND:
        *value = a && b;
        break;
    case EQUAL:
        *value = a == b;
        break;
    case UNEQUAL:
        *value = a != b;
        break;
    case LESS:
        *value = a < b;
        break;
    case AT_MOST:
        *value = a <= b;
        break;
    case GREATER:
        *value = a > b;
        break;
    case AT_LEAST:
        *value = a >= b;
        break;
    case BIT_OR:
        *value = a | b;
        break;
    case BIT_XOR:
        *value = a ^ b;
        break;
    case BIT_AND:
        *value = a & b;
        break;
    case SHIFT_LEFT:
    case SHIFT_RIGHT:
        if (b < 0)
            return fail(r, at, "a shift by less than 0, expected 0 or more");
        if (operation == SHIFT_RIGHT)
            *value = shift_right(a, b);
        else
            overflow = b > 62 ? a != 0 : __builtin_mul_overflow(a, INT64_C(1) << b, value);
        if (operation == SHIFT_LEFT && b > 62)
            *value = 0;
        break;
    case ADD:
        overflow = __builtin_add_overflow(a, b, value);
        break;
    case SUBTRACT:
        overflow = __builtin_sub_overflow(a, b, value);
        break;
    case MULTIPLY:
        overflow = __builtin_mul_overflow(a, b, value);
        break;
    case DIVIDE:
        return divide(r, at, a, b, value, &other);
    case REMAINDER:
        return divide(r, at, a, b, &other, value);
    }
    return overflow ? fail(r, at, "the result is beyond 64 bits, expected a smaller one") : WEFT_OK;
}

/* ---- operands ---- */

static const char *const functions[] = {"log2", "min", "max"};
enum function { LOG2, MIN, MAX, FUNCTIONS };

/* A function's name before `(`: nothing but a blank may stand between. */
static int find_function(const struct weft__token *token)
{
    for (int f = 0; f < FUNCTIONS; f++)
        if (weft__text_is_word(token, functions[f]))
            return f;
    return -1;
}

int weft__text_is_call(const struct weft__token *token)
{
    return find_function(token) >= 0;
}

/* log2(x), rounded down; min(x, ...), max(x, ...). */
static int read_call(struct weft__text_reader *r, enum function function, int64_t *value)
{
    const struct weft__token at = r->token;
    int64_t next;
    int status;

    weft__text_take(r);
    if ((status = weft__text_deeper(r)) ||
        (status = weft__text_take_kind(r, WEFT__TOKEN_LEFT, "`(`")) ||
        (status = read_binary(r, 1, value)))
        return status;
    if (function == LOG2) {
        if (*value < 1 && (status = fail(r, &at, "log2 of less than 1, expected 1 or more")))
            return status;
        next = 0;
        while (*value > 1) {
            *value >>= 1;
            next++;
        }
        *value = next;
    } else {
        while (weft__text_take_if(r, WEFT__TOKEN_COMMA)) {
            if ((status = read_binary(r, 1, &next)))
                return status;
            if (function == MIN ? next < *value : next > *value)
                *value = next;
        }
    }
    r->depth--;
    return weft__text_take_kind(r, WEFT__TOKEN_RIGHT, "`)`");
}

static int read_variable(struct weft__text_reader *r, int64_t *value)
{
    size_t length;
    const struct weft__text_variable *variable = weft__text_find(r, &r->token, &length);

    if (!variable || variable->sort != WEFT__TEXT_NUMBER)
        return weft__text_expected(r, "a number or the name of a variable");
    *value = variable->value;
    r->touched |= variable->stems_from;
    /* `size-1` is one name elsewhere: what follows the variable is read again. */
    r->lexer.at = r->token.text + length;
    r->token.length = length;
    weft__text_take(r);
    return WEFT_OK;
}

/* -x, !x, (x) */
static int read_nested(struct weft__text_reader *r, int64_t *value)
{
    const struct weft__token at = r->token;
    int status;

    weft__text_take(r);
    if ((status = weft__text_deeper(r)))
        return status;
    if (at.kind == WEFT__TOKEN_LEFT)
        status = read_binary(r, 1, value);
    else
        status = read_binary(r, 10, value);
    if (status)
        return status;
    r->depth--;
    if (at.kind == WEFT__TOKEN_LEFT)
        return weft__text_take_kind(r, WEFT__TOKEN_RIGHT, "`)`");
    if (at.text[0] == '!') {
        *value = !*value;
        return WEFT_OK;
    }
    return apply(r, &at, SUBTRACT, 0, *value, value);
}

static int read_operand(struct weft__text_reader *r, int64_t *value)
{
    int function = find_function(&r->token);

    *value = 0;
    if (function >= 0)
        return read_call(r, (enum function)function, value);
    if (r->token.kind == WEFT__TOKEN_NAME)
        return read_variable(r, value);
    if (r->token.kind == WEFT__TOKEN_LEFT ||
        (r->token.kind == WEFT__TOKEN_OPERATOR && r->token.length == 1 &&
         (r->token.text[0] == '-' || r->token.text[0] == '!')))
        return read_nested(r, value);
    if (r->token.kind != WEFT__TOKEN_NUMBER || r->token.overflow || r->token.number > INT64_MAX)
        return weft__text_expected(r, "a number below 2^63, the name of a variable or `(`");
    *value = (int64_t)r->token.number;
    weft__text_take(r);
    return WEFT_OK;
}

/* ---- precedence ---- */

static int find_operator(const struct weft__token *token)
{
    if (token->kind == WEFT__TOKEN_OPERATOR)
        for (int i = 0; i <= REMAINDER; i++)
            if (strlen(operators[i].text) == token->length &&
                !memcmp(operators[i].text, token->text, token->length))
                return i;
    return -1;
}

/* The operators from `level` on that follow a first operand. */
static int read_operators(struct weft__text_reader *r, int level, int64_t *value)
{
    for (;;) {
        const struct weft__token at = r->token;
        int operation = find_operator(&at);
        int64_t right = 0;
        int idle, status;

        if (operation < 0 || operators[operation].level < level)
            return WEFT_OK;
        weft__text_take(r);
        idle = (operation == AND && !*value) || (operation == OR && *value);
        r->idle += idle;
        status = read_binary(r, operators[operation].level + 1, &right);
        r->idle -= idle;
        if (status || (status = apply(r, &at, (enum operation)operation, *value, right, value)))
            return status;
    }
}

static int read_binary(struct weft__text_reader *r, int level, int64_t *value)
{
    int status = read_operand(r, value);

    return status ? status : read_operators(r, level, value);
}

int weft__text_read_expression(struct weft__text_reader *r, int64_t *value)
{
    return read_binary(r, 1, value);
}

int weft__text_read_rest(struct weft__text_reader *r, int64_t *value)
{
    return read_operators(r, 1, value);
}
