/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Both divisions work on the rows sorted by class, shuffled within a class. What is dealt is first
 * told as one (rank, row) after the other, in an order that is no rank's own; then it is sorted by
 * rank, by counting.
 */
#include "tools/train/shards.h"

#include "tools/train/random.h"

#include <errno.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

static const double LEAST_ALPHA = 1e-6, MOST_ALPHA = 1e6;

int train_shards_parse(struct train_division *division, const char *text)
{
    static const char by_class[] = "by-class:", dirichlet[] = "dirichlet:";
    struct train_division read = {.kind = TRAIN_SHARDS_IID};
    const char *number = strchr(text, ':');
    char *after = NULL;

    if (strcmp(text, "iid") == 0) {
        *division = read;
        return WEFT_OK;
    }
    errno = 0;
    if (number && strncmp(text, by_class, strlen(by_class)) == 0) {
        long classes = strtol(++number, &after, 10);
        if (after == number || *after || errno || classes < 1 || classes > DATASET_CLASSES)
            return weft_error_set(WEFT_ERR_INVALID, "'%s' is no number of classes", number);
        read.kind = TRAIN_SHARDS_BY_CLASS;
        read.classes = (int)classes;
    } else if (number && strncmp(text, dirichlet, strlen(dirichlet)) == 0) {
        read.alpha = strtod(++number, &after);
        if (after == number || *after || errno ||
            !(read.alpha >= LEAST_ALPHA && read.alpha <= MOST_ALPHA))
            return weft_error_set(WEFT_ERR_INVALID, "'%s' is no number in range", number);
        read.kind = TRAIN_SHARDS_DIRICHLET;
    } else {
        return weft_error_set(WEFT_ERR_INVALID, "'%s' is no division", text);
    }
    *division = read;
    return WEFT_OK;
}

/* ---- rows by class ---- */

/* The rows of each class, in an order drawn; and what is dealt. */
struct deal {
    const struct dataset *data;
    int ranks;
    uint64_t seed;
    /** Those of class c are sorted[first[c]] .. sorted[first[c + 1] - 1]. */
    uint32_t *sorted;
    size_t first[DATASET_CLASSES + 1];
    /** `dealt` rows, and whose they are; room for `room`. */
    uint32_t *rows;
    int *owners;
    size_t dealt;
    size_t room;
};

static size_t rows_of(const struct deal *deal, int class)
{
    return deal->first[class + 1] - deal->first[class];
}

static void sort_rows(struct deal *deal)
{
    size_t next[DATASET_CLASSES];

    for (size_t row = 0; row < deal->data->rows; row++)
        deal->first[deal->data->labels[row] + 1]++;
    for (int class = 0; class < DATASET_CLASSES; class ++) {
        deal->first[class + 1] += deal->first[class];
        next[class] = deal->first[class];
    }
    for (size_t row = 0; row < deal->data->rows; row++)
        deal->sorted[next[deal->data->labels[row]]++] = (uint32_t)row;
    for (int class = 0; class < DATASET_CLASSES; class ++) {
        struct train_random random =
            train_random_make(deal->seed, TRAIN_RANDOM_SHARDS, 0, (uint64_t) class);
        train_random_shuffle(&random, deal->sorted + deal->first[class], rows_of(deal, class));
    }
}

static void give(struct deal *deal, int rank, size_t place)
{
    deal->rows[deal->dealt] = deal->sorted[place];
    deal->owners[deal->dealt++] = rank;
}

/* ---- by class ---- */

/* The class of which a rank takes rows: of those that it has not, the one that the fewest ranks
 * have; one of several is drawn. -1: it has all that there are. */
static int choose_class(const struct deal *deal, struct train_random *random, const int *holders,
                        unsigned mine)
{
    int chosen = -1;
    uint64_t equals = 0;

    for (int class = 0; class < DATASET_CLASSES; class ++) {
        if (rows_of(deal, class) == 0 || (mine >> class & 1))
            continue;
        if (chosen < 0 || holders[class] < holders[chosen]) {
            chosen = class;
            equals = 1;
        } else if (holders[class] == holders[chosen] && train_random_below(random, ++equals) == 0) {
            chosen = class;
        }
    }
    return chosen;
}

