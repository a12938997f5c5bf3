/* What a small transformer does on a CPU, in float32; kernels.py compiles and calls it.

   Everything rests on one loop, `tile`: a few rows of A times a panel of B, in registers; or on `paired_tile`, which does
   the same with fewer multiplications. At the sizes of small transformers they are faster than what torch has for them
   (docs/speed.md). A matrix has strides: rs from row to row, cs from column to column. Threads share what is written,
   never what is summed, so that no result depends on how many there are. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __AVX__
#include <immintrin.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#else
static int omp_get_max_threads(void) { return 1; }
#endif

/* Numbers in a vector; and a store to memory past the caches, where the compiler has one */
#if defined(__AVX512F__)
#define W 16
#define PAST_CACHES __builtin_ia32_movntps512
#elif defined(__AVX__)
#define W 8
#define PAST_CACHES __builtin_ia32_movntps256
#else
#define W 4
#ifdef __SSE__
#define PAST_CACHES __builtin_ia32_movntps
#else
#define PAST_CACHES store
#endif
#endif
#ifdef __clang__
#undef PAST_CACHES
#define PAST_CACHES(x, y) __builtin_nontemporal_store(y, (vector *)(x))
#endif
#if W == 16
#define ROWS 8 /* of a tile: with two vectors each, as many as fit the registers (and divide most widths) */
#else
#define ROWS 6
#endif
#define COLUMNS (2 * W) /* of a tile, and so of a panel */
/* Rows that are worked on together, so that what they need stays in the cache: tiles, and vectors */
#define BLOCK (W == 16 ? 80 : 48)
#define TOKENS 400 /* that a thread takes through all layers, for the same reason; more where weights are many */
#ifndef PAIRED /* whether to compute by pairs, see "C = A·B with fewer multiplications" */
#if W == 16 && (defined(__znver3__) || defined(__znver4__)) /* Zen 4, which older compilers take for Zen 3 */
#define PAIRED 1
#else
#define PAIRED 0
#endif
#endif
#define ENOUGH 48 /* rows, from which on that is faster */
#define EACH_UNROLLED _Pragma("GCC unroll 16") for

typedef float vector __attribute__((vector_size(4 * W)));
typedef float unaligned __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef double doubles __attribute__((vector_size(4 * W)));
typedef int integers __attribute__((vector_size(4 * W)));
typedef float four __attribute__((vector_size(16)));
typedef int four_integers __attribute__((vector_size(16)));

static long least(long a, long b) { return a < b ? a : b; }
static long most(long a, long b) { return a > b ? a : b; }
static long padded(long n) { return (n + W - 1) / W * W; }
static float *floats(long n) {
    float *x = aligned_alloc(64, (n * sizeof(float) + 64) / 64 * 64);
    if (!x) fprintf(stderr, "lengthwise: there is no memory for %ld numbers\n", n), abort();
    return x;
}
static vector load(const float *x) { return *(const unaligned *)x; }
static void store(float *x, vector y) { *(unaligned *)x = y; }
/* The first n numbers, and zeros */
static vector load_some(long n, const float *x) {
#ifdef __AVX512F__
    return _mm512_maskz_loadu_ps(n < W ? (1 << most(n, 0)) - 1 : -1, x);
#else
    vector y = {0};
    if (n >= W) return load(x);
    for (long i = 0; i < n; i++) y[i] = x[i];
    return y;
#endif
}
static vector all(float x) { return x - (vector){0}; }
static vector pick(integers where, vector x, vector y) {
    return (vector)((where & (integers)x) | (~where & (integers)y));
}
/* The greater or lesser of two, and y if one isn't a number */
#if defined(__AVX512F__)
static vector greater(vector x, vector y) { return _mm512_max_ps(x, y); }
static vector lesser(vector x, vector y) { return _mm512_min_ps(x, y); }
#elif defined(__AVX__)
static vector greater(vector x, vector y) { return _mm256_max_ps(x, y); }
static vector lesser(vector x, vector y) { return _mm256_min_ps(x, y); }
#else
static vector greater(vector x, vector y) { return pick(x > y, x, y); }
static vector lesser(vector x, vector y) { return pick(x < y, x, y); }
#endif
typedef union {
    vector whole;
    four parts[W / 4];
} quarters;
static float sum(vector x) {
    quarters of = {x};
    EACH_UNROLLED(int i = 1; i < W / 4; i++) of.parts[0] += of.parts[i];
    four y = of.parts[0];
    return (y[0] + y[2]) + (y[1] + y[3]);
}
static float largest(vector x) {
    quarters of = {x};
    four y = of.parts[0];
    EACH_UNROLLED(int i = 1; i < W / 4; i++) {
        four z = of.parts[i];
        y = (four)(((y > z) & (four_integers)y) | (~(y > z) & (four_integers)z));
    }
    float a = y[0] > y[2] ? y[0] : y[2], b = y[1] > y[3] ? y[1] : y[3];
    return a > b ? a : b;
}

/* ---- C = A·B ---- */

/* C (rows, vectors·W) = A (rows, k) · B (k, vectors·W), whose rows are `row` apart, plus a row that is `next` from one
   to the next of C's: 0 for a bias */
#define TILE(rows, vectors)                                                                                            \
    static void tile##rows##vectors(long k, const float *a, long rs, long cs, const float *b, long row,                \
                                    const float *plus, long next, float *c, long ldc) {                                \
        vector s[rows][vectors];                                                                                       \
        EACH_UNROLLED(int i = 0; i < rows; i++)                                                                        \
        EACH_UNROLLED(int v = 0; v < vectors; v++) s[i][v] = load(plus + i * next + v * W);                            \
        for (long p = 0; p < k; p++, a += cs, b += row)                                                                \
            EACH_UNROLLED(int i = 0; i < rows; i++)                                                                    \
        EACH_UNROLLED(int v = 0; v < vectors; v++) s[i][v] += a[i * rs] * load(b + v * W);                             \
        EACH_UNROLLED(int i = 0; i < rows; i++)                                                                        \
        EACH_UNROLLED(int v = 0; v < vectors; v++) store(c + i * ldc + v * W, s[i][v]);                                \
    }
#define TILES_OF(vectors)                                                                                              \
    TILE(1, vectors) TILE(2, vectors) TILE(3, vectors) TILE(4, vectors) TILE(5, vectors) TILE(6, vectors)
TILES_OF(1)
TILES_OF(2)
#if ROWS == 8
TILE(7, 1)
TILE(8, 1)
TILE(7, 2)
TILE(8, 2)
#define MORE(vectors) , tile7##vectors, tile8##vectors
#else
#define MORE(vectors)
#endif
static void (*const TILES[2][ROWS + 1])(long, const float *, long, long, const float *, long, const float *, long,
                                        float *, long) = {
    {0, tile11, tile21, tile31, tile41, tile51, tile61 MORE(1)},
    {0, tile12, tile22, tile32, tile42, tile52, tile62 MORE(2)},
};
static const float zeros[COLUMNS];

/* W rows of W numbers, of which those from `rows` on are 0, turned to columns */
static void turn(long rows, const float *from, long apart, float *to, long next) {
    const float *row[W];
    EACH_UNROLLED(int i = 0; i < W; i++) row[i] = i < rows ? from + i * apart : zeros;
#ifdef __AVX__
#if W == 16
#define UNPACK(half, x, y) _mm512_unpack##half(x, y)
#define FOURS(i)                                                                                                       \
    _mm512_insertf32x4(_mm512_insertf32x4(_mm512_insertf32x4(_mm512_castps128_ps512(_mm_loadu_ps(row[i] + c)),         \
                                                             _mm_loadu_ps(row[i + 4] + c), 1),                         \
                                          _mm_loadu_ps(row[i + 8] + c), 2),                                            \
                       _mm_loadu_ps(row[i + 12] + c), 3)
#else
#define UNPACK(half, x, y) _mm256_unpack##half(x, y)
#define FOURS(i) _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(row[i] + c)), _mm_loadu_ps(row[i + 4] + c), 1)
#endif
    /* Four columns at a time: four numbers of every fourth row side by side, then squares of four by four */
    EACH_UNROLLED(int c = 0; c < W; c += 4) {
        vector x0 = FOURS(0), x1 = FOURS(1), x2 = FOURS(2), x3 = FOURS(3);
        doubles low01 = (doubles)UNPACK(lo_ps, x0, x1), low23 = (doubles)UNPACK(lo_ps, x2, x3);
        doubles high01 = (doubles)UNPACK(hi_ps, x0, x1), high23 = (doubles)UNPACK(hi_ps, x2, x3);
        store(to + c * next, (vector)UNPACK(lo_pd, low01, low23));
        store(to + (c + 1) * next, (vector)UNPACK(hi_pd, low01, low23));
        store(to + (c + 2) * next, (vector)UNPACK(lo_pd, high01, high23));
        store(to + (c + 3) * next, (vector)UNPACK(hi_pd, high01, high23));
    }
#else
    for (int c = 0; c < W; c++)
        for (int i = 0; i < W; i++) to[c * next + i] = row[i][c];
#endif
}

