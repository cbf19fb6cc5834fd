/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels of projections with vectors. A level's file defines
 *
 *     VECTOR, WIDTH     a register of floats, and how many
 *     MASK, mask_of(n)  of the first n of a register, n <= WIDTH
 *     ROWS, MOST(r)     rows of a tile at most; with so many rows, how many registers in a row
 *     NARROW_ROWS(d)    rows of a tile of 16 sums each for d components
 *     load, store, load_masked, store_masked, spread, fused, fused_less, zero
 *     DOUBLES           a register of half as many doubles
 *     load_wide         such a register from floats
 *     lower_wide, upper_wide  from half a register of floats
 *     load_doubles, store_doubles, fused_doubles
 *
 * A tile is compiled for each number of rows and registers, so that sums stay in registers: the
 * functions below are always inlined into what has these as constants. */
#include <string.h>

#include "ops/project_kernels.h"

#define INLINE static inline __attribute__((always_inline))
/* The compiler is to take these loops apart, so that what they index becomes registers. */
#define UNROLLED _Pragma("GCC unroll 16")

/* ---- a tile of a product ---- */

/* A tile of so many rows has the time to ask for the columns of the next one, which hardware does
 * not see come: they lie beside its own, row by row. */
enum { PREFETCHED = 4 };

/* A tile of few columns. */
enum { SLIM_WIDE = 8, SLIM_ROWS = 12 };

typedef void (*tile_fn)(const struct weft__panel *p, size_t row, size_t column, MASK last);

INLINE void tile(const struct weft__panel *p, size_t row, size_t column, MASK last, const int rows,
                 const int vectors)
{
    const float *a = p->a + row * p->a_row;
    const float *b = p->b + column;
    const size_t corner = row * p->ldc + column;
    VECTOR sums[ROWS][MOST_VECTORS];

    UNROLLED for (int r = 0; r < rows; r++) UNROLLED for (int v = 0; v < vectors; v++)
    {
        const size_t at = corner + (size_t)r * p->ldc + (size_t)v * WIDTH;

        sums[r][v] = !p->start          ? zero()
                     : v == vectors - 1 ? load_masked(last, p->start + at)
                                        : load(p->start + at);
    }
    for (size_t t = 0; t < p->depth; t++) {
        VECTOR row_of_b[MOST_VECTORS];

        UNROLLED for (int v = 0; v < vectors; v++) row_of_b[v] =
            v == vectors - 1 ? load_masked(last, b + (size_t)v * WIDTH)
                             : load(b + (size_t)v * WIDTH);
        if (rows >= PREFETCHED)
            UNROLLED for (int v = 0; v < vectors; v++)
                _mm_prefetch((const char *)(b + (size_t)(vectors + v) * WIDTH), _MM_HINT_T0);
        UNROLLED for (int r = 0; r < rows; r++)
        {
            const VECTOR x = spread(a + (size_t)r * p->a_row);

            UNROLLED for (int v = 0; v < vectors; v++) sums[r][v] =
                fused(x, row_of_b[v], sums[r][v]);
        }
        a += p->a_depth;
        b += p->ldb;
    }
    UNROLLED for (int r = 0; r < rows; r++) UNROLLED for (int v = 0; v < vectors; v++)
    {
        float *to = p->c + corner + (size_t)r * p->ldc + (size_t)v * WIDTH;

        if (v == vectors - 1)
            store_masked(last, to, sums[r][v]);
        else
            store(to, sums[r][v]);
    }
}

#define TILE(rows, vectors)                                                                        \
    static void tile_##rows##_##vectors(const struct weft__panel *p, size_t row, size_t column,    \
                                        MASK last)                                                 \
    {                                                                                              \
        tile(p, row, column, last, rows, vectors);                                                 \
    }
#define TILE_ENTRY(rows, vectors) [rows][vectors] = tile_##rows##_##vectors,

TILES(TILE)

static const tile_fn tiles[ROWS + 1][MOST_VECTORS + 1] = {TILES(TILE_ENTRY)};

/* ---- at most eight columns ---- */

/* A row is half a register of 512 bits at most, so registers of 256 have more of them, and sums
 * enough that an addition does not wait for the last one. */
