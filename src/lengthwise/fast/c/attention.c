/* Attention with many heads, whose scores may depend on relative positions through vectors:

       scores[i][j] = scale * q[i].k[j] + q[i].vectors[i][j] (+ k[j].vectors[i][j] by key)
       mixed[i] = sum over j of softmax(scores[i])[j] * v[j] */

#include "layer.h"
#include <math.h>

/* Where a head e of (examples * heads) starts in x (examples, length, heads * head) */
INLINE long head_offset(attention_shape s, long length, long e) {
    return e / s.heads * length * s.heads * s.head + e % s.heads * s.head;
}

/* One position of all examples, side by side: (examples * heads, head) */
static void gather(attention_shape s, const float *x, long length, long position, float *to) {
    long width = s.heads * s.head;
    for (long b = 0; b < s.examples; b++)
        memcpy(to + b * width, x + (b * length + position) * width, width * sizeof(float));
}

static void scatter_add(attention_shape s, const float *x, long length, long position, float *to) {
    long width = s.heads * s.head;
    for (long b = 0; b < s.examples; b++, x += width) {
        float *row = to + (b * length + position) * width;
        for (long e = 0; e < width; e++) row[e] += x[e];
    }
}

/* Softmax of rows of scale * products + x, where x is n numbers, padded; the padding becomes 0 */
static int softmax_rows(long rows, long n, float scale, const float *products, float *x) {
    long last = padded(n) - LANES;
    int too_large = 0;
    mask inside;
    for (long i = 0; i < LANES; i++) inside[i] = last + i < n ? -1 : 0;
    for (; rows; rows--, x += padded(n), products += padded(n)) {
        vector highest = broadcast(-INFINITY), total = {0};
        for (long j = 0; j < n; j += LANES) {
            vector score = load(products + j) * scale + load(x + j);
            if (j == last) score = select(inside, score, broadcast(-INFINITY));
            store(x + j, score);
            highest = maximum(highest, score);
        }
        float top = maximum_of_lanes(highest);
        too_large |= is_too_large(fabsf(top));
        for (long j = 0; j < n; j += LANES) {
            vector y = power_of_two((load(x + j) - top) * LOG2_E);
            if (j == last) y = select(inside, y, broadcast(0));
            store(x + j, y);
            total += y;
        }
        float share = 1 / sum_of_lanes(total);
        for (long j = 0; j < n; j += LANES) store(x + j, load(x + j) * share);
    }
    return too_large;
}

/* From the gradient of rows of softmax (n, padded) that of the scores, in place, and times scale */
static void softmax_rows_backward(long rows, long n, float scale, const float *weights, float *d,
                                  float *scaled) {
    for (long row = padded(n); rows; rows--, weights += row, d += row, scaled += row) {
        vector products = {0};
        for (long j = 0; j < n; j += LANES) products += load(weights + j) * load(d + j);
        float mean = sum_of_lanes(products);
        for (long j = 0; j < n; j += LANES) {
            vector value = load(weights + j) * (load(d + j) - mean);
            store(d + j, value);
            store(scaled + j, value * scale);
        }
    }
}

/* Places of what attention and its gradients use in passing: panels of one head or of one position,
   the numbers of one position, and scores */
typedef struct {
    float *panels, *position, *gradient, *scores;
} attention_places;

static attention_places places(attention_shape s, arena *a) {
    long heads = s.examples * s.heads, longer = larger(s.queries, s.keys);
    long panels = larger(padded(longer) * s.head, padded(s.head) * larger(longer, heads));
    return (attention_places){
        take(a, panels, 1),
        take(a, heads, s.head),
        take(a, heads, s.head),
        take(a, larger(heads, s.queries), padded(longer)),
    };
}

void lay_out_attention(attention_shape s, arena *a) { places(s, a); }

static const addend nothing = {NULL, 0};

/* Scores (heads, i, padded j) = q[i].vectors[i][j] */
static void score_by_query(attention_shape s, const float *q, const float *vectors, float *scores,
                           attention_places at) {
    long heads = s.examples * s.heads, row = padded(s.keys);
    for (long i = 0; i < s.queries; i++) {
        pack_transposed(s.head, s.keys, vectors + i * s.keys * s.head, s.head, at.panels);
        gather(s, q, s.queries, i, at.position);
        matmul(heads, row, s.head, at.position, s.head, 1, at.panels, nothing, scores + i * row,
               s.queries * row);
    }
}

