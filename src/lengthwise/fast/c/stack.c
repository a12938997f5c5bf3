/* A stack of layers, forward and backward: what Python calls.

   A batch is split into groups of examples that fit the cache. A thread takes a group through all
   layers, or, backwards, through one layer. */

#include "layer.h"

#ifdef _OPENMP
#include <omp.h>
#else
static int omp_get_thread_num(void) { return 0; }
#endif

#define EXPORT __attribute__((visibility("default")))
#define TOKENS_OF_GROUP 400

/* Of these sources, as compiled.py has computed it; and of the structure that it hands over */
EXPORT unsigned long long source_digest(void) { return SOURCE_DIGEST; }
EXPORT long stack_shape_size(void) { return sizeof(stack_shape); }

/* Examples of a group: about equally many in each, and at least as many groups as threads */
static long group_size(const stack_shape *s) {
    long tokens = s->examples * s->length;
    long groups = larger((tokens + TOKENS_OF_GROUP - 1) / TOKENS_OF_GROUP, 1);
    groups = round_up(groups, s->threads);
    return larger(1, (s->examples + groups - 1) / groups);
}

/* Only the last layer is computed for some of the positions alone */
static long queries_at(const stack_shape *s, long layer) {
    return layer == s->depth - 1 ? s->queries : s->length;
}

static long saved_size(const stack_shape *s, long queries) {
    arena a = {0};
    lay_out_saved(s, s->examples, queries, &a);
    return a.used;
}

typedef struct {
    packed_layer *layers; /* in the arena, too */
    float *own;           /* of all threads, one after the other */
    long own_size;
    layer_sums sums;     /* backward only */
    float *between[2];   /* gradients between layers, backward only */
    float *gradient_own; /* of threads, for the sums */
} stack_places;

static packed_layer *take_packed(const stack_shape *s, arena *a) {
    long width = s->width, inner = s->inner, floats = sizeof(packed_layer) / sizeof(float);
    packed_layer *layers = (packed_layer *)take(a, s->layers, floats);
    for (long n = 0; n < s->layers; n++) {
        /* Either way of packing fits */
        long square = width * padded(width);
        long widen = larger(width * padded(inner), inner * padded(width));
        packed_layer packed = {take(a, square, 1), take(a, square, 1), take(a, square, 1),
                               take(a, square, 1), take(a, widen, 1),  take(a, widen, 1)};
        if (layers) layers[n] = packed;
    }
    return layers;
}

/* A thread's own room on the way forward: two places for x, what a layer uses in passing, and what it
   would save if there is no training */
static float *take_own_forward(const stack_shape *s, long examples, arena *a, float *between[2],
                               float **room, saved_layer *unsaved) {
    float *own = between[0] = take(a, examples * s->length, s->width);
    between[1] = take(a, examples * s->length, s->width);
    *room = take(a, layer_room(s, examples), 1);
    if (!s->training) *unsaved = lay_out_saved(s, examples, s->length, a);
    return own;
}

static long own_size_forward(const stack_shape *s) {
    arena a = {0};
    float *between[2], *room;
    saved_layer unsaved;
    take_own_forward(s, group_size(s), &a, between, &room, &unsaved);
    return a.used;
}

static stack_places lay_out_forward_stack(const stack_shape *s, arena *a) {
    stack_places at = {0};
    at.layers = take_packed(s, a);
    at.own_size = own_size_forward(s);
    at.own = take(a, s->threads, at.own_size);
    return at;
}

static stack_places lay_out_backward_stack(const stack_shape *s, arena *a) {
    stack_places at = {0};
    at.layers = take_packed(s, a);
    at.own_size = layer_backward_room(s, group_size(s));
    at.own = take(a, s->threads, at.own_size);
    at.sums = lay_out_sums(s, a);
    for (int n = 0; n < 2; n++) at.between[n] = take(a, s->examples * s->length, s->width);
    at.gradient_own = take(a, s->threads, layer_gradient_room(s));
    return at;
}

/* Floats that the caller allocates: what each layer saves, what the last saves, and what the forward
   and the backward pass use in passing */
