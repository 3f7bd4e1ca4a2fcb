// DDP_EVERY_VECTOR_WIDTH in front of a function of plain integer loops has it compiled for AVX2 too; which one is taken
// is decided when the program starts. Integers only: the results must not depend on it.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define DDP_EVERY_VECTOR_WIDTH __attribute__((target_clones("avx2", "default")))
#else
#define DDP_EVERY_VECTOR_WIDTH
#endif
