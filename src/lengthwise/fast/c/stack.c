/* A stack of layers, forward and backward: what Python calls.

   A batch is split into groups of examples that fit the cache. A thread takes a group through all
   layers, or, backwards, through one layer. */

#include "layer.h"
#include "threads.h"

#define EXPORT __attribute__((visibility("default")))
#define TOKENS_OF_GROUP 400

/* Of these sources, as compiled.py has computed it, and of the structure that it hands over */
EXPORT unsigned long long source_digest(void) { return SOURCE_DIGEST; }
EXPORT long stack_shape_size(void) { return sizeof(stack_shape); }

/* Examples of a group: about equally many in each, and groups for all threads */
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

static packed_layer lay_out_packed(const stack_shape *s, arena *a) {
    long width = s->width, inner = s->inner, square = width * padded(width);
    /* Either way of packing fits */
    long oblong = larger(width * padded(inner), inner * padded(width));
    return (packed_layer){take(a, square, 1), take(a, square, 1), take(a, square, 1),
                          take(a, square, 1), take(a, oblong, 1), take(a, oblong, 1)};
}

/* The packed weights of one layer, which are the first pieces of scratch memory */
static packed_layer packed_at(const stack_shape *s, arena scratch, long layer) {
    const long pieces = sizeof(packed_layer) / sizeof(float *);
    scratch.next = layer * pieces;
    return lay_out_packed(s, &scratch);
}

/* What a thread needs for a group on its way forward: x before and after a layer, and, unless it is
   saved, what only the layer itself reads */
typedef struct {
    float *between[2];
    saved_layer unsaved;
} forward_places;

static forward_places forward_layout(const stack_shape *s, arena *a) {
    long examples = group_size(s);
    forward_places at = {0};
    for (int n = 0; n < 2; n++) at.between[n] = take(a, examples * s->length, s->width);
    if (!s->training) at.unsaved = lay_out_saved(s, examples, s->length, a);
    return at;
}

static void lay_out_forward(const stack_shape *s, arena *a) {
    forward_layout(s, a);
    lay_out_layer(s, group_size(s), a);
}

static void lay_out_backward(const stack_shape *s, arena *a) {
    lay_out_layer_backward(s, group_size(s), a);
}

typedef struct {
    layer_sums sums;
    float *between[2];
    arena own, gradients; /* of all threads */
} backward_places;

static backward_places backward_layout(const stack_shape *s, arena *a) {
    backward_places at = {.sums = lay_out_sums(s, a)};
    for (int n = 0; n < 2; n++) at.between[n] = take(a, s->examples * s->length, s->width);
    at.own = *a;
    for (long t = 0; t < s->threads; t++) lay_out_backward(s, a);
    at.gradients = *a;
    for (long t = 0; t < s->threads; t++) lay_out_layer_gradients(s, a);
    return at;
}

/* Pieces of memory that the caller allocates: for what is saved, and for what the forward and the
   backward pass use in passing. Notes their sizes unless `sizes` is NULL. */
enum { SAVED, FORWARD, BACKWARD };
EXPORT long stack_pieces(const stack_shape *s, int purpose, long *sizes) {
    arena a = {.sizes = sizes};
    if (purpose == SAVED) {
        for (long i = 0; i < s->depth; i++) lay_out_saved(s, s->examples, queries_at(s, i), &a);
        return a.next;
    }
    for (long n = 0; n < s->layers; n++) lay_out_packed(s, &a);
    if (purpose == BACKWARD) backward_layout(s, &a);
    else
        for (long t = 0; t < s->threads; t++) lay_out_forward(s, &a);
    return a.next;
}

/* What layer i has saved, or will save */
static saved_layer saved_at(const stack_shape *s, float *const *saved, long i) {
    const long pieces = sizeof(saved_layer) / sizeof(float *);
    arena a = {.pieces = saved, .next = i * pieces};
    return lay_out_saved(s, s->examples, queries_at(s, i), &a);
}

