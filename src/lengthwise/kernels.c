/* What a small transformer does on a CPU, in float32; kernels.py compiles and calls it.

   Everything rests on one loop, `tile`: a few rows of A times a panel of B, in registers. At the sizes of small
   transformers it is faster than what torch has for them (docs/speed.md). A matrix has strides: rs from row to row, cs
   from column to column. Threads share what is written, never what is summed, so that no result depends on how many
   there are. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX512F__)
#define W 16
#elif defined(__AVX__)
#define W 8
#else
#define W 4
#endif
#define ROWS 6           /* of a tile: with two vectors each, as many as fit the registers */
#define COLUMNS (2 * W)  /* of a tile, and so of a panel */
#define BLOCK (8 * ROWS) /* rows that are worked on together, so that what they need stays in the cache */

typedef float vector __attribute__((vector_size(4 * W)));
typedef float unaligned __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef int integers __attribute__((vector_size(4 * W)));

static long least(long a, long b) { return a < b ? a : b; }
static long most(long a, long b) { return a > b ? a : b; }
static long padded(long n) { return (n + W - 1) / W * W; }
static float *floats(long n) { return aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64); }
static vector load(const float *x) { return *(const unaligned *)x; }
static void store(float *x, vector y) { *(unaligned *)x = y; }
static vector all(float x) { return x - (vector){0}; }
static vector pick(integers where, vector x, vector y) {
    return (vector)((where & (integers)x) | (~where & (integers)y));
}
static float sum(vector x) {
    float total = 0;
    for (int i = 0; i < W; i++) total += x[i];
    return total;
}

/* ---- C = A·B ---- */

/* C (rows, vectors·W) = A (rows, k) · panel (k, vectors·W), plus a row (bias, or 0) or plus what C has (bias is c) */
#define TILE(rows, vectors)                                                                                            \
    static void tile##rows##vectors(long k, const float *a, long rs, long cs, const float *panel, const float *bias,   \
                                    float *c, long ldc) {                                                              \
        vector s[rows][vectors];                                                                                       \
        long next = bias == c ? ldc : 0;                                                                               \
        for (int i = 0; i < rows; i++)                                                                                 \
            for (int v = 0; v < vectors; v++) s[i][v] = bias ? load(bias + i * next + v * W) : all(0);                 \
        for (long p = 0; p < k; p++, panel += vectors * W)                                                             \
            for (int i = 0; i < rows; i++)                                                                             \
                for (int v = 0; v < vectors; v++) s[i][v] += a[i * rs + p * cs] * load(panel + v * W);                 \
        for (int i = 0; i < rows; i++)                                                                                 \
            for (int v = 0; v < vectors; v++) store(c + i * ldc + v * W, s[i][v]);                                     \
    }
TILE(1, 1) TILE(2, 1) TILE(3, 1) TILE(4, 1) TILE(5, 1) TILE(6, 1)
TILE(1, 2) TILE(2, 2) TILE(3, 2) TILE(4, 2) TILE(5, 2) TILE(6, 2)
static void (*const TILES[2][ROWS + 1])(long, const float *, long, long, const float *, const float *, float *, long) = {
    {0, tile11, tile21, tile31, tile41, tile51, tile61},
    {0, tile12, tile22, tile32, tile42, tile52, tile62},
};

/* Rows p0 to p1 of a panel (k, wide) of columns of B, with zeros beyond the last column */
static inline void pack_rows(long p0, long p1, long wide, long columns, const float *b, long rs, long cs, float *panel) {
    if (cs == 1 && columns == wide) {
        for (long p = p0; p < p1; p++)
            for (long q = 0; q < wide; q += W) store(panel + p * wide + q, load(b + p * rs + q));
    } else {
        for (long q = 0; q < wide; q++)
            for (long p = p0; p < p1; p++) panel[p * wide + q] = q < columns ? b[p * rs + q * cs] : 0;
    }
}

/* Rows p0 to p1 of B (k, n) as panels, COLUMNS or W wide, one after the other; a few at a time, for the cache's sake */
static void pack_some(long p0, long p1, long k, long n, const float *b, long rs, long cs, float *panels) {
    for (; p0 < p1; p0 += 16) {
        long end = least(p0 + 16, p1);
        for (long j = 0; j < n; j += COLUMNS) {
            const float *from = b + j * cs;
            float *to = panels + j * k;
            if (n - j >= COLUMNS && cs == 1) pack_rows(p0, end, COLUMNS, COLUMNS, from, rs, 1, to);
            else if (n - j >= COLUMNS && rs == 1) pack_rows(p0, end, COLUMNS, COLUMNS, from, 1, cs, to);
            else pack_rows(p0, end, n - j > W ? COLUMNS : W, n - j, from, rs, cs, to);
        }
    }
}

