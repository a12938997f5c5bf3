/* Matrix products: the innermost loop is `tile`, a few rows of A times a panel of B in registers.

   Each number of a product is summed in one order, from zero, whatever other rows there are: so an
   example has the same bits alone and in any batch. What is added to a product is added last, since
   sums that start from a large number lose digits. */

#include "products.h"

/* A long sum is split into parts of so many terms, which are summed on their own: that bounds
   rounding errors */
#define PART 256
#define ROWS_TOGETHER 64 /* the same, for sums of columns */

static const float zeros[PANEL];

#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(x, y, a, b, c, d) __builtin_shufflevector(x, y, a, b, c, d)
#else
#define SHUFFLE(x, y, a, b, c, d) __builtin_shuffle(x, y, (quarter_mask){a, b, c, d})
#endif

/* Four rows of four numbers to columns: to[c][r] = x[r][c] */
INLINE void transpose(const float *x, long x_row, float *to, long to_row) {
    quarter rows[4], pairs[4], columns[4];
    UNROLLED for (int r = 0; r < 4; r++) memcpy(rows + r, x + r * x_row, sizeof(quarter));
    pairs[0] = SHUFFLE(rows[0], rows[1], 0, 4, 1, 5);
    pairs[1] = SHUFFLE(rows[2], rows[3], 0, 4, 1, 5);
    pairs[2] = SHUFFLE(rows[0], rows[1], 2, 6, 3, 7);
    pairs[3] = SHUFFLE(rows[2], rows[3], 2, 6, 3, 7);
    columns[0] = SHUFFLE(pairs[0], pairs[1], 0, 1, 4, 5);
    columns[1] = SHUFFLE(pairs[0], pairs[1], 2, 3, 6, 7);
    columns[2] = SHUFFLE(pairs[2], pairs[3], 0, 1, 4, 5);
    columns[3] = SHUFFLE(pairs[2], pairs[3], 2, 3, 6, 7);
    UNROLLED for (int c = 0; c < 4; c++) memcpy(to + c * to_row, columns + c, sizeof(quarter));
}

static long width_of_panel(long columns_left) { return columns_left > LANES ? PANEL : LANES; }

void pack_rows(long start, long rows, long total, long columns, const float *x, long x_row,
               float *panels) {
    for (long j = 0; j < columns; j += PANEL) {
        long wide = width_of_panel(columns - j), filled = smaller(columns - j, wide);
        float *to = panels + j * total + start * wide;
        if (filled == PANEL)
            for (long r = 0; r < rows; r++)
                UNROLLED for (int v = 0; v < PANEL; v += LANES)
                    store(to + r * PANEL + v, load(x + r * x_row + j + v));
        else
            for (long r = 0; r < rows; r++)
                for (long c = 0; c < wide; c++)
                    to[r * wide + c] = c < filled ? x[r * x_row + j + c] : 0;
    }
}

void pack_transposed(long rows, long columns, const float *x, long x_row, float *panels) {
    for (long j = 0; j < columns; j += PANEL, x += PANEL * x_row) {
        long wide = width_of_panel(columns - j), filled = smaller(columns - j, wide);
        long fours = filled / 4 * 4, r = 0;
        float *to = panels + j * rows;
        for (; r + 4 <= rows; r += 4)
            for (long c = 0; c < fours; c += 4)
                transpose(x + c * x_row + r, x_row, to + r * wide + c, wide);
        for (; r < rows; r++)
            for (long c = 0; c < fours; c++) to[r * wide + c] = x[c * x_row + r];
        for (long c = fours; c < wide; c++)
            for (r = 0; r < rows; r++) to[r * wide + c] = c < filled ? x[c * x_row + r] : 0;
    }
}

/* C (rows, vectors * LANES) = A (rows, k) * B + addend */
INLINE void tile(int rows, int vectors, long k, const float *a, long a_row, long a_column,
                 const float *b, long b_row, addend add, float *c, long c_row) {
    vector s[TILE_ROWS][2];
    UNROLLED for (int r = 0; r < rows; r++)
        UNROLLED for (int v = 0; v < vectors; v++) s[r][v] = (vector){0};
    for (long p = 0; p < k; p++, a += a_column, b += b_row)
        UNROLLED for (int r = 0; r < rows; r++)
            UNROLLED for (int v = 0; v < vectors; v++)
                s[r][v] += a[r * a_row] * load(b + v * LANES);
    UNROLLED for (int r = 0; r < rows; r++)
        UNROLLED for (int v = 0; v < vectors; v++)
            store(c + r * c_row + v * LANES, s[r][v] + load(add.x + r * add.row + v * LANES));
}

