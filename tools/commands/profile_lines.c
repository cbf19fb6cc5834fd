/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks have written, read: WEFT_PMPI_STATS=FILE has a file FILE.RANK of each, a JSON object a
 * line (tools/pmpi/stats.c). Nothing is taken for granted of it: files are cut and edited. */
#include "tools/commands/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <weft/status.h>

/* As MPI calls them. */
static const struct profile_call calls[] = {
    {"MPI_Allgather", "allgather", 0},
    {"MPI_Allgatherv", "allgatherv", 0},
    {"MPI_Allreduce", "allreduce", 1},
    {"MPI_Alltoall", "alltoall", 0},
    {"MPI_Alltoallv", "alltoallv", 0},
    {"MPI_Alltoallw", "alltoallv", 0},
    {"MPI_Barrier", "barrier", 0},
    {"MPI_Bcast", "broadcast", 0},
    {"MPI_Exscan", "exscan", 1},
    {"MPI_Gather", "gather", 0},
    {"MPI_Gatherv", "gatherv", 0},
    {"MPI_Reduce", "reduce", 1},
    {"MPI_Reduce_scatter", "reduce-scatterv", 1},
    {"MPI_Reduce_scatter_block", "reduce-scatter", 1},
    {"MPI_Scan", "scan", 1},
    {"MPI_Scatter", "scatter", 0},
    {"MPI_Scatterv", "scatterv", 0},
};

static const char *const forms[] = {"blocking", "non-blocking", "persistent"};

const char *profile_form_name(enum profile_form form)
{
    return forms[form];
}

/* ---- a member of a line ---- */

/* A line while it is read. */
struct source {
    const char *path;
    size_t number;
    const json_t *json;
    int status;
};

/* Says what a member is, and what was expected; the first error counts. */
static void refuse(struct source *source, const char *key, const json_t *value,
                   const char *expected)
{
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;

    if (source->status == WEFT_OK)
        source->status =
            weft_error_set(WEFT_ERR_FORMAT, "%s, line %zu: `%s` is %.60s%s; expected %s",
                           source->path, source->number, key, text ? text : "missing",
                           text && strlen(text) > 60 ? ".." : "", expected);
    free(text);
}

/* Counts are whole numbers that a double has, too. */
#define MOST_COUNT ((json_int_t)1 << 53)

static int is_count(const json_t *value, json_int_t most)
{
    return json_is_integer(value) && json_integer_value(value) >= 0 &&
           json_integer_value(value) <= most;
}

static uint64_t count_of(struct source *source, const char *key)
{
    const json_t *value = json_object_get(source->json, key);

    if (is_count(value, MOST_COUNT))
        return (uint64_t)json_integer_value(value);
    refuse(source, key, value, "an integer from 0 to 2^53");
    return 0;
}

static double seconds_of(struct source *source, const char *key)
{
    const json_t *value = json_object_get(source->json, key);
    double seconds = json_number_value(value);

    if (json_is_number(value) && isfinite(seconds) && seconds >= 0)
        return seconds;
    refuse(source, key, value, "a number of seconds from 0");
    return 0;
}

static const char *text_of(struct source *source, const char *key, const char *expected)
{
    const json_t *value = json_object_get(source->json, key);

    if (!json_is_string(value))
        refuse(source, key, value, expected);
    return json_is_string(value) ? json_string_value(value) : "";
}

static const struct profile_call *call_of(struct source *source)
{
    static const char expected[] = "the name of a collective, such as MPI_Allreduce";
    const char *name = text_of(source, "call", expected);

    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        if (strcmp(name, calls[i].name) == 0)
            return &calls[i];
    refuse(source, "call", json_object_get(source->json, "call"), expected);
    return &calls[0];
}

static enum profile_form form_of(struct source *source)
{
    static const char expected[] = "blocking, non-blocking or persistent";
    const char *name = text_of(source, "form", expected);

