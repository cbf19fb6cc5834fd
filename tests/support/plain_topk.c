/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/plain_topk.h"

#include <math.h>

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

size_t plain_count(const struct plain_list *list)
{
    size_t count = 0;

    for (int i = 0; i < PLAIN_ELEMENTS; i++)
        count += !isnan(list->value[i]);
    return count;
}

size_t plain_pack(const struct plain_list *list, void *memory)
{
    size_t n = 0, all = plain_count(list);
    uint32_t *index = memory;
    float *value = (float *)memory + all;

    for (uint32_t i = 0; i < PLAIN_ELEMENTS; i++) {
        if (!isnan(list->value[i])) {
            index[n] = i;
            value[n++] = list->value[i];
        }
    }
    return n;
}

/* Between -2 and 2, times a power of two from 2^-8 to 2^7 if it is not to be exact. */
static float number(uint64_t bits, int exact)
{
    if (exact)
        return (float)((int64_t)(bits >> 32) % 64 - 32) / 8;
    return ldexpf((float)((double)(int64_t)bits * 0x1p-62), (int)(bits >> 3 & 15) - 8);
}

void plain_draw(struct plain_list *list, int rank, uint64_t round, size_t count, int exact)
{
    for (int i = 0; i < PLAIN_ELEMENTS; i++)
        list->value[i] = NAN;
    for (uint64_t draw = 0; plain_count(list) < count; draw++) {
        uint64_t bits = mix(draw + 1000 * (uint64_t)rank + 1000000 * round);
        /* half of the draws are for few indices, which many ranks have */
        uint64_t range = bits & 1 ? 2 * PLAIN_PAIRS : PLAIN_ELEMENTS;

        list->value[(bits >> 8) % range] = number(exact ? bits : mix(bits), exact);
    }
}

void plain_draw_residual(float *residual, int rank, uint64_t round, int exact)
{
    for (uint64_t i = 0; i < PLAIN_ELEMENTS; i++)
        residual[i] =
            exact ? 0 : number(mix(i + 7919 * (uint64_t)rank + UINT64_C(104729000) * round), 0);
}

/* a becomes a T b; what is dropped is added to `residual`. */
static void merge(struct plain_list *a, const struct plain_list *b, size_t k, float *residual)
{
    for (int i = 0; i < PLAIN_ELEMENTS; i++)
        if (isnan(a->value[i]))
            a->value[i] = b->value[i];
        else if (!isnan(b->value[i]))
            a->value[i] += b->value[i];
    for (size_t count = plain_count(a); count > k; count--) {
        int least = -1;

        for (int i = 0; i < PLAIN_ELEMENTS; i++) /* of equal ones the last goes */
            if (!isnan(a->value[i]) && (least < 0 || fabsf(a->value[i]) <= fabsf(a->value[least])))
                least = i;
        residual[least] += a->value[least];
        a->value[least] = NAN;
    }
}

static void merge_places(struct plain_sum *sum, int size, int root, size_t k, int place, int span)
{
    int rank = (place + root) % size;

    merge(&sum->lists[rank], &sum->lists[(place + span + root) % size], k, sum->residual[rank]);
}

void plain_tree(struct plain_sum *sum, int size, int root, size_t k)
{
    for (int span = 1; span < size; span *= 2)
        for (int place = 0; place + span < size; place += 2 * span)
            merge_places(sum, size, root, k, place, span);
}

void plain_butterfly(struct plain_sum *sum, int size, int root, size_t k)
{
    int power = 1;

    while (2 * power <= size)
        power *= 2;
    for (int place = 0; place + power < size; place++)
        merge_places(sum, size, root, k, place, power);
    for (int span = 1; span < power; span *= 2)
        for (int place = 0; place + span < power; place += 2 * span)
            merge_places(sum, size, root, k, place, span);
}

double plain_bound(int size)
{
    double n = 1;

    for (int span = 1; span < size; span *= 2)
        n++;
    return n * 0x1p-24 / (1 - n * 0x1p-24);
}
