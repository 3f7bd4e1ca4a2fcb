// DDP_EVERY_VECTOR_WIDTH before a function with plain integer loops compiles it for AVX2 as well (target_clones); the
// variant is selected at program start. For integers only, so that the results do not depend on the variant.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define DDP_EVERY_VECTOR_WIDTH __attribute__((target_clones("avx2", "default")))
#else
#define DDP_EVERY_VECTOR_WIDTH
#endif
