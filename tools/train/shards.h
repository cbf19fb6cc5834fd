/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which rows of the training data a rank trains on. Drawn from the seed alone, so that every
 * process finds the same.
 */
#ifndef WEFT_TOOLS_TRAIN_SHARDS_H
#define WEFT_TOOLS_TRAIN_SHARDS_H

#include "tools/train/dataset.h"

enum train_shard_kind {
    /** All ranks draw from all rows. */
    TRAIN_SHARDS_IID,
    /** A rank has rows of `classes` classes alone. */
    TRAIN_SHARDS_BY_CLASS,
    /** A rank's shares of the classes are drawn from a symmetric Dirichlet distribution. */
    TRAIN_SHARDS_DIRICHLET
};

struct train_division {
    enum train_shard_kind kind;
    int classes;
    double alpha;
};

/** What train_shards_parse() reads. */
#define TRAIN_SHARDS_SYNTAX "iid, by-class:N (N of 1..10) or dirichlet:ALPHA (ALPHA of 1e-6..1e6)"

/** Reads TRAIN_SHARDS_SYNTAX. @return WEFT_OK or WEFT_ERR_INVALID, with a text that names the part
 *  at fault. */
int train_shards_parse(struct train_division *division, const char *text);

/** The rows of every rank. */
struct train_shards {
    /** Those of rank r are rows[starts[r]] .. rows[starts[r + 1] - 1]: one at least, none twice.
     *  NULL: every rank has all of them. */
    uint32_t *rows;
    size_t *starts;
};

/**
 * Divides the rows of @p data among @p ranks ranks. Every row belongs to a rank, and to one only
 * where there are enough of them for all.
 *
 *     by class    ranks take turns to choose `classes` of the classes that the fewest have chosen,
 *                 so a class has as many ranks as another, or one more; more classes where the
 *                 ranks are too few to have all of them otherwise. Ranks of a class share its rows
 *                 evenly; more ranks than rows: some have the same row.
 *     Dirichlet   as Hsu, Qi and Brown (2019) have it: every rank draws its shares of the classes,
 *                 and ranks take turns to draw a row of a class by these shares, of those of which
 *                 rows are left; so all have as many rows, or one more. More ranks than rows: the
 *                 rows are dealt again.
 *
 * @return WEFT_OK or WEFT_ERR_MEMORY. train_shards_free() frees what was made.
 */
int train_shards_create(struct train_shards *shards, const struct train_division *division,
                        const struct dataset *data, int ranks, uint64_t seed);

/** Zeroed ones are accepted. */
void train_shards_free(struct train_shards *shards);

#endif