/* A mask of classes for each rank. */
static void choose_classes(const struct deal *deal, int classes, int *holders, unsigned *masks)
{
    struct train_random random = train_random_make(deal->seed, TRAIN_RANDOM_SHARDS, 1, 0);
    int present = 0;

    for (int class = 0; class < DATASET_CLASSES; class ++)
        present += rows_of(deal, class) > 0;
    for (int rank = 0; rank < deal->ranks; rank++) {
        int least = present / deal->ranks + (rank < present % deal->ranks);
        int wanted = classes > least ? classes : least;
        for (int i = 0; i < wanted; i++) {
            int class = choose_class(deal, &random, holders, masks[rank]);
            if (class < 0)
                break;
            masks[rank] |= 1U << class;
            holders[class]++;
        }
    }
}

/* Row i of a class belongs to the i-th of the ranks that have it, and so on around; if there are
 * more ranks, the rows go around. */
static void deal_by_class(struct deal *deal, int class, int holders, const unsigned *masks)
{
    size_t count = rows_of(deal, class);
    size_t place = 0;

    if (count == 0)
        return; /* nobody has chosen it */
    for (int rank = 0; rank < deal->ranks; rank++) {
        if (!(masks[rank] >> class & 1))
            continue;
        for (size_t row = place; row < count || row == place; row += (size_t)holders)
            give(deal, rank, deal->first[class] + row % count);
        place++;
    }
}

static int divide_by_class(struct deal *deal, int classes)
{
    unsigned *masks = weft_memory_alloc((size_t)deal->ranks, sizeof *masks);
    int holders[DATASET_CLASSES] = {0};

    if (!masks)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for the classes of %d ranks",
                              deal->ranks);
    choose_classes(deal, classes, holders, masks);
    for (int class = 0; class < DATASET_CLASSES; class ++)
        if (holders[class] > 0)
            deal_by_class(deal, class, holders[class], masks);
    weft_memory_free(masks);
    return WEFT_OK;
}

/* ---- Dirichlet ---- */

/* The logarithm of a gamma variate (Marsaglia and Tsang 2000, by way of the shape that is larger by
 * 1): of small shapes the variate itself is often below what a double holds. */
static double draw_log_gamma(struct train_random *random, double shape)
{
    double boost = log(train_random_unit(random)) / shape;
    double d = shape + 1.0 - 1.0 / 3.0;
    double c = 1.0 / sqrt(9.0 * d);

    for (;;) {
        double x = train_random_normal(random);
        double v = 1.0 + c * x;
        if (v <= 0.0)
            continue;
        v = v * v * v;
        if (log(train_random_unit(random)) < 0.5 * x * x + d - d * v + d * log(v))
            return log(d * v) + boost;
    }
}

/* A class by the shares of a rank, of those of which rows are left. */
static int draw_class(struct train_random *random, const double *logs, const size_t *left)
{
    double weights[DATASET_CLASSES] = {0};
    double largest = -DBL_MAX;
    double sum = 0.0;
    int class = -1;

    for (int i = 0; i < DATASET_CLASSES; i++)
        if (left[i] > 0)
            largest = fmax(largest, logs[i]);
    for (int i = 0; i < DATASET_CLASSES; i++) {
        weights[i] = left[i] > 0 ? exp(logs[i] - largest) : 0.0;
        sum += weights[i];
    }
    double at = train_random_unit(random) * sum;
    for (int i = 0; i < DATASET_CLASSES && at >= 0.0; i++) {
        if (left[i] == 0)
            continue;
        class = i; /* rounding: the last that is left, if none has ended it */
        at -= weights[i];
    }
    return class;
}

