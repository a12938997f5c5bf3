/* Vectors of floats as wide as the processor's registers.

   They are written in the vector extensions that GCC and clang share, so that one source serves
   AVX-512, AVX2, SSE2 and NEON. */

#ifndef LENGTHWISE_VECTORS_H
#define LENGTHWISE_VECTORS_H

#include <string.h>

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif

#define INLINE static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 16")

typedef float vector __attribute__((vector_size(4 * LANES)));
typedef int mask __attribute__((vector_size(4 * LANES))); /* -1 where true, else 0 */
typedef float quarter __attribute__((vector_size(16)));
typedef int quarter_mask __attribute__((vector_size(16)));
typedef float unaligned_vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

INLINE long smaller(long a, long b) { return a < b ? a : b; }
INLINE long larger(long a, long b) { return a > b ? a : b; }
INLINE long round_up(long n, long multiple) { return (n + multiple - 1) / multiple * multiple; }
/* The length of a row of n numbers that is filled up to whole vectors */
INLINE long padded(long n) { return round_up(n, LANES); }

INLINE vector load(const float *x) { return *(const unaligned_vector *)x; }
INLINE void store(float *x, vector y) { *(unaligned_vector *)x = y; }
INLINE vector broadcast(float x) { return x - (vector){0}; }

/* The first n numbers of x, and zeros: for the end of a row */
INLINE vector load_first(long n, const float *x) {
    vector y = {0};
    if (n >= LANES) return load(x);
    memcpy(&y, x, n * sizeof(float));
    return y;
}
INLINE void store_first(long n, float *x, vector y) {
    if (n >= LANES) store(x, y);
    else memcpy(x, &y, n * sizeof(float));
}

INLINE vector select(mask where, vector x, vector y) {
    return (vector)((where & (mask)x) | (~where & (mask)y));
}
/* If either is NaN, these are y; so maximum(limit, x) lets NaN through */
INLINE vector maximum(vector x, vector y) { return select(x > y, x, y); }
INLINE vector minimum(vector x, vector y) { return select(x < y, x, y); }

/* Halves are added until four lanes are left, of which the compiler knows how to take each */
INLINE float sum_of_lanes(vector x) {
    quarter parts[LANES / 4];
    memcpy(parts, &x, sizeof(x));
    UNROLLED for (int step = LANES / 8; step; step /= 2)
        UNROLLED for (int i = 0; i < step; i++) parts[i] += parts[i + step];
    return (parts[0][0] + parts[0][2]) + (parts[0][1] + parts[0][3]);
}
/* NaN is ignored */
INLINE float maximum_of_lanes(vector x) {
    quarter parts[LANES / 4];
    memcpy(parts, &x, sizeof(x));
    UNROLLED for (int step = LANES / 8; step; step /= 2)
        UNROLLED for (int i = 0; i < step; i++) {
            quarter_mask more = parts[i] > parts[i + step];
            parts[i] = (quarter)((more & (quarter_mask)parts[i]) |
                                 (~more & (quarter_mask)parts[i + step]));
        }
    float a = parts[0][0] > parts[0][2] ? parts[0][0] : parts[0][2];
    float b = parts[0][1] > parts[0][3] ? parts[0][1] : parts[0][3];
    return a > b ? a : b;
}

/* Beyond this, or if it is NaN, PyTorch computes: squares and sums of such numbers may overflow,
   and whether they do depends on the order of additions */
INLINE int is_too_large(float size) { return !(size < 1e12f); }

#define LOG2_E 1.44269504f

/* 2^x for x <= 128, to one or two units in the last place: 2^n times a polynomial of x - n, for the
   nearest whole number n. It is infinite above 127.5 and 0 below -126.5. */
INLINE vector power_of_two(vector x) {
    const vector shift = broadcast(12582912); /* 1.5 * 2^23: adding it rounds to a whole number */
    x = maximum(broadcast(-127), x);
    vector n = x + shift;
    /* The last bits of n are its whole number, which becomes an exponent: 0 at -127, inf at 128 */
    vector power = (vector)(((mask)n << 23) + (127 << 23));
    x -= n - shift;
    vector y = broadcast(1.53458118e-4f);
    y = y * x + 1.33999314e-3f;
    y = y * x + 9.61848896e-3f;
    y = y * x + 5.55032878e-2f;
    y = y * x + 2.40226469e-1f;
    y = y * x + 6.93147206e-1f;
    y = y * x + 1.0f;
    return y * power; /* NaN if x is, whatever the bits of n were */
}

#endif