INLINE void slim_tile(const struct weft__panel *p, size_t row, __m256i mask, const int rows)
{
    const float *a = p->a + row * p->a_row;
    const float *b = p->b;
    float *c = p->c + row * p->ldc;
    __m256 sums[SLIM_ROWS];

    UNROLLED for (int r = 0; r < rows; r++) sums[r] =
        p->start ? _mm256_maskload_ps(p->start + (row + (size_t)r) * p->ldc, mask)
                 : _mm256_setzero_ps();
    for (size_t t = 0; t < p->depth; t++) {
        const __m256 row_of_b = _mm256_maskload_ps(b, mask);

        UNROLLED for (int r = 0; r < rows; r++) sums[r] =
            _mm256_fmadd_ps(_mm256_broadcast_ss(a + (size_t)r * p->a_row), row_of_b, sums[r]);
        a += p->a_depth;
        b += p->ldb;
    }
    UNROLLED for (int r = 0; r < rows; r++)
        _mm256_maskstore_ps(c + (size_t)r * p->ldc, mask, sums[r]);
}

#define SLIM_TILE(rows)                                                                            \
    static void slim_##rows(const struct weft__panel *p, size_t row, __m256i mask)                 \
    {                                                                                              \
        slim_tile(p, row, mask, rows);                                                             \
    }
#define SLIM_ENTRY(rows) [rows] = slim_##rows,
#define SLIM_TILES(X)    X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)

SLIM_TILES(SLIM_TILE)

static void slim_panel(const struct weft__panel *p)
{
    static void (*const slim_tiles[])(const struct weft__panel *p, size_t row,
                                      __m256i mask) = {SLIM_TILES(SLIM_ENTRY)};
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)p->columns),
                                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    const size_t groups = (p->rows + SLIM_ROWS - 1) / SLIM_ROWS;

    for (size_t g = 0; g < groups; g++) {
        const size_t row = p->rows * g / groups;

        slim_tiles[p->rows * (g + 1) / groups - row](p, row, mask);
    }
}

/* ---- any number of columns ---- */

/* Rows and columns are cut into parts of nearly the same size. */
static void panel(const struct weft__panel *p)
{
    const size_t groups = (p->rows + ROWS - 1) / ROWS;
    const size_t vectors = (p->columns + WIDTH - 1) / WIDTH;

    if (p->columns <= SLIM_WIDE) {
        slim_panel(p);
        return;
    }
    if (groups == 1 && vectors <= most_vectors[p->rows]) { /* no divisions, which take longer */
        tiles[p->rows][vectors](p, 0, 0, mask_of(p->columns - (vectors - 1) * WIDTH));
        return;
    }
    for (size_t g = 0; g < groups; g++) {
        const size_t row = p->rows * g / groups;
        const size_t rows = p->rows * (g + 1) / groups - row;
        const size_t strips = (vectors + most_vectors[rows] - 1) / most_vectors[rows];

        for (size_t s = 0; s < strips; s++) {
            const size_t first = vectors * s / strips;
            const size_t next = vectors * (s + 1) / strips;
            const size_t left = p->columns - (next - 1) * WIDTH;

            tiles[rows][next - first](p, row, first * WIDTH, mask_of(left < WIDTH ? left : WIDTH));
        }
    }
}

/* ---- few components: 16 sums each ---- */

enum { PARTS = WEFT__LANES / WIDTH };

INLINE void lanes_rows(const float *x, size_t ldx, const float *b, size_t ldb, size_t count,
                       int first, float *lanes, const int rows, const int d)
{
    VECTOR sums[NARROW_MOST][WEFT__NARROW - 1][PARTS];
    size_t k = 0;

    UNROLLED for (int r = 0; r < rows; r++) UNROLLED for (int j = 0; j < d; j++)
        UNROLLED for (int i = 0; i < PARTS; i++) sums[r][j][i] =
            first ? zero() : load(lanes + (r * d + j) * WEFT__LANES + i * WIDTH);
    for (; k + WEFT__LANES <= count; k += WEFT__LANES)
        UNROLLED for (int i = 0; i < PARTS; i++)
        {
            UNROLLED for (int r = 0; r < rows; r++)
            {
                const VECTOR values = load(x + (size_t)r * ldx + k + i * WIDTH);

                UNROLLED for (int j = 0; j < d; j++) sums[r][j][i] =
                    fused(values, load(b + (size_t)j * ldb + k + i * WIDTH), sums[r][j][i]);
            }
        }
    UNROLLED for (int r = 0; r < rows; r++) UNROLLED for (int j = 0; j < d; j++)
        UNROLLED for (int i = 0; i < PARTS; i++)
            store(lanes + (r * d + j) * WEFT__LANES + i * WIDTH, sums[r][j][i]);
    for (; k < count; k++)
        for (int r = 0; r < rows; r++)
            for (int j = 0; j < d; j++) {
                float *lane = &lanes[(r * d + j) * WEFT__LANES + k % WEFT__LANES];

                *lane = fmaf(x[(size_t)r * ldx + k], b[(size_t)j * ldb + k], *lane);
            }
}