static void pack(long k, long n, const float *b, long rs, long cs, float *panels) {
    pack_some(0, k, k, n, b, rs, cs, panels);
}

/* C (m, n) = A (m, k) · B in panels, plus a row (bias, or 0) or plus what C has (bias is c) */
static void product(long m, long n, long k, const float *a, long rs, long cs, const float *panels, const float *bias,
                    float *c, long ldc) {
    for (long i0 = 0; i0 < m; i0 += BLOCK)
        for (long j = 0; j < n; j += COLUMNS) {
            long wide = n - j > W ? COLUMNS : W, columns = least(n - j, wide);
            for (long i = i0; i < least(i0 + BLOCK, m); i += ROWS) {
                long rows = least(m - i, ROWS);
                const float *from = a + i * rs, *panel = panels + j * k;
                float *to = c + i * ldc + j, edge[ROWS * COLUMNS];
                if (columns == wide) {
                    TILES[wide / W - 1][rows](k, from, rs, cs, panel, bias == c ? to : bias ? bias + j : 0, to, ldc);
                    continue;
                }
                TILES[wide / W - 1][rows](k, from, rs, cs, panel, 0, edge, wide);
                for (long r = 0; r < rows; r++)
                    for (long q = 0; q < columns; q++)
                        to[r * ldc + q] = edge[r * wide + q] + (bias == c ? to[r * ldc + q] : bias ? bias[j + q] : 0);
            }
        }
}

/* The panels of a whole matrix, packed by all threads */
static float *panels_of(long k, long n, const float *b, long rs, long cs) {
    float *panels = floats(padded(n) * k);
#pragma omp parallel for
    for (long p = 0; p < k; p += BLOCK) pack_some(p, least(p + BLOCK, k), k, n, b, rs, cs, panels);
    return panels;
}

/* y (m, n) = x (m, k) · weight (n, k)ᵀ + bias */
void linear(long m, long n, long k, const float *x, const float *weight, const float *bias, float *y) {
    float *panels = panels_of(k, n, weight, 1, k);
#pragma omp parallel for
    for (long i = 0; i < m; i += BLOCK)
        product(least(m - i, BLOCK), n, k, x + i * k, k, 1, panels, bias, y + i * n, n);
    free(panels);
}

/* dx (m, k) = dy (m, n) · weight (n, k), plus what dx has (add) */
void linear_input_gradient(long m, long n, long k, const float *weight, const float *dy, int add, float *dx) {
    float *panels = panels_of(n, k, weight, k, 1);
#pragma omp parallel for
    for (long i = 0; i < m; i += BLOCK)
        product(least(m - i, BLOCK), k, n, dy + i * n, n, 1, panels, add ? dx + i * k : 0, dx + i * k, k);
    free(panels);
}

/* dweight (n, k) = dyᵀ·x, and dbias (n), the sum of dy (m, n). Of the two, the one with fewer columns is A: tiles read it
   by columns, which are put side by side in memory for that, and dweight or its transpose is Aᵀ·B. */
