/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers for the measurements of sparse vectors, and quickselect, their peer. */
#include "tools/bench/data.h"

#include <math.h>
#include <stdio.h>

double bench_uniform(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return ((double)(*state >> 11) + 0.5) * 0x1p-53;
}

/* Abramowitz and Stegun, Handbook of mathematical functions, 26.2.23. */
double bench_normal_quantile(double p)
{
    double t = sqrt(-2 * log(p < 0.5 ? p : 1 - p));
    double x = t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                       (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));

    return p < 0.5 ? -x : x;
}

static void swap(float *x, float *y)
{
    float z = *x;

    *x = *y;
    *y = z;
}

/* Hoare, Algorithm 65: Find, CACM 4, 1961. */
float bench_quickselect(float *x, size_t n, size_t k)
{
    size_t low = 0, high = n - 1;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        size_t i = low, j = high;
        float pivot;

        if (x[middle] > x[low])
            swap(&x[middle], &x[low]);
        if (x[high] > x[low])
            swap(&x[high], &x[low]);
        if (x[high] > x[middle])
            swap(&x[high], &x[middle]);
        pivot = x[middle];
        for (;;) {
            while (x[i] > pivot)
                i++;
            while (x[j] < pivot)
                j--;
            if (i >= j)
                break;
            swap(&x[i++], &x[j--]);
        }
        if (k - 1 <= j)
            high = j;
        else
            low = j + 1;
    }
    return x[k - 1];
}

const char *bench_count_text(size_t n, char text[24])
{
    if (n >= 1000000 && n % 1000000 == 0)
        snprintf(text, 24, "%zue6", n / 1000000);
    else
        snprintf(text, 24, "%zu", n);
    return text;
}