INLINE void lanes_tile(const float *x, size_t ldx, size_t tiles_in_all, const float *b, size_t ldb,
                       size_t count, int first, float *lanes, const int rows, const int d)
{
    for (size_t i = 0; i < tiles_in_all; i++) {
        lanes_rows(x, ldx, b, ldb, count, first, lanes, rows, d);
        x += (size_t)rows * ldx;
        lanes += rows * d * WEFT__LANES;
    }
}

typedef void (*lanes_fn)(const float *x, size_t ldx, size_t tiles_in_all, const float *b,
                         size_t ldb, size_t count, int first, float *lanes);

#define LANES_TILE(rows, d)                                                                        \
    static void lanes_##rows##_##d(const float *x, size_t ldx, size_t tiles_in_all,                \
                                   const float *b, size_t ldb, size_t count, int first,            \
                                   float *lanes)                                                   \
    {                                                                                              \
        lanes_tile(x, ldx, tiles_in_all, b, ldb, count, first, lanes, rows, d);                    \
    }
#define LANES_ENTRY(rows, d) [rows][d] = lanes_##rows##_##d,

LANES_TILES(LANES_TILE)

static const lanes_fn lanes_tiles[NARROW_MOST + 1][WEFT__NARROW] = {LANES_TILES(LANES_ENTRY)};

static void narrow(const float *x, size_t ldx, size_t rows, const float *b, size_t ldb, size_t d,
                   size_t count, int first, float *lanes)
{
    const size_t left = rows % narrow_rows[d];
    const size_t done = rows - left;

    lanes_tiles[narrow_rows[d]][d](x, ldx, rows / narrow_rows[d], b, ldb, count, first, lanes);
    if (left > 0)
        lanes_tiles[left][d](x + done * ldx, ldx, 1, b, ldb, count, first,
                             lanes + done * d * WEFT__LANES);
}

/* Eight results at a time: halves of what is left are added, of twice as many in a register. */
static void add_eight(const float *lanes, float *sums)
{
    __m256 left[8];

    for (int i = 0; i < 8; i++)
        left[i] = _mm256_add_ps(_mm256_loadu_ps(lanes + i * WEFT__LANES),
                                _mm256_loadu_ps(lanes + i * WEFT__LANES + 8));
    for (int i = 0; i < 4; i++)
        left[i] = _mm256_add_ps(_mm256_permute2f128_ps(left[i], left[i + 4], 0x20),
                                _mm256_permute2f128_ps(left[i], left[i + 4], 0x31));
    for (int i = 0; i < 2; i++)
        left[i] = _mm256_add_ps(_mm256_shuffle_ps(left[2 * i], left[2 * i + 1], 0x44),
                                _mm256_shuffle_ps(left[2 * i], left[2 * i + 1], 0xee));
    _mm256_storeu_ps(sums, _mm256_add_ps(_mm256_shuffle_ps(left[0], left[1], 0x88),
                                         _mm256_shuffle_ps(left[0], left[1], 0xdd)));
}

static void add_less_than_eight(const float *lanes, size_t count, float *sums)
{
    float last[8 * WEFT__LANES] = {0};
    float rest[8];

    memcpy(last, lanes, count * WEFT__LANES * sizeof *last);
    add_eight(last, rest);
    memcpy(sums, rest, count * sizeof *rest);
}

static void add_lanes(const float *lanes, size_t count, float *sums)
{
    for (size_t i = 0; i + 8 <= count; i += 8)
        add_eight(lanes + i * WEFT__LANES, sums + i);
    if (count > 0 && count < 8)
        add_less_than_eight(lanes, count, sums);
    else if (count % 8 > 0) /* some of them again */
        add_eight(lanes + (count - 8) * WEFT__LANES, sums + count - 8);
}

/* ---- squares ---- */