/* Rows of a panel, `wide` columns of B, with zeros beyond its last column */
static inline void copy_rows(long rows, long wide, long columns, const float *b, long rs, long cs, float *panel) {
    if (cs == 1 && columns == wide)
        for (long p = 0; p < rows; p++) memcpy(panel + p * wide, b + p * rs, wide * sizeof(float));
    else if (rs == 1 && rows % W == 0 && wide % W == 0)
        for (long q = 0; q < wide; q += W)
            for (long p = 0; p < rows; p += W) turn(columns - q, b + p + q * cs, cs, panel + p * wide + q, wide);
    else
        for (long q = 0; q < wide; q++)
            for (long p = 0; p < rows; p++) panel[p * wide + q] = q < columns ? b[p * rs + q * cs] : 0;
}

/* Some rows of B (k, n), those from p on, to panels one after the other: COLUMNS each, or W if that is enough for the
   last. A few rows at a time, for the cache's sake */
static void pack_rows(long p, long rows, long k, long n, const float *b, long rs, long cs, float *panels) {
    for (long end = p + rows; p < end; p += 16, b += 16 * rs)
        for (long j = 0; j < n; j += COLUMNS) {
            long some = least(end - p, 16), wide = n - j <= W ? W : COLUMNS;
            const float *from = b + j * cs;
            float *to = panels + j * k + p * wide;
            /* The usual ones with all that is known when this is compiled */
            if (n - j < COLUMNS) copy_rows(some, wide, least(n - j, wide), from, rs, cs, to);
            else if (cs == 1) copy_rows(some, COLUMNS, COLUMNS, from, rs, 1, to);
            else if (rs == 1) copy_rows(some, COLUMNS, COLUMNS, from, 1, cs, to);
            else copy_rows(some, COLUMNS, COLUMNS, from, rs, cs, to);
        }
}

static void pack(long k, long n, const float *b, long rs, long cs, float *panels) {
    pack_rows(0, k, k, n, b, rs, cs, panels);
}

/* Some rows of x (m, n), those from p on, to panels that are read much later, and would only displace what is needed
   before. A panel starts at a multiple of a vector's size, as memory does */
static void remember_rows(long p, long rows, long m, long n, const float *x, float *panels) {
    long whole = n / COLUMNS * COLUMNS;
    for (long j = 0; j < whole; j += COLUMNS)
        for (long q = 0; q < rows; q++)
            for (long v = 0; v < COLUMNS; v += W)
                PAST_CACHES(panels + j * m + (p + q) * COLUMNS + v, load(x + q * n + j + v));
    pack_rows(p, rows, m, n - whole, x + whole, n, 1, panels + whole * m);
}

/* Numbers that a thread needs after its next product, which fetches them from memory meanwhile */
static _Thread_local struct {
    const float *from, *end;
} soon;
static void fetch(const float *x, long n) { soon.from = x, soon.end = x + n; }
static void fetch_some(void) {
    for (int line = 0; line < 16 && soon.from < soon.end; line++, soon.from += 16) __builtin_prefetch(soon.from, 0, 2);
}

/* C (m, n) = A (m, k) · B, plus a row (bias, or 0) or plus what C has (bias is c). B's rows are so far apart and consist
   of whole vectors; or it is in panels, and `apart` is 0 */
static void product_with(long m, long n, long k, const float *a, long rs, long cs, const float *b, long apart,
                         const float *bias, float *c, long ldc) {
    long block = m < 2 * BLOCK ? m : BLOCK;
    for (long i0 = 0; i0 < m; i0 += block) {
        long end = least(i0 + block, m), tiles = (end - i0 + ROWS - 1) / ROWS, tall = (end - i0 + tiles - 1) / tiles;
        for (long j = 0; j < n; j += COLUMNS) {
            long wide = n - j > W ? COLUMNS : W, columns = least(n - j, wide), row = apart ? apart : wide;
            const float *from = apart ? b + j : b + j * k;
            for (long i = i0; i < end; i += tall) {
                long rows = least(end - i, tall);
                fetch_some();
                float *to = c + i * ldc + j, edge[ROWS * COLUMNS];
                if (columns == wide) {
                    const float *plus = bias == c ? to : bias ? bias + j : zeros;
                    TILES[wide / W - 1][rows](k, a + i * rs, rs, cs, from, row, plus, bias == c ? ldc : 0, to, ldc);
                    continue;
                }
                TILES[wide / W - 1][rows](k, a + i * rs, rs, cs, from, row, zeros, 0, edge, wide);
                for (long r = 0; r < rows; r++)
                    for (long q = 0; q < columns; q++)
                        to[r * ldc + q] = edge[r * wide + q] + (bias == c ? to[r * ldc + q] : bias ? bias[j + q] : 0);
            }
        }
    }
}

static void product(long m, long n, long k, const float *a, long rs, long cs, const float *panels, const float *bias,
                    float *c, long ldc) {
    product_with(m, n, k, a, rs, cs, panels, 0, bias, c, ldc);
}

/* The same with the rows of B as they are, if they can be taken so; else in panels, for which there is room */
static void product_with_rows(long m, long n, long k, const float *a, long rs, long cs, const float *b, long apart,
                              float *room, const float *bias, float *c, long ldc) {
    if (n % W) pack(k, n, b, apart, 1, room);
    product_with(m, n, k, a, rs, cs, n % W ? room : b, n % W ? 0 : apart, bias, c, ldc);
}

/* A whole matrix in panels, by all threads */
static void pack_all(long k, long n, const float *b, long rs, long cs, float *panels) {
#pragma omp parallel for
    for (long p = 0; p < k; p += BLOCK) pack_rows(p, least(k - p, BLOCK), k, n, b + p * rs, rs, cs, panels);
}

static void remember_all(long m, long n, const float *x, float *panels) {
#pragma omp parallel for
    for (long p = 0; p < m; p += BLOCK) remember_rows(p, least(m - p, BLOCK), m, n, x + p * n, panels);
}

/* Some rows of x (m, n), those from p on, to columns of a matrix (n, padded m), which has zeros beyond */
static void turn_rows(long p, long rows, long m, long n, const float *x, float *to) {
    for (long q = 0; q < n; q += W)
        for (long i = 0; i < rows; i += W) {
            float *at = to + q * padded(m) + p + i;
            if (q + W <= n) turn(rows - i, x + i * n + q, n, at, padded(m));
            else
                for (long e = q; e < n; e++)
                    for (long r = 0; r < W; r++) at[(e - q) * padded(m) + r] = i + r < rows ? x[(i + r) * n + e] : 0;
        }
}

static float *turned(long m, long n, const float *x) {
    float *to = floats(n * padded(m));
#pragma omp parallel for
    for (long p = 0; p < m; p += BLOCK) turn_rows(p, least(m - p, BLOCK), m, n, x + p * n, to);
    return to;
}

static float *panels_of(long k, long n, const float *b, long rs, long cs) {
    float *panels = floats(padded(n) * k);
    pack_all(k, n, b, rs, cs, panels);
    return panels;
}

/* ---- C = A·B with fewer multiplications ---- */

