/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random numbers of the trainer: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
 * number generators", OOPSLA 2014). A generator is seeded from a tuple such as (seed, purpose,
 * step, rank), so that every rank can draw what any other rank draws without a message.
 */
#ifndef WEFT_TOOLS_TRAIN_RANDOM_H
#define WEFT_TOOLS_TRAIN_RANDOM_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/** What a generator is for: keeps streams of one seed apart. */
enum train_random_purpose {
    TRAIN_RANDOM_WEIGHTS = 1,
    TRAIN_RANDOM_SHUFFLE,
    TRAIN_RANDOM_DELAY,
    TRAIN_RANDOM_ALGORITHM,
    TRAIN_RANDOM_SHARDS,
    TRAIN_RANDOM_HISTORY
};

struct train_random {
    uint64_t state;
};

static inline uint64_t train_random_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static inline uint64_t train_random_next(struct train_random *random)
{
    random->state += UINT64_C(0x9e3779b97f4a7c15);
    return train_random_mix(random->state);
}

static inline struct train_random train_random_make(uint64_t seed,
                                                    enum train_random_purpose purpose, uint64_t a,
                                                    uint64_t b)
{
    struct train_random random = {seed};

    random.state = train_random_next(&random) ^ (uint64_t)purpose;
    random.state = train_random_next(&random) ^ a;
    random.state = train_random_next(&random) ^ b;
    return random;
}

/** Uniform in 0 .. bound - 1; bound > 0. The bias of at most bound / 2^64 does not matter here. */
static inline uint64_t train_random_below(struct train_random *random, uint64_t bound)
{
    return train_random_next(random) % bound;
}

/** Uniform in (0, 1). */
static inline double train_random_unit(struct train_random *random)
{
    return ((double)(train_random_next(random) >> 11) + 0.5) * 0x1p-53;
}

/** Puts @p count numbers into an order drawn. */
static inline void train_random_shuffle(struct train_random *random, uint32_t *numbers,
                                        size_t count)
{
    for (size_t i = count; i-- > 1;) {
        size_t other = (size_t)train_random_below(random, i + 1);
        uint32_t number = numbers[i];
        numbers[i] = numbers[other];
        numbers[other] = number;
    }
}

/** Standard normal (Box-Muller). */
static inline double train_random_normal(struct train_random *random)
{
    double radius = sqrt(-2.0 * log(train_random_unit(random)));

    return radius * cos(6.283185307179586 * train_random_unit(random));
}

#endif
