/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows dealt in turn; an epoch's order depends on the seed and its number alone. */
#include "tools/train/batches.h"

#include "tools/train/random.h"

#include <string.h>
#include <weft/weft.h>

static void shuffle(struct train_batches *batches, uint64_t epoch)
{
    size_t rows = batches->data->rows;
    struct train_random random = train_random_make(batches->seed, TRAIN_RANDOM_SHUFFLE, epoch, 0);

    for (size_t i = 0; i < rows; i++)
        batches->order[i] = (uint32_t)i;
    for (size_t i = rows; i-- > 1;) {
        size_t other = (size_t)train_random_below(&random, i + 1);
        uint32_t row = batches->order[i];
        batches->order[i] = batches->order[other];
        batches->order[other] = row;
    }
    batches->epoch = epoch;
}

int train_batches_init(struct train_batches *batches, const struct dataset *data, size_t batch,
                       uint64_t seed)
{
    *batches = (struct train_batches){.data = data, .batch = batch, .seed = seed};
    batches->order = weft_memory_alloc(data->rows, sizeof *batches->order);
    batches->images = weft_memory_alloc(batch, DATASET_PIXELS * sizeof(float));
    batches->labels = weft_memory_alloc(batch, 1);
    if (!batches->order || !batches->images || !batches->labels)
        return weft_error_set(WEFT_ERR_MEMORY, "no memory for a batch of %zu images", batch);
    shuffle(batches, 0);
    return WEFT_OK;
}

void train_batches_take(struct train_batches *batches, uint64_t step, int rank, int ranks)
{
    const struct dataset *data = batches->data;
    uint64_t place = (step * (uint64_t)ranks + (uint64_t)rank) * batches->batch;

    for (size_t i = 0; i < batches->batch; i++, place++) {
        if (place / data->rows != batches->epoch)
            shuffle(batches, place / data->rows);
        size_t row = batches->order[place % data->rows];
        memcpy(batches->images + i * DATASET_PIXELS, data->images + row * DATASET_PIXELS,
               DATASET_PIXELS * sizeof(float));
        batches->labels[i] = data->labels[row];
    }
}

void train_batches_free(struct train_batches *batches)
{
    weft_memory_free(batches->labels);
    weft_memory_free(batches->images);
    weft_memory_free(batches->order);
}