static void squares(const float *values, size_t count, double *lanes)
{
    enum { DEEP = WIDTH / 2, SUMS = WEFT__SQUARES / DEEP };
    DOUBLES sums[SUMS];
    size_t i = 0;

    UNROLLED for (int s = 0; s < SUMS; s++) sums[s] = load_doubles(lanes + s * DEEP);
    for (; i + WEFT__SQUARES <= count; i += WEFT__SQUARES)
        UNROLLED for (int s = 0; s < SUMS; s++)
        {
            const DOUBLES x = load_wide(values + i + s * DEEP);

            sums[s] = fused_doubles(x, x, sums[s]);
        }
    UNROLLED for (int s = 0; s < SUMS; s++) store_doubles(lanes + s * DEEP, sums[s]);
    for (size_t l = 0; i + l < count; l++)
        lanes[l] += (double)values[i + l] * (double)values[i + l];
}

/* In one pass, so that caches are asked for both vectors at once. Where registers do not hold the
 * sums of all lanes, they are taken in parts. */
static void centre_squares(const float *values, const float *mean, float share, size_t count,
                           float *to, double *of_values, double *of_centred)
{
    enum { DEEP = WIDTH / 2, SUMS = WEFT__SQUARES / DEEP, PARTS_OF = 64 / WIDTH / 4 };
    const VECTOR shares = spread(&share);
    const size_t whole = count - count % WEFT__SQUARES;

    for (int part = 0; part < PARTS_OF; part++) {
        const int begin = part * (WEFT__SQUARES / PARTS_OF);
        DOUBLES read[SUMS / PARTS_OF], written[SUMS / PARTS_OF];

        UNROLLED for (int s = 0; s < SUMS / PARTS_OF; s++)
        {
            read[s] = load_doubles(of_values + begin + s * DEEP);
            written[s] = load_doubles(of_centred + begin + s * DEEP);
        }
        for (size_t i = (size_t)begin; i < whole; i += WEFT__SQUARES)
            UNROLLED for (int s = 0; s < SUMS / PARTS_OF; s += 2)
            {
                const size_t at = i + (size_t)s * DEEP;
                const VECTOR x = load(values + at);
                const VECTOR centred = fused_less(shares, load(mean + at), x);

                store(to + at, centred);
                read[s] = fused_doubles(lower_wide(x), lower_wide(x), read[s]);
                read[s + 1] = fused_doubles(upper_wide(x), upper_wide(x), read[s + 1]);
                written[s] = fused_doubles(lower_wide(centred), lower_wide(centred), written[s]);
                written[s + 1] =
                    fused_doubles(upper_wide(centred), upper_wide(centred), written[s + 1]);
            }
        UNROLLED for (int s = 0; s < SUMS / PARTS_OF; s++)
        {
            store_doubles(of_values + begin + s * DEEP, read[s]);
            store_doubles(of_centred + begin + s * DEEP, written[s]);
        }
    }
    for (size_t i = whole; i < count; i++)
        to[i] = fmaf(-share, mean[i], values[i]);
    squares(values + whole, count - whole, of_values);
    squares(to + whole, count - whole, of_centred);
}

/* ---- transposition ---- */

/* Bytes from a block to be transposed to the next one, which hardware does not see come. */
enum { AHEAD = 256 };

/* Eight rows of which the first four and the last four elements have been put together: pairs of
 * rows, then of pairs. */
INLINE void turn_square(const __m256 row[8], __m256 turned[8])
{
    __m256 pair[8];

    UNROLLED for (int i = 0; i < 8; i += 4)
    {
        pair[i] = _mm256_unpacklo_ps(row[i], row[i + 1]);
        pair[i + 1] = _mm256_unpackhi_ps(row[i], row[i + 1]);
        pair[i + 2] = _mm256_unpacklo_ps(row[i + 2], row[i + 3]);
        pair[i + 3] = _mm256_unpackhi_ps(row[i + 2], row[i + 3]);
    }
    UNROLLED for (int i = 0; i < 8; i += 4)
    {
        turned[i] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0x44);
        turned[i + 1] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0xee);
        turned[i + 2] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0x44);
        turned[i + 3] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0xee);
    }
}

/* Squares of 8 x 8, from memory. */
INLINE void load_square(const float *from, size_t ldf, __m256 turned[8])
{
    __m256 row[8];

    UNROLLED for (size_t i = 0; i < 4; i++)
    {
        const float *low = from + i * ldf;
        const float *high = from + (i + 4) * ldf;

        _mm_prefetch((const char *)low + AHEAD, _MM_HINT_T0);
        _mm_prefetch((const char *)high + AHEAD, _MM_HINT_T0);
        row[i] =
            _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
        row[i + 4] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low + 4)),
                                          _mm_loadu_ps(high + 4), 1);
    }
    turn_square(row, turned);
}

