/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/commands/merge_cost.h"

#include "tools/cli/files.h"

#include <stdlib.h>
#include <string.h>

/* Most that a time or a number of bytes may be. */
#define MOST 1e15

void merge_cost_free(struct merge_cost *cost)
{
    weft_memory_free(cost->points);
    cost->points = NULL;
}

/* ---- a + b M ---- */

int merge_cost_parse(struct merge_cost *cost, const char *command, const char *text)
{
    static const char *const names[] = {"a", "b", NULL};
    double *const values[] = {&cost->cost.a_us, &cost->cost.b_us_per_byte};
    int given[] = {0, 0};
    char *words = strdup(text), *rest = words, *word;
    int status = words ? 0 : cli_fail(command, "out of memory");

    weft_merge_cost_init(&cost->cost);
    while (!status && (word = strsep(&rest, ","))) {
        char *value = strchr(word, '=');
        if (value)
            *value++ = '\0';
        int which = strcmp(word, "a") == 0 ? 0 : strcmp(word, "b") == 0 ? 1 : -1;
        if (!value || which < 0 || given[which]++) {
            status = cli_usage(command,
                               "--net: '%s'; expected a=US,b=US_PER_BYTE, each once: an allreduce "
                               "of M bytes takes a + b M",
                               text);
            break;
        }
        char option[16];
        snprintf(option, sizeof option, "--net: %s", names[which]);
        status = cli_real(command, option, value, 0, 1e12, values[which]);
    }
    free(words);
    snprintf(cost->text, sizeof cost->text, "%g us + %g us a byte", cost->cost.a_us,
             cost->cost.b_us_per_byte);
    return status;
}

/* ---- measured times ---- */

static int compare_points(const void *a, const void *b)
{
    const struct weft_merge_point *left = a, *right = b;

    return (left->bytes > right->bytes) - (left->bytes < right->bytes);
}

/* Points in any order; of one size there may be one. */
static int settle_points(struct merge_cost *cost, const char *command, const char *path,
                         size_t count)
{
    struct weft_merge_point *points = cost->points;
    double a = 0, b = 0;

    qsort(points, count, sizeof *points, compare_points);
    if (count < 2) {
        return cli_usage(command, "--cost: %s: %zu measured size%s; expected two or more", path,
                         count, count == 1 ? "" : "s");
    }
    for (size_t i = 1; i < count; i++) {
        if (points[i].bytes == points[i - 1].bytes) {
            return cli_usage(command, "--cost: %s: %.16g bytes twice; expected each size once",
                             path, points[i].bytes);
        }
    }
    cost->cost.points = points;
    cost->cost.point_count = count;
    int used = snprintf(cost->text, sizeof cost->text, "what was measured of %zu sizes", count);
    if (!weft_merge_cost_fit(points, count, &a, &b)) {
        snprintf(cost->text + used, sizeof cost->text - (size_t)used,
                 " (about %.4g us + %.4g us a byte)", a, b);
    }
    return 0;
}

static int add_point(struct merge_cost *cost, const char *command, const char *path,
                     const char *where, size_t index, double bytes, double us)
{
    if (!(bytes >= 0 && bytes <= MOST) || !(us >= 0 && us <= MOST)) {
        return cli_usage(command, "--cost: %s: %s: %g bytes, %g us; expected both from 0 to 1e15",
                         path, where, bytes, us);
    }
    cost->points[index] = (struct weft_merge_point){bytes, us};
    return 0;
}

static int load_json(struct merge_cost *cost, const char *command, const char *path,
                     const json_t *list)
{
    size_t count = json_array_size(list);
    int status = 0;

    cost->points = weft_memory_alloc(count + 1, sizeof *cost->points);
    if (!cost->points)
        return cli_fail(command, "out of memory");
    for (size_t i = 0; i < count && !status; i++) {
        const json_t *bytes = json_object_get(json_array_get(list, i), "bytes");
        const json_t *us = json_object_get(json_array_get(list, i), "us");
        char where[48];

        snprintf(where, sizeof where, "points[%zu]", i);
        if (!json_is_number(bytes) || !json_is_number(us)) {
            status = cli_usage(command, "--cost: %s: %s has no number %s; expected bytes and us",
                               path, where, json_is_number(bytes) ? "us" : "bytes");
        } else {
            status = add_point(cost, command, path, where, i, json_number_value(bytes),
                               json_number_value(us));
        }
    }
    return status ? status : settle_points(cost, command, path, count);
}

