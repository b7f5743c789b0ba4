/* Products of rows with weights of 4 bits, by the integer dot products of AVX-512 (VNNI).

   Weights stand in blocks of 32 along a row of the tensor, each a float16 scale and 32 numbers of 0 to 15 that mean 8
   less (Q4_0 of llama.cpp). What they are multiplied with is rounded to 8 bits in blocks of 32 as well, each with a
   scale of its own, so that a number far from the others costs only its neighbours their precision. Sums within a block
   are exact; a row's result does not depend on the rows beside it. */
#ifndef SSOP_PRODUCT_H
#define SSOP_PRODUCT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define SSOP_HAS_KERNEL 1
#include <immintrin.h>
#define SSOP_WIDE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,f16c,fma")))
#define SSOP_WIDE_INLINE static inline __attribute__((always_inline)) SSOP_WIDE
#else
#define SSOP_HAS_KERNEL 0
#endif

enum {
  SSOP_BLOCK = 32,     /* weights of a scale */
  SSOP_LANES = 16,     /* floats of a register; columns of a tile */
  SSOP_TILE_ROWS = 12, /* most rows of a tile: with a block of weights their sums fill the registers */
  SSOP_PACKED = 256,   /* bytes of a block of weights for the columns of a tile */
  SSOP_AHEAD = 1024    /* bytes of weights that are fetched ahead; the processor's own fetching comes too late */
};

/* `columns` of a result from `depth` numbers of a row. `packed`: [column / 16][block][4][column % 16][4], where the low
   half of byte [i][c][j] is weight 4 * i + j of the block and the high half weight 16 + 4 * i + j. `scales`: float16,
   [column / 16][block][column % 16]. `bias`: [column]. */
typedef struct {
  const uint8_t *packed;
  const uint16_t *scales;
  const float *bias;
  ptrdiff_t depth, columns;
} ssop_weights;

/* Rows in 8 bits: `values` [row][depth]; of each block the scale, and -8 times the sum, which is what the 8 less of the
   weights adds: both [row][depth / 32]. */
typedef struct {
  int8_t *values;
  float *scales;
  int32_t *zeros;
} ssop_rows;

#if SSOP_HAS_KERNEL

static int ssop_has_vnni(void) {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

/* Round a row to 8 bits, as row `row` of `rows`. */
SSOP_WIDE_INLINE void ssop_round_row(const float *x, ptrdiff_t depth, ptrdiff_t row, const ssop_rows *rows) {
  const ptrdiff_t blocks = depth / SSOP_BLOCK;
  for (ptrdiff_t block = 0; block < blocks; block++) {
    const float *at = x + block * SSOP_BLOCK;
    const __m512 low = _mm512_loadu_ps(at), high = _mm512_loadu_ps(at + SSOP_LANES);
    const float most = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(low), _mm512_abs_ps(high)));
    const __m512 by = _mm512_set1_ps(most > 0 ? 127.0f / most : 0.0f);
    const __m512i first = _mm512_cvtps_epi32(_mm512_mul_ps(low, by));
    const __m512i second = _mm512_cvtps_epi32(_mm512_mul_ps(high, by));
    int8_t *values = rows->values + row * depth + block * SSOP_BLOCK;
    _mm_storeu_si128((__m128i *)values, _mm512_cvtsepi32_epi8(first));
    _mm_storeu_si128((__m128i *)(values + SSOP_LANES), _mm512_cvtsepi32_epi8(second));
    rows->scales[row * blocks + block] = most / 127.0f;
    rows->zeros[row * blocks + block] = -8 * _mm512_reduce_add_epi32(_mm512_add_epi32(first, second));
  }
}

/* 16 columns of `count` rows, a constant of at most SSOP_TILE_ROWS. */
SSOP_WIDE_INLINE void ssop_tile(const ssop_weights *weights, ptrdiff_t tile, const ssop_rows *rows, ptrdiff_t row,
                                const int count, float *out) {
  const ptrdiff_t depth = weights->depth, blocks = depth / SSOP_BLOCK;
  const uint8_t *packed = weights->packed + tile * blocks * SSOP_PACKED;
  const uint16_t *scales = weights->scales + tile * blocks * SSOP_LANES;
  const int8_t *values = rows->values + row * depth;
  const float *row_scales = rows->scales + row * blocks;
  const int32_t *zeros = rows->zeros + row * blocks;
  const __m512i low_half = _mm512_set1_epi8(15);
  __m512 sums[SSOP_TILE_ROWS];
#pragma GCC unroll 12
  for (int r = 0; r < count; r++) sums[r] = _mm512_loadu_ps(weights->bias + tile * SSOP_LANES);
  for (ptrdiff_t block = 0; block < blocks; block++) {
    const uint8_t *at = packed + block * SSOP_PACKED;
    __m512i w[8];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      _mm_prefetch((const char *)at + SSOP_AHEAD + 64 * i, _MM_HINT_T0);
      const __m512i both = _mm512_loadu_si512(at + 64 * i);
      w[i] = _mm512_and_si512(both, low_half);
      w[4 + i] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low_half);
    }
    const __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(scales + block * SSOP_LANES)));
#pragma GCC unroll 12
    for (int r = 0; r < count; r++) {
      __m512i sum = _mm512_set1_epi32(zeros[r * blocks + block]);
#pragma GCC unroll 8
      for (int i = 0; i < 8; i++) {
        int32_t four;
        memcpy(&four, values + r * depth + block * SSOP_BLOCK + 4 * i, 4);
        sum = _mm512_dpbusd_epi32(sum, w[i], _mm512_set1_epi32(four));
      }
      const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(row_scales[r * blocks + block]));
      sums[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), both, sums[r]);
    }
  }
  float *to = out + row * weights->columns + tile * SSOP_LANES;
#pragma GCC unroll 12
  for (int r = 0; r < count; r++) _mm512_storeu_ps(to + r * weights->columns, sums[r]);
}

/* Rows times weights, and the bias: `out` is [row][columns]. Tiles are as even as they can be, since few rows pay as
   much for the weights as many. */
SSOP_WIDE static void ssop_multiply(const ssop_weights *weights, const ssop_rows *rows, ptrdiff_t count, float *out) {
  const ptrdiff_t parts = (count + SSOP_TILE_ROWS - 1) / SSOP_TILE_ROWS;
  for (ptrdiff_t tile = 0; tile < weights->columns / SSOP_LANES; tile++) {
    for (ptrdiff_t part = 0; part < parts; part++) {
      const ptrdiff_t row = count * part / parts;
#define SSOP_CASE(n) \
  case n: \
    ssop_tile(weights, tile, rows, row, n, out); \
    break
      switch (count * (part + 1) / parts - row) {
        SSOP_CASE(1);
        SSOP_CASE(2);
        SSOP_CASE(3);
        SSOP_CASE(4);
        SSOP_CASE(5);
        SSOP_CASE(6);
        SSOP_CASE(7);
        SSOP_CASE(8);
        SSOP_CASE(9);
        SSOP_CASE(10);
        SSOP_CASE(11);
        SSOP_CASE(12);
        default:
          break;
      }
#undef SSOP_CASE
    }
  }
}

#endif
#endif
