/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows dealt in turn; an epoch's order depends on the seed, its number, and whose epoch it is. */
#include "tools/train/batches.h"

#include "tools/train/random.h"

#include <string.h>
#include <weft/weft.h>

static void shuffle(struct train_batches *batches, uint64_t epoch)
{
    uint64_t owner = batches->own ? (uint64_t)batches->rank + 1 : 0;
    struct train_random random =
        train_random_make(batches->seed, TRAIN_RANDOM_SHUFFLE, epoch, owner);

    for (size_t i = 0; i < batches->count; i++)
        batches->order[i] = batches->own ? batches->own[i] : (uint32_t)i;
    train_random_shuffle(&random, batches->order, batches->count);
    batches->epoch = epoch;
}

int train_batches_init(struct train_batches *batches, const struct dataset *data,
                       const struct train_shards *shards, size_t batch, uint64_t seed, int rank,
                       int ranks)
{
    *batches = (struct train_batches){.data = data,
                                      .batch = batch,
                                      .seed = seed,
                                      .rank = rank,
                                      .ranks = ranks,
                                      .count = data->rows};
    if (shards->rows) {
        batches->own = shards->rows + shards->starts[rank];
        batches->count = shards->starts[rank + 1] - shards->starts[rank];
    }
    batches->order = weft_memory_alloc(batches->count, sizeof *batches->order);
    batches->images = weft_memory_alloc(batch, DATASET_PIXELS * sizeof(float));
    batches->labels = weft_memory_alloc(batch, 1);
    if (!batches->order || !batches->images || !batches->labels)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for a batch of %zu images", batch);
    shuffle(batches, 0);
    return WEFT_OK;
}

void train_batches_take(struct train_batches *batches, uint64_t step)
{
    const struct dataset *data = batches->data;
    uint64_t before =
        batches->own ? step : step * (uint64_t)batches->ranks + (uint64_t)batches->rank;
    uint64_t place = before * batches->batch;

    for (size_t i = 0; i < batches->batch; i++, place++) {
        if (place / batches->count != batches->epoch)
            shuffle(batches, place / batches->count);
        size_t row = batches->order[place % batches->count];
        memcpy(batches->images + i * DATASET_PIXELS, data->images + row * DATASET_PIXELS,
               DATASET_PIXELS * sizeof(float));
        batches->labels[i] = data->labels[row];
    }
}

uint64_t train_batches_epoch(const struct train_batches *batches, uint64_t step)
{
    uint64_t before = batches->own ? step : step * (uint64_t)batches->ranks;

    return before * batches->batch / batches->count;
}

void train_batches_free(struct train_batches *batches)
{
    weft_memory_free(batches->labels);
    weft_memory_free(batches->images);
    weft_memory_free(batches->order);
}
