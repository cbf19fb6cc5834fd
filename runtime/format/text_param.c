/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parameters of a document: `param NAME = DEFAULT` above the ranks. A parameter is a number, a
 * datatype or an operation, as its default is; who reads the document may give another value of the
 * same sort, as a text in the same language. Names are looked up like those of variables, so a
 * parameter stands wherever an expression may, or the word that it is.
 */
#include "runtime/format/text_reader.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

#include <stdio.h>
#include <string.h>

/* ---- words: datatypes and operations ---- */

static int is_dtype(const struct weft__token *token, weft_dtype_t *dtype)
{
    return token->kind == WEFT__TOKEN_NAME && weft__dtype_find(token->text, token->length, dtype);
}

/* A parameter of this sort with the name that the next token is, or NULL. */
static const struct weft__text_variable *find_word(struct weft__text_reader *r,
                                                   enum weft__text_sort sort)
{
    const struct weft__text_variable *variable;
    size_t length;

    if (r->token.kind != WEFT__TOKEN_NAME)
        return NULL;
    variable = weft__text_find(r, &r->token, &length);
    if (!variable || length != r->token.length || variable->sort != sort)
        return NULL;
    r->touched |= variable->stems_from;
    return variable;
}

int weft__text_read_dtype(struct weft__text_reader *r, weft_dtype_t *dtype)
{
    const struct weft__text_variable *variable;
    char what[200] = "one of ";

    if (!is_dtype(&r->token, dtype)) {
        variable = find_word(r, WEFT__TEXT_DTYPE);
        if (!variable) {
            weft__dtype_names(what + strlen(what), sizeof what - strlen(what));
            return weft__text_expected(r, what);
        }
        *dtype = (weft_dtype_t)variable->value;
    }
    weft__text_take(r);
    return WEFT_OK;
}

int weft__text_read_op(struct weft__text_reader *r, const struct weft_op **op)
{
    const struct weft__text_variable *variable;
    char what[400] = "one of ";

    *op = NULL;
    if (r->token.kind == WEFT__TOKEN_NAME)
        *op = weft__document_op(r->document, r->token.text, r->token.length);
    if (!*op && (variable = find_word(r, WEFT__TEXT_OP)))
        *op = variable->op;
    if (!*op) {
        weft__document_op_names(r->document, what + strlen(what), sizeof what - strlen(what));
        return weft__text_expected(r, what);
    }
    weft__text_take(r);
    return WEFT_OK;
}

/* ---- declarations ---- */

/* The sort of the value that comes next. `max` and `min` are functions before `(`. */
static enum weft__text_sort next_sort(const struct weft__text_reader *r)
{
    const struct weft__text_variable *variable;
    struct weft__lexer ahead = r->lexer;
    weft_dtype_t dtype;
    size_t length;

    if (r->token.kind != WEFT__TOKEN_NAME)
        return WEFT__TEXT_NUMBER;
    if (is_dtype(&r->token, &dtype))
        return WEFT__TEXT_DTYPE;
    if (weft__text_is_call(&r->token) && weft__lex(&ahead).kind == WEFT__TOKEN_LEFT)
        return WEFT__TEXT_NUMBER;
    if (weft__document_op(r->document, r->token.text, r->token.length))
        return WEFT__TEXT_OP;
    variable = weft__text_find(r, &r->token, &length);
    return variable && length == r->token.length ? variable->sort : WEFT__TEXT_NUMBER;
}

static int read_as(struct weft__text_reader *r, struct weft__text_variable *parameter)
{
    weft_dtype_t dtype = WEFT_DTYPE_COUNT;
    int status;

    switch (parameter->sort) {
    case WEFT__TEXT_DTYPE:
        status = weft__text_read_dtype(r, &dtype);
        parameter->value = dtype;
        return status;
    case WEFT__TEXT_OP:
        return weft__text_read_op(r, &parameter->op);
    case WEFT__TEXT_NUMBER:
        break;
    }
    return weft__text_read_expression(r, &parameter->value);
}

/* Above the schedule no number of ranks is known. */
static int knows_size(const struct weft__text_reader *r)
{
    for (size_t i = 0; i < r->variable_count; i++)
        if (r->variables[i].length == 4 && !memcmp(r->variables[i].text, "size", 4))
            return 1;
    return 0;
}

/* @why says what is wrong within the value, or NULL. */
static int not_given_well(const struct weft__text_reader *r, const struct weft__token *name,
                          const struct weft__text_variable *parameter, const char *given,
                          const char *why)
{
    char what[400] = "one of ", within[160] = "";
    size_t used = strlen(what);

    if (parameter->sort == WEFT__TEXT_NUMBER) {
        snprintf(what, sizeof what, "a number, or an expression of numbers%s the parameters above",
                 knows_size(r) ? ", `size` and" : " and");
        if (why)
            snprintf(within, sizeof within, " (%s)", why);
    } else if (parameter->sort == WEFT__TEXT_DTYPE)
        weft__dtype_names(what + used, sizeof what - used);
    else
        weft__document_op_names(r->document, what + used, sizeof what - used);
    return weft__error(WEFT_ERR_FORMAT,
                       "line %zu: parameter `%.*s` is given as `%.40s`, expected %s%s", name->line,
                       (int)name->length, name->text, given, what, within);
}

/* The value that the reader was given for a parameter: the last with this name. NULL: none. */
static const char *find_given(const struct weft__document *document, const struct weft__token *name)
{
    const char *given = NULL;

    for (size_t i = 0; i < document->parameter_count; i++)
        if (strlen(document->parameters[i].name) == name->length &&
            !memcmp(document->parameters[i].name, name->text, name->length))
            given = document->parameters[i].value;
    return given;
}