/* Winograd (1968): x0·y0 + x1·y1 = (x0 + y1)·(x1 + y0) − x0·x1 − y0·y1, where what is subtracted belongs to a row of A or
   to a column of B alone. So two multiplications become one, and two additions. Zen 4 adds while it multiplies: if two
   of three numbers are in a pair, there are as many additions as multiplications, and they take the time of either.
   Rows and columns are scaled by powers of two, which is exact, to one size, as a sum loses digits of the smaller. And
   every other pair is −(y1 − x0)·(y0 − x1) + x0·x1 + y0·y1, so that what is subtracted doesn't add up to more than is
   left, even if all numbers are alike. */
#define PERIOD 6 /* numbers: a pair, one that isn't in any, a pair with minus signs, and again one */
static vector size(vector x) { return (vector)((integers)x & 0x7fffffff); }
/* Of k numbers the largest, without its sign, and the sum of the pairs' products */
static float largest_size(long k, const float *x, float *pairs) {
    static const float signs[] = {1, 0, 0, -1, 0, 0, 1, 0, 0, -1, 0, 0, 1, 0, 0, -1, 0, 0, 1, 0, 0};
    vector highest = all(0), total = all(0);
    long end = k / PERIOD * PERIOD, p = 0;
    for (; p + W < end; p += W) {
        vector y = load(x + p);
        highest = greater(size(y), highest);
        total += load(signs + p % PERIOD) * y * load(x + p + 1);
    }
    for (; p < k; p += W) {
        highest = greater(size(load_some(k - p, x + p)), highest);
        total += load(signs + p % PERIOD) * load_some(end - p, x + p) * load_some(end - p - 1, x + p + 1);
    }
    *pairs = sum(total);
    return largest(highest);
}

/* What brings the largest of some numbers to between 2 and 4, and back: powers of two; or 1, if it is between 1 and 8, as
   the largest after a norm is */
static float scale_for(float largest, float *back) {
    union {
        float number;
        int bits;
    } of = {largest}, scale;
    int usual = largest >= 1 && largest < 8;
    of.bits = most(27 << 23, least(of.bits & 255 << 23, 227 << 23)) - (1 << 23); /* also if it is 0, or infinite */
    scale.bits = (254 << 23) - of.bits;
    *back = usual ? 1 : largest ? of.number : 0;
    return usual ? 1 : scale.number;
}

/* Whether products of what hasn't been scaled yet are neither too large nor too small to be scaled afterwards */
static int moderate(float scale) { return scale > 1e-9f && scale < 1e9f; }

/* A matrix whose rows are so far apart */
typedef struct {
    const float *x;
    long apart;
} rows;

/* Of each row of A (m, k) the sum of its pairs' products, when it is scaled, and what scales it back. Returns A if none
   has to be, else what all are copied to, scaled: it may be A */
static rows scale_rows(long m, long k, rows a, float *to, long apart, float *pairs, float *back) {
    float scales[BLOCK];
    int copied = a.apart % 1024 == 0; /* eight such rows would take one place in the cache */
    for (long i = 0; i < m; i++) {
        scales[i] = scale_for(largest_size(k, a.x + i * a.apart, pairs + i), back + i);
        copied |= scales[i] != 1;
    }
    if (!copied) return a;
    for (long i = 0; i < m; i++) {
        const float *from = a.x + i * a.apart;
        float *x = to + i * apart;
        long p = 0;
        for (; p + W <= k; p += W) store(x + p, load(from + p) * scales[i]);
        for (; p < k; p++) x[p] = from[p] * scales[i];
        if (moderate(scales[i])) pairs[i] *= scales[i] * scales[i];
        else largest_size(k, x, pairs + i);
    }
    return (rows){to, apart};
}

/* Of the columns of a panel (k, COLUMNS) what `largest_size` is of a row */
static void largest_sizes(long k, const float *panel, float *largest, float *pairs) {
    for (int v = 0; v < COLUMNS; v += W) {
        vector highest = all(0), total = all(0), x[PERIOD];
        const float *next = panel + v, *end = panel + k * COLUMNS;
        for (; next + (PERIOD - 1) * COLUMNS < end; next += PERIOD * COLUMNS) {
            EACH_UNROLLED(int i = 0; i < PERIOD; i++) x[i] = load(next + i * COLUMNS);
            total += x[0] * x[1] - x[3] * x[4];
            EACH_UNROLLED(int i = 0; i < PERIOD; i++) highest = greater(size(x[i]), highest);
        }
        for (; next < end; next += COLUMNS) highest = greater(size(load(next)), highest);
        store(largest + v, highest), store(pairs + v, total);
    }
}

/* And what `scale_rows` does */
static const float *scale_columns(long k, const float *panel, float *to, float *pairs, float *back) {
    float largest[COLUMNS], scales[COLUMNS];
    int copied = 0, again = 0;
    largest_sizes(k, panel, largest, pairs);
    for (int q = 0; q < COLUMNS; q++) {
        scales[q] = scale_for(largest[q], back + q);
        pairs[q] *= scales[q] * scales[q];
        copied |= scales[q] != 1, again |= !moderate(scales[q]);
    }
    if (!copied) return panel;
    for (long p = 0; p < k; p++)
        for (int v = 0; v < COLUMNS; v += W)
            store(to + p * COLUMNS + v, load(panel + p * COLUMNS + v) * load(scales + v));
    if (again) largest_sizes(k, to, largest, pairs);
    return to;
}

/* With the number n after the p-th of a row of k. AVX-512 repeats it in a vector as it reads it; a compiler would rather do
   so once for several, by an instruction that takes the time of an addition */
#if W == 16
#define REPEATED(instruction, result, y, n)                                                                            \
    asm(instruction " %c4(%2,%3,4)%{1to16%}, %1, %0"                                                                   \
        : result                                                                                                       \
        : "v"(y), "r"(row[i]), "r"(p), "i"(4 * (n)), "m"(*(const float(*)[k])row[i]))
#define TO_SUM(y, n) ({ vector z; REPEATED("vaddps", "=v"(z), y, n); z; })
#define TO_DIFFERENCE(y, n) ({ vector z; REPEATED("vsubps", "=v"(z), y, n); z; })
#define ADD_PRODUCT(s, y, n) REPEATED("vfmadd231ps", "+v"(s), y, n)
#else
#define TO_SUM(y, n) (y + row[i][p + n])
#define TO_DIFFERENCE(y, n) (y - row[i][p + n])
#define ADD_PRODUCT(s, y, n) s += row[i][p + n] * y
#endif

/* The three numbers of each row from p + n on: a pair, and one that isn't in any */
#define THREE(rows, n, TO, add)                                                                                        \
    EACH_UNROLLED(int v = 0; v < 2; v++) {                                                                             \
        vector y0 = load(b + n * COLUMNS + v * W), y1 = load(b + (n + 1) * COLUMNS + v * W);                           \
        vector y2 = load(b + (n + 2) * COLUMNS + (1 - v) * W);                                                         \
        EACH_UNROLLED(int i = 0; i < rows; i++) {                                                                      \
            s[i][v] add TO(y1, n) * TO(y0, n + 1);                                                                     \
            ADD_PRODUCT(s[i][1 - v], y2, n + 2);                                                                       \
        }                                                                                                              \
    }