    for (int i = 0; i < PROFILE_FORMS; i++)
        if (strcmp(name, forms[i]) == 0)
            return (enum profile_form)i;
    refuse(source, "form", json_object_get(source->json, "form"), expected);
    return PROFILE_BLOCKING;
}

static int ranks_of(struct source *source)
{
    const json_t *value = json_object_get(source->json, "ranks");

    if (is_count(value, INT32_MAX))
        return (int)json_integer_value(value);
    refuse(source, "ranks", value, "an integer from 0 to 2147483647");
    return 0;
}

/* The calls that were MPI's, all reasons together. */
static uint64_t others_of(struct source *source, const json_t **reasons)
{
    const json_t *object = json_object_get(source->json, "fallen_back");
    uint64_t others = 0;
    const char *reason;
    json_t *value;

    *reasons = object;
    if (!json_is_object(object)) {
        refuse(source, "fallen_back", object, "an object with a number for each reason");
        return 0;
    }
    json_object_foreach((json_t *)(uintptr_t)object, reason, value)
    {
        if (is_count(value, MOST_COUNT))
            others += (uint64_t)json_integer_value(value);
        else
            refuse(source, "fallen_back", object, "integers from 0 to 2^53 in it");
    }
    return others;
}

/* ---- lines ---- */

/* Room for one more; NULL: no memory. */
static struct profile_line *next_line(struct profile *profile)
{
    if (profile->count == profile->capacity) {
        size_t capacity = profile->capacity ? 2 * profile->capacity : 64;
        struct profile_line *lines = realloc(profile->lines, capacity * sizeof *lines);
        if (!lines)
            return NULL;
        profile->lines = lines;
        profile->capacity = capacity;
    }
    return &profile->lines[profile->count];
}

static int read_line(struct profile *profile, int rank, struct source *source, const char *text,
                     size_t length)
{
    json_error_t error;
    json_t *json = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    struct profile_line *line = next_line(profile);

    if (!line) {
        json_decref(json);
        return weft_error_set(WEFT_ERR_MEMORY, "%s: no memory for line %zu", source->path,
                              source->number);
    }
    if (!json_is_object(json)) {
        json_decref(json);
        return weft_error_set(WEFT_ERR_FORMAT,
                              "%s, line %zu: %s; expected an object of JSON, as WEFT_PMPI_STATS "
                              "writes it",
                              source->path, source->number, json ? "an array" : error.text);
    }
    source->json = json;
    *line = (struct profile_line){.rank = rank, .json = json};
    line->communicator = text_of(source, "communicator", "the name of a communicator");
    line->ranks = ranks_of(source);
    line->call = call_of(source);
    line->form = form_of(source);
    line->bytes = count_of(source, "bytes");
    line->served = count_of(source, "served");
    line->others = others_of(source, &line->reasons);
    line->served_s = seconds_of(source, "served_seconds");
    line->others_s = seconds_of(source, "fallen_back_seconds");
    if (source->status != WEFT_OK) {
        json_decref(json);
        return source->status;
    }
    profile->count++;
    if (line->ranks > profile->size)
        profile->size = line->ranks;
    return WEFT_OK;
}

int profile_add(struct profile *profile, int rank, const char *path, const char *text,
                size_t length)
{
    struct source source = {.path = path};
    const char *end = text + length;

    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t bytes = (size_t)((stop ? stop : end) - text);
        source.number++;
        int status = read_line(profile, rank, &source, text, bytes);
        if (status != WEFT_OK)
            return status;
        text += bytes + (stop != NULL);
    }
    profile->reported++;
    if (rank >= profile->size)
        profile->size = rank + 1;
    return WEFT_OK;
}

void profile_free(struct profile *profile)
{
    for (size_t i = 0; i < profile->count; i++)
        json_decref(profile->lines[i].json);
    free(profile->lines);
    *profile = (struct profile){0};
}
