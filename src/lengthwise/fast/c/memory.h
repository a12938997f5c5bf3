/* Memory that the caller owns, given out from its start.

   No function here allocates. A layout is a function that takes what it needs from an arena: called
   on an arena without memory, it only counts. So the caller learns the size, allocates it once,
   and an allocation that fails is an exception in Python. */

#ifndef LENGTHWISE_MEMORY_H
#define LENGTHWISE_MEMORY_H

#include <limits.h>
#include <stddef.h>

typedef struct {
    float *start; /* or NULL, to count only */
    long used;    /* floats; LONG_MAX if they are too many to count */
} arena;

/* rows * columns floats that start on a cache line */
static inline float *take(arena *a, long rows, long columns) {
    long size, used;
    if (__builtin_mul_overflow(rows, columns, &size) || __builtin_add_overflow(size, 15, &size) ||
        __builtin_add_overflow(a->used, size / 16 * 16, &used)) {
        a->used = LONG_MAX;
        return NULL;
    }
    float *from = a->start ? a->start + a->used : NULL;
    a->used = used;
    return from;
}

#endif
