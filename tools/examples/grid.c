/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks on a grid: each adds up its value along its row and along its column, in contexts of these
 * ranks. The last row may be shorter than the others.
 *
 *   grid [RANKS [WIDTH]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

/* [sums] */
struct sums {
    double row, column;
};

static int add_up(struct weft_context *context, int width, double value, struct sums *sums)
{
    struct weft_context *row = NULL, *column = NULL;
    int rank = weft_context_rank(context);
    int status = weft_context_split(context, rank / width, rank % width, &row);
    if (!status) /* if one rank has failed, all have */
        status = weft_context_split(context, rank % width, rank / width, &column);
    if (!status)
        status = weft_allreduce(row, &value, &sums->row, 1, WEFT_F64, weft_op_builtin(WEFT_SUM));
    if (!status)
        status =
            weft_allreduce(column, &value, &sums->column, 1, WEFT_F64, weft_op_builtin(WEFT_SUM));
    weft_context_destroy(row); /* when others destroy theirs does not matter */
    weft_context_destroy(column);
    return status;
}
/* [sums] */

static int width = 3;

static double value_of(int rank)
{
    return 1 + rank * rank;
}

static int run(struct weft_context *context, void *user)
{
    int rank = weft_context_rank(context), size = weft_context_size(context);
    struct sums sums = {0, 0}, expected = {0, 0};
    (void)user;
    int status = add_up(context, width, value_of(rank), &sums);
    if (status)
        return status;
    for (int r = 0; r < size; r++) {
        expected.row += r / width == rank / width ? value_of(r) : 0;
        expected.column += r % width == rank % width ? value_of(r) : 0;
    }
    if (sums.row != expected.row || sums.column != expected.column)
        return weft_error_set(WEFT_ERR_COMPUTE, "rank %d has %g and %g, expected %g and %g", rank,
                              sums.row, sums.column, expected.row, expected.column);
    if (rank == size - 1)
        printf("rank %d: %g in its row, %g in its column\n", rank, sums.row, sums.column);
    return WEFT_OK;
}

/* From 1; 0: it is none. */
static int number(const char *text)
{
    char *end;
    long value = strtol(text, &end, 10);
    return end != text && *end == '\0' && value > 0 && value <= 4096 ? (int)value : 0;
}

int main(int argc, char **argv)
{
    int size = argc > 1 ? number(argv[1]) : 6;
    width = argc > 2 ? number(argv[2]) : 3;
    if (size == 0 || width == 0) {
        fprintf(stderr, "usage: %s [RANKS [WIDTH]]\n", argv[0]);
        return 2;
    }
    int status = weft_local_run(size, NULL, run, NULL);
    if (status)
        fprintf(stderr, "%s\n", weft_error_text());
    return status ? 1 : 0;
}
