/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/commands/merge_cost.h"

#include "tools/cli/files.h"
#include "tools/cli/points.h"

#include <stdlib.h>
#include <string.h>

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

/* @status: of the reader of points. */
static int take_points(struct merge_cost *cost, const char *command, int status, size_t count)
{
    double a = 0, b = 0;

    if (status == WEFT_ERR_MEMORY)
        return cli_fail(command, "%s", weft_error_text());
    if (status)
        return cli_usage(command, "--cost: %s", weft_error_text());
    cost->cost.points = cost->points;
    cost->cost.point_count = count;
    int used = snprintf(cost->text, sizeof cost->text, "what was measured of %zu sizes", count);
    if (!weft_merge_cost_fit(cost->points, count, &a, &b)) {
        snprintf(cost->text + used, sizeof cost->text - (size_t)used,
                 " (about %.4g us + %.4g us a byte)", a, b);
    }
    return 0;
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
    size_t count = 0;
    if (first != '{' && first != '[') {
        status = points_read_csv(&cost->points, &count, path, text, length);
        status = take_points(cost, command, status, count);
    } else {
        json_t *json = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
        const json_t *points = json_is_array(json) ? json : json_object_get(json, "points");
        if (!json) {
            status = cli_usage(command, "--cost: %s: line %d: %s; expected costs in JSON", path,
                               error.line, error.text);
        } else if (json_is_array(points)) {
            status = points_read_json(&cost->points, &count, path, points);
            status = take_points(cost, command, status, count);
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
