/* Matrix products. A product multiplies a matrix of rows with one that is packed in panels.

   A panel is a strip of PANEL columns (or of one vector, where that is enough for the last), row
   after row: what one step of the innermost loop needs is side by side in memory. */

#ifndef LENGTHWISE_PRODUCTS_H
#define LENGTHWISE_PRODUCTS_H

#include "vectors.h"

#define PANEL (2 * LANES)
#if defined(__AVX512F__) || defined(__aarch64__)
#define TILE_ROWS 8 /* of two vectors: 16 sums, of 32 registers; more rows weren't faster */
#else
#define TILE_ROWS 6 /* 12 sums, of 16 registers */
#endif
/* Rows that are worked on together, so that they stay in the cache while panels pass by */
#define BLOCK (10 * TILE_ROWS)

/* Floats of a matrix (rows, columns) in panels */
INLINE long panels_size(long rows, long columns) { return rows * padded(columns); }

/* Packs x (rows, columns) as the rows from `start` on of a matrix of `total` rows in panels */
void pack_rows(long start, long rows, long total, long columns, const float *x, long x_row,
               float *panels);

/* Packs the transpose of x (columns, rows), whose rows are x_row apart */
void pack_transposed(long rows, long columns, const float *x, long x_row, float *panels);

/* A matrix that is added to a product: its rows are `row` apart, 0 for a bias */
typedef struct {
    const float *x; /* or NULL */
    long row;
} addend;

/* C (m, n) = A (m, k) * B (k, n) + addend, which may be C. A's elements are a_row and a_column
   apart; B is in panels. */
void matmul(long m, long n, long k, const float *a, long a_row, long a_column, const float *panels,
            addend add, float *c, long c_row);

/* The same with B as plain rows, b_row apart; they are packed into `room` unless they consist of
   whole vectors. */
void matmul_rows(long m, long n, long k, const float *a, long a_row, long a_column, const float *b,
                 long b_row, float *room, addend add, float *c, long c_row);

/* The gradients of y = x * weight' + bias with respect to some rows of weight (n, k), those from
   `start` on: adds dy' * x to dweight and the sums of dy to dbias. dy (m, n) and x (m, k) are in
   panels; `start` is a multiple of PANEL. */
void add_weight_gradient(long start, long rows, long m, long n, long k, const float *dy,
                         const float *x, float *dweight, float *dbias);

#endif
