/* Threads share what is written, never what is summed: no result depends on how many there are. */

#ifndef LENGTHWISE_THREADS_H
#define LENGTHWISE_THREADS_H

#include "layer.h"
#ifdef _OPENMP
#include <omp.h>
#else
static int omp_get_thread_num(void) { return 0; }
#endif

/* This thread's part of an arena in which one layout is repeated for every thread */
static inline arena of_thread(arena a, void (*lay_out)(const stack_shape *, arena *),
                              const stack_shape *s) {
    arena one = {0};
    lay_out(s, &one);
    a.next += omp_get_thread_num() * one.next;
    return a;
}

#endif
