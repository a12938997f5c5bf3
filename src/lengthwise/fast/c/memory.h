/* Memory that the caller owns, in pieces.

   Nothing here allocates. A layout is a function that takes pieces from an arena, one after the
   other. It is called twice: by `stack_pieces` on an arena that notes their sizes, and on one with
   the pieces that the caller has allocated. So a failed allocation is an exception in Python. */

#ifndef LENGTHWISE_MEMORY_H
#define LENGTHWISE_MEMORY_H

#include <limits.h>
#include <stddef.h>

typedef struct {
    float *const *pieces; /* NULL while there is no memory yet */
    long *sizes;          /* where to note them, in floats, or NULL */
    long next;
} arena;

/* The next piece: rows * columns floats */
static inline float *take(arena *a, long rows, long columns) {
    long size, piece = a->next++;
    if (a->sizes) a->sizes[piece] = __builtin_mul_overflow(rows, columns, &size) ? LONG_MAX : size;
    return a->pieces ? a->pieces[piece] : NULL;
}

#endif
