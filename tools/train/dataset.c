/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reader trusts nothing: every row must have exactly its columns and every number must be in
 * range, or the file is refused with the line at fault. Rows are gathered in arrays that double.
 */
#include "tools/train/dataset.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

/* Parses one integer 0..most at *text and steps over it; -1 if there is none. */
static int parse_number(const char **text, int most)
{
    const char *at = *text;
    int value = 0;
    int digits = 0;

    while (*at == ' ')
        at++;
    for (; *at >= '0' && *at <= '9' && digits < 6; at++, digits++)
        value = value * 10 + (*at - '0');
    while (*at == ' ')
        at++;
    if (digits == 0 || value > most || (*at != ',' && *at != '\0'))
        return -1;
    *text = at;
    return value;
}

static int parse_row(const char *line, float *image, uint8_t *label, const char *path,
                     size_t number)
{
    const char *at = line;

    for (int column = 0; column <= DATASET_PIXELS; column++) {
        int is_label = column == DATASET_PIXELS;
        int most = is_label ? DATASET_CLASSES - 1 : DATASET_LEVELS;
        int width = (int)strcspn(at, ",");
        const char *word = at;
        int value = parse_number(&at, most);

        if (value < 0) {
            return weft_error_set(WEFT_ERR_FORMAT,
                                  "%s:%zu: column %d is '%.*s'; expected an integer 0..%d (%s)",
                                  path, number, column + 1, width < 24 ? width : 24, word, most,
                                  is_label ? "the digit" : "a pixel");
        }
        if ((*at == '\0') != is_label) {
            return weft_error_set(WEFT_ERR_FORMAT, "%s:%zu: %s %d columns; expected %d", path,
                                  number, is_label ? "more than" : "only", column + 1,
                                  DATASET_PIXELS + 1);
        }
        if (is_label) {
            *label = (uint8_t)value;
        } else {
            image[column] = (float)value / (float)DATASET_LEVELS;
            at++;
        }
    }
    return WEFT_OK;
}

static int reserve(struct dataset *data, size_t *capacity)
{
    if (data->rows < *capacity)
        return WEFT_OK;
    size_t wanted = *capacity ? *capacity * 2 : 1024;
    float *images = NULL;
    if (wanted <= SIZE_MAX / (DATASET_PIXELS * sizeof(float)))
        images = realloc(data->images, wanted * DATASET_PIXELS * sizeof(float));
    if (!images)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for %zu rows of the data set", wanted);
    data->images = images;
    uint8_t *labels = realloc(data->labels, wanted);
    if (!labels)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for %zu rows of the data set", wanted);
    data->labels = labels;
    *capacity = wanted;
    return WEFT_OK;
}

static int read_rows(struct dataset *data, FILE *file, const char *path)
{
    char *line = NULL;
    size_t line_capacity = 0;
    size_t capacity = 0;
    int status = WEFT_OK;
    ssize_t length;

    errno = 0;
    while (status == WEFT_OK && (length = getline(&line, &line_capacity, file)) >= 0) {
        while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r'))
            line[--length] = '\0';
        if (strlen(line) != (size_t)length) {
            status = weft_error_set(WEFT_ERR_FORMAT, "%s:%zu: a zero byte; expected text", path,
                                    data->rows + 1);
            break;
        }
        status = reserve(data, &capacity);
        if (status == WEFT_OK) {
            status = parse_row(line, data->images + data->rows * DATASET_PIXELS,
                               data->labels + data->rows, path, data->rows + 1);
            data->rows++;
        }
    }
    if (status == WEFT_OK && (ferror(file) || !feof(file)))
        status = weft_error_set(WEFT_ERR_IO, "cannot read '%s': %s", path, strerror(errno));
    free(line);
    return status;
}

int dataset_read(struct dataset *data, const char *path)
{
    struct dataset read = {0};
    FILE *file = fopen(path, "r");

    if (!file)
        return weft_error_set(WEFT_ERR_IO, "cannot open '%s': %s", path, strerror(errno));
    int status = read_rows(&read, file, path);
    fclose(file);
    if (status == WEFT_OK && read.rows == 0)
        status = weft_error_set(WEFT_ERR_FORMAT, "%s: no rows; expected at least one", path);
    if (status != WEFT_OK) {
        dataset_free(&read);
        return status;
    }
    *data = read;
    return WEFT_OK;
}

static int read_file_of(struct dataset *data, const char *folder, const char *name)
{
    char *path = NULL;

    if (asprintf(&path, "%s/%s", folder, name) < 0)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for a path in '%s'", folder);
    int status = dataset_read(data, path);
    free(path);
    return status;
}

int dataset_read_folder(struct dataset *train, struct dataset *test, const char *folder)
{
    struct dataset first;
    int status = read_file_of(&first, folder, "optdigits-train.csv");

    if (status != WEFT_OK)
        return status;
    status = read_file_of(test, folder, "optdigits-test.csv");
    if (status != WEFT_OK) {
        dataset_free(&first);
        return status;
    }
    *train = first;
    return WEFT_OK;
}

void dataset_free(struct dataset *data)
{
    free(data->images);
    free(data->labels);
    memset(data, 0, sizeof *data);
}