/* C (rows, COLUMNS) = A (rows, k) · B (k, COLUMNS), scaled back, plus a row as in `tile`; A's rows are `apart` */
#define PAIRED_TILE(rows)                                                                                              \
    static void paired_tile##rows(long k, const float *a, long apart, const float *row_pairs, const float *row_back,   \
                                  const float *b, const float *column_pairs, const float *column_back,                 \
                                  const float *plus, long next, float *c, long ldc) {                                  \
        vector s[rows][2];                                                                                             \
        EACH_UNROLLED(int i = 0; i < rows; i++)                                                                        \
        EACH_UNROLLED(int v = 0; v < 2; v++) s[i][v] = -row_pairs[i] - load(column_pairs + v * W);                     \
        const float *row[rows];                                                                                        \
        EACH_UNROLLED(int i = 0; i < rows; i++) row[i] = a + i * apart;                                                \
        long p = 0;                                                                                                    \
        for (; p + PERIOD <= k; p += PERIOD, b += PERIOD * COLUMNS) {                                                  \
            THREE(rows, 0, TO_SUM, +=)                                                                                 \
            THREE(rows, 3, TO_DIFFERENCE, -=)                                                                          \
        }                                                                                                              \
        for (; p < k; p++, b += COLUMNS)                                                                               \
            EACH_UNROLLED(int v = 0; v < 2; v++)                                                                       \
        EACH_UNROLLED(int i = 0; i < rows; i++) ADD_PRODUCT(s[i][v], load(b + v * W), 0);                              \
        EACH_UNROLLED(int i = 0; i < rows; i++)                                                                        \
        EACH_UNROLLED(int v = 0; v < 2; v++)                                                                           \
        store(c + i * ldc + v * W,                                                                                     \
              load(plus + i * next + v * W) + s[i][v] * row_back[i] * load(column_back + v * W));                      \
    }
PAIRED_TILE(1)
PAIRED_TILE(2)
PAIRED_TILE(3)
PAIRED_TILE(4)
PAIRED_TILE(5)
PAIRED_TILE(6)
#if ROWS == 8
PAIRED_TILE(7)
PAIRED_TILE(8)
#define MORE_PAIRED , paired_tile7, paired_tile8
#else
#define MORE_PAIRED
#endif
static void (*const PAIRED_TILES[ROWS + 1])(long, const float *, long, const float *, const float *, const float *,
                                            const float *, const float *, const float *, long, float *, long) = {
    0, paired_tile1, paired_tile2, paired_tile3, paired_tile4, paired_tile5, paired_tile6 MORE_PAIRED};

/* A matrix B (k, n) that many rows are multiplied with: in panels; or these are scaled, with the sum of each column's
   pairs' products, and what scales it back */
typedef struct {
    long k, n;
    float *panels, *pairs, *back;
} factor;

static int by_pairs(long m, long n) { return PAIRED && n % COLUMNS == 0 && m >= ENOUGH; }

/* B, to be multiplied with m rows */
static factor factor_of(long m, long k, long n, const float *b, long rs, long cs) {
    if (!by_pairs(m, n)) return (factor){k, n, panels_of(k, n, b, rs, cs), 0, 0};
    factor f = {k, n, floats(n * k), floats(n), floats(n)};
#pragma omp parallel for
    for (long j = 0; j < n; j += COLUMNS) {
        float *panel = f.panels + j * k;
        pack(k, COLUMNS, b + j * cs, rs, cs, panel);
        scale_columns(k, panel, panel, f.pairs + j, f.back + j);
    }
    return f;
}

static void free_factor(factor f) { free(f.panels), free(f.pairs), free(f.back); }

/* C (m, n) = A (m, k) · B, plus a row (bias, or 0) or plus what C has (bias is c) */
static void times(long m, const float *a, factor b, const float *bias, float *c) {
    long n = b.n, k = b.k;
    if (!b.pairs) return product(m, n, k, a, k, 1, b.panels, bias, c, n);
    float *room = floats(BLOCK * (k + W)), pairs[BLOCK], back[BLOCK];
    for (long i0 = 0; i0 < m; i0 += BLOCK) {
        long some = least(m - i0, BLOCK);
        rows from = scale_rows(some, k, (rows){a + i0 * k, k}, room, k + W, pairs, back);
        for (long j = 0; j < n; j += COLUMNS)
            for (long i = 0; i < some; i += ROWS) {
                float *to = c + (i0 + i) * n + j;
                const float *plus = bias == c ? to : bias ? bias + j : zeros;
                fetch_some();
                PAIRED_TILES[least(some - i, ROWS)](k, from.x + i * from.apart, from.apart, pairs + i, back + i,
                                                    b.panels + j * k, b.pairs + j, b.back + j, plus,
                                                    bias == c ? n : 0, to, n);
            }
    }
    free(room);
}

/* The same by all threads */
static void multiply(long m, const float *a, factor b, const float *bias, float *c) {
#pragma omp parallel for
    for (long i = 0; i < m; i += BLOCK) {
        float *to = c + i * b.n;
        times(least(m - i, BLOCK), a + i * b.k, b, bias == c ? to : bias, to);
    }
}

/* y (m, n) = x (m, k) · weight (n, k)ᵀ + bias */
void linear(long m, long n, long k, const float *x, const float *weight, const float *bias, float *y) {
    factor f = factor_of(m, k, n, weight, 1, k);
    multiply(m, x, f, bias, y);
    free_factor(f);
}

/* dx (m, k) = dy (m, n) · weight (n, k) */
void linear_input_gradient(long m, long n, long k, const float *weight, const float *dy, float *dx) {
    factor f = factor_of(m, n, k, weight, k, 1);
    multiply(m, dy, f, 0, dx);
    free_factor(f);
}

static float sum_of(long n, const float *x) {
    vector total = all(0);
    for (long i = 0; i < n; i += W) total += load(x + i);
    return sum(total);
}

/* Adds A·B to C (n, k): A (n, m) has padded rows, and is scaled here; B (m, k) is in panels of COLUMNS */
static void add_by_pairs(long n, long k, long m, float *a, const float *panels, float *c) {
    long apart = padded(m);
    float *pairs = floats(n), *back = floats(n);
#pragma omp parallel for
    for (long i = 0; i < n; i += BLOCK)
        scale_rows(least(n - i, BLOCK), m, (rows){a + i * apart, apart}, a + i * apart, apart, pairs + i, back + i);
#pragma omp parallel
    {
        float *room = floats(m * COLUMNS), column_pairs[COLUMNS], column_back[COLUMNS];
#pragma omp for
        for (long j = 0; j < k; j += COLUMNS) {
            const float *panel = scale_columns(m, panels + j * m, room, column_pairs, column_back);
            for (long i = 0; i < n; i += ROWS) {
                float *to = c + i * k + j;
                PAIRED_TILES[least(n - i, ROWS)](m, a + i * apart, apart, pairs + i, back + i, panel, column_pairs,
                                                 column_back, to, k, to, k);
            }
        }
        free(room);
    }
    free(pairs), free(back);
}

/* Adds dyᵀ·x to dweight (n, k) and the sums of dy to dbias: dy (m, n) is turned, and may be changed; x (m, k) in panels */
static void add_weight_gradient(long m, long n, long k, float *dy, const float *x, float *dweight, float *dbias) {
    long apart = padded(m);
#pragma omp parallel for
    for (long i = 0; i < n; i += BLOCK) {
        long end = least(n, i + BLOCK);
        for (long r = i; r < end; r++) dbias[r] += sum_of(apart, dy + r * apart);
        if (!by_pairs(m, k)) product(end - i, k, m, dy + i * apart, apart, 1, x, dweight + i * k, dweight + i * k, k);
    }
    if (by_pairs(m, k)) add_by_pairs(n, k, m, dy, x, dweight);
}

void linear_weight_gradient(long m, long n, long k, const float *x, const float *dy, float *dweight, float *dbias) {
    float *columns = turned(m, n, dy), *panels = floats(padded(k) * m);
    pack_all(m, k, x, k, 1, panels);
    add_weight_gradient(m, n, k, columns, panels, dweight, dbias);
    free(columns), free(panels);
}

/* ---- activations ---- */

#define LOG2E 1.44269504f

/* 2^x to a unit in the last place or two: 2^n times a polynomial of what is left, whose error is at most 2e-9 of it */
static vector power_of_two(vector x) {
    x = lesser(all(127), greater(all(-126), x));
    vector shift = all(12582912); /* 1.5·2^23: adding it rounds to a whole number */
    vector n = x + shift;
    vector power = (vector)(((integers)n << 23) + (127 << 23)); /* 2^n, by its exponent */
    x -= n - shift;
    vector y = all(1.53458118e-4f);
    y = y * x + 1.33999314e-3f;
    y = y * x + 9.61848896e-3f;
    y = y * x + 5.55032878e-2f;
    y = y * x + 2.40226469e-1f;
    y = y * x + 6.93147206e-1f;
    y = y * x + 1.0f;
    return y * power; /* NaN if x is */
}