static int read_given(struct weft__text_reader *r, const struct weft__token *name,
                      const char *given, struct weft__text_variable *parameter)
{
    struct weft__text_place place = weft__text_place(r);
    char why[128];
    int status, told;

    r->lexer = (struct weft__lexer){
        .at = given, .end = given + strlen(given), .line_start = given, .line = 1};
    weft__text_take(r);
    status = read_as(r, parameter);
    told = status == WEFT_ERR_FORMAT;
    if (told) { /* it begins with a line of its own */
        const char *text = weft_error_text();
        const char *column = strstr(text, "column ");

        snprintf(why, sizeof why, "%s", column ? column : text);
    }
    if (!status && r->token.kind != WEFT__TOKEN_END)
        status = WEFT_ERR_FORMAT;
    weft__text_return(r, &place);
    if (status != WEFT_ERR_FORMAT)
        return status;
    return not_given_well(r, name, parameter, given, told ? why : NULL);
}

/* For a list: it may name operations that only who builds the document knows. */
static int skip_default(struct weft__text_reader *r)
{
    do {
        if (r->token.kind == WEFT__TOKEN_NEWLINE || r->token.kind == WEFT__TOKEN_END ||
            r->token.kind == WEFT__TOKEN_BAD)
            return weft__text_expected(r, "a number, a datatype or an operation");
        weft__text_take(r);
    } while (r->token.kind != WEFT__TOKEN_NEWLINE && r->token.kind != WEFT__TOKEN_END);
    return WEFT_OK;
}

int weft__text_read_param(struct weft__text_reader *r)
{
    struct weft__text_variable parameter = {.role = WEFT__TEXT_PARAMETER};
    struct weft__token name = r->token;
    const char *given;
    weft_dtype_t dtype;
    int status;

    if (is_dtype(&name, &dtype) ||
        (name.kind == WEFT__TOKEN_NAME && weft__document_op(r->document, name.text, name.length)))
        return weft__text_expected(r, "a name that no datatype and no operation has");
    if ((status = weft__text_take_variable(r, &name)) ||
        (status = weft__text_take_kind(r, WEFT__TOKEN_EQUALS, "`=`")))
        return status;
    parameter.text = name.text;
    parameter.length = name.length;
    parameter.source = r->token.text;
    parameter.sort = next_sort(r);
    given = r->listing ? NULL : find_given(r->document, &name);
    r->idle += given != NULL; /* a default that does not count may be wrong */
    status = r->listing ? skip_default(r) : read_as(r, &parameter);
    r->idle -= given != NULL;
    if (status)
        return status;
    parameter.source_length = (size_t)(r->taken - parameter.source);
    if (given) {
        r->touched = 0;
        if ((status = read_given(r, &name, given, &parameter)))
            return status;
    }
    parameter.stems_from = r->touched | UINT64_C(1)
                                            << (r->parameter_count < 63 ? r->parameter_count : 63);
    r->parameter_count++;
    return weft__text_define(r, &parameter);
}

/* ---- what the caller gives, and what it is told ---- */

static int is_declared(const struct weft__text_reader *r, const char *name)
{
    for (size_t i = 0; i < r->variable_count; i++)
        if (r->variables[i].role == WEFT__TEXT_PARAMETER &&
            strlen(name) == r->variables[i].length &&
            !memcmp(name, r->variables[i].text, r->variables[i].length))
            return 1;
    return 0;
}

int weft__text_check_given(const struct weft__text_reader *r)
{
    const struct weft__document *document = r->document;
    char names[300] = "";
    size_t used = 0;

    for (size_t i = 0; i < document->parameter_count; i++) {
        if (is_declared(r, document->parameters[i].name))
            continue;
        for (size_t v = 0; v < r->variable_count && used < sizeof names; v++)
            if (r->variables[v].role == WEFT__TEXT_PARAMETER)
                used +=
                    (size_t)snprintf(names + used, sizeof names - used, "%s%.*s", used ? ", " : "",
                                     (int)r->variables[v].length, r->variables[v].text);
        return weft__error(WEFT_ERR_FORMAT,
                           "line %zu: the document has no parameter `%.64s`, expected %s%s",
                           r->token.line, document->parameters[i].name,
                           used ? "one of " : "none, for it declares none", names);
    }
    return WEFT_OK;
}

/* One block of memory: the array, and behind it the texts. */
int weft__text_list(const struct weft__text_reader *r, struct weft_parameter **parameters,
                    size_t *count)
{
    size_t bytes = r->parameter_count * sizeof **parameters + 1;
    struct weft_parameter *list;
    char *text;

    for (size_t v = 0; v < r->variable_count; v++)
        if (r->variables[v].role == WEFT__TEXT_PARAMETER)
            bytes += r->variables[v].length + r->variables[v].source_length + 2;
    list = weft__calloc(bytes, 1);
    if (!list)
        return weft__error_memory("the parameters of a document");
    text = (char *)(list + r->parameter_count);
    *parameters = list;
    *count = r->parameter_count;
    for (size_t v = 0; v < r->variable_count; v++) {
        const struct weft__text_variable *variable = &r->variables[v];

        if (variable->role != WEFT__TEXT_PARAMETER)
            continue;
        list->name = memcpy(text, variable->text, variable->length);
        text += variable->length + 1;
        list->value = memcpy(text, variable->source, variable->source_length);
        text += variable->source_length + 1;
        list++;
    }
    return WEFT_OK;
}
