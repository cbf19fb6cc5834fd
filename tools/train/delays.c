/* SPDX-License-Identifier: BSD-3-Clause */
/* Imbalance models: parsing them and drawing from them. */
#include "tools/train/delays.h"

#include "tools/train/random.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

/* No delay is longer than an hour: a number beyond that is a slip. */
static const double MOST_MS = 3.6e6;

/* What stands after the colon: two numbers or one. The shape is the second of two, the first may be
 * a rank or a number of ranks. */
static const struct form {
    const char *name;
    enum train_delay_kind kind;
    int whole_first;
    int has_shape;
    /** Of a whole number, or of the shape. */
    double least;
    double most;
    const char *expected;
} forms[] = {
    {"two-random", TRAIN_DELAY_TWO_RANDOM, .expected = "MS"},
    {"fixed", TRAIN_DELAY_FIXED, .whole_first = 1, .most = 1e9, .expected = "RANK,MS"},
    {"permanent", TRAIN_DELAY_PERMANENT, .whole_first = 1, .least = 1, .most = 1e9,
     .expected = "RANKS,MS"},
    {"lognormal", TRAIN_DELAY_LOGNORMAL, .has_shape = 1, .most = 10, .expected = "MEDIAN,SIGMA"},
    {"pareto", TRAIN_DELAY_PARETO, .has_shape = 1, .least = 0.5, .most = 100,
     .expected = "MEDIAN,EXPONENT, an exponent of 0.5..100"},
    {"rl", TRAIN_DELAY_RL, .most = 80, .expected = "FACTOR"},
};

/* Reads a number of least..most that ends at `end` and steps over it. 0: there is none. */
static int read_number(const char **text, char end, double least, double most, double *value)
{
    char *after;

    errno = 0;
    *value = strtod(*text, &after);
    if (after == *text || errno || !(*value >= least && *value <= most) || *after != end)
        return 0;
    *text = *after ? after + 1 : after;
    return 1;
}

static int read_numbers(const struct form *form, const char *text, struct train_delay_model *model)
{
    double whole = 0.0;

    if (form->whole_first &&
        (!read_number(&text, ',', form->least, form->most, &whole) || whole != floor(whole)))
        return 0;
    if (form->kind == TRAIN_DELAY_FIXED)
        model->rank = (int)whole;
    else
        model->count = (int)whole;
    if (form->kind == TRAIN_DELAY_RL)
        return read_number(&text, '\0', form->least, form->most, &model->seconds);
    int good = read_number(&text, form->has_shape ? ',' : '\0', 0.0, MOST_MS, &model->seconds);
    model->seconds *= 1e-3;
    return good &&
           (!form->has_shape || read_number(&text, '\0', form->least, form->most, &model->shape));
}

static int read_model(const char *word, struct train_delay_model *model)
{
    const char *colon = strchr(word, ':');

    for (size_t i = 0; colon && i < sizeof forms / sizeof forms[0]; i++) {
        const struct form *form = &forms[i];
        if (strlen(form->name) != (size_t)(colon - word) ||
            strncmp(form->name, word, (size_t)(colon - word)) != 0)
            continue;
        *model = (struct train_delay_model){.kind = form->kind};
        if (!read_numbers(form, colon + 1, model)) {
            return weft_error_set(WEFT_ERR_INVALID, "'%s' is not %s:%s", word, form->name,
                                  form->expected);
        }
        return WEFT_OK;
    }
    return weft_error_set(WEFT_ERR_INVALID, "'%s' is no imbalance", word);
}

int train_delays_parse(struct train_delays *delays, const char *text)
{
    struct train_delays read = {.count = 0};

    if (strcmp(text, "none") == 0) {
        *delays = read;
        return WEFT_OK;
    }
    for (const char *at = text;; at++) {
        char word[128];
        size_t length = strcspn(at, "+");
        if (read.count == TRAIN_DELAYS_MOST) {
            return weft_error_set(WEFT_ERR_INVALID, "'%s' joins more than %d models", text,
                                  TRAIN_DELAYS_MOST);
        }
        snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word), at);
        int status = read_model(word, &read.models[read.count++]);
        if (status != WEFT_OK)
            return status;
        at += length;
        if (!*at)
            break;
    }
    *delays = read;
    return WEFT_OK;
}

