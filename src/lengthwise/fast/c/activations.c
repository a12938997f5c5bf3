/* Activations of the feed-forward network, and their slopes. */

#include "layer.h"

/* relu(NaN) is NaN, and its slope 1, as in PyTorch */
INLINE vector relu(vector x, vector *slope) {
    *slope = select(x <= 0.0f, broadcast(0), broadcast(1));
    return maximum(broadcast(0), x);
}

/* x * P(x), where P is the normal distribution, by Abramowitz and Stegun 7.1.26, to 1e-7 */
INLINE vector gelu(vector x, vector *slope) {
    vector bell = power_of_two(-0.5f * LOG2_E * x * x), size = select(x < 0.0f, -x, x);
    vector t = 1.0f / (1.0f + 0.3275911f * 0.70710678f * size);
    vector tail = broadcast(1.061405429f);
    tail = tail * t - 1.453152027f;
    tail = tail * t + 1.421413741f;
    tail = tail * t - 0.284496736f;
    tail = tail * t + 0.254829592f;
    tail = 0.5f * tail * t * bell;
    vector share = select(x < 0.0f, tail, 1.0f - tail);
    *slope = share + x * bell * 0.39894228f;
    return x * share;
}

/* x * sigmoid(x * (A + B * x^2)), which is gelu as approximated by tanh */
INLINE vector gelu_tanh(vector x, vector *slope) {
    /* 2 * sqrt(2 / pi), and 0.044715 times that */
    const float a = 1.5957691216f, b = 0.0713548163f;
    vector exponent = x * (-LOG2_E * a - LOG2_E * b * (x * x));
    vector share = 1.0f / (1.0f + power_of_two(minimum(broadcast(128), exponent)));
    *slope = share + x * share * (1.0f - share) * (a + 3.0f * b * x * x);
    return x * share;
}

/* One loop for whole and partial vectors: two copies of a formula might be rounded differently */
#define FOR_ALL(formula)                                                                           \
    for (long i = 0; i < n; i += LANES) {                                                          \
        vector slope;                                                                              \
        store_first(n - i, y + i, formula(load_first(n - i, x + i), &slope));                      \
        if (slopes) store_first(n - i, slopes + i, slope);                                         \
    }

void activate(int activation, long n, const float *x, float *y, float *slopes) {
    if (activation == 0) { FOR_ALL(relu) }
    if (activation == 1) { FOR_ALL(gelu) }
    if (activation == 2) { FOR_ALL(gelu_tanh) }
}
