/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measured times of an allreduce: {"points": [{"bytes": 0, "us": 5}, ...]} or the array alone, or
 * CSV with the columns bytes and us.
 */
#ifndef WEFT_TOOLS_CLI_POINTS_H
#define WEFT_TOOLS_CLI_POINTS_H

#include <jansson.h>
#include <weft/weft.h>

/**
 * Reads an array of points; @p path is for errors alone.
 * @param points receives at least two, of ascending bytes; weft_memory_free() frees them.
 * @return WEFT_OK; WEFT_ERR_FORMAT with a text that says where, what was found and what was
 *         expected; WEFT_ERR_MEMORY. After an error nothing has been written.
 */
int points_read_json(struct weft_merge_point **points, size_t *count, const char *path,
                     const json_t *array);

/** The same of the @p length bytes of @p text, as CSV, which a NUL follows. */
int points_read_csv(struct weft_merge_point **points, size_t *count, const char *path,
                    const char *text, size_t length);

#endif
