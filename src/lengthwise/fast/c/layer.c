/* A layer: attention and a feed-forward network, with a norm after each sum (Vaswani et al., 2017).

       x = norm(x + output(attention(x)));  x = norm(x + narrow(activation(widen(x))))

   The backward pass of a layer has two halves. `layer_backward` works on examples, which are
   independent. `add_layer_gradients` then sums over all of them, in one order whatever the number
   of threads, which share the sums but never split one. */

#include "layer.h"
#include "threads.h"

static void copy(float *to, const float *from, long n) { memcpy(to, from, n * sizeof(float)); }

/* The first `queries` of every `length` rows of x, side by side */
static void copy_query_rows(const stack_shape *s, long examples, long queries, const float *x,
                            float *to) {
    for (long b = 0; b < examples; b++)
        copy(to + b * queries * s->width, x + b * s->length * s->width, queries * s->width);
}

static attention_shape attention_of(const stack_shape *s, long examples, long queries) {
    return (attention_shape){examples,  s->heads,           queries,
                             s->length, s->width / s->heads, s->scale,
                             s->by_key};
}

saved_layer lay_out_saved(const stack_shape *s, long examples, long queries, arena *a) {
    long read = examples * queries, tokens = examples * s->length, width = s->width;
    saved_layer at = {0};
    at.q = take(a, read, width);
    at.k = take(a, tokens, width);
    at.v = take(a, tokens, width);
    at.weights = take(a, read * s->heads, padded(s->length));
    if (!s->training) return at;
    at.x = take(a, tokens, padded(width));
    at.query_x = take(a, queries < s->length ? read : 0, padded(width));
    at.mixed = take(a, read, padded(width));
    at.widened = take(a, read, s->inner);
    at.attention_normed = take(a, read, width);
    at.attention_inverse_std = take(a, read, 1);
    at.feedforward_normed = take(a, read, width);
    at.feedforward_inverse_std = take(a, read, 1);
    if (queries == s->length) at.query_x = at.x;
    return at;
}

/* What a group of examples needs on its way through a layer: of all its tokens, and of a block */
typedef struct {
    float *query_x, *mixed;
    float *added, *after, *inner, *normed, *inverse_std;
} forward_places;

static forward_places forward_layout(const stack_shape *s, long examples, arena *a) {
    long tokens = examples * s->length, width = s->width;
    return (forward_places){
        take(a, tokens, width),
        take(a, tokens, width),
        take(a, BLOCK, width),
        take(a, BLOCK, width),
        take(a, BLOCK, s->inner),
        take(a, BLOCK, width),
        take(a, BLOCK, 1),
    };
}

void lay_out_layer(const stack_shape *s, long examples, arena *a) {
    forward_layout(s, examples, a);
    lay_out_attention(attention_of(s, examples, s->length), a);
}

/* y (m, n) = x (m, k) * packed + bias */
static void linear(long m, long n, long k, const float *x, const float *packed, const float *bias,
                   float *y) {
    matmul(m, n, k, x, k, 1, packed, (addend){bias, 0}, y, n);
}

int layer_forward(const stack_shape *s, group g, long queries, const layer_parameters *p,
                  const packed_layer *w, const float *vectors, const float *x, saved_layer at,
                  arena room, float *y) {
    long width = s->width, inner = s->inner, tokens = g.count * s->length, read = g.count * queries;
    long all_read = s->examples * queries, start = g.start * queries;
    forward_places own = forward_layout(s, g.count, &room);
    const float *query_x = x;
    if (queries < s->length) {
        copy_query_rows(s, g.count, queries, x, own.query_x);
        query_x = own.query_x;
    }
    if (s->training) {
        long all_tokens = s->examples * s->length;
        pack_rows(g.start * s->length, tokens, all_tokens, width, x, width, at.x);
        if (query_x != x) pack_rows(start, read, all_read, width, query_x, width, at.query_x);
        at.q += start * width;
        at.k += g.start * s->length * width, at.v += g.start * s->length * width;
        at.weights += start * s->heads * padded(s->length);
    }
    linear(read, width, width, query_x, w->query, p->query_bias, at.q);
    linear(tokens, width, width, x, w->key, p->key_bias, at.k);
    linear(tokens, width, width, x, w->value, p->value_bias, at.v);
    int too_large = attention(attention_of(s, g.count, queries), at.q, at.k, at.v, vectors,
                              at.weights, own.mixed, room);
    for (long i = 0; i < read; i += BLOCK) {
        long rows = smaller(read - i, BLOCK), n = i * width, row = start + i;
        float *widened = own.inner, *normed[2] = {own.normed, own.normed};
        float *inverse_std[2] = {own.inverse_std, own.inverse_std};
        if (s->training) {
            widened = at.widened + row * inner;
            normed[0] = at.attention_normed + row * width;
            normed[1] = at.feedforward_normed + row * width;
            inverse_std[0] = at.attention_inverse_std + row;
            inverse_std[1] = at.feedforward_inverse_std + row;
        }
        linear(rows, width, width, own.mixed + n, w->output, p->output_bias, own.added);
        too_large |=
            layer_norm(rows, width, s->norm_epsilon, own.added, query_x + n, p->attention_norm,
                       p->attention_norm_bias, own.after, normed[0], inverse_std[0]);
        linear(rows, inner, width, own.after, w->widen, p->widen_bias, widened);
        activate(s->activation, rows * inner, widened, own.inner, NULL);
        linear(rows, width, inner, own.inner, w->narrow, p->narrow_bias, own.added);
        too_large |=
            layer_norm(rows, width, s->norm_epsilon, own.added, own.after, p->feedforward_norm,
                       p->feedforward_norm_bias, y + n, normed[1], inverse_std[1]);
        if (s->training) pack_rows(row, rows, all_read, width, own.mixed + n, width, at.mixed);
    }
    return too_large;
}