/* x·σ(x·(A + B·x²)), which is gelu as approximated by tanh */
static vector gelu_tanh(vector x, vector *slope) {
    const float a = 1.5957691216f, b = 0.0713548163f; /* 2·√(2/π), and 0.044715 times that */
    vector share = 1.0f / (1.0f + power_of_two(x * (-LOG2E * a - LOG2E * b * (x * x))));
    *slope = share + x * share * (1.0f - share) * (a + 3.0f * b * x * x);
    return x * share;
}

/* x·Φ(x), with the normal distribution by Abramowitz and Stegun 7.1.26, to 1e-7 */
static vector gelu(vector x, vector *slope) {
    vector bell = power_of_two(-0.5f * LOG2E * x * x), size = pick(x < 0.0f, -x, x);
    vector t = 1.0f / (1.0f + 0.3275911f * 0.70710678f * size);
    vector y = all(1.061405429f);
    y = y * t - 1.453152027f;
    y = y * t + 1.421413741f;
    y = y * t - 0.284496736f;
    y = y * t + 0.254829592f;
    y = 0.5f * y * t * bell;
    y = pick(x < 0.0f, y, 1.0f - y);
    *slope = y + x * bell * 0.39894228f;
    return x * y;
}

static vector relu(vector x, vector *slope) {
    *slope = pick(x <= 0.0f, all(0), all(1));
    return greater(all(0), x);
}

#define EACH(f)                                                                                                        \
    for (; i + W <= n; i += W) {                                                                                       \
        vector s;                                                                                                      \
        store(y + i, f(load(x + i), &s));                                                                              \
        if (slope) store(slope + i, s);                                                                                \
    }                                                                                                                  \
    for (; i < n; i++) {                                                                                               \
        vector s;                                                                                                      \
        y[i] = f(all(x[i]), &s)[0];                                                                                    \
        if (slope) slope[i] = s[0];                                                                                    \
    }

static void activate_run(int kind, long n, const float *x, float *y, float *slope) {
    long i = 0;
    if (kind == 0) { EACH(relu) }
    if (kind == 1) { EACH(gelu) }
    if (kind == 2) { EACH(gelu_tanh) }
}

/* n numbers, and if asked for the slopes there */
void activate(int kind, long n, const float *x, float *y, float *slope) {
    long run = 4096;
#pragma omp parallel for
    for (long i = 0; i < n; i += run) activate_run(kind, least(n - i, run), x + i, y + i, slope ? slope + i : 0);
}

/* ---- layer norm ---- */

/* y (m, n) = norm of x, or of x + more, with weight and bias; for the gradient, what is normed and 1/deviation */
static void norm_rows(long m, long n, float epsilon, const float *x, const float *more, const float *weight,
                      const float *bias, float *y, float *normed, float *scale) {
    for (long i = 0; i < m; i++, x += n, y += n, normed += n) {
        vector total[2] = {0}, square[2] = {0}; /* two, as an addition waits for the one before */
        float mean = 0, deviation = 0;
        long j = 0;
        for (; j + 2 * W <= n; j += 2 * W)
            for (int v = 0; v < 2; v++) {
                vector value = load(x + j + v * W);
                if (more) value += load(more + i * n + j + v * W);
                store(normed + j + v * W, value);
                total[v] += value;
            }
        for (; j < n; j++) mean += normed[j] = x[j] + (more ? more[i * n + j] : 0);
        mean = (mean + sum(total[0] + total[1])) / n;
        for (j = 0; j + 2 * W <= n; j += 2 * W)
            for (int v = 0; v < 2; v++) {
                vector off = load(normed + j + v * W) - mean;
                square[v] += off * off;
            }
        for (; j < n; j++) deviation += (normed[j] - mean) * (normed[j] - mean);
        scale[i] = 1 / sqrtf((deviation + sum(square[0] + square[1])) / n + epsilon);
        for (j = 0; j + W <= n; j += W) {
            vector value = (load(normed + j) - mean) * scale[i];
            store(normed + j, value);
            store(y + j, value * load(weight + j) + load(bias + j));
        }
        for (; j < n; j++) y[j] = (normed[j] = (normed[j] - mean) * scale[i]) * weight[j] + bias[j];
    }
}

/* dx (m, n), from dy */
static void norm_rows_gradient(long m, long n, const float *normed, const float *scale, const float *weight,
                               const float *dy, float *dx) {
    for (long i = 0; i < m; i++, normed += n, dy += n, dx += n) {
        vector total = all(0), along = all(0);
        float mean = 0, slope = 0;
        long j = 0;
        for (; j + W <= n; j += W) {
            vector value = load(dy + j) * load(weight + j);
            total += value;
            along += value * load(normed + j);
        }
        for (; j < n; j++) mean += dy[j] * weight[j], slope += dy[j] * weight[j] * normed[j];
        mean = (mean + sum(total)) / n, slope = (slope + sum(along)) / n;
        for (j = 0; j + W <= n; j += W)
            store(dx + j, (load(dy + j) * load(weight + j) - mean - load(normed + j) * slope) * scale[i]);
        for (; j < n; j++) dx[j] = (dy[j] * weight[j] - mean - normed[j] * slope) * scale[i];
    }
}

#define STRETCH 256 /* columns that are summed together, so that rows are read in long runs */

static void add_norm_weight_gradient(long m, long n, const float *normed, const float *dy, float *dweight,
                                     float *dbias) {
#pragma omp parallel for
    for (long j = 0; j < n; j += STRETCH) {
        long columns = least(n - j, STRETCH);
        float weight[STRETCH] = {0}, bias[STRETCH] = {0};
        for (long i = 0; i < m; i++) {
            const float *restrict a = normed + i * n + j, *restrict b = dy + i * n + j;
            for (long q = 0; q < columns; q++) weight[q] += a[q] * b[q], bias[q] += b[q];
        }
        for (long q = 0; q < columns; q++) dweight[j + q] += weight[q], dbias[j + q] += bias[q];
    }
}

void norm(long m, long n, float epsilon, const float *x, const float *more, const float *weight, const float *bias,
          float *y, float *normed, float *scale) {
#pragma omp parallel for
    for (long i = 0; i < m; i += BLOCK)
        norm_rows(least(m - i, BLOCK), n, epsilon, x + i * n, more ? more + i * n : 0, weight, bias, y + i * n,
                  normed + i * n, scale + i);
}

void norm_gradient(long m, long n, const float *normed, const float *scale, const float *weight, const float *dy,
                   float *dx, float *dweight, float *dbias) {
#pragma omp parallel for
    for (long i = 0; i < m; i += BLOCK)
        norm_rows_gradient(least(m - i, BLOCK), n, normed + i * n, scale + i, weight, dy + i * n, dx + i * n);
    add_norm_weight_gradient(m, n, normed, dy, dweight, dbias);
}

/* ---- attention ---- */

typedef struct {
    long b, h, i, j, d; /* examples, heads, queries, keys, width of a head */
    float scale;        /* of queries times keys */
    int by_query;       /* whether relative vectors are multiplied with queries */
    int by_key;         /* and with keys */
} shape;

/* What tokens have, a run of h·d numbers each, from token to token with a stride */
typedef struct {
    float *x;
    long stride;
} tokens;

/* The runs of one position of all examples, side by side: (b·h, d) */
static void gather(shape s, tokens from, long length, long position, float *to) {
    for (long b = 0; b < s.b; b++)
        memcpy(to + b * s.h * s.d, from.x + (b * length + position) * from.stride, s.h * s.d * sizeof(float));
}

static void scatter_add(shape s, const float *from, long length, long position, tokens to) {
    for (long b = 0; b < s.b; b++) {
        float *x = to.x + (b * length + position) * to.stride;
        for (long e = 0; e < s.h * s.d; e++) x[e] += from[b * s.h * s.d + e];
    }
}

/* Rows of a table (rows, width): those that the first n of an example's tokens have, side by side */
typedef struct {
    const long *which; /* (b, j); 0 if there is no table */
    long rows;
} lookup;