static int divide_by_shares(struct deal *deal, double alpha)
{
    double(*logs)[DATASET_CLASSES] = weft_memory_alloc((size_t)deal->ranks, sizeof *logs);
    struct train_random random = train_random_make(deal->seed, TRAIN_RANDOM_SHARDS, 2, 0);
    size_t left[DATASET_CLASSES] = {0};

    if (!logs)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for the shares of %d ranks", deal->ranks);
    for (int rank = 0; rank < deal->ranks; rank++)
        for (int class = 0; class < DATASET_CLASSES; class ++)
            logs[rank][class] = draw_log_gamma(&random, alpha);
    for (size_t i = 0; i < deal->room; i++) {
        int rank = (int)(i % (size_t)deal->ranks);
        if (i % deal->data->rows == 0)
            for (int class = 0; class < DATASET_CLASSES; class ++)
                left[class] = rows_of(deal, class);
        int class = draw_class(&random, logs[rank], left);
        give(deal, rank, deal->first[class] + --left[class]);
    }
    weft_memory_free(logs);
    return WEFT_OK;
}

/* ---- both ---- */

/* Sorts what was dealt by rank. */
static void sort_by_rank(const struct deal *deal, struct train_shards *shards)
{
    for (size_t i = 0; i < deal->dealt; i++)
        shards->starts[deal->owners[i] + 1]++;
    for (int rank = 0; rank < deal->ranks; rank++)
        shards->starts[rank + 1] += shards->starts[rank];
    for (size_t i = deal->dealt; i-- > 0;)
        shards->rows[--shards->starts[deal->owners[i] + 1]] = deal->rows[i];
    /* Each start has been filled from its end: it is where the rank before it ends. */
    memmove(shards->starts, shards->starts + 1, (size_t)deal->ranks * sizeof *shards->starts);
    shards->starts[deal->ranks] = deal->dealt;
}

static int divide(struct deal *deal, const struct train_division *division,
                  struct train_shards *shards)
{
    deal->sorted = weft_memory_alloc(deal->data->rows, sizeof *deal->sorted);
    deal->rows = weft_memory_alloc(deal->room, sizeof *deal->rows);
    deal->owners = weft_memory_alloc(deal->room, sizeof *deal->owners);
    shards->rows = weft_memory_alloc(deal->room, sizeof *shards->rows);
    shards->starts = weft_memory_alloc((size_t)deal->ranks + 1, sizeof *shards->starts);
    if (!deal->sorted || !deal->rows || !deal->owners || !shards->rows || !shards->starts)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for the rows of %d ranks", deal->ranks);
    sort_rows(deal);
    int status = division->kind == TRAIN_SHARDS_BY_CLASS ? divide_by_class(deal, division->classes)
                                                         : divide_by_shares(deal, division->alpha);
    if (status == WEFT_OK)
        sort_by_rank(deal, shards);
    return status;
}

int train_shards_create(struct train_shards *shards, const struct train_division *division,
                        const struct dataset *data, int ranks, uint64_t seed)
{
    struct train_shards made = {0};
    struct deal deal = {.data = data, .ranks = ranks, .seed = seed};

    if (division->kind != TRAIN_SHARDS_IID) {
        /* By class, a rank takes at most one row a class beyond what it is due. */
        size_t more = (size_t)ranks;
        if (division->kind == TRAIN_SHARDS_BY_CLASS)
            deal.room = data->rows + DATASET_CLASSES * more;
        else
            deal.room = data->rows > more ? data->rows : more;
        int status = divide(&deal, division, &made);
        weft_memory_free(deal.owners);
        weft_memory_free(deal.rows);
        weft_memory_free(deal.sorted);
        if (status != WEFT_OK) {
            train_shards_free(&made);
            return status;
        }
    }
    *shards = made;
    return WEFT_OK;
}

void train_shards_free(struct train_shards *shards)
{
    weft_memory_free(shards->starts);
    weft_memory_free(shards->rows);
    memset(shards, 0, sizeof *shards);
}
