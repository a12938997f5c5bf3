/* Layer norm (Ba et al., 2016) of a sum, and its gradients. */

#include "layer.h"
#include <math.h>

#define ROWS_TOGETHER 64 /* summed on their own, which bounds rounding errors */
#define COLUMNS_TOGETHER 256

void layer_norm(long m, long n, float epsilon, const float *x, const float *residual,
                const float *weight, const float *bias, float *y, float *normed,
                float *inverse_std) {
    for (long i = 0; i < m; i++, x += n, residual += n, y += n, normed += n) {
        vector sums[2] = {0}, squares[2] = {0}; /* two, as an addition waits for the one before */
        float mean = 0, variance = 0;
        long j = 0;
        for (; j + 2 * LANES <= n; j += 2 * LANES)
            for (int v = 0; v < 2; v++) {
                vector value = load(x + j + v * LANES) + load(residual + j + v * LANES);
                store(normed + j + v * LANES, value);
                sums[v] += value;
            }
        for (; j < n; j++) mean += normed[j] = x[j] + residual[j];
        mean = (mean + sum_of_lanes(sums[0] + sums[1])) / n;
        for (j = 0; j + 2 * LANES <= n; j += 2 * LANES)
            for (int v = 0; v < 2; v++) {
                vector off = load(normed + j + v * LANES) - mean;
                squares[v] += off * off;
            }
        for (; j < n; j++) variance += (normed[j] - mean) * (normed[j] - mean);
        variance = (variance + sum_of_lanes(squares[0] + squares[1])) / n;
        inverse_std[i] = 1 / sqrtf(variance + epsilon);
        for (j = 0; j + LANES <= n; j += LANES) {
            vector value = (load(normed + j) - mean) * inverse_std[i];
            store(normed + j, value);
            store(y + j, value * load(weight + j) + load(bias + j));
        }
        for (; j < n; j++) {
            normed[j] = (normed[j] - mean) * inverse_std[i];
            y[j] = normed[j] * weight[j] + bias[j];
        }
    }
}

void layer_norm_backward(long m, long n, const float *normed, const float *inverse_std,
                         const float *weight, const float *dy, float *dx) {
    for (long i = 0; i < m; i++, normed += n, dy += n, dx += n) {
        vector sums = {0}, products = {0};
        float mean = 0, along = 0;
        long j = 0;
        for (; j + LANES <= n; j += LANES) {
            vector value = load(dy + j) * load(weight + j);
            sums += value;
            products += value * load(normed + j);
        }
        for (; j < n; j++) mean += dy[j] * weight[j], along += dy[j] * weight[j] * normed[j];
        mean = (mean + sum_of_lanes(sums)) / n, along = (along + sum_of_lanes(products)) / n;
        for (j = 0; j + LANES <= n; j += LANES) {
            vector value = load(dy + j) * load(weight + j) - mean - load(normed + j) * along;
            store(dx + j, value * inverse_std[i]);
        }
        for (; j < n; j++)
            dx[j] = (dy[j] * weight[j] - mean - normed[j] * along) * inverse_std[i];
    }
}

void add_norm_gradient(long start, long columns, long m, long n, const float *normed,
                       const float *dy, float *dweight, float *dbias) {
    for (long j = start; j < start + columns; j += COLUMNS_TOGETHER) {
        long some = smaller(start + columns - j, COLUMNS_TOGETHER);
        float *restrict to = dweight + j, *restrict to_bias = dbias + j;
        for (long first = 0; first < m; first += ROWS_TOGETHER) {
            float weight[COLUMNS_TOGETHER] = {0}, bias[COLUMNS_TOGETHER] = {0};
            for (long i = first; i < smaller(m, first + ROWS_TOGETHER); i++) {
                const float *restrict a = normed + i * n + j, *restrict b = dy + i * n + j;
                for (long c = 0; c < some; c++) weight[c] += a[c] * b[c], bias[c] += b[c];
            }
            for (long c = 0; c < some; c++) to[c] += weight[c], to_bias[c] += bias[c];
        }
    }
}