static void look_up(shape s, lookup at, long n, long width, tokens table, tokens to) {
#pragma omp parallel for
    for (long b = 0; b < s.b; b++)
        for (long i = 0; i < n; i++)
            memcpy(to.x + (b * n + i) * to.stride, table.x + at.which[b * s.j + i] * table.stride, width * sizeof(*to.x));
}

/* The gradient of the table: for each row, the sum of what its tokens have */
static void add_up(shape s, lookup at, long n, long width, tokens from, tokens table) {
#pragma omp parallel for
    for (long e = 0; e < width; e += BLOCK) {
        long columns = least(width - e, BLOCK);
        for (long r = 0; r < at.rows; r++) memset(table.x + r * table.stride + e, 0, columns * sizeof(float));
        for (long b = 0; b < s.b; b++)
            for (long i = 0; i < n; i++) {
                const float *x = from.x + (b * n + i) * from.stride + e;
                float *sum = table.x + at.which[b * s.j + i] * table.stride + e;
                for (long q = 0; q < columns; q++) sum[q] += x[q];
            }
    }
}

/* One head of one example */
static float *of_head(shape s, tokens from, long length, long e) {
    return from.x + e / s.h * length * from.stride + e % s.h * s.d;
}

static void scaled(long n, float *x, float scale) {
    for (long i = 0; i < n; i++) x[i] *= scale;
}

/* Rows of n numbers, padded, to e^x over their sum, and 0 in the padding */
static void softmax(long rows, long n, float *x) {
    long last = padded(n) - W;
    integers inside;
    for (long i = 0; i < W; i++) inside[i] = last + i < n ? -1 : 0;
    for (; rows; rows--, x += padded(n)) {
        vector highest = pick(inside, load(x + last), all(x[0])), total = all(0);
        for (long j = 0; j < last; j += W) highest = greater(highest, load(x + j));
        float most = largest(highest);
        for (long j = 0; j < n; j += W) {
            vector y = power_of_two((load(x + j) - most) * LOG2E);
            if (j == last) y = pick(inside, y, all(0));
            store(x + j, y);
            total += y;
        }
        float share = 1 / sum(total);
        for (long j = 0; j < n; j += W) store(x + j, load(x + j) * share);
    }
}

/* weights (b, h, i, padded j) = softmax(q·k·scale + q·vectors + k·vectors), and mixed = weights·v; vectors (i, j, d) */
void attend(shape s, tokens q, tokens k, tokens v, const float *vectors, float *weights, tokens mixed) {
    long heads = s.b * s.h, row = padded(s.j), head = s.i * row, across = padded(s.i);
    if (!s.by_query) memset(weights, 0, heads * head * sizeof(float));
#pragma omp parallel
    {
        float *panels = floats(most(most(row, across) * s.d, padded(s.d) * s.j));
        float *run = floats(heads * s.d), *scores = floats(heads * across);
        if (s.by_query) {
#pragma omp for
            for (long i = 0; i < s.i; i++) {
                pack(s.d, s.j, vectors + i * s.j * s.d, 1, s.d, panels);
                gather(s, q, s.i, i, run);
                product(heads, row, s.d, run, s.d, 1, panels, 0, weights + i * row, head);
            }
        }
        if (s.by_key) {
#pragma omp for
            for (long j = 0; j < s.j; j++) {
                pack(s.d, s.i, vectors + j * s.d, 1, s.j * s.d, panels);
                gather(s, k, s.j, j, run);
                product(heads, across, s.d, run, s.d, 1, panels, 0, scores, across);
                for (long e = 0; e < heads; e++)
                    for (long i = 0; i < s.i; i++) weights[e * head + i * row + j] += scores[e * across + i];
            }
        }
#pragma omp for
        for (long e = 0; e < heads; e++) {
            float *w = weights + e * head;
            pack(s.d, s.j, of_head(s, k, s.j, e), 1, k.stride, panels);
            scaled(row * s.d, panels, s.scale);
            product(s.i, row, s.d, of_head(s, q, s.i, e), q.stride, 1, panels, w, w, row);
            softmax(s.i, s.j, w);
            product_with_rows(s.i, s.d, s.j, w, row, 1, of_head(s, v, s.j, e), v.stride, panels, 0,
                              of_head(s, mixed, s.i, e), mixed.stride);
        }
        free(panels), free(run), free(scores);
    }
}

/* From the gradient of mixed those of q, k and v; that of vectors, where there are any, is added to dvectors */
void attend_gradient(shape s, tokens q, tokens k, tokens v, const float *vectors, const float *weights, tokens dmixed,
                     tokens dq, tokens dk, tokens dv, float *dvectors) {
    long heads = s.b * s.h, row = padded(s.j), head = s.i * row, across = padded(s.i), longer = most(s.i, s.j);
    float *dscores = floats(heads * head);
#pragma omp parallel
    {
        float *panels = floats(most(row * s.d, padded(s.d) * most(longer, heads)));
        float *run = floats(heads * s.d), *back = floats(heads * s.d), *scores = floats(most(heads * across, head));
#pragma omp for
        for (long e = 0; e < heads; e++) {
            const float *w = weights + e * head, *d = of_head(s, dmixed, s.i, e);
            float *ds = dscores + e * head;
            pack(s.d, s.j, of_head(s, v, s.j, e), 1, v.stride, panels);
            product(s.i, row, s.d, d, dmixed.stride, 1, panels, 0, ds, row);
            for (long i = 0; i < s.i; i++) {
                vector total = all(0);
                for (long j = i * row; j < (i + 1) * row; j += W) total += load(w + j) * load(ds + j);
                float mean = sum(total);
                for (long j = i * row; j < (i + 1) * row; j += W) {
                    store(ds + j, load(w + j) * (load(ds + j) - mean));
                    store(scores + j, load(ds + j) * s.scale);
                }
            }
            product_with_rows(s.j, s.d, s.i, w, 1, row, d, dmixed.stride, panels, 0, of_head(s, dv, s.j, e), dv.stride);
            product_with_rows(s.i, s.d, s.j, scores, row, 1, of_head(s, k, s.j, e), k.stride, panels, 0,
                              of_head(s, dq, s.i, e), dq.stride);
            product_with_rows(s.j, s.d, s.i, scores, 1, row, of_head(s, q, s.i, e), q.stride, panels, 0,
                              of_head(s, dk, s.j, e), dk.stride);
        }
        if (s.by_query) {
#pragma omp for
            for (long i = 0; i < s.i; i++) {
                float *d = dvectors + i * s.j * s.d;
                product_with_rows(heads, s.d, s.j, dscores + i * row, head, 1, vectors + i * s.j * s.d, s.d, panels, 0,
                                  back, s.d);
                scatter_add(s, back, s.i, i, dq);
                gather(s, q, s.i, i, run);
                product_with_rows(s.j, s.d, heads, dscores + i * row, 1, head, run, s.d, panels, d, d, s.d);
            }
        }
        if (s.by_key) {
#pragma omp for
            for (long j = 0; j < s.j; j++) {
                float *d = dvectors + j * s.d;
                for (long e = 0; e < heads; e++)
                    for (long i = 0; i < s.i; i++) scores[e * across + i] = dscores[e * head + i * row + j];
                product_with_rows(heads, s.d, s.i, scores, across, 1, vectors + j * s.d, s.j * s.d, panels, 0, back,
                                  s.d);
                scatter_add(s, back, s.j, j, dk);
                gather(s, k, s.j, j, run);
                product_with_rows(s.i, s.d, heads, scores, 1, across, run, s.d, panels, d, d, s.j * s.d);
            }
        }
        free(panels), free(run), free(back), free(scores);
    }
    free(dscores);
}

/* ---- whole layers: attention and a feed-forward network, and a norm after each ---- */

typedef struct {
    float *qkv, *qkv_bias, *output, *output_bias, *attention_norm, *attention_norm_bias;
    float *widen, *widen_bias, *narrow, *narrow_bias, *feedforward_norm, *feedforward_norm_bias;
} parameters;

typedef struct {
    long width, inner; /* of hidden vectors, and in the feed-forward network */
    int activation;
    float epsilon;
    int learning; /* whether a gradient will be asked for */
} layer_shape;

