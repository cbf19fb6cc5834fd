/* SPDX-License-Identifier: BSD-3-Clause */
/* What weft merge takes an allreduce to cost. */
#ifndef WEFT_TOOLS_COMMANDS_MERGE_COST_H
#define WEFT_TOOLS_COMMANDS_MERGE_COST_H

#include "tools/cli/cli.h"

struct merge_cost {
    struct weft_merge_cost cost;
    /** Those that the cost borrows; or NULL. */
    struct weft_merge_point *points;
    /** In words: "90.5 us + 0.0015 us a byte". */
    char text[192];
};

/** The value of --net: "a=US,b=US_PER_BYTE". 0, or an exit status after a line. */
int merge_cost_parse(struct merge_cost *cost, const char *command, const char *text);

/**
 * By file @p path: costs of transports as weft bench model writes them, or measured times of an
 * allreduce, as JSON ({"points": [{"bytes": .., "us": ..}]}) or CSV (bytes,us). NULL: by the
 * defaults of @p transport. Costs of a transport are those of weft's allreduce of @p dtype on
 * @p ranks ranks, predicted up to @p most bytes. 0, or an exit status after a line.
 */
int merge_cost_load(struct merge_cost *cost, const char *command, const char *path,
                    const char *transport, weft_dtype_t dtype, int ranks, size_t most);

void merge_cost_free(struct merge_cost *cost);

#endif