void linear_weight_gradient(long m, long n, long k, const float *x, const float *dy, float *dweight, float *dbias) {
    int turned = n > k;
    long a = least(n, k), b = most(n, k);
    const float *A = turned ? x : dy, *B = turned ? dy : x;
    float *panels = panels_of(m, b, B, b, 1);
#pragma omp parallel
    {
        float *runs = floats(BLOCK * m), *own = floats(BLOCK * b);
        if (turned) {
#pragma omp for
            for (long j = 0; j < b; j += COLUMNS) {
                long columns = least(b - j, COLUMNS), wide = padded(columns);
                float *panel = panels + j * m, total[COLUMNS] = {0};
                for (long p = 0; p < m; p++)
                    for (long q = 0; q < wide; q += W) store(total + q, load(total + q) + load(panel + p * wide + q));
                memcpy(dbias + j, total, columns * sizeof(float));
            }
        }
#pragma omp for
        for (long i = 0; i < a; i += BLOCK) {
            long rows = least(a - i, BLOCK), whole = rows / ROWS * ROWS;
            float *to = turned ? own : dweight + i * k, total[BLOCK] = {0};
            for (long p = 0; p < m; p++) {
                const float *from = A + p * a + i;
                for (long r = 0; r < whole; r += ROWS) memcpy(runs + r * m + p * ROWS, from + r, ROWS * sizeof(float));
                for (long r = whole; r < rows; r++) runs[whole * m + p * ROWS + r - whole] = from[r];
                for (long r = 0; r < rows; r++) total[r] += from[r];
            }
            for (long j = 0; j < b; j += COLUMNS)
                for (long r = 0; r < rows; r += ROWS)
                    product(least(rows - r, ROWS), least(b - j, COLUMNS), m, runs + r * m, 1, ROWS, panels + j * m, 0,
                            to + r * b + j, b);
            if (!turned) {
                memcpy(dbias + i, total, rows * sizeof(float));
                continue;
            }
            for (long j0 = 0; j0 < b; j0 += COLUMNS)
                for (long r = 0; r < rows; r++)
                    for (long j = j0; j < least(j0 + COLUMNS, b); j++) dweight[j * k + i + r] = own[r * b + j];
        }
        free(runs), free(own);
    }
    free(panels);
}

/* ---- activations ---- */

/* e^x to a unit in the last place or two: 2^n times a polynomial of what is left */
static vector exponential(vector x) {
    const float log2e = 1.44269504f, high = 0.693359375f, low = -2.12194440e-4f;
    vector given = x;
    x = pick(x < -87.0f, all(-87), x);
    x = pick(x > 88.0f, all(88), x);
    vector shift = all(12582912); /* 1.5·2^23: adding it rounds to a whole number */
    vector n = x * log2e + shift;
    integers power = (integers)n << 23;
    n -= shift;
    x = x - n * high - n * low;
    vector y = all(1.9875691500e-4f);
    y = y * x + 1.3981999507e-3f;
    y = y * x + 8.3334519073e-3f;
    y = y * x + 4.1665795894e-2f;
    y = y * x + 1.6666665459e-1f;
    y = y * x + 5.0000001201e-1f;
    y = y * (x * x) + x + 1.0f;
    return pick(given == given, (vector)((integers)y + power), given);
}

/* x·σ(x·(A + B·x²)), which is gelu as approximated by tanh */
static vector gelu_tanh(vector x, vector *slope) {
    const float a = 1.5957691216f, b = 0.0713548163f; /* 2·√(2/π), and 0.044715 times that */
    vector share = 1.0f / (1.0f + exponential(-x * (a + b * x * x)));
    *slope = share + x * share * (1.0f - share) * (a + 3.0f * b * x * x);
    return x * share;
}

