/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzzes the readers of tables of layers and of measured times. What is read is within its bounds,
 * and layers written as JSON are read back the same; what is refused leaves the table alone.
 */
#include "tools/cli/layers.h"
#include "tools/cli/points.h"

#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <weft/status.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz_layers: %s: %s\n", what, weft_error_text());
    abort();
}

static char *written(const struct layers *layers)
{
    json_t *list = json_array();

    for (size_t i = 0; i < layers->count; i++) {
        const struct layer *layer = &layers->at[i];
        require(layer->elements <= (size_t)1 << 53, "too many elements");
        require(isfinite(layer->ready_us) && layer->ready_us >= 0, "a time that is none");
        json_t *json = json_pack("{s:s, s:I, s:f}", "name", layer->name, "elements",
                                 (json_int_t)layer->elements, "ready_us", layer->ready_us);
        require(json != NULL, "a name that is no text");
        json_array_append_new(list, json);
    }
    json_t *document = json_pack("{s:o}", "layers", list);
    char *text = json_dumps(document, 0);
    json_decref(document);
    require(text != NULL, "no memory");
    return text;
}

static void check_points(int status, struct weft_merge_point *points, size_t count)
{
    if (status) {
        require(status == WEFT_ERR_FORMAT && !points && !count,
                "points that were refused are there");
        return;
    }
    require(count >= 2, "one point");
    for (size_t i = 0; i < count; i++)
        require(isfinite(points[i].us) && points[i].us >= 0 && points[i].bytes >= 0 &&
                    (i == 0 || points[i].bytes > points[i - 1].bytes),
                "points out of order");
    weft_memory_free(points);
}

static void read_points(const char *text, size_t size)
{
    struct weft_merge_point *points = NULL;
    size_t count = 0;
    json_t *json = json_loadb(text, size, 0, NULL);
    int status = points_read_csv(&points, &count, "input", text, size);

    check_points(status, points, count);
    points = NULL;
    count = 0;
    status = points_read_json(&points, &count, "input", json_object_get(json, "points"));
    check_points(status, points, count);
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct layers layers = {.count = 12345}, again;
    char *text = malloc(size + 1);

    require(text != NULL, "no memory");
    memcpy(text, data, size);
    text[size] = '\0';
    int status = layers_read(&layers, "input", text, size);
    read_points(text, size);
    require(!memcmp(text, data, size), "the text has changed");
    free(text);
    if (status) {
        require(status == WEFT_ERR_FORMAT, "an unexpected status");
        require(layers.count == 12345 && !layers.at, "a table that was refused has changed");
        return 0;
    }
    require(layers.count > 0, "an empty table");
    text = written(&layers);
    require(layers_read(&again, "written", text, strlen(text)) == WEFT_OK, "not read back");
    require(again.count == layers.count, "another count");
    for (size_t i = 0; i < again.count; i++)
        require(!strcmp(again.at[i].name, layers.at[i].name) &&
                    again.at[i].elements == layers.at[i].elements &&
                    again.at[i].ready_us == layers.at[i].ready_us,
                "another layer");
    free(text);
    layers_free(&again);
    layers_free(&layers);
    return 0;
}
