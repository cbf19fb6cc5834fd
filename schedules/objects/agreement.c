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
 * complement: they are equal where the largest value is also the smallest. If one is not, or a rank
 * has failed, they meet once more, and who has something to tell fills in its words; all others
 * leave them 0.
 */
enum {
    FAILED,  /* first meeting: by ranks from the end, 0: nobody */
    LARGEST, /* the caller's */
    SETTINGS,
    WORDS = WEFT__SETTING_TEXT / sizeof(uint64_t),
    HIGH = 0, /* second meeting: who has the largest value, by ranks from the end, and its text */
    LOW = 1 + WORDS, /* the smallest */
};

static int make_meeting(struct weft__creation *creation)
{
    struct weft_template_params params;
    weft_template_params_init(&params);
    params.count = WEFT__MEETING_WORDS;
    params.dtype = WEFT_U64;
    params.op = weft_op_builtin(WEFT_MAX);
    params.in_place = 1;
    int status = weft_template_create_run(&creation->run, creation->context, "allreduce", &params);
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

/* Tells why the first rank that failed did. */
static int tell_failure(struct weft__creation *creation, const char *text)
{
    uint64_t first = creation->met[FAILED];
    memset(creation->met, 0, sizeof creation->met);
    if (first == number_of(creation))
        snprintf((char *)creation->met, sizeof creation->met, "%s", text);
    int status = weft_run_execute(creation->run);
    if (status)
        return status;
    ((char *)creation->met)[sizeof creation->met - 1] = '\0';
    return weft_error_set(WEFT_ERR_PEER, "%s: rank %d has failed: %s", creation->who,
                          rank_of(creation, first), (const char *)creation->met);
}

/* Tells which ranks have the largest and the smallest value of a setting. */
static int tell_difference(struct weft__creation *creation, const struct weft__setting *mine,
                           uint64_t largest, uint64_t smallest)
{
    char text[2][WEFT__SETTING_TEXT];
    memset(creation->met, 0, sizeof creation->met);
    for (int i = 0; i < 2; i++) {
        uint64_t *words = &creation->met[i ? LOW : HIGH];
        if (mine->value != (i ? smallest : largest))
            continue;
        words[0] = number_of(creation);
        memcpy(&words[1], mine->text, sizeof mine->text);
    }
    int status = weft_run_execute(creation->run);
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
        if (largest != smallest)
            return tell_difference(creation, &settings[i], largest, smallest);
    }
    return WEFT_OK;
}

static int meet(struct weft__creation *creation, const struct weft__setting *settings, size_t count,
                uint64_t *largest, int failed)
{
    char text[sizeof creation->met];
    snprintf(text, sizeof text, "%s", failed ? weft_error_text() : "");
    int status = creation->run ? WEFT_OK : make_meeting(creation);
    creation->met[FAILED] = failed ? number_of(creation) : 0;
    creation->met[LARGEST] = largest && !failed ? *largest : 0;
    for (size_t i = 0; i < count && !failed; i++) {
        creation->met[SETTINGS + 2 * i] = settings[i].value;
        creation->met[SETTINGS + 2 * i + 1] = ~settings[i].value;
    }
    if (!status)
        status = weft_run_execute(creation->run);
    if (!status && largest)
        *largest = creation->met[LARGEST];
    if (!status)
        status = creation->met[FAILED] ? tell_failure(creation, text)
                                       : compare(creation, settings, count);
    return failed ? weft_error_set(failed, "%s", text) : status;
}

/* Afterwards nobody comes any more. */
static void part(struct weft__creation *creation)
{
    weft_run_destroy(creation->run);
    creation->run = NULL;
}

int weft__creation_meet(struct weft__creation *creation, struct weft_context *context,
                        const char *who, const struct weft__setting *settings, size_t count,
                        uint64_t *largest, int failed)
{
    memset(creation, 0, sizeof *creation);
    creation->context = context;
    creation->who = who;
    if (count > WEFT__SETTINGS_MOST)
        return weft_error_set(WEFT_ERR_INVALID, "%s: %zu settings to compare, expected at most %d",
                              who, count, WEFT__SETTINGS_MOST);
    int status = meet(creation, settings, count, largest, failed);
    if (status)
        part(creation);
    return status;
}

int weft__creation_part(struct weft__creation *creation, int failed)
{
    if (!creation->run)
        return failed;
    memset(creation->met, 0, sizeof creation->met);
    int status = meet(creation, NULL, 0, NULL, failed);
    part(creation);
    return status;
}