/* x·Φ(x), with the normal distribution by Abramowitz and Stegun 7.1.26, to 1e-7 */
static vector gelu(vector x, vector *slope) {
    vector bell = exponential(-0.5f * x * x), size = pick(x < 0.0f, -x, x);
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
    return pick(x <= 0.0f, all(0), x);
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
        vector total = all(0), square = all(0);
        float mean = 0, deviation = 0;
        long j = 0;
        for (; j + W <= n; j += W) {
            vector value = load(x + j);
            if (more) value += load(more + i * n + j);
            store(normed + j, value);
            total += value;
        }
        for (; j < n; j++) mean += normed[j] = x[j] + (more ? more[i * n + j] : 0);
        mean = (mean + sum(total)) / n;
        for (j = 0; j + W <= n; j += W) square += (load(normed + j) - mean) * (load(normed + j) - mean);
        for (; j < n; j++) deviation += (normed[j] - mean) * (normed[j] - mean);
        scale[i] = 1 / sqrtf((deviation + sum(square)) / n + epsilon);
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

static void norm_weight_gradient(long m, long n, const float *normed, const float *dy, float *dweight, float *dbias) {
#pragma omp parallel for
    for (long j = 0; j < n; j += BLOCK) {
        long columns = least(n - j, BLOCK);
        float weight[BLOCK] = {0}, bias[BLOCK] = {0};
        for (long i = 0; i < m; i++)
            for (long q = 0; q < columns; q++) {
                weight[q] += dy[i * n + j + q] * normed[i * n + j + q];
                bias[q] += dy[i * n + j + q];
            }
        memcpy(dweight + j, weight, columns * sizeof(float));
        memcpy(dbias + j, bias, columns * sizeof(float));
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
    norm_weight_gradient(m, n, normed, dy, dweight, dbias);
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

/* One head of one example */
static float *of_head(shape s, tokens from, long length, long e) {
    return from.x + e / s.h * length * from.stride + e % s.h * s.d;
}

static void scaled(long n, float *x, float scale) {
    for (long i = 0; i < n; i++) x[i] *= scale;
}

/* n numbers, padded, to e^x over their sum, and 0 in the padding */
static void softmax(long n, float *x) {
    float largest = x[0];
    vector total = all(0);
    for (long j = 1; j < n; j++) largest = x[j] > largest ? x[j] : largest;
    for (long j = 0; j < n; j += W) store(x + j, exponential(load(x + j) - largest));
    for (long j = n; j < padded(n); j++) x[j] = 0;
    for (long j = 0; j < n; j += W) total += load(x + j);
    float share = 1 / sum(total);
    for (long j = 0; j < n; j += W) store(x + j, load(x + j) * share);
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
            for (long i = 0; i < s.i; i++) softmax(s.j, w + i * row);
            pack(s.j, s.d, of_head(s, v, s.j, e), v.stride, 1, panels);
            product(s.i, s.d, s.j, w, row, 1, panels, 0, of_head(s, mixed, s.i, e), mixed.stride);
        }
        free(panels), free(run), free(scores);
    }
}

/* From the gradient of mixed those of q, k, v and, where there are any, of vectors */
void attend_gradient(shape s, tokens q, tokens k, tokens v, const float *vectors, const float *weights, tokens dmixed,
                     tokens dq, tokens dk, tokens dv, float *dvectors) {
    long heads = s.b * s.h, row = padded(s.j), head = s.i * row, across = padded(s.i), longer = most(s.i, s.j);
    float *dscores = floats(heads * head);
#pragma omp parallel
    {
        float *panels = floats(most(row * s.d, padded(s.d) * most(longer, heads)));
        float *run = floats(heads * s.d), *back = floats(heads * s.d), *scores = floats(heads * across);
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
                for (long j = i * row; j < (i + 1) * row; j += W) store(ds + j, load(w + j) * (load(ds + j) - mean));
            }
            pack(s.i, s.d, d, dmixed.stride, 1, panels);
            product(s.j, s.d, s.i, w, 1, row, panels, 0, of_head(s, dv, s.j, e), dv.stride);
            pack(s.j, s.d, of_head(s, k, s.j, e), k.stride, 1, panels);
            scaled(padded(s.d) * s.j, panels, s.scale);
            product(s.i, s.d, s.j, ds, row, 1, panels, 0, of_head(s, dq, s.i, e), dq.stride);
            pack(s.i, s.d, of_head(s, q, s.i, e), q.stride, 1, panels);
            scaled(padded(s.d) * s.i, panels, s.scale);
            product(s.j, s.d, s.i, ds, 1, row, panels, 0, of_head(s, dk, s.j, e), dk.stride);
        }
        if (s.by_query) {
#pragma omp for
            for (long i = 0; i < s.i; i++) {
                pack(s.j, s.d, vectors + i * s.j * s.d, s.d, 1, panels);
                product(heads, s.d, s.j, dscores + i * row, head, 1, panels, 0, back, s.d);
                scatter_add(s, back, s.i, i, dq);
                gather(s, q, s.i, i, run);
                pack(heads, s.d, run, s.d, 1, panels);
                product(s.j, s.d, heads, dscores + i * row, 1, head, panels, 0, dvectors + i * s.j * s.d, s.d);
            }
        }
        if (s.by_key) {
#pragma omp for
            for (long j = 0; j < s.j; j++) {
                float *d = dvectors + j * s.d;
                for (long e = 0; e < heads; e++)
                    for (long i = 0; i < s.i; i++) scores[e * across + i] = dscores[e * head + i * row + j];
                pack(s.i, s.d, vectors + j * s.d, s.j * s.d, 1, panels);
                product(heads, s.d, s.i, scores, across, 1, panels, 0, back, s.d);
                scatter_add(s, back, s.j, j, dk);
                gather(s, k, s.j, j, run);
                pack(heads, s.d, run, s.d, 1, panels);
                product(s.i, s.d, heads, scores, 1, across, panels, d, d, s.j * s.d);
            }
        }
        free(panels), free(run), free(back), free(scores);
    }
    free(dscores);
}

/* ---- a whole layer: attention and a feed-forward network, and a norm after each ---- */

