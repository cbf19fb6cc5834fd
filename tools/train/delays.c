/* SPDX-License-Identifier: BSD-3-Clause */
/* Imbalance models: parsing them and drawing from them. */
#include "tools/train/delays.h"

#include "tools/train/random.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

/* No delay is longer than an hour: a number beyond that is a slip. */
static const double MOST_MS = 3.6e6;

/* Reads a number of least..most that ends at `end` (or at the end of the text) and steps over it.
 */
static int read_number(const char **text, char end, double least, double most, double *value)
{
    char *after;

    errno = 0;
    *value = strtod(*text, &after);
    if (after == *text || errno || !(*value >= least && *value <= most) || *after != end) {
        return weft_error_set(WEFT_ERR_INVALID, "'%s' is not %s", *text,
                              end == ',' ? "NUMBER,NUMBER in range" : "a number in range");
    }
    *text = *after ? after + 1 : after;
    return WEFT_OK;
}

int train_delays_parse(struct train_delays *delays, const char *text)
{
    struct train_delays read = {.kind = TRAIN_DELAY_NONE};
    const char *colon = strchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : strlen(text);
    const char *rest = colon ? colon + 1 : "";
    double first = 0.0;
    int status = WEFT_OK;

    if (strcmp(text, "none") == 0) {
        *delays = read;
        return WEFT_OK;
    }
    if (colon && length == strlen("two-random") && strncmp(text, "two-random", length) == 0) {
        read.kind = TRAIN_DELAY_TWO_RANDOM;
    } else if (colon && length == strlen("fixed") && strncmp(text, "fixed", length) == 0) {
        read.kind = TRAIN_DELAY_FIXED;
        status = read_number(&rest, ',', 0.0, 1e9, &first);
        read.rank = (int)first;
        if (status == WEFT_OK && (double)read.rank != first)
            status = weft_error_set(WEFT_ERR_INVALID, "rank %g is no integer", first);
    } else if (colon && length == strlen("lognormal") && strncmp(text, "lognormal", length) == 0) {
        read.kind = TRAIN_DELAY_LOGNORMAL;
    } else if (colon && length == strlen("rl") && strncmp(text, "rl", length) == 0) {
        read.kind = TRAIN_DELAY_RL;
    } else {
        return weft_error_set(WEFT_ERR_INVALID, "'%s' is no imbalance", text);
    }
    if (status == WEFT_OK && read.kind == TRAIN_DELAY_RL) {
        status = read_number(&rest, '\0', 0.0, 80.0, &read.seconds);
    } else if (status == WEFT_OK) {
        char end = read.kind == TRAIN_DELAY_LOGNORMAL ? ',' : '\0';
        status = read_number(&rest, end, 0.0, MOST_MS, &read.seconds);
        read.seconds *= 1e-3;
    }
    if (status == WEFT_OK && read.kind == TRAIN_DELAY_LOGNORMAL)
        status = read_number(&rest, '\0', 0.0, 10.0, &read.sigma);
    if (status == WEFT_OK)
        *delays = read;
    return status;
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

static int is_one_of_two(uint64_t seed, uint64_t step, int rank, int ranks)
{
    struct train_random random = train_random_make(seed, TRAIN_RANDOM_DELAY, step, 0);
    int first = (int)train_random_below(&random, (uint64_t)ranks);

    if (ranks == 1)
        return 1;
    int second = (int)train_random_below(&random, (uint64_t)ranks - 1);
    second += second >= first;
    return rank == first || rank == second;
}

double train_delay(const struct train_delays *delays, uint64_t seed, uint64_t step, int rank,
                   int ranks)
{
    struct train_random random;

    switch (delays->kind) {
    case TRAIN_DELAY_NONE:
        return 0.0;
    case TRAIN_DELAY_TWO_RANDOM:
        return is_one_of_two(seed, step, rank, ranks) ? delays->seconds : 0.0;
    case TRAIN_DELAY_FIXED:
        return rank == delays->rank ? delays->seconds : 0.0;
    case TRAIN_DELAY_LOGNORMAL:
        random = train_random_make(seed, TRAIN_RANDOM_DELAY, step, (uint64_t)rank + 1);
        return fmin(delays->seconds * exp(delays->sigma * train_random_normal(&random)),
                    MOST_MS * 1e-3);
    case TRAIN_DELAY_RL:
        random = train_random_make(seed, TRAIN_RANDOM_DELAY, step, (uint64_t)rank + 1);
        return delays->seconds * draw_experience(&random);
    }
    return 0.0;
}