/* The weights of a layer, to be multiplied with m tokens */
typedef struct {
    factor q, kv, output, widen, narrow;
} weights;

static weights weights_forward(long m, layer_shape l, parameters p) {
    long n = l.width;
    return (weights){factor_of(m, n, n, p.qkv, 1, n), factor_of(m, n, 2 * n, p.qkv + n * n, 1, n),
                     factor_of(m, n, n, p.output, 1, n), factor_of(m, n, l.inner, p.widen, 1, n),
                     factor_of(m, l.inner, n, p.narrow, 1, l.inner)};
}

static weights weights_backward(long m, layer_shape l, parameters p) {
    long n = l.width;
    return (weights){factor_of(m, n, n, p.qkv, n, 1), factor_of(m, 2 * n, n, p.qkv + n * n, n, 1),
                     factor_of(m, n, n, p.output, n, 1), factor_of(m, l.inner, n, p.widen, n, 1),
                     factor_of(m, n, l.inner, p.narrow, l.inner, 1)};
}

static void free_weights(long n, weights *w) {
    for (; n--; w++)
        free_factor(w->q), free_factor(w->kv), free_factor(w->output), free_factor(w->widen), free_factor(w->narrow);
}

/* What a layer writes down for its gradient; x, first (its tokens with queries), mixed, after and inner in panels */
typedef struct {
    float *q, *kv, *weights, *x, *first, *mixed, *after, *normed, *scale, *inner, *slope, *last_normed, *last_scale;
} remembered;

/* Where each part is in a run of numbers, and how long that is */
static long placed(shape s, layer_shape l, float *memory, remembered *at) {
    long read = s.b * s.i, tokens = s.b * s.j, panels = padded(l.width), all = l.learning, some = s.i < s.j;
    float **parts[] = {&at->q, &at->kv, &at->weights, &at->x, &at->first, &at->mixed, &at->after,
                       &at->normed, &at->scale, &at->inner, &at->slope, &at->last_normed, &at->last_scale};
    long sizes[] = {read * l.width, tokens * 2 * l.width, s.b * s.h * s.i * padded(s.j), all * tokens * panels,
                    all * some * read * panels, all * read * panels, all * read * panels, all * read * l.width,
                    all * read, all * read * padded(l.inner), all * read * l.inner, all * read * l.width, all * read};
    long used = 0;
    for (unsigned p = 0; p < sizeof(sizes) / sizeof(*sizes); used += (sizes[p++] + 15) / 16 * 16)
        *parts[p] = memory + used;
    if (!some) at->first = at->x;
    return used;
}

/* Queries, keys and values of a layer's tokens, as they are written down */
typedef struct {
    tokens q, k, v;
} projections;

static projections projected(layer_shape l, float *q, float *kv) {
    return (projections){{q, l.width}, {kv, 2 * l.width}, {kv + l.width, 2 * l.width}};
}

/* x (b, j, width) -> y (b, i, width); with a table, its rows are what x was looked up from, and their projections */
static void layer(shape s, layer_shape l, parameters p, weights w, const float *x, lookup from, projections table,
                  const float *vectors, remembered at, float *y) {
    long read = s.b * s.i, tokens_ = s.b * s.j, width = l.width;
    projections own = projected(l, at.q, at.kv);
    float *some = s.i < s.j ? floats(read * width) : 0, *mixed = floats(read * width);
    for (long b = 0; some && b < s.b; b++)
        memcpy(some + b * s.i * width, x + b * s.j * width, s.i * width * sizeof(float));
    const float *first = some ? some : x;
    if (from.which) {
        look_up(s, from, s.i, width, table.q, own.q);
        look_up(s, from, s.j, width, table.k, own.k);
        look_up(s, from, s.j, width, table.v, own.v);
    } else {
        multiply(read, first, w.q, p.qkv_bias, at.q);
        multiply(tokens_, x, w.kv, p.qkv_bias + width, at.kv);
        if (l.learning) {
            remember_all(tokens_, width, x, at.x);
            if (some) remember_all(read, width, first, at.first);
        }
    }
    attend(s, own.q, own.k, own.v, vectors, at.weights, (tokens){mixed, width});
#pragma omp parallel
    {
        float *added = floats(BLOCK * width), *after = floats(BLOCK * width), *inner = floats(BLOCK * l.inner);
        float *unread = floats(BLOCK * (width + 1));
#pragma omp for
        for (long i = 0; i < read; i += BLOCK) {
            long rows = least(read - i, BLOCK), n = i * width;
            float *normed = l.learning ? at.normed + n : unread;
            float *scale = l.learning ? at.scale + i : unread + BLOCK * width;
            times(rows, mixed + n, w.output, p.output_bias, added);
            norm_rows(rows, width, l.epsilon, first + n, added, p.attention_norm, p.attention_norm_bias, after, normed,
                      scale);
            times(rows, after, w.widen, p.widen_bias, inner);
            activate_run(l.activation, rows * l.inner, inner, inner, l.learning ? at.slope + i * l.inner : 0);
            times(rows, inner, w.narrow, p.narrow_bias, added);
            norm_rows(rows, width, l.epsilon, after, added, p.feedforward_norm, p.feedforward_norm_bias, y + n,
                      l.learning ? at.last_normed + n : normed, l.learning ? at.last_scale + i : scale);
            if (l.learning) {
                remember_rows(i, rows, read, width, mixed + n, at.mixed);
                remember_rows(i, rows, read, width, after, at.after);
                remember_rows(i, rows, read, l.inner, inner, at.inner);
            }
        }
        free(added), free(after), free(inner), free(unread);
    }
    free(some), free(mixed);
}

/* From dy the gradients of x and of the table of projections, if there was one; those of vectors and parameters are
   added */
static void layer_gradient(shape s, layer_shape l, parameters p, weights w, lookup from, const float *vectors,
                           remembered at, const float *dy, float *dx, projections dtable, float *dvectors,
                           parameters d) {
    long read = s.b * s.i, tokens_ = s.b * s.j, width = l.width;
    float *some = s.i < s.j ? floats(read * width) : 0, *dfirst = some ? some : dx;
    float *dafter = floats(read * width), *dmixed = floats(read * width);
    float *dlast_turned = floats(width * padded(read)), *dinner_turned = floats(l.inner * padded(read));
    float *dfirst_turned = floats(width * padded(read));
#pragma omp parallel
    {
        float *dlast = floats(BLOCK * width), *dinner = floats(BLOCK * l.inner);
#pragma omp for
        for (long i = 0; i < read; i += BLOCK) {
            long rows = least(read - i, BLOCK), n = i * width;
            float *slope = at.slope + i * l.inner;
            norm_rows_gradient(rows, width, at.last_normed + n, at.last_scale + i, p.feedforward_norm, dy + n, dlast);
            fetch(slope, rows * l.inner);
            times(rows, dlast, w.narrow, 0, dinner);
            for (long e = 0; e < rows * l.inner; e++) dinner[e] *= slope[e];
            memcpy(dafter + n, dlast, rows * width * sizeof(float));
            fetch(at.normed + n, rows * width);
            times(rows, dinner, w.widen, dafter + n, dafter + n);
            norm_rows_gradient(rows, width, at.normed + n, at.scale + i, p.attention_norm, dafter + n, dfirst + n);
            fetch(at.last_normed + n + rows * width, least(read - i - rows, BLOCK) * width);
            times(rows, dfirst + n, w.output, 0, dmixed + n);
            turn_rows(i, rows, read, width, dlast, dlast_turned);
            turn_rows(i, rows, read, l.inner, dinner, dinner_turned);
            turn_rows(i, rows, read, width, dfirst + n, dfirst_turned);
        }
        free(dlast), free(dinner);
    }
    add_weight_gradient(read, width, l.inner, dlast_turned, at.inner, d.narrow, d.narrow_bias);
    add_weight_gradient(read, l.inner, width, dinner_turned, at.after, d.widen, d.widen_bias);
    add_weight_gradient(read, width, width, dfirst_turned, at.mixed, d.output, d.output_bias);
    add_norm_weight_gradient(read, width, at.last_normed, dy, d.feedforward_norm, d.feedforward_norm_bias);
    add_norm_weight_gradient(read, width, at.normed, dafter, d.attention_norm, d.attention_norm_bias);
    free(dlast_turned), free(dinner_turned), free(dfirst_turned), free(dafter);

    float *dq = floats(read * width), *dkv = floats(tokens_ * 2 * width);
    projections own = projected(l, at.q, at.kv), back = projected(l, dq, dkv);
    attend_gradient(s, own.q, own.k, own.v, vectors, at.weights, (tokens){dmixed, width}, back.q, back.k, back.v,
                    dvectors);
    if (!from.which) multiply(read, dq, w.q, dfirst, dfirst);
    if (some) memset(dx, 0, tokens_ * width * sizeof(float));
    for (long b = 0; some && b < s.b; b++)
        memcpy(dx + b * s.j * width, dfirst + b * s.i * width, s.i * width * sizeof(float));
    if (from.which) {
        add_up(s, from, s.i, width, back.q, dtable.q);
        add_up(s, from, s.j, width, back.k, dtable.k);
        add_up(s, from, s.j, width, back.v, dtable.v);
    } else {
        float *dq_turned = turned(read, width, dq), *dkv_turned = turned(tokens_, 2 * width, dkv);
        multiply(tokens_, dkv, w.kv, dx, dx);
        add_weight_gradient(read, width, width, dq_turned, at.first, d.qkv, d.qkv_bias);
        add_weight_gradient(tokens_, 2 * width, width, dkv_turned, at.x, d.qkv + width * width, d.qkv_bias + width);
        free(dq_turned), free(dkv_turned);
    }
    free(some), free(dmixed), free(dq), free(dkv);
}