int train_delays_check(const struct train_delays *delays, int ranks)
{
    for (int i = 0; i < delays->count; i++) {
        const struct train_delay_model *model = &delays->models[i];
        if (model->kind == TRAIN_DELAY_FIXED && model->rank >= ranks) {
            return weft_error_set(WEFT_ERR_INVALID, "rank %d is late; expected 0..%d", model->rank,
                                  ranks - 1);
        }
        if (model->kind == TRAIN_DELAY_PERMANENT && model->count > ranks) {
            return weft_error_set(WEFT_ERR_INVALID, "%d ranks are late; expected at most %d",
                                  model->count, ranks);
        }
    }
    return WEFT_OK;
}

/*
 * The paper gives three numbers of 5,000 steps: 1.7 s at least, median below 2 s, 43.5 s at most. A
 * Lomax distribution above 1.7 with median 1.9, of which the largest of 5,000 is about 43.5, goes
 * through them: its exponent a solves (5000^(1/a) - 1) / (2^(1/a) - 1) = (43.5 - 1.7) / (1.9 -
 * 1.7).
 */
static double draw_experience(struct train_random *random)
{
    static const double least = 1.7, median = 1.9, most = 43.5, inverse = 0.535;
    double scale = (median - least) / (pow(2.0, inverse) - 1.0);

    return fmin(least + scale * (pow(train_random_unit(random), -inverse) - 1.0), most);
}

static int is_one_of_two(uint64_t seed, int number, uint64_t step, int rank, int ranks)
{
    struct train_random random =
        train_random_make(seed, TRAIN_RANDOM_DELAY, step, (uint64_t)number << 32);
    int first = (int)train_random_below(&random, (uint64_t)ranks);

    if (ranks == 1)
        return 1;
    int second = (int)train_random_below(&random, (uint64_t)ranks - 1);
    second += second >= first;
    return rank == first || rank == second;
}

/*
 * The place of a rank in an order of all ranks that is drawn: the swap-or-not shuffle (Hoang,
 * Morris and Rogaway, CRYPTO 2012). In each round x and k - x are partners, of which both or none
 * change places; so nothing is stored, and any number of ranks is as good as another.
 */
static int place_of(uint64_t seed, int number, int rank, int ranks)
{
    struct train_random keys =
        train_random_make(seed, TRAIN_RANDOM_DELAY, UINT64_MAX, (uint64_t)number);
    int place = rank;

    for (int round = 0; round < 40; round++) {
        int partner = (int)train_random_below(&keys, (uint64_t)ranks) - place;
        partner += partner < 0 ? ranks : 0;
        uint64_t larger = (uint64_t)(place > partner ? place : partner);
        if (train_random_mix(train_random_next(&keys) ^ larger) & 1)
            place = partner;
    }
    return place;
}

/* The model that is the `number`-th of several. */
static double delay_of(const struct train_delay_model *model, int number, uint64_t seed,
                       uint64_t step, int rank, int ranks)
{
    struct train_random random = train_random_make(seed, TRAIN_RANDOM_DELAY, step,
                                                   (uint64_t)rank + 1 + ((uint64_t)number << 32));

    switch (model->kind) {
    case TRAIN_DELAY_TWO_RANDOM:
        return is_one_of_two(seed, number, step, rank, ranks) ? model->seconds : 0.0;
    case TRAIN_DELAY_FIXED:
        return rank == model->rank ? model->seconds : 0.0;
    case TRAIN_DELAY_PERMANENT:
        return place_of(seed, number, rank, ranks) < model->count ? model->seconds : 0.0;
    case TRAIN_DELAY_LOGNORMAL:
        return model->seconds * exp(model->shape * train_random_normal(&random));
    case TRAIN_DELAY_PARETO:
        return model->seconds * pow(2.0 * train_random_unit(&random), -1.0 / model->shape);
    case TRAIN_DELAY_RL:
        return model->seconds * draw_experience(&random);
    }
    return 0.0;
}

double train_delay(const struct train_delays *delays, uint64_t seed, uint64_t step, int rank,
                   int ranks)
{
    double seconds = 0.0;

    for (int i = 0; i < delays->count; i++)
        seconds += delay_of(&delays->models[i], i, seed, step, rank, ranks);
    return fmin(seconds, MOST_MS * 1e-3);
}