/* Packs all weights (n, k): for y = x * weight', or for dx = dy * weight. Returns the scratch
   memory that is left. */
static arena pack_layers(const stack_shape *s, const layer_parameters *p, int purpose,
                         float *const *scratch) {
    long width = s->width, inner = s->inner;
    arena all = {.pieces = scratch};
#pragma omp parallel for schedule(dynamic) num_threads(s->threads)
    for (long n = 0; n < s->layers * 6; n++) {
        const layer_parameters *from = p + n / 6;
        packed_layer at = packed_at(s, all, n / 6);
        const float *weights[] = {from->query,  from->key,   from->value,
                                  from->output, from->widen, from->narrow};
        float *panels[] = {at.query, at.key, at.value, at.output, at.widen, at.narrow};
        const float *weight = weights[n % 6];
        long outputs = n % 6 == 4 ? inner : width, inputs = n % 6 == 5 ? inner : width;
        if (purpose == FORWARD) pack_transposed(inputs, outputs, weight, inputs, panels[n % 6]);
        else pack_rows(0, outputs, outputs, inputs, weight, inputs, panels[n % 6]);
    }
    for (long n = 0; n < s->layers; n++) lay_out_packed(s, &all);
    return all;
}

/* y (examples, queries, width), from x. Saves only if training. Returns whether numbers are too
   large, so that the caller must not use y. */
EXPORT int stack_forward(const stack_shape *s, const layer_parameters *p,
                         const float *const *vectors, const float *x, float *const *saved,
                         float *const *scratch, float *y) {
    arena rest = pack_layers(s, p, FORWARD, scratch);
    long some = group_size(s);
    int too_large = 0;
#pragma omp parallel for schedule(dynamic) num_threads(s->threads) reduction(| : too_large)
    for (long start = 0; start < s->examples; start += some) {
        group g = {start, smaller(s->examples - start, some)};
        arena room = of_thread(rest, lay_out_forward, s);
        forward_places own = forward_layout(s, &room);
        const float *from = x + start * s->length * s->width;
        for (long i = 0; i < s->depth; i++) {
            long queries = queries_at(s, i), n = i % s->layers;
            float *to = i == s->depth - 1 ? y + start * queries * s->width : own.between[i % 2];
            packed_layer packed = packed_at(s, rest, n);
            too_large |=
                layer_forward(s, g, queries, p + n, &packed, vectors[i % s->vectors], from,
                              s->training ? saved_at(s, saved, i) : own.unsaved, room, to);
            from = to;
        }
    }
    return too_large;
}

/* dx, from dy; adds the gradients of parameters, and of vectors where dvectors isn't NULL. Returns
   whether numbers are too large. */
EXPORT int stack_backward(const stack_shape *s, const layer_parameters *p,
                          const float *const *vectors, float *const *saved, const float *dy,
                          float *const *scratch, float *dx, float *const *dvectors,
                          const layer_parameters *d) {
    int too_large = 0;
    arena rest = pack_layers(s, p, BACKWARD, scratch);
    backward_places at = backward_layout(s, &rest);
    long some = group_size(s);
    for (long i = s->depth - 1; i >= 0; i--) {
        long queries = queries_at(s, i), n = i % s->layers, r = i % s->vectors;
        saved_layer here = saved_at(s, saved, i);
        packed_layer packed = packed_at(s, rest, n);
        float *to = i ? at.between[i % 2] : dx;
#pragma omp parallel for schedule(dynamic) num_threads(s->threads) reduction(| : too_large)
        for (long start = 0; start < s->examples; start += some) {
            group g = {start, smaller(s->examples - start, some)};
            too_large |= layer_backward(s, g, queries, p + n, &packed, vectors[r], &here,
                                        dy + start * queries * s->width, at.sums,
                                        of_thread(at.own, lay_out_backward, s),
                                        to + start * s->length * s->width);
        }
        add_layer_gradients(s, queries, &here, dy, at.sums, at.gradients, dvectors[r], d + n);
        dy = to;
    }
    return too_large;
}
