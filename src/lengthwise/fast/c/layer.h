/* The parts of a layer, and the layer itself, as the files here share them.

   A batch goes through the layers in groups of examples; all of these functions work on one group,
   in one thread, unless they say otherwise. */

#ifndef LENGTHWISE_LAYER_H
#define LENGTHWISE_LAYER_H

#include "memory.h"
#include "products.h"

/* What the caller asks for; compiled.py has the same structure */
typedef struct {
    long examples, length, queries; /* x is (examples, length, width), y (examples, queries, width) */
    long width, heads, inner;       /* inner: the width of the feed-forward network */
    long depth, layers, vectors;    /* layers applied; how many layers and vectors take turns */
    long threads;
    int activation; /* 0: relu, 1: gelu, 2: gelu as approximated by tanh */
    int by_key;     /* whether relative vectors are multiplied with keys, and not only with queries */
    int training;   /* whether to save what gradients need */
    float scale, norm_epsilon;
} stack_shape;

/* The parameters of a layer, or their gradients */
typedef struct {
    float *query, *query_bias, *key, *key_bias, *value, *value_bias, *output, *output_bias;
    float *attention_norm, *attention_norm_bias, *widen, *widen_bias, *narrow, *narrow_bias;
    float *feedforward_norm, *feedforward_norm_bias;
} layer_parameters;

/* The weights of a layer in panels: transposed for y = x * weight', as they are for dx = dy * weight */
typedef struct {
    float *query, *key, *value, *output, *widen, *narrow;
} packed_layer;

/* Examples of a batch that one thread takes through */
typedef struct {
    long start, count;
} group;

/* activations.c: n numbers, in place; slopes are written if they aren't NULL */
void activate(int activation, long n, float *x, float *slopes);

/* norms.c: y (m, n) is the layer norm of x + residual. What is normed, before weight and bias, and
   1 / standard deviation are kept for the gradient. */
void layer_norm(long m, long n, float epsilon, const float *x, const float *residual,
                const float *weight, const float *bias, float *y, float *normed, float *inverse_std);
void layer_norm_backward(long m, long n, const float *normed, const float *inverse_std,
                         const float *weight, const float *dy, float *dx);
/* Adds the gradients of weight and bias, of some columns of (m, n) */
void add_norm_gradient(long start, long columns, long m, long n, const float *normed,
                       const float *dy, float *dweight, float *dbias);

/* attention.c: shapes are (examples, queries or keys, heads * head), and weights (examples, heads,
   queries, padded keys). Relative vectors (i, j, head), whose rows i are keys * head apart, are NULL
   if there are none. */
typedef struct {
    long examples, heads, queries, keys, head;
    float scale;
    int by_key;
} attention_shape;
long attention_room(attention_shape s);
void attention(attention_shape s, const float *q, const float *k, const float *v,
               const float *vectors, float *weights, float *mixed, float *room);
void attention_backward(attention_shape s, const float *q, const float *k, const float *v,
                        const float *vectors, const float *weights, const float *dmixed,
                        float *dscores, float *dq, float *dk, float *dv, float *room);
/* Of all examples: add the gradients of vectors (i, :) and of vectors (:, j) */
void add_vector_gradient_by_query(attention_shape s, long i, const float *q, const float *dscores,
                                  float *dvectors, float *room);
void add_vector_gradient_by_key(attention_shape s, long j, const float *k, const float *dscores,
                                float *dvectors, float *room);

/* layer.c: what a layer saves for its gradient, of all examples. x, its rows with queries, mixed,
   after_attention and inner are in panels. Without training, of one group and the first line only. */
typedef struct {
    float *q, *k, *v, *weights;
    float *x, *query_x, *mixed, *after_attention, *inner, *slopes;
    float *attention_normed, *attention_inverse_std, *feedforward_normed, *feedforward_inverse_std;
} saved_layer;
saved_layer lay_out_saved(const stack_shape *s, long examples, long queries, arena *a);

/* What a layer's backward pass hands on from examples to sums over all of them. The first line is
   in panels. */
typedef struct {
    float *dq, *dk, *dv, *doutput, *dwiden, *dnarrow;
    float *dafter_attention, *dscores;
} layer_sums;
layer_sums lay_out_sums(const stack_shape *s, arena *a);

attention_shape attention_of(const stack_shape *s, long examples, long queries);
long layer_room(const stack_shape *s, long examples);
void layer_forward(const stack_shape *s, group g, long queries, const layer_parameters *p,
                   const packed_layer *w, const float *vectors, const float *x, saved_layer at,
                   float *room, float *y);
long layer_backward_room(const stack_shape *s, long examples);
void layer_backward(const stack_shape *s, group g, long queries, const layer_parameters *p,
                    const packed_layer *w, const float *vectors, const saved_layer *at,
                    const float *dy, layer_sums sums, float *room, float *dx);
/* By all threads: adds the gradients of parameters, and of vectors unless dvectors is NULL */
long layer_gradient_room(const stack_shape *s);
void add_layer_gradients(const stack_shape *s, long queries, const saved_layer *at, const float *dy,
                         layer_sums sums, float *room, float *dvectors, const layer_parameters *d);

#endif
