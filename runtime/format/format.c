/* SPDX-License-Identifier: BSD-3-Clause */
/* Dumps of schedules: checks that all formats share, and what their writers and readers stand on.
 */
#include "runtime/format/format.h"

#include "runtime/base/alloc.h"
#include "runtime/base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *weft__access_word(weft_access_t access)
{
    return access == WEFT_UPDATE ? "update" : access == WEFT_WRITE ? "out" : "in";
}

const char *weft__slot_word(weft_slot_kind_t kind)
{
    static const char *const words[] = {
        [WEFT_SLOT_INPUT] = "input",
        [WEFT_SLOT_OUTPUT] = "output",
        [WEFT_SLOT_INOUT] = "inout",
        [WEFT_SLOT_SCRATCH] = "scratch",
    };

    return (int)kind >= 0 && kind <= WEFT_SLOT_SCRATCH ? words[kind] : NULL;
}

/* ---- writing ---- */

static int check_written(const char *who, const struct weft_schedule *const *schedules,
                         size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct weft_schedule *s = schedules[i];
        int status = weft__schedule_enter(s, who);

        if (status)
            return status;
        if (s->size != schedules[0]->size || strcmp(s->name, schedules[0]->name) != 0)
            return WEFT__INVALID("%s: argument `schedules[%zu]` is \"%.64s\" of size %d, expected "
                                 "\"%.64s\" of size %d as `schedules[0]`",
                                 who, i, s->name, s->size, schedules[0]->name, schedules[0]->size);
        if (i && s->rank <= schedules[i - 1]->rank)
            return WEFT__INVALID("%s: argument `schedules[%zu]` is of rank %d after %d, expected "
                                 "ascending ranks",
                                 who, i, s->rank, schedules[i - 1]->rank);
    }
    return WEFT_OK;
}

static int write_goal(struct weft__out *out, const struct weft_schedule *const *schedules,
                      size_t count)
{
    /* Without options none of them is refused, so that nobody is named. */
    return weft__write_goal(__func__, out, schedules, count, NULL);
}

static int check_call(const char *who, const struct weft_schedule *const *schedules, size_t count,
                      char *const *text)
{
    if (!schedules || !count)
        return WEFT__INVALID("%s: argument `%s`, expected at least one schedule", who,
                             count ? "schedules` is NULL" : "count` is 0");
    if (!text)
        return WEFT__INVALID("%s: argument `text` is NULL, expected a place for the text", who);
    return check_written(who, schedules, count);
}

/* Hands the text over, or frees it: `status` is the writer's. */
static int finish(struct weft__out *out, int status, char **text, size_t *length)
{
    if (status || out->failed) {
        weft__free(out->text);
        return status && status != WEFT_ERR_MEMORY ? status
                                                   : weft__error_memory("the text of a schedule");
    }
    *text = out->text;
    if (length)
        *length = out->length;
    return WEFT_OK;
}

int weft_schedule_write(const struct weft_schedule *const *schedules, size_t count,
                        weft_format_t format, char **text, size_t *length)
{
    static int (*const writers[])(struct weft__out *, const struct weft_schedule *const *,
                                  size_t) = {
        [WEFT_FORMAT_TEXT] = weft__write_text,
        [WEFT_FORMAT_JSON] = weft__write_json,
        [WEFT_FORMAT_DOT] = weft__write_dot,
        [WEFT_FORMAT_GOAL] = write_goal,
    };
    struct weft__out out = {0};
    int status;

    if ((int)format < 0 || format > WEFT_FORMAT_GOAL)
        return WEFT__INVALID("%s: argument `format` is %d, expected WEFT_FORMAT_TEXT, _JSON, _DOT "
                             "or _GOAL",
                             __func__, (int)format);
    status = check_call(__func__, schedules, count, text);
    if (status)
        return status;
    status = writers[format](&out, schedules, count);
    return finish(&out, status, text, length);
}

int weft_schedule_write_goal(const struct weft_schedule *const *schedules, size_t count,
                             const struct weft_goal_options *options, char **text, size_t *length)
{
    struct weft__out out = {0};
    int status = check_call(__func__, schedules, count, text);

    if (status)
        return status;
    status = weft__write_goal(__func__, &out, schedules, count, options);
    return finish(&out, status, text, length);
}

/* ---- reading ---- */

int weft__document_rank(struct weft__document *document, int rank)
{
    struct weft_schedule *schedule;
    int status;

    weft__document_finish(document);
    if (weft__grow((void **)&document->schedules, &document->capacity, document->count + 1,
                   sizeof *document->schedules))
        return weft__error_memory("the schedules of a document");
    status = weft_schedule_create(&schedule, rank, document->size);
    if (status)
        return status;
    document->schedules[document->count++] = schedule;
    document->choice_count = 0;
    return weft_schedule_set_name(schedule, document->name);
}