typedef struct {
    float *qkv, *qkv_bias, *output, *output_bias, *attention_norm, *attention_norm_bias;
    float *widen, *widen_bias, *narrow, *narrow_bias, *feedforward_norm, *feedforward_norm_bias;
} parameters;

typedef struct {
    long width, inner; /* of hidden vectors, and in the feed-forward network */
    int activation;
    float epsilon;
} layer_shape;

/* What the gradient needs of the way forward */
typedef struct {
    float *first, *projected, *weights, *mixed, *after, *normed, *scale, *inner, *slope, *last_normed, *last_scale;
} remembered;

/* Where each part is in a run of numbers, and how long that is */
static long placed(shape s, layer_shape l, float *memory, remembered *at) {
    long read = s.b * s.i, tokens = s.b * s.j;
    float **parts[] = {&at->first, &at->projected, &at->weights, &at->mixed, &at->after, &at->normed,
                       &at->scale, &at->inner, &at->slope, &at->last_normed, &at->last_scale};
    long sizes[] = {read * l.width, (read + 2 * tokens) * l.width, s.b * s.h * s.i * padded(s.j), read * l.width,
                    read * l.width, read * l.width, read, read * l.inner, read * l.inner, read * l.width, read};
    long used = 0;
    for (unsigned p = 0; p < sizeof(sizes) / sizeof(*sizes); used += (sizes[p++] + 15) / 16 * 16)
        *parts[p] = memory + used;
    return used;
}

long layer_memory(shape s, layer_shape l) {
    remembered unused;
    return placed(s, l, 0, &unused);
}

/* The first i of j tokens of each example, of width n */
static void first_tokens(shape s, long n, const float *x, float *first) {
    for (long b = 0; b < s.b; b++) memcpy(first + b * s.i * n, x + b * s.j * n, s.i * n * sizeof(float));
}

/* Queries, keys and values in what is remembered: side by side, or where only some tokens have queries, these first */
static void in_projected(shape s, long width, float *projected, tokens *q, tokens *k, tokens *v) {
    float *rest = projected + (s.i == s.j ? width : s.b * s.i * width);
    long stride = s.i == s.j ? 3 * width : 2 * width;
    *q = (tokens){projected, s.i == s.j ? 3 * width : width};
    *k = (tokens){rest, stride};
    *v = (tokens){rest + width, stride};
}

/* x (b, j, width) -> y (b, i, width). Queries, keys and values are computed, unless they are given. */
void layer(shape s, layer_shape l, parameters p, const float *x, tokens q, tokens k, tokens v, const float *vectors,
           int learning, float *memory, float *y) {
    long read = s.b * s.i, width = l.width;
    remembered at;
    placed(s, l, memory, &at);
    if (s.i < s.j) first_tokens(s, width, x, at.first);
    const float *first = s.i < s.j ? at.first : x;
    if (!q.x) {
        in_projected(s, width, at.projected, &q, &k, &v);
        if (s.i == s.j) {
            linear(read, 3 * width, width, x, p.qkv, p.qkv_bias, q.x);
        } else {
            linear(read, width, width, first, p.qkv, p.qkv_bias, q.x);
            linear(s.b * s.j, 2 * width, width, x, p.qkv + width * width, p.qkv_bias + width, k.x);
        }
    }
    attend(s, q, k, v, vectors, at.weights, (tokens){at.mixed, width});
    float *output = panels_of(width, width, p.output, 1, width);
    float *widen = panels_of(width, l.inner, p.widen, 1, width), *narrow = panels_of(l.inner, width, p.narrow, 1, l.inner);
#pragma omp parallel
    {
        float *added = floats(BLOCK * width), *own = floats(BLOCK * (2 * width + l.inner + 1));
#pragma omp for
        for (long i = 0; i < read; i += BLOCK) {
            long rows = least(read - i, BLOCK), n = i * width;
            float *after = learning ? at.after + n : own, *normed = learning ? at.normed + n : own + BLOCK * width;
            float *inner = learning ? at.inner + i * l.inner : own + 2 * BLOCK * width;
            float *scale = learning ? at.scale + i : inner + BLOCK * l.inner;
            product(rows, width, width, at.mixed + n, width, 1, output, p.output_bias, added, width);
            norm_rows(rows, width, l.epsilon, first + n, added, p.attention_norm, p.attention_norm_bias, after, normed,
                      scale);
            product(rows, l.inner, width, after, width, 1, widen, p.widen_bias, inner, l.inner);
            activate_run(l.activation, rows * l.inner, inner, inner, learning ? at.slope + i * l.inner : 0);
            product(rows, width, l.inner, inner, l.inner, 1, narrow, p.narrow_bias, added, width);
            norm_rows(rows, width, l.epsilon, after, added, p.feedforward_norm, p.feedforward_norm_bias, y + n,
                      learning ? at.last_normed + n : normed, learning ? at.last_scale + i : scale);
        }
        free(added), free(own);
    }
    free(output), free(widen), free(narrow);
}