/* Adds k[j].vectors[i][j] to scores */
static void score_by_key(attention_shape s, const float *k, const float *vectors, float *scores,
                         attention_places at) {
    long heads = s.examples * s.heads, row = padded(s.keys), across = padded(s.queries);
    for (long j = 0; j < s.keys; j++) {
        pack_transposed(s.head, s.queries, vectors + j * s.head, s.keys * s.head, at.panels);
        gather(s, k, s.keys, j, at.position);
        matmul(heads, across, s.head, at.position, s.head, 1, at.panels, nothing, at.scores,
               across);
        for (long e = 0; e < heads; e++)
            for (long i = 0; i < s.queries; i++)
                scores[(e * s.queries + i) * row + j] += at.scores[e * across + i];
    }
}

int attention(attention_shape s, const float *q, const float *k, const float *v,
              const float *vectors, float *weights, float *mixed, arena room) {
    long width = s.heads * s.head, row = padded(s.keys);
    int too_large = 0;
    attention_places at = places(s, &room);
    if (vectors) score_by_query(s, q, vectors, weights, at);
    else memset(weights, 0, s.examples * s.heads * s.queries * row * sizeof(float));
    if (vectors && s.by_key) score_by_key(s, k, vectors, weights, at);
    for (long e = 0; e < s.examples * s.heads; e++) {
        float *w = weights + e * s.queries * row;
        pack_transposed(s.head, s.keys, k + head_offset(s, s.keys, e), width, at.panels);
        matmul(s.queries, row, s.head, q + head_offset(s, s.queries, e), width, 1, at.panels,
               nothing, at.scores, row);
        too_large |= softmax_rows(s.queries, s.keys, s.scale, at.scores, w);
        matmul_rows(s.queries, s.head, s.keys, w, row, 1, v + head_offset(s, s.keys, e), width,
                    at.panels, nothing, mixed + head_offset(s, s.queries, e), width);
    }
    return too_large;
}

void attention_backward(attention_shape s, const float *q, const float *k, const float *v,
                        const float *vectors, const float *weights, const float *dmixed,
                        float *dscores, float *dq, float *dk, float *dv, arena room) {
    long heads = s.examples * s.heads, width = s.heads * s.head, row = padded(s.keys);
    attention_places at = places(s, &room);
    for (long e = 0; e < heads; e++) {
        const float *w = weights + e * s.queries * row, *d = dmixed + head_offset(s, s.queries, e);
        float *ds = dscores + e * s.queries * row;
        long query = head_offset(s, s.queries, e), key = head_offset(s, s.keys, e);
        pack_transposed(s.head, s.keys, v + key, width, at.panels);
        matmul(s.queries, row, s.head, d, width, 1, at.panels, nothing, ds, row);
        softmax_rows_backward(s.queries, s.keys, s.scale, w, ds, at.scores);
        matmul_rows(s.keys, s.head, s.queries, w, 1, row, d, width, at.panels, nothing, dv + key,
                    width);
        matmul_rows(s.queries, s.head, s.keys, at.scores, row, 1, k + key, width, at.panels,
                    nothing, dq + query, width);
        matmul_rows(s.keys, s.head, s.queries, at.scores, 1, row, q + query, width, at.panels,
                    nothing, dk + key, width);
    }
    for (long i = 0; vectors && i < s.queries; i++) {
        matmul_rows(heads, s.head, s.keys, dscores + i * row, s.queries * row, 1,
                    vectors + i * s.keys * s.head, s.head, at.panels, nothing, at.gradient, s.head);
        scatter_add(s, at.gradient, s.queries, i, dq);
    }
    for (long j = 0; vectors && s.by_key && j < s.keys; j++) {
        matmul_rows(heads, s.head, s.queries, dscores + j, s.queries * row, row,
                    vectors + j * s.head, s.keys * s.head, at.panels, nothing, at.gradient, s.head);
        scatter_add(s, at.gradient, s.keys, j, dk);
    }
}

void add_vector_gradient_by_query(attention_shape s, long i, const float *q, const float *dscores,
                                  float *dvectors, arena room) {
    long row = padded(s.keys);
    float *d = dvectors + i * s.keys * s.head;
    attention_places at = places(s, &room);
    gather(s, q, s.queries, i, at.position);
    matmul_rows(s.keys, s.head, s.examples * s.heads, dscores + i * row, 1, s.queries * row,
                at.position, s.head, at.panels, (addend){d, s.head}, d, s.head);
}

void add_vector_gradient_by_key(attention_shape s, long j, const float *k, const float *dscores,
                                float *dvectors, arena room) {
    long row = padded(s.keys);
    float *d = dvectors + j * s.head;
    attention_places at = places(s, &room);
    gather(s, k, s.keys, j, at.position);
    matmul_rows(s.queries, s.head, s.examples * s.heads, dscores + j, row, s.queries * row,
                at.position, s.head, at.panels, (addend){d, s.keys * s.head}, d, s.keys * s.head);
}