/* A stack of layers: how often one is applied, how many there are to take in turns, and how many relative vectors */
typedef struct {
    long depth, layers, vectors;
} stack;

/* The shape of attention in a layer of the stack: only the last is computed for some of the tokens alone */
static shape shape_at(shape s, stack t, long i) {
    if (i < t.depth - 1) s.i = s.j;
    return s;
}

/* How many numbers a layer writes down */
long layer_memory(shape s, layer_shape l) {
    remembered unused;
    return placed(s, l, 0, &unused);
}

/* x -> y (b, i, width): x is (b, j, width), or a table (rows, width) with what the first layer projects it to. Each
   layer has its memory; without learning, there is one that they write over */
static void some_layers(shape s, layer_shape l, stack t, const parameters *p, weights *w, const float *x,
                        lookup from, projections table, const float **vectors, float **memory, float *y) {
    long size = s.b * s.j * l.width;
    float *between[2] = {floats(size), floats(size)};
    if (from.which) {
        look_up(s, from, s.j, l.width, (tokens){(float *)x, l.width}, (tokens){between[1], l.width});
        x = between[1];
    }
    for (long i = 0; i < t.depth; i++) {
        long n = i % t.layers;
        remembered at;
        shape here = shape_at(s, t, i);
        placed(here, l, memory[l.learning ? i : 0], &at);
        float *to = i == t.depth - 1 ? y : between[i % 2];
        layer(here, l, p[n], w[n], x, from, table, vectors[i % t.vectors], at, to);
        x = to, from.which = 0;
    }
    free(between[0]), free(between[1]);
}

/* The same; without learning, a few examples go through all layers, and then the next, so that they stay in the cache: at
   least so many that their numbers, some 8 times the width, are as many as the weights, which are read for them */
void layers(shape s, layer_shape l, stack t, const parameters *p, const float *x, lookup from, projections table,
            const float **vectors, float **memory, float *y) {
    weights *w = malloc(t.layers * sizeof(weights));
    for (long n = 0; n < t.layers; n++) w[n] = weights_forward(s.b * s.j, l, p[n]);
    long examples = s.b, few = most(TOKENS, t.layers * (4 * l.width + 2 * l.inner) / 8);
    long some = l.learning ? s.b : most(1, few * omp_get_max_threads() / s.j);
    for (long b = 0; b < examples; b += some) {
        s.b = least(examples - b, some);
        lookup here = {from.which ? from.which + b * s.j : 0, from.rows};
        const float *start = from.which ? x : x + b * s.j * l.width;
        some_layers(s, l, t, p, w, start, here, table, vectors, memory, y + b * s.i * l.width);
    }
    free_weights(t.layers, w), free(w);
}

/* From dy the gradients of x and of what a table is projected to; those of vectors and parameters are added */
void layers_gradient(shape s, layer_shape l, stack t, const parameters *p, lookup from, const float **vectors,
                     float **memory, const float *dy, float *dx, projections dtable, float **dvectors,
                     const parameters *d) {
    long size = s.b * s.j * l.width;
    float *between[2] = {floats(size), floats(size)};
    weights *w = malloc(t.layers * sizeof(weights));
    for (long n = 0; n < t.layers; n++) w[n] = weights_backward(s.b * s.j, l, p[n]);
    const lookup none = {0, 0};
    for (long i = t.depth - 1; i >= 0; i--) {
        long n = i % t.layers, r = i % t.vectors;
        remembered at;
        shape here = shape_at(s, t, i);
        placed(here, l, memory[i], &at);
        float *to = i || from.which ? between[i % 2] : dx;
        layer_gradient(here, l, p[n], w[n], i ? none : from, vectors[r], at, dy, to, dtable, dvectors[r], d[n]);
        dy = to;
    }
    if (from.which) add_up(s, from, s.j, l.width, (tokens){between[0], l.width}, (tokens){dx, l.width});
    free_weights(t.layers, w), free(w), free(between[0]), free(between[1]);
}

/* ---- the optimiser ---- */

#define CHUNK 16384 /* numbers that a thread takes at a time */

static double sum_of_squares(long n, const float *x) {
    long chunks = (n + CHUNK - 1) / CHUNK;
    float *sums = floats(chunks);
    double total = 0;
#pragma omp parallel for
    for (long c = 0; c < chunks; c++) {
        vector squares[4] = {0};
        long i = c * CHUNK, end = least(n, i + CHUNK);
        for (; i + 4 * W <= end; i += 4 * W)
            for (int v = 0; v < 4; v++) squares[v] += load(x + i + v * W) * load(x + i + v * W);
        sums[c] = sum(squares[0] + squares[1] + squares[2] + squares[3]);
        for (; i < end; i++) sums[c] += x[i] * x[i];
    }
    for (long c = 0; c < chunks; c++) total += sums[c];
    free(sums);
    return total;
}

/* AdamW (Loshchilov and Hutter, 2019) of several tensors, with their gradients clipped to a norm, if clip isn't 0 */
void adamw(long tensors, const long *sizes, float **x, float **gradient, float **mean, float **square, float **steps,
           double rate, double beta1, double beta2, double epsilon, double decay, double clip) {
    double total = 0;
    for (long t = 0; clip && t < tensors; t++) total += sum_of_squares(sizes[t], gradient[t]);
    double share = clip ? clip / (sqrt(total) + 1e-6) : 1;
    const float kept = 1 - rate * decay, new1 = 1 - beta1, old2 = beta2, new2 = 1 - beta2, least_root = epsilon;
    const float clipped = share > 1 ? 1 : share; /* NaN if it is */
    for (long t = 0; t < tensors; t++) {
        double step = *steps[t] += 1;
        const float size = rate / (1 - pow(beta1, step)), unbiased = 1 / sqrt(1 - pow(beta2, step));
#pragma omp parallel for
        for (long c = 0; c < sizes[t]; c += CHUNK) {
            long n = least(sizes[t] - c, CHUNK);
            float *restrict to = x[t] + c, *restrict m = mean[t] + c, *restrict v = square[t] + c;
            const float *restrict from = gradient[t] + c;
            for (long i = 0; i < n; i++) {
                float g = from[i] * clipped;
                m[i] += new1 * (g - m[i]);
                v[i] = old2 * v[i] + new2 * g * g;
                to[i] = to[i] * kept - size * m[i] / (sqrtf(v[i]) * unbiased + least_root);
            }
        }
    }
}