EXPORT void stack_sizes(const stack_shape *s, long sizes[4]) {
    arena forward = {0}, backward = {0};
    lay_out_forward_stack(s, &forward);
    lay_out_backward_stack(s, &backward);
    sizes[0] = saved_size(s, s->length), sizes[1] = saved_size(s, s->queries);
    sizes[2] = forward.used, sizes[3] = backward.used;
}

/* Packs all weights: (n, k) for y = x * weight', or for dx = dy * weight */
static void pack_layers(const stack_shape *s, const layer_parameters *p, int backward,
                        packed_layer *to) {
    long width = s->width, inner = s->inner;
#pragma omp parallel for schedule(dynamic) num_threads(s->threads)
    for (long n = 0; n < s->layers * 6; n++) {
        const layer_parameters *from = p + n / 6;
        packed_layer *at = to + n / 6;
        const float *weights[] = {from->query, from->key, from->value,
                                  from->output, from->widen, from->narrow};
        float *panels[] = {at->query, at->key, at->value, at->output, at->widen, at->narrow};
        long outputs = n % 6 == 4 ? inner : width, inputs = n % 6 == 5 ? inner : width;
        if (backward) pack_rows(0, outputs, outputs, inputs, weights[n % 6], inputs, panels[n % 6]);
        else pack_transposed(inputs, outputs, weights[n % 6], inputs, panels[n % 6]);
    }
}

/* y (examples, queries, width), from x. `saved` has memory for each layer when training. */
EXPORT void stack_forward(const stack_shape *s, const layer_parameters *p,
                          const float *const *vectors, const float *x, float *const *saved,
                          float *scratch, float *y) {
    stack_places at = lay_out_forward_stack(s, &(arena){scratch, 0});
    long some = group_size(s);
    pack_layers(s, p, 0, at.layers);
#pragma omp parallel for schedule(dynamic) num_threads(s->threads)
    for (long start = 0; start < s->examples; start += some) {
        group g = {start, smaller(s->examples - start, some)};
        arena own = {at.own + omp_get_thread_num() * at.own_size, 0};
        float *between[2], *room;
        saved_layer here = {0};
        take_own_forward(s, some, &own, between, &room, &here);
        const float *from = x + start * s->length * s->width;
        for (long i = 0; i < s->depth; i++) {
            long queries = queries_at(s, i), n = i % s->layers;
            float *to = i == s->depth - 1 ? y + start * queries * s->width : between[i % 2];
            if (s->training) here = lay_out_saved(s, s->examples, queries, &(arena){saved[i], 0});
            layer_forward(s, g, queries, p + n, at.layers + n, vectors[i % s->vectors], from, here,
                          room, to);
            from = to;
        }
    }
}

/* dx, from dy; adds the gradients of parameters, and of vectors where dvectors isn't NULL */
EXPORT void stack_backward(const stack_shape *s, const layer_parameters *p,
                           const float *const *vectors, float *const *saved, const float *dy,
                           float *scratch, float *dx, float *const *dvectors,
                           const layer_parameters *d) {
    stack_places at = lay_out_backward_stack(s, &(arena){scratch, 0});
    long some = group_size(s);
    pack_layers(s, p, 1, at.layers);
    for (long i = s->depth - 1; i >= 0; i--) {
        long queries = queries_at(s, i), n = i % s->layers, r = i % s->vectors;
        saved_layer here = lay_out_saved(s, s->examples, queries, &(arena){saved[i], 0});
        float *to = i ? at.between[i % 2] : dx;
#pragma omp parallel for schedule(dynamic) num_threads(s->threads)
        for (long start = 0; start < s->examples; start += some) {
            group g = {start, smaller(s->examples - start, some)};
            layer_backward(s, g, queries, p + n, at.layers + n, vectors[r], &here,
                           dy + start * queries * s->width, at.sums,
                           at.own + omp_get_thread_num() * at.own_size,
                           to + start * s->length * s->width);
        }
        add_layer_gradients(s, queries, &here, dy, at.sums, at.gradient_own, dvectors[r], d + n);
        dy = to;
    }
}
