/* Layer norm (Ba et al., 2016) of a sum, and its gradients. */

#include "layer.h"
#include <math.h>

#define ROWS_TOGETHER 64 /* summed on their own, which bounds rounding errors */

int layer_norm(long m, long n, float epsilon, const float *x, const float *residual,
               const float *weight, const float *bias, float *y, float *normed,
               float *inverse_std) {
    int too_large = 0;
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
        too_large |= is_too_large(sqrtf(variance) + fabsf(mean));
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
    return too_large;
}

void scale_and_shift(long m, long n, const float *normed, const float *weight, const float *bias,
                     float *y) {
    for (long i = 0; i < m; i++, normed += n, y += n)
        for (long j = 0; j < n; j++) y[j] = normed[j] * weight[j] + bias[j];
}

int layer_norm_backward(long m, long n, const float *normed, const float *inverse_std,
                        const float *weight, const float *dy, float *dx) {
    int too_large = 0;
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
        too_large |= is_too_large(fabsf(mean) + fabsf(along));
        for (j = 0; j + LANES <= n; j += LANES) {
            vector value = load(dy + j) * load(weight + j) - mean - load(normed + j) * along;
            store(dx + j, value * inverse_std[i]);
        }
        for (; j < n; j++)
            dx[j] = (dy[j] * weight[j] - mean - normed[j] * along) * inverse_std[i];
    }
    return too_large;
}

void add_norm_gradient(long start, long columns, long m, long n, const float *normed,
                       const float *dy, float *dweight, float *dbias) {
    float weight[NORM_COLUMNS], bias[NORM_COLUMNS];
    for (long first = 0; first < m; first += ROWS_TOGETHER) {
        memset(weight, 0, sizeof(weight)), memset(bias, 0, sizeof(bias));
        for (long i = first; i < smaller(m, first + ROWS_TOGETHER); i++) {
            const float *a = normed + i * n + start, *b = dy + i * n + start;
            for (long c = 0; c < columns; c++) weight[c] += a[c] * b[c], bias[c] += b[c];
        }
        for (long c = 0; c < columns; c++)
            dweight[start + c] += weight[c], dbias[start + c] += bias[c];
    }
}
