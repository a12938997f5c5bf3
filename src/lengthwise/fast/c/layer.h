/* The parts of a layer, and the layer itself, as the files here share them.

   A batch goes through the layers in groups of examples; all of these functions work on one group,
   in one thread, unless they say otherwise. */

#ifndef LENGTHWISE_LAYER_H
#define LENGTHWISE_LAYER_H

#include "memory.h"
#include "products.h"

/* What the caller asks for; compiled.py has the same structure */
typedef struct {
    /* x is (examples, length, width), y is (examples, queries, width) */
    long examples, length, queries, width, heads;
    long inner;                  /* the width of the feed-forward network */
    long depth, layers, vectors; /* layers applied; how many layers and vectors take turns */
    long threads;
    int activation; /* 0: relu, 1: gelu, 2: gelu as approximated by tanh */
    int by_key;     /* whether relative vectors are multiplied with keys, too, not only queries */
    int training;   /* whether to save what gradients need */
    float scale, norm_epsilon;
} stack_shape;

/* The parameters of a layer, or their gradients */
typedef struct {
    float *query, *query_bias, *key, *key_bias, *value, *value_bias, *output, *output_bias;
    float *attention_norm, *attention_norm_bias, *widen, *widen_bias, *narrow, *narrow_bias;
    float *feedforward_norm, *feedforward_norm_bias;
} layer_parameters;

/* The weights of a layer in panels: transposed for y = x * weight', as they are for
   dx = dy * weight */
typedef struct {
    float *query, *key, *value, *output, *widen, *narrow;
} packed_layer;

/* Examples of a batch that one thread takes through */
typedef struct {
    long start, count;
} group;

/* activations.c: y from n numbers x, which it may be, and slopes unless they are NULL */
void activate(int activation, long n, const float *x, float *y, float *slopes);

/* norms.c: y (m, n) is the layer norm of x + residual. What is normed, before weight and bias, and
   1 / standard deviation are kept for the gradient. This and other functions return whether numbers
   are too large (vectors.h). */
int layer_norm(long m, long n, float epsilon, const float *x, const float *residual,
               const float *weight, const float *bias, float *y, float *normed, float *inverse_std);
int layer_norm_backward(long m, long n, const float *normed, const float *inverse_std,
                        const float *weight, const float *dy, float *dx);
/* y from what is normed, by the same formula */
void scale_and_shift(long m, long n, const float *normed, const float *weight, const float *bias,
                     float *y);
/* Adds the gradients of weight and bias, of at most NORM_COLUMNS columns of (m, n) */
#define NORM_COLUMNS 128
void add_norm_gradient(long start, long columns, long m, long n, const float *normed,
                       const float *dy, float *dweight, float *dbias);

/* attention.c: shapes are (examples, queries or keys, heads * head), and weights (examples, heads,
   queries, padded keys). Relative vectors (i, j, head), whose rows i are keys * head apart, are
   NULL if there are none. */
typedef struct {
    long examples, heads, queries, keys, head;
    float scale;
    int by_key;
} attention_shape;
void lay_out_attention(attention_shape s, arena *a);
int attention(attention_shape s, const float *q, const float *k, const float *v,
              const float *vectors, float *weights, float *mixed, arena room);
void attention_backward(attention_shape s, const float *q, const float *k, const float *v,
                        const float *vectors, const float *weights, const float *dmixed,
                        float *dscores, float *dq, float *dk, float *dv, arena room);
/* Of all examples: add the gradients of vectors (i, :) and of vectors (:, j) */
void add_vector_gradient_by_query(attention_shape s, long i, const float *q, const float *dscores,
                                  float *dvectors, arena room);
void add_vector_gradient_by_key(attention_shape s, long j, const float *k, const float *dscores,
                                float *dvectors, arena room);

/* layer.c: what a layer saves for its gradient, of all examples. x, its rows with queries and mixed
   are in panels; widened is before the activation. Without training, of one group and the first
   line only. */
typedef struct {
    float *q, *k, *v, *weights;
    float *x, *query_x, *mixed, *widened;
    float *attention_normed, *attention_inverse_std, *feedforward_normed, *feedforward_inverse_std;
} saved_layer;
saved_layer lay_out_saved(const stack_shape *s, long examples, long queries, arena *a);

/* What a layer's backward pass hands on from examples to sums over all of them: gradients of what
   linear maps put out, and inputs that were cheaper to compute again than to save, in panels */
typedef struct {
    float *dq, *dk, *dv, *doutput, *dwiden, *dnarrow;
    float *after_attention, *inner;
    float *dafter_attention, *dscores;
} layer_sums;
layer_sums lay_out_sums(const stack_shape *s, arena *a);

/* `room` is what a function uses in passing; its layout is the function before it */
void lay_out_layer(const stack_shape *s, long examples, arena *a);
int layer_forward(const stack_shape *s, group g, long queries, const layer_parameters *p,
                  const packed_layer *w, const float *vectors, const float *x, saved_layer at,
                  arena room, float *y);
void lay_out_layer_backward(const stack_shape *s, long examples, arena *a);
int layer_backward(const stack_shape *s, group g, long queries, const layer_parameters *p,
                   const packed_layer *w, const float *vectors, const saved_layer *at,
                   const float *dy, layer_sums sums, arena room, float *dx);
/* By all threads, with room for each: adds the gradients of parameters, and of vectors unless
   dvectors is NULL */
void lay_out_layer_gradients(const stack_shape *s, arena *a);
void add_layer_gradients(const stack_shape *s, long queries, const saved_layer *at, const float *dy,
                         layer_sums sums, arena room, float *dvectors, const layer_parameters *d);

#endif
