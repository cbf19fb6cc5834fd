/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that create an object meet, compare their settings, and hear who has failed. */
#include <stdio.h>
#include <string.h>

#include <weft/run.h>
#include <weft/template.h>

#include "schedules/objects/agreement.h"

/* ---- settings ---- */

static struct weft__setting setting(const char *name, uint64_t value)
{
    return (struct weft__setting){.name = name, .value = value};
}

struct weft__setting weft__setting_count(const char *name, uint64_t value)
{
    struct weft__setting made = setting(name, value);
    snprintf(made.text, sizeof made.text, "%llu", (unsigned long long)value);
    return made;
}

struct weft__setting weft__setting_real(const char *name, double value)
{
    struct weft__setting made = setting(name, 0);
    memcpy(&made.value, &value, sizeof value);
    snprintf(made.text, sizeof made.text, "%.17g", value);
    return made;
}

struct weft__setting weft__setting_word(const char *name, int value, const char *word)
{
    struct weft__setting made = setting(name, (uint64_t)value);
    snprintf(made.text, sizeof made.text, "%s", word ? word : "none");
    return made;
}

/* FNV-1a, as runtime/base/hash.h has it, which objects do not see. */
#define HASH_EMPTY UINT64_C(0xcbf29ce484222325)
static uint64_t hash(uint64_t value, const void *data, size_t bytes)
{
    const unsigned char *byte = data;
    for (size_t i = 0; i < bytes; i++)
        value = (value ^ byte[i]) * UINT64_C(0x100000001b3);
    return value;
}

struct weft__setting weft__setting_string(const char *name, const char *text)
{
    struct weft__setting made = setting(name, text ? hash(HASH_EMPTY, text, strlen(text)) : 0);
    snprintf(made.text, sizeof made.text, text ? "\"%s\"" : "none", text);
    return made;
}

/* Adds a number of a list to a text, or "...", after which there is no room. */
static void append(struct weft__setting *made, size_t index, const char *number)
{
    size_t used = strlen(made->text), room = sizeof made->text - used;
    const char *comma = index ? ", " : "";
    if (room > strlen(number) + 8)
        snprintf(made->text + used, room, "%s%s", comma, number);
    else if (used < 3 || strcmp(made->text + used - 3, "...") != 0)
        snprintf(made->text + used, room, "%s...", comma);
}

struct weft__setting weft__setting_counts(const char *name, const void *first, size_t count,
                                          size_t stride)
{
    struct weft__setting made = setting(name, HASH_EMPTY);
    char number[32];
    for (size_t i = 0; i < count; i++) {
        uint64_t value;
        memcpy(&value, (const char *)first + i * stride, sizeof value);
        made.value = hash(made.value, &value, sizeof value);
        snprintf(number, sizeof number, "%llu", (unsigned long long)value);
        append(&made, i, number);
    }
    return made;
}

struct weft__setting weft__setting_reals(const char *name, const double *values, size_t count)
{
    struct weft__setting made = setting(name, hash(HASH_EMPTY, values, count * sizeof *values));
    char number[32];
    for (size_t i = 0; i < count; i++) {
        snprintf(number, sizeof number, "%.9g", values[i]);
        append(&made, i, number);
    }
    return made;
}

/*
 * Ranks meet in an allreduce of largest values. First each rank gives every setting and its
 * complement: they are equal where the largest value is also the smallest; who abstains gives two
 * zeros. If one is not, they meet
 * once more, and who has something to tell fills in its words; all others leave them 0.
 */
enum {
    LARGEST, /* the caller's */
    SETTINGS,
    WORDS = WEFT__SETTING_TEXT / sizeof(uint64_t),
    HIGH = 0, /* second meeting: who has the largest value, by ranks from the end, and its text */
    LOW = 1 + WORDS, /* the smallest */
};

int weft__object_run(struct weft_run **run, struct weft_context *context,
                     struct weft_object *object, const char *name,
                     const struct weft_template_params *params)
{
    struct weft_run_config config;
    struct weft_plan *plan = NULL;
    weft_run_config_init(&config);
    config.object = object;
    int status = weft_template_create_plan(&plan, context, name, params);
    if (!status)
        status = weft_run_create(run, context, plan, &config);
    weft_plan_destroy(plan);
    return status;
}

static int make_meeting(struct weft__creation *creation)
{
    struct weft_template_params params;
    weft_template_params_init(&params);
    params.count = WEFT__MEETING_WORDS;
    params.dtype = WEFT_U64;
    params.op = weft_op_builtin(WEFT_MAX);
    params.in_place = 1;
    int status =
        weft__object_run(&creation->run, creation->context, creation->object, "allreduce", &params);
    return status ? status
                  : weft_run_bind_name(creation->run, "recv", creation->met, WEFT__MEETING_WORDS,
                                       WEFT_U64);
}

/* The lowest rank is the largest number. */
static uint64_t number_of(const struct weft__creation *creation)
{
    return (uint64_t)(weft_context_size(creation->context) - weft_context_rank(creation->context));
}

static int rank_of(const struct weft__creation *creation, uint64_t number)
{
    return weft_context_size(creation->context) - (int)number;
}

/* The meeting itself; what ends it ends the object, which tells more. */
static int execute(struct weft__creation *creation, struct weft_run *run)
{
    int status = weft_run_execute(run);
    int told = status ? weft_object_check(creation->object, creation->who) : WEFT_OK;
    return told ? told : status;
}