static void transpose_square(const float *from, size_t ldf, float *to, size_t ldt)
{
    __m256 turned[8];

    load_square(from, ldf, turned);
    for (size_t i = 0; i < 8; i++)
        _mm256_storeu_ps(to + i * ldt, turned[i]);
}

/* Rows of two: the even elements, and the odd ones. */
static void transpose_pairs(const float *from, size_t rows, float *to, size_t ldt)
{
    const __m256i order = _mm256_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7);
    size_t i = 0;

    for (; i + 8 <= rows; i += 8) {
        const __m256 low = _mm256_loadu_ps(from + 2 * i);
        const __m256 high = _mm256_loadu_ps(from + 2 * i + 8);

        _mm256_storeu_ps(to + i,
                         _mm256_permutevar8x32_ps(_mm256_shuffle_ps(low, high, 0x88), order));
        _mm256_storeu_ps(to + ldt + i,
                         _mm256_permutevar8x32_ps(_mm256_shuffle_ps(low, high, 0xdd), order));
    }
    for (; i < rows; i++) {
        to[i] = from[2 * i];
        to[ldt + i] = from[2 * i + 1];
    }
}

static void transpose(const float *from, size_t ldf, size_t rows, size_t columns, float *to,
                      size_t ldt)
{
    const size_t whole_rows = rows - rows % 8;
    const size_t whole_columns = columns - columns % 8;

    if (columns == 2 && ldf == 2) {
        transpose_pairs(from, rows, to, ldt);
        return;
    }
    for (size_t i = 0; i < whole_rows; i += 8) {
        for (size_t j = 0; j < whole_columns; j += 8)
            transpose_square(from + i * ldf + j, ldf, to + j * ldt + i, ldt);
        for (size_t j = whole_columns; j < columns; j++)
            for (size_t s = i; s < i + 8; s++)
                to[j * ldt + s] = from[s * ldf + j];
    }
    for (size_t i = whole_rows; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            to[j * ldt + i] = from[i * ldf + j];
}

/* ---- one slice, of a basis that is transposed in registers ---- */

/* Squares side by side: additions of one need not wait for those of another. */
enum { SIDE = 4 };

/* Eight elements of each of so many squares. */
INLINE void rebuild_rows(const float *basis, size_t d, const float *in, const float *mean,
                         float *values, const int squares_in_all)
{
    __m256 sums[SIDE];
    size_t j = 0;

    UNROLLED for (int s = 0; s < squares_in_all; s++) sums[s] =
        mean ? _mm256_loadu_ps(mean + 8 * s) : _mm256_setzero_ps();
    for (; j + 8 <= d; j += 8)
        UNROLLED for (int s = 0; s < squares_in_all; s++)
        {
            __m256 turned[8];

            load_square(basis + 8 * (size_t)s * d + j, d, turned);
            UNROLLED for (int i = 0; i < 8; i++) sums[s] =
                _mm256_fmadd_ps(_mm256_broadcast_ss(in + j + i), turned[i], sums[s]);
        }
    UNROLLED for (int s = 0; s < squares_in_all; s++) _mm256_storeu_ps(values + 8 * s, sums[s]);
    for (int k = 0; k < 8 * squares_in_all && j < d; k++)
        for (size_t t = j; t < d; t++)
            values[k] = fmaf(in[t], basis[(size_t)k * d + t], values[k]);
}

static void rebuild(const float *basis, size_t d, const float *in, size_t count, const float *mean,
                    float *values)
{
    size_t k = 0;

    for (; k + 8 * SIDE <= count; k += 8 * SIDE)
        rebuild_rows(basis + k * d, d, in, mean ? mean + k : NULL, values + k, SIDE);
    for (; k + 8 <= count; k += 8)
        rebuild_rows(basis + k * d, d, in, mean ? mean + k : NULL, values + k, 1);
    for (; k < count; k++) {
        float sum = mean ? mean[k] : 0.0F;

        for (size_t j = 0; j < d; j++)
            sum = fmaf(in[j], basis[k * d + j], sum);
        values[k] = sum;
    }
}