int weft__document_choice(struct weft__document *document, uint64_t number, weft_node_t event)
{
    if (weft__grow((void **)&document->choices, &document->choice_capacity,
                   document->choice_count + 1, sizeof *document->choices))
        return weft__error_memory("the choices of a schedule");
    document->choices[document->choice_count++] = (struct weft__choice){number, event};
    return WEFT_OK;
}

static int compare_choices(const void *a, const void *b)
{
    const struct weft__choice *x = a, *y = b;

    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    return (x->event > y->event) - (x->event < y->event);
}

int weft__document_choose(struct weft__document *document)
{
    struct weft_schedule *schedule = document->schedules[document->count - 1];
    struct weft__choice *choices = document->choices;
    size_t count = document->choice_count;
    weft_node_t *events;
    int status = WEFT_OK;

    if (!count)
        return WEFT_OK;
    qsort(choices, count, sizeof *choices, compare_choices);
    events = weft__malloc(count, sizeof *events);
    if (!events)
        return weft__error_memory("the choices of a schedule");
    for (size_t begin = 0, end = 0; !status && begin < count; begin = end) {
        for (; end < count && choices[end].number == choices[begin].number; end++)
            events[end - begin] = choices[end].event;
        status = weft_schedule_add_choice(schedule, events, end - begin);
    }
    weft__free(events);
    return status;
}

static int same_name(const char *name, const char *other, size_t length)
{
    return !strncmp(name, other, length) && !name[length];
}

const struct weft_op *weft__document_op(const struct weft__document *document, const char *name,
                                        size_t length)
{
    document->named->reason[0] = '\0';
    for (size_t i = 0; i < document->op_count; i++)
        if (same_name(weft_op_name(document->ops[i]), name, length))
            return document->ops[i];
    for (int kind = 0; kind < WEFT_OP_COUNT; kind++)
        if (same_name(weft_op_name(weft_op_builtin((weft_op_kind_t)kind)), name, length))
            return weft_op_builtin((weft_op_kind_t)kind);
    return weft__named_op(document->named, name, length);
}

static void list_name(char *text, size_t bytes, const char *name)
{
    size_t used = strlen(text);

    snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", name);
}

void weft__document_op_names(const struct weft__document *document, char *text, size_t bytes)
{
    text[0] = '\0';
    for (int kind = 0; kind < WEFT_OP_COUNT; kind++)
        list_name(text, bytes, weft_op_name(weft_op_builtin((weft_op_kind_t)kind)));
    for (size_t i = 0; i < document->op_count; i++)
        list_name(text, bytes, weft_op_name(document->ops[i]));
    list_name(
        text, bytes,
        "those of weft/sparse.h and weft/compress.h (topk-merge, project-768), joint nodes of "
        "weft/joint.h (joint-fold-all-sum-5-0to3)");
    if (document->named->reason[0])
        snprintf(text, bytes, "those of weft/compress.h: %s", document->named->reason);
}

void weft__dtype_names(char *text, size_t bytes)
{
    text[0] = '\0';
    for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++)
        list_name(text, bytes, weft_dtype_name((weft_dtype_t)dtype));
    list_name(text, bytes, WEFT__OPAQUE_NAMES);
}

const char *weft__builder_text(void)
{
    const char *text = weft_error_text();
    const char *colon = strstr(text, ": ");

    return colon && !strncmp(text, "weft_", 5) ? colon + 2 : text;
}

/* '{' begins JSON; a text document begins with a word or a comment. */
static int is_json(const char *text, size_t length)
{
    size_t at = 0;

    while (at < length && strchr(" \t\r\n", text[at]) && text[at])
        at++;
    return at < length && text[at] == '{';
}

static void document_free(struct weft__document *document)
{
    for (size_t i = 0; i < document->count; i++)
        weft_schedule_destroy(document->schedules[i]);
    weft__free(document->schedules);
}

/* Bytes of text that repetitions may make unless the caller allows more: below 1 GiB of schedules.
 */
#define MOST_REPEATED ((size_t)16 << 20)

void weft_read_options_init_sized(struct weft_read_options *options, size_t size)
{
    weft_sized_init(options, size);
}