/* Calls `tile` with constants, for which the compiler unrolls it into registers */
static void any_tile(long rows, long wide, long k, const float *a, long a_row, long a_column,
                     const float *b, long b_row, addend add, float *c, long c_row) {
#define CASE(r)                                                                                    \
    case 2 * r: return tile(r, 1, k, a, a_row, a_column, b, b_row, add, c, c_row);                 \
    case 2 * r + 1: return tile(r, 2, k, a, a_row, a_column, b, b_row, add, c, c_row);
    switch (2 * rows + (wide == PANEL)) {
        CASE(1)
        CASE(2)
        CASE(3)
        CASE(4)
        CASE(5)
        CASE(6)
#if TILE_ROWS == 8
        CASE(7)
        CASE(8)
#endif
    }
#undef CASE
}

/* The same for any k: part by part */
static void long_tile(long rows, long wide, long k, const float *a, long a_row, long a_column,
                      const float *b, long b_row, addend add, float *c, long c_row) {
    for (; k > PART; k -= PART, a += PART * a_column, b += PART * b_row, add = (addend){c, c_row})
        any_tile(rows, wide, PART, a, a_row, a_column, b, b_row, add, c, c_row);
    any_tile(rows, wide, k, a, a_row, a_column, b, b_row, add, c, c_row);
}

/* The same, of which only some columns are wanted: the others exist in B, but not in C */
static void edge_tile(long rows, long wide, long columns, long k, const float *a, long a_row,
                      long a_column, const float *b, long b_row, addend add, float *c, long c_row) {
    float whole[TILE_ROWS * PANEL];
    long_tile(rows, wide, k, a, a_row, a_column, b, b_row, (addend){zeros, 0}, whole, wide);
    for (long r = 0; r < rows; r++)
        for (long j = 0; j < columns; j++)
            c[r * c_row + j] = whole[r * wide + j] + add.x[r * add.row + j];
}

/* Some rows of C by one panel of B, by tiles of about equal height */
static void panel_product(long m, long n, long k, const float *a, long a_row, long a_column,
                          const float *b, long b_row, addend add, float *c, long c_row) {
    long wide = width_of_panel(n), columns = smaller(n, wide);
    for (long i = 0, rows, tiles = (m + TILE_ROWS - 1) / TILE_ROWS; tiles; i += rows, tiles--) {
        rows = (m - i + tiles - 1) / tiles;
        addend here = add.x ? (addend){add.x + i * add.row, add.row} : (addend){zeros, 0};
        const float *from = a + i * a_row;
        float *to = c + i * c_row;
        if (columns == wide)
            long_tile(rows, wide, k, from, a_row, a_column, b, b_row, here, to, c_row);
        else
            edge_tile(rows, wide, columns, k, from, a_row, a_column, b, b_row, here, to, c_row);
    }
}

/* B is in panels if b_row is 0 */
static void product(long m, long n, long k, const float *a, long a_row, long a_column,
                    const float *b, long b_row, addend add, float *c, long c_row) {
    for (long i = 0; i < m; i += BLOCK)
        for (long j = 0; j < n; j += PANEL) {
            addend here = {add.x ? add.x + i * add.row + j : NULL, add.row};
            panel_product(smaller(m - i, BLOCK), n - j, k, a + i * a_row, a_row, a_column,
                          b_row ? b + j : b + j * k, b_row ? b_row : width_of_panel(n - j), here,
                          c + i * c_row + j, c_row);
        }
}

void matmul(long m, long n, long k, const float *a, long a_row, long a_column, const float *panels,
            addend add, float *c, long c_row) {
    product(m, n, k, a, a_row, a_column, panels, 0, add, c, c_row);
}

void matmul_rows(long m, long n, long k, const float *a, long a_row, long a_column, const float *b,
                 long b_row, float *room, addend add, float *c, long c_row) {
    if (n % LANES) pack_rows(0, k, k, n, b, b_row, room);
    if (n % LANES) product(m, n, k, a, a_row, a_column, room, 0, add, c, c_row);
    else product(m, n, k, a, a_row, a_column, b, b_row, add, c, c_row);
}

/* Adds the sums of a panel's columns */
static void add_column_sums(long m, long wide, long columns, const float *panel, float *sums) {
    for (long c = 0; c < columns; c += LANES) {
        vector total = {0};
        for (long p = 0; p < m; p += ROWS_TOGETHER) {
            vector part = {0};
            long end = smaller(m, p + ROWS_TOGETHER);
            for (long r = p; r < end; r++) part += load(panel + r * wide + c);
            total += part;
        }
        store_first(columns - c, sums + c, load_first(columns - c, sums + c) + total);
    }
}

void add_weight_gradient(long start, long rows, long m, long n, long k, const float *dy,
                         const float *x, float *dweight, float *dbias) {
    for (long j = 0; j < k; j += PANEL)
        for (long i = start; i < start + rows; i += PANEL) {
            long dy_row = width_of_panel(n - i);
            float *to = dweight + i * k + j;
            panel_product(smaller(n - i, dy_row), k - j, m, dy + i * m, 1, dy_row, x + j * m,
                          width_of_panel(k - j), (addend){to, k}, to, k);
        }
    for (long i = start; i < start + rows; i += PANEL) {
        long wide = width_of_panel(n - i);
        add_column_sums(m, wide, smaller(n - i, wide), dy + i * m, dbias + i);
    }
}