/* From dy the gradients of x, of q, k and v if they were given, of vectors and of the parameters */
void layer_gradient(shape s, layer_shape l, parameters p, const float *x, tokens q, tokens k, tokens v,
                    const float *vectors, float *memory, const float *dy, float *dx, tokens dq, tokens dk, tokens dv,
                    float *dvectors, parameters d) {
    long read = s.b * s.i, tokens_ = s.b * s.j, width = l.width, given = q.x != 0;
    remembered at;
    placed(s, l, memory, &at);
    const float *first = s.i < s.j ? at.first : x;
    float *dlast = floats(read * width), *dafter = floats(read * width), *dfirst = floats(read * width);
    float *dmixed = floats(read * width), *dinner = floats(read * l.inner), *dprojected = 0;
    float *output = panels_of(width, width, p.output, width, 1);
    float *widen = panels_of(l.inner, width, p.widen, width, 1), *narrow = panels_of(width, l.inner, p.narrow, l.inner, 1);
#pragma omp parallel for
    for (long i = 0; i < read; i += BLOCK) {
        long rows = least(read - i, BLOCK), n = i * width;
        float *inner = dinner + i * l.inner, *slope = at.slope + i * l.inner;
        norm_rows_gradient(rows, width, at.last_normed + n, at.last_scale + i, p.feedforward_norm, dy + n, dlast + n);
        product(rows, l.inner, width, dlast + n, width, 1, narrow, 0, inner, l.inner);
        for (long e = 0; e < rows * l.inner; e++) inner[e] *= slope[e];
        memcpy(dafter + n, dlast + n, rows * width * sizeof(float));
        product(rows, width, l.inner, inner, l.inner, 1, widen, dafter + n, dafter + n, width);
        norm_rows_gradient(rows, width, at.normed + n, at.scale + i, p.attention_norm, dafter + n, dfirst + n);
        product(rows, width, width, dfirst + n, width, 1, output, 0, dmixed + n, width);
    }
    free(output), free(widen), free(narrow);
    linear_weight_gradient(read, width, l.inner, at.inner, dlast, d.narrow, d.narrow_bias);
    linear_weight_gradient(read, l.inner, width, at.after, dinner, d.widen, d.widen_bias);
    linear_weight_gradient(read, width, width, at.mixed, dfirst, d.output, d.output_bias);
    norm_weight_gradient(read, width, at.last_normed, dy, d.feedforward_norm, d.feedforward_norm_bias);
    norm_weight_gradient(read, width, at.normed, dafter, d.attention_norm, d.attention_norm_bias);
    free(dlast), free(dafter), free(dinner);

    if (!given) {
        in_projected(s, width, at.projected, &q, &k, &v);
        dprojected = floats((read + 2 * tokens_) * width);
        in_projected(s, width, dprojected, &dq, &dk, &dv);
    }
    attend_gradient(s, q, k, v, vectors, at.weights, (tokens){dmixed, width}, dq, dk, dv, dvectors);
    if (given) {
        memset(dx, 0, tokens_ * width * sizeof(float));
    } else if (s.i == s.j) {
        linear_weight_gradient(read, 3 * width, width, x, dq.x, d.qkv, d.qkv_bias);
        linear_input_gradient(read, 3 * width, width, p.qkv, dq.x, 0, dx);
    } else {
        linear_weight_gradient(read, width, width, first, dq.x, d.qkv, d.qkv_bias);
        linear_weight_gradient(tokens_, 2 * width, width, x, dk.x, d.qkv + width * width, d.qkv_bias + width);
        linear_input_gradient(tokens_, 2 * width, width, p.qkv + width * width, dk.x, 0, dx);
        linear_input_gradient(read, width, width, p.qkv, dq.x, 1, dfirst);
    }
    for (long b = 0; b < s.b; b++)
        for (long e = 0; e < s.i * width; e++) dx[b * s.j * width + e] += dfirst[b * s.i * width + e];
    free(dfirst), free(dmixed), free(dprojected);
}
