/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Labelled images for the demonstration trainer, read from the CSV files of optdigits.
 */
#ifndef WEFT_TOOLS_TRAIN_DATASET_H
#define WEFT_TOOLS_TRAIN_DATASET_H

#include <stddef.h>
#include <stdint.h>

enum {
    DATASET_SIDE = 8,
    DATASET_PIXELS = DATASET_SIDE * DATASET_SIDE,
    DATASET_CLASSES = 10,
    DATASET_LEVELS = 16
};

struct dataset {
    size_t rows;
    /** rows x DATASET_PIXELS, row-major, 0 (white) to 1 (black). */
    float *images;
    /** rows; 0 .. DATASET_CLASSES - 1. */
    uint8_t *labels;
};

/**
 * Reads a CSV file without a header: DATASET_PIXELS integers 0 .. DATASET_LEVELS and a digit a row.
 * @return WEFT_OK; WEFT_ERR_IO, WEFT_ERR_FORMAT (weft_error_text() gives file, line, what was found
 *         and what was expected); WEFT_ERR_MEMORY. *data is written only on success.
 */
int dataset_read(struct dataset *data, const char *path);

/** Reads optdigits-train.csv and optdigits-test.csv of a folder. */
int dataset_read_folder(struct dataset *train, struct dataset *test, const char *folder);

/** Frees the rows. An empty (zeroed) data set is accepted. */
void dataset_free(struct dataset *data);

#endif