/* "bytes,us", with or without a heading; blank lines and those that begin with # are nothing. */
static int load_csv(struct merge_cost *cost, const char *command, const char *path, char *text)
{
    size_t count = 0, line = 0, lines = 2;
    int status = 0;
    char *row;

    for (const char *c = text; *c; c++)
        lines += *c == '\n';
    cost->points = weft_memory_alloc(lines, sizeof *cost->points);
    if (!cost->points)
        return cli_fail(command, "out of memory");
    while (!status && (row = strsep(&text, "\n"))) {
        double bytes, us;
        char more, where[48];
        int heading = count == 0 && strncmp(row, "bytes", 5) == 0;

        snprintf(where, sizeof where, "line %zu", ++line);
        if (heading || row[0] == '#' || row[strspn(row, " \t\r")] == '\0')
            continue;
        if (sscanf(row, " %lf , %lf %c", &bytes, &us, &more) != 2) {
            row[strcspn(row, "\r")] = '\0';
            status = cli_usage(command, "--cost: %s: %s is '%.40s'; expected bytes,us", path, where,
                               row);
        } else {
            status = add_point(cost, command, path, where, count++, bytes, us);
        }
    }
    return status ? status : settle_points(cost, command, path, count);
}

/* ---- costs of a transport ---- */

static int predict(struct merge_cost *cost, const char *command, const char *path,
                   const char *transport, weft_dtype_t dtype, int ranks, size_t most)
{
    struct weft_cost_model model;
    struct weft_template_params params;
    size_t count = 0;

    weft_cost_model_init(&model, transport);
    weft_template_params_init(&params);
    params.cost = &model;
    params.dtype = dtype;
    if (path && weft_cost_model_read(path, transport, &model, NULL))
        return cli_usage(command, "--cost: %s", weft_error_text());
    cost->points = weft_memory_alloc(WEFT_MERGE_POINTS, sizeof *cost->points);
    if (!cost->points)
        return cli_fail(command, "out of memory");
    if (weft_merge_cost_predict(&params, ranks, most, cost->points, &count))
        return cli_usage(command, "%s", weft_error_text());
    cost->cost.points = cost->points;
    cost->cost.point_count = count;
    snprintf(cost->text, sizeof cost->text,
             "what weft's own is predicted to take on %d %s rank%s by %s%.80s", ranks, transport,
             ranks == 1 ? "" : "s", path ? "" : "default costs", path ? path : "");
    return 0;
}

int merge_cost_load(struct merge_cost *cost, const char *command, const char *path,
                    const char *transport, weft_dtype_t dtype, int ranks, size_t most)
{
    size_t length = 0;
    json_error_t error;

    weft_merge_cost_init(&cost->cost);
    if (!path)
        return predict(cost, command, NULL, transport, dtype, ranks, most);
    char *text = cli_read_file(command, path, "a file of costs", &length);
    if (!text)
        return CLI_WRONG;
    char first = text[strspn(text, " \t\r\n")];
    int status;
    if (first != '{' && first != '[') {
        status = strlen(text) == length
                     ? load_csv(cost, command, path, text)
                     : cli_usage(command, "--cost: %s: a zero byte; expected text", path);
    } else {
        json_t *json = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
        const json_t *points = json_is_array(json) ? json : json_object_get(json, "points");
        if (!json) {
            status = cli_usage(command, "--cost: %s: line %d: %s; expected costs in JSON", path,
                               error.line, error.text);
        } else if (json_is_array(points)) {
            status = load_json(cost, command, path, points);
        } else if (json_object_get(json, "weft_cost")) {
            status = predict(cost, command, path, transport, dtype, ranks, most);
        } else {
            status = cli_usage(command,
                               "--cost: %s: neither \"weft_cost\" (as weft bench model writes) "
                               "nor \"points\"; expected one of them",
                               path);
        }
        json_decref(json);
    }
    free(text);
    return status;
}