/* Tells which ranks have the largest and the smallest value of a setting. */
static int tell_difference(struct weft__creation *creation, const struct weft__setting *mine,
                           uint64_t largest, uint64_t smallest)
{
    char text[2][WEFT__SETTING_TEXT];
    memset(creation->met, 0, sizeof creation->met);
    for (int i = 0; i < 2; i++) {
        uint64_t *words = &creation->met[i ? LOW : HIGH];
        if (mine->abstains || mine->value != (i ? smallest : largest))
            continue;
        words[0] = number_of(creation);
        memcpy(&words[1], mine->text, sizeof mine->text);
    }
    int status = execute(creation, creation->run);
    if (status)
        return status;
    memcpy(text[0], &creation->met[HIGH + 1], sizeof text[0]);
    memcpy(text[1], &creation->met[LOW + 1], sizeof text[1]);
    int rank[] = {rank_of(creation, creation->met[HIGH]), rank_of(creation, creation->met[LOW])};
    int second = rank[0] < rank[1];
    return weft_error_set(
        WEFT_ERR_INVALID, "%s: the ranks do not agree about %s: rank %d has %s, rank %d has %s",
        creation->who, mine->name, rank[!second], text[!second], rank[second], text[second]);
}

static int compare(struct weft__creation *creation, const struct weft__setting *settings,
                   size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t largest = creation->met[SETTINGS + 2 * i];
        uint64_t smallest = ~creation->met[SETTINGS + 2 * i + 1];
        if (!largest && smallest == UINT64_MAX)
            continue; /* all abstain */
        if (largest - smallest > settings[i].apart)
            return tell_difference(creation, &settings[i], largest, smallest);
    }
    return WEFT_OK;
}

static int meet(struct weft__creation *creation, const struct weft__setting *settings, size_t count,
                uint64_t *largest)
{
    creation->met[LARGEST] = largest ? *largest : 0;
    for (size_t i = 0; i < count; i++) { /* 0 changes no maximum */
        int abstains = settings[i].abstains;
        creation->met[SETTINGS + 2 * i] = abstains ? 0 : settings[i].value;
        creation->met[SETTINGS + 2 * i + 1] = abstains ? 0 : ~settings[i].value;
    }
    int status = execute(creation, creation->run);
    if (!status && largest)
        *largest = creation->met[LARGEST];
    return status ? status : compare(creation, settings, count);
}

int weft__creation_begin(struct weft__creation *creation, struct weft_context *context,
                         const char *who, const struct weft_object_config *config, int failed)
{
    char text[sizeof creation->met];
    memset(creation, 0, sizeof *creation);
    creation->context = context;
    creation->who = who;
    snprintf(text, sizeof text, "%s", failed ? weft_error_text() : "");
    int status = weft_object_create(&creation->object, context, config);
    if (failed)
        return weft_error_set(failed, "%s", text);
    return status ? status : make_meeting(creation);
}

int weft__creation_end(struct weft__creation *creation, const struct weft__setting *settings,
                       size_t count, uint64_t *largest, uint64_t meet_ns, int failed)
{
    char text[sizeof creation->met];
    int status = failed;
    if (!status && count > WEFT__SETTINGS_MOST)
        status =
            weft_error_set(WEFT_ERR_INVALID, "%s: %zu settings to compare, expected at most %d",
                           creation->who, count, WEFT__SETTINGS_MOST);
    if (!status)
        status = weft_run_set_deadline(creation->run, meet_ns);
    if (!status && creation->share)
        status = weft_run_set_deadline(creation->share, meet_ns);
    if (status) {
        snprintf(text, sizeof text, "%s", weft_error_text());
        if (creation->object)
            weft_object_fail(creation->object, status, text);
    } else { /* all come to the same result, or the object fails with the meeting */
        status = meet(creation, settings, count, largest);
        if (!status && creation->share)
            status = execute(creation, creation->share);
        snprintf(text, sizeof text, "%s", status ? weft_error_text() : "");
    }
    weft_run_destroy(creation->share);
    weft_run_destroy(creation->run);
    creation->share = creation->run = NULL;
    return status ? weft_error_set(status, "%s", text) : WEFT_OK;
}

uint64_t weft__creation_largest(const struct weft__creation *creation, size_t setting)
{
    return creation->met[SETTINGS + 2 * setting];
}

uint64_t weft__creation_smallest(const struct weft__creation *creation, size_t setting)
{
    return ~creation->met[SETTINGS + 2 * setting + 1];
}

/* ---- ends ---- */

int weft__object_end_run(const char *who, struct weft_object *object, struct weft_run *run,
                         uint64_t leave_ns)
{
    char text[384];
    int status = weft_run_wait(run, leave_ns);
    if (status == WEFT_IN_PROGRESS) {
        char *report = NULL;
        int told = weft_run_report(run, &report);
        snprintf(text, sizeof text,
                 "the object is being destroyed; its last step has not ended in %.3f s:\n%s",
                 (double)leave_ns * 1e-9, told ? "" : report);
        weft_memory_free(report);
        weft_object_fail(object, WEFT_ERR_TIMEOUT, text);
        return weft_error_set(WEFT_ERR_TIMEOUT, "%s: %s", who, text);
    }
    int failed = status ? weft_object_check(object, who) : WEFT_OK;
    return failed ? failed : status;
}

int weft__object_give_up(const char *who, struct weft_object *object, int status, const char *text)
{
    return status < 0
               ? weft_object_fail(object, status, text)
               : weft_error_set(WEFT_ERR_INVALID, "%s: argument `status` is %d, expected an error",
                                who, status);
}