static int check_read(const char *who, const char *text, const struct weft_read_options *options,
                      const void *schedules, const void *count)
{
    if (!text)
        return WEFT__INVALID("%s: argument `text` is NULL, expected a document", who);
    if (!schedules || !count)
        return WEFT__INVALID("%s: argument `%s` is NULL, expected a place for the answer", who,
                             schedules ? "count" : "schedules");
    if (options->refusal && weft_sized_check(who, "options->refusal", options->refusal))
        return WEFT_ERR_INVALID;
    if (options->size < 0)
        return WEFT__INVALID("%s: argument `size` is %d, expected a number of ranks, or 0", who,
                             options->size);
    if (options->op_count && !options->ops)
        return WEFT__INVALID("%s: argument `ops` is NULL, expected %zu operations", who,
                             options->op_count);
    if (options->parameter_count && !options->parameters)
        return WEFT__INVALID("%s: argument `parameters` is NULL, expected %zu parameters", who,
                             options->parameter_count);
    for (size_t i = 0; i < options->op_count; i++)
        if (!options->ops[i])
            return WEFT__INVALID("%s: argument `ops[%zu]` is NULL, expected an operation", who, i);
    for (size_t i = 0; i < options->parameter_count; i++)
        if (!options->parameters[i].name || !options->parameters[i].value)
            return WEFT__INVALID("%s: argument `parameters[%zu]` has no name or no value, "
                                 "expected both",
                                 who, i);
    return WEFT_OK;
}

/* What the builder has refused: the last schedule keeps its error. */
static void tell_refusal(const struct weft__document *document, struct weft_read_refusal *refusal)
{
    const struct weft_schedule *schedule =
        document->count > 0 ? document->schedules[document->count - 1] : NULL;
    char text[512];
    snprintf(text, sizeof text, "%s", weft_error_text());
    int refused = schedule && schedule->refusal != WEFT__REFUSAL_OTHER;
    weft__error(WEFT_ERR_FORMAT, "%s", text); /* with the line, which the builder does not know */

    if (!refused && !(schedule && document->beyond))
        return;
    struct weft_read_refusal told = {
        .rank = weft_schedule_rank(schedule),
        .size = document->size,
        .node = (weft_node_t)weft_schedule_node_count(schedule),
        .peer = refused && schedule->refusal == WEFT__REFUSAL_PEER,
    };
    weft_sized_fill(__func__, "refusal", refusal, &told, sizeof told);
}

/* The operations that were named: schedules have references of their own. */
static int end_names(struct weft__named_ops *named, int status)
{
    weft__named_ops_free(named);
    return status && named->no_memory ? weft__error_memory("an operation") : status;
}

static int read_checked(const char *text, size_t length, const struct weft_read_options *options,
                        struct weft_schedule ***schedules, size_t *count)
{
    struct weft__named_ops named = {0};
    struct weft__document document = {
        .text = text,
        .length = length,
        .ops = options->ops,
        .op_count = options->op_count,
        .named = &named,
        .parameters = options->parameters,
        .parameter_count = options->parameter_count,
        .size = options->size,
        .most_repeated = options->most_repeated ? options->most_repeated : MOST_REPEATED,
        .most_memory = options->most_memory,
    };
    int status = is_json(text, length) ? weft__read_json(&document) : weft__read_text(&document);

    weft__free(document.name);
    weft__free(document.choices);
    status = end_names(&named, status);
    struct weft_read_refusal none = {.rank = -1, .node = -1};
    weft_sized_fill(__func__, "refusal", options->refusal, &none, sizeof none);
    if (status) {
        if (options->refusal && status == WEFT_ERR_FORMAT)
            tell_refusal(&document, options->refusal);
        document_free(&document);
        return status;
    }
    *schedules = document.schedules;
    *count = document.count;
    return WEFT_OK;
}

int weft_schedule_read_with(const char *text, size_t length, const struct weft_read_options *given,
                            struct weft_schedule ***schedules, size_t *count)
{
    struct weft_read_options options;
    int status = weft_sized_read(__func__, "options", given, &options, sizeof options);

    if (!status)
        status = check_read(__func__, text, &options, schedules, count);
    return status ? status : read_checked(text, length, &options, schedules, count);
}

int weft_schedule_read(const char *text, size_t length, const struct weft_op *const *ops,
                       size_t op_count, struct weft_schedule ***schedules, size_t *count)
{
    struct weft_read_options options;
    int status;

    weft_read_options_init(&options);
    options.ops = ops;
    options.op_count = op_count;
    status = check_read(__func__, text, &options, schedules, count);
    return status ? status : read_checked(text, length, &options, schedules, count);
}

int weft_schedule_read_parameters(const char *text, size_t length,
                                  struct weft_parameter **parameters, size_t *count)
{
    struct weft__named_ops named = {0};
    struct weft__document document = {.text = text, .length = length, .named = &named};
    struct weft_parameter *none;
    int status;

    if (!text)
        return WEFT__INVALID("%s: argument `text` is NULL, expected a document", __func__);
    if (!parameters || !count)
        return WEFT__INVALID("%s: argument `%s` is NULL, expected a place for the answer", __func__,
                             parameters ? "count" : "parameters");
    if (!is_json(text, length)) {
        status = weft__read_text_parameters(&document, parameters, count);
        weft__free(document.name);
        return end_names(&named, status);
    }
    none = weft__calloc(1, sizeof *none);
    if (!none)
        return weft__error_memory("the parameters of a document");
    *parameters = none;
    *count = 0;
    return WEFT_OK;
}
