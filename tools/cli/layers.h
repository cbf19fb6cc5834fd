/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tables of layers, in the order of the backward pass: how many elements the gradient of each has,
 * and when it is there. As JSON
 *
 *     {"name": "net", "source": "...", "layers": [{"name": "fc", "elements": 10, "ready_us": 1.5}]}
 *
 * (keys that are not known are for people; a layer's name may be left out), or as CSV: three
 * columns, or any with a heading that names these three; quotes, CRLF, blank lines and lines that
 * begin with # are understood.
 */
#ifndef WEFT_TOOLS_CLI_LAYERS_H
#define WEFT_TOOLS_CLI_LAYERS_H

#include "tools/cli/options.h"

#include <stddef.h>

struct layer {
    /** Printable UTF-8. */
    char *name;
    size_t elements;
    /** Microseconds from when the backward pass began, or from any other origin; 0 or more. */
    double ready_us;
};

struct layers {
    struct layer *at;
    /** At least 1. */
    size_t count;
    /** What is told of the whole, or NULL; CSV tells nothing. */
    char *name;
    char *source;
};

/**
 * Reads the @p length bytes of @p text, which a NUL follows; @p path is for errors alone. JSON
 * begins with a brace or a bracket.
 * @return WEFT_OK; WEFT_ERR_FORMAT with a text that says where (line or key), what was found and
 *         what was expected; WEFT_ERR_MEMORY. @p layers is written on success only, and ended by
 *         layers_free().
 */
int layers_read(struct layers *layers, const char *path, const char *text, size_t length);

/** Of one that is all zero, too. */
void layers_free(struct layers *layers);

/** The networks whose tables come with weft; ends with one whose word is NULL. */
extern const struct cli_term cli_networks[];

/** The table in file @p path ("-": standard input), or, where there is no such file, of the network
 *  that is called so. 0, or an exit status after a line. */
int cli_layers_load(struct layers *layers, const char *command, const char *path);

#endif
