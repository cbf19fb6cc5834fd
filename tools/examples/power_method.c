/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The power method with blocking collectives: each rank has some rows of a matrix, multiplies them
 * with a vector that all have, and the ranks put their parts together again. The matrix is the one
 * with min(i, j) + 1 in row i, column j, whose largest eigenvalue is known, and compared with what
 * is found.
 *
 *   power_method [RANKS [ROWS]]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

struct problem {
    size_t rows; /* of each rank */
    double found;
};

static double entry(size_t i, size_t j)
{
    return (double)(i < j ? i : j) + 1;
}

/* [iterate] */
/* x becomes A x, of length 1; *largest is the length that it had. */
static int iterate(struct weft_context *context, double *x, double *mine, size_t rows,
                   double *largest)
{
    size_t size = (size_t)weft_context_size(context), first = weft_context_rank(context) * rows;
    double square = 0, sum = 0;
    for (size_t i = 0; i < rows; i++) {
        mine[i] = 0;
        for (size_t j = 0; j < size * rows; j++)
            mine[i] += entry(first + i, j) * x[j];
        square += mine[i] * mine[i];
    }
    int status = weft_allreduce(context, &square, &sum, 1, WEFT_F64, weft_op_builtin(WEFT_SUM));
    if (status)
        return status;
    *largest = sqrt(sum);
    for (size_t i = 0; i < rows; i++)
        mine[i] /= *largest;
    return weft_allgather(context, mine, x, rows, WEFT_F64);
}
/* [iterate] */

static int find(struct weft_context *context, void *user)
{
    struct problem *problem = user;
    size_t rows = problem->rows, all = rows * (size_t)weft_context_size(context);
    double *x = calloc(all, sizeof *x), *mine = calloc(rows, sizeof *mine), largest = 0;
    int status = x && mine ? WEFT_OK : weft_error_set(WEFT_ERR_MEMORY, "no memory for the vectors");
    for (size_t i = 0; i < all && !status; i++)
        x[i] = 1 / sqrt((double)all);
    for (int step = 0; step < 30 && !status; step++)
        status = iterate(context, x, mine, rows, &largest);
    if (weft_context_rank(context) == 0)
        problem->found = largest;
    free(x);
    free(mine);
    return status;
}

static long number(const char *word)
{
    char *end;
    long value = strtol(word, &end, 10);
    return *end == '\0' && value <= 1000 ? value : 0;
}

int main(int argc, char **argv)
{
    const double pi = acos(-1);
    long ranks = argc > 1 ? number(argv[1]) : 4;
    struct problem problem = {.rows = argc > 2 ? (size_t)number(argv[2]) : 10};
    if (argc > 3 || ranks < 1 || problem.rows < 1) {
        fprintf(stderr, "usage: power_method [RANKS [ROWS]]\n");
        return 2;
    }
    int status = weft_local_run((int)ranks, NULL, find, &problem);
    if (status) {
        fprintf(stderr, "%s: %s\n", weft_status_text(status), weft_error_text());
        return 1;
    }
    double all = (double)ranks * (double)problem.rows;
    double expected = 1 / (2 - 2 * cos(pi / (2 * all + 1)));
    printf("the largest eigenvalue is %.6f\n", problem.found);
    return fabs(problem.found - expected) > 1e-8 * expected;
}