layer_sums lay_out_sums(const stack_shape *s, arena *a) {
    long tokens = s->examples * s->length, width = s->width;
    return (layer_sums){
        take(a, tokens, padded(width)),
        take(a, tokens, padded(width)),
        take(a, tokens, padded(width)),
        take(a, tokens, padded(width)),
        take(a, tokens, padded(s->inner)),
        take(a, tokens, padded(width)),
        take(a, tokens, padded(width)),
        take(a, tokens, padded(s->inner)),
        take(a, tokens, width),
        take(a, tokens * s->heads, padded(s->length)),
    };
}

typedef struct {
    float *dq, *dk, *dv, *dmixed, *dquery_x;
    float *after, *inner, *slopes, *dnarrow, *dinner;
} backward_places;

static backward_places backward_layout(const stack_shape *s, long examples, arena *a) {
    long tokens = examples * s->length, width = s->width;
    return (backward_places){
        take(a, tokens, width),
        take(a, tokens, width),
        take(a, tokens, width),
        take(a, tokens, width),
        take(a, tokens, width),
        take(a, BLOCK, width),
        take(a, BLOCK, s->inner),
        take(a, BLOCK, s->inner),
        take(a, BLOCK, width),
        take(a, BLOCK, s->inner),
    };
}

void lay_out_layer_backward(const stack_shape *s, long examples, arena *a) {
    backward_layout(s, examples, a);
    lay_out_attention(attention_of(s, examples, s->length), a);
}

int layer_backward(const stack_shape *s, group g, long queries, const layer_parameters *p,
                   const packed_layer *w, const float *vectors, const saved_layer *at,
                   const float *dy, layer_sums sums, arena room, float *dx) {
    int too_large = 0;
    long width = s->width, inner = s->inner, tokens = g.count * s->length, read = g.count * queries;
    long all_read = s->examples * queries, all_tokens = s->examples * s->length;
    long start = g.start * queries, token_start = g.start * s->length;
    backward_places own = backward_layout(s, g.count, &room);
    float *dquery_x = queries < s->length ? own.dquery_x : dx;
    for (long i = 0; i < read; i += BLOCK) {
        long rows = smaller(read - i, BLOCK), n = i * width, row = start + i;
        const float *normed = at->attention_normed + row * width;
        float *dafter = sums.dafter_attention + row * width;
        too_large |= layer_norm_backward(rows, width, at->feedforward_normed + row * width,
                                         at->feedforward_inverse_std + row, p->feedforward_norm,
                                         dy + n, own.dnarrow);
        linear(rows, inner, width, own.dnarrow, w->narrow, NULL, own.dinner);
        activate(s->activation, rows * inner, at->widened + row * inner, own.inner, own.slopes);
        for (long e = 0; e < rows * inner; e++) own.dinner[e] *= own.slopes[e];
        matmul(rows, width, inner, own.dinner, inner, 1, w->widen, (addend){own.dnarrow, width},
               dafter, width);
        too_large |= layer_norm_backward(rows, width, normed, at->attention_inverse_std + row,
                                         p->attention_norm, dafter, dquery_x + n);
        scale_and_shift(rows, width, normed, p->attention_norm, p->attention_norm_bias, own.after);
        linear(rows, width, width, dquery_x + n, w->output, NULL, own.dmixed + n);
        pack_rows(row, rows, all_read, inner, own.inner, inner, sums.inner);
        pack_rows(row, rows, all_read, width, own.after, width, sums.after_attention);
        pack_rows(row, rows, all_read, width, own.dnarrow, width, sums.dnarrow);
        pack_rows(row, rows, all_read, inner, own.dinner, inner, sums.dwiden);
        pack_rows(row, rows, all_read, width, dquery_x + n, width, sums.doutput);
    }
    attention_backward(attention_of(s, g.count, queries), at->q + start * width,
                       at->k + token_start * width, at->v + token_start * width, vectors,
                       at->weights + start * s->heads * padded(s->length), own.dmixed,
                       sums.dscores + start * s->heads * padded(s->length), own.dq, own.dk, own.dv,
                       room);
    pack_rows(start, read, all_read, width, own.dq, width, sums.dq);
    pack_rows(token_start, tokens, all_tokens, width, own.dk, width, sums.dk);
    pack_rows(token_start, tokens, all_tokens, width, own.dv, width, sums.dv);
    matmul(read, width, width, own.dq, width, 1, w->query, (addend){dquery_x, width}, dquery_x,
           width);
    if (dquery_x != dx) {
        memset(dx, 0, tokens * width * sizeof(float));
        for (long b = 0; b < g.count; b++)
            copy(dx + b * s->length * width, dquery_x + b * queries * width, queries * width);
    }
    matmul(tokens, width, width, own.dk, width, 1, w->key, (addend){dx, width}, dx, width);
    matmul(tokens, width, width, own.dv, width, 1, w->value, (addend){dx, width}, dx, width);
    return too_large;
}

