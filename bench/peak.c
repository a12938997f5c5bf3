/* The most float32 operations that one core does: multiply-adds that don't wait for each other. */

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif
#define CHAINS 12 /* enough to hide the latency of two units, and they fit 16 registers */

typedef float vector __attribute__((vector_size(4 * LANES)));

/* Runs `steps` multiply-adds in each chain and returns the operations done. */
double multiply_add(long steps, float *sum) {
    vector chain[CHAINS], factor, term;
    for (int lane = 0; lane < LANES; lane++) {
        factor[lane] = 0.999f;
        term[lane] = 0.001f * (float)lane;
        for (int i = 0; i < CHAINS; i++)
            chain[i][lane] = (float)i;
    }
    for (long step = 0; step < steps; step++) {
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++)
            chain[i] = chain[i] * factor + term;
    }
    *sum = 0;
    for (int i = 0; i < CHAINS; i++)
        for (int lane = 0; lane < LANES; lane++)
            *sum += chain[i][lane];
    return 2.0 * (double)steps * CHAINS * LANES;
}