void lay_out_layer_gradients(const stack_shape *s, arena *a) {
    lay_out_attention(attention_of(s, s->examples, s->length), a);
}

/* By the threads of a parallel region, a few rows of dweight (n, k) each; they needn't wait */
static void share_weight_gradient(long m, long n, long k, const float *dy, const float *x,
                                  float *dweight, float *dbias) {
    const long some = 4 * PANEL;
#pragma omp for schedule(dynamic) nowait
    for (long i = 0; i < n; i += some)
        add_weight_gradient(i, smaller(n - i, some), m, n, k, dy, x, dweight, dbias);
}

static void share_norm_gradient(long m, long n, const float *normed, const float *dy,
                                float *dweight, float *dbias) {
#pragma omp for schedule(dynamic) nowait
    for (long i = 0; i < n; i += NORM_COLUMNS)
        add_norm_gradient(i, smaller(n - i, NORM_COLUMNS), m, n, normed, dy, dweight, dbias);
}

void add_layer_gradients(const stack_shape *s, long queries, const saved_layer *at, const float *dy,
                         layer_sums sums, arena room, float *dvectors, const layer_parameters *d) {
    long width = s->width, inner = s->inner;
    long read = s->examples * queries, tokens = s->examples * s->length;
    attention_shape a = attention_of(s, s->examples, queries);
#pragma omp parallel num_threads(s->threads)
    {
        arena own = of_thread(room, lay_out_layer_gradients, s);
        share_weight_gradient(read, width, inner, sums.dnarrow, sums.inner, d->narrow,
                              d->narrow_bias);
        share_weight_gradient(read, inner, width, sums.dwiden, sums.after_attention, d->widen,
                              d->widen_bias);
        share_weight_gradient(read, width, width, sums.doutput, at->mixed, d->output,
                              d->output_bias);
        share_weight_gradient(read, width, width, sums.dq, at->query_x, d->query, d->query_bias);
        share_weight_gradient(tokens, width, width, sums.dk, at->x, d->key, d->key_bias);
        share_weight_gradient(tokens, width, width, sums.dv, at->x, d->value, d->value_bias);
        share_norm_gradient(read, width, at->feedforward_normed, dy, d->feedforward_norm,
                            d->feedforward_norm_bias);
        share_norm_gradient(read, width, at->attention_normed, sums.dafter_attention,
                            d->attention_norm, d->attention_norm_bias);
        if (dvectors) {
#pragma omp for schedule(dynamic)
            for (long i = 0; i < queries; i++)
                add_vector_gradient_by_query(a, i, at->q, sums.dscores, dvectors, own);
        }
        if (dvectors && s->by_key) {
#pragma omp for schedule(dynamic)
            for (long j = 0; j < s->length; j++)
                add_vector_gradient_by_key(a, j, at->k, sums.dscores, dvectors, own);
        }
    }
}
