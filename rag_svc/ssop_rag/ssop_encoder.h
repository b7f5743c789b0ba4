/* The encoder of BERT (Devlin et al., 1810.04805) over the tokens of several texts at once, in floats of 16 lanes.

   Texts stand one behind the other and nothing is filled up: products take all rows together, attention takes each
   text by itself. Everything is computed row by row in one order, so that a text has the same vector whatever is beside
   it. */
#ifndef SSOP_ENCODER_H
#define SSOP_ENCODER_H

#include "ssop_product.h"

enum {
  SSOP_HEAD = 32,      /* width of a head: two registers */
  SSOP_QUERIES = 4,    /* rows of a text that attend together */
  SSOP_KEYS = 32,      /* tokens that they are compared with together */
  SSOP_INNER_ROWS = 48 /* rows that go through the inner layer together, so that they stay near */
};

#define SSOP_SCORE_SCALE 0.176776695f /* 1 / sqrt(SSOP_HEAD) */

typedef struct {
  const float *gain, *shift;
} ssop_norm;

/* `mixing` makes a row's query, key and value, one behind the other. */
typedef struct {
  ssop_weights mixing, merging, widening, narrowing;
  ssop_norm attended, done;
} ssop_layer;

/* Words are blocks of 18 bytes, scale and halves, as in the file; positions have the type's row added to them. */
typedef struct {
  const uint8_t *words;
  const float *positions;
  ssop_norm norm;
  const ssop_layer *layers;
  ptrdiff_t layer_count, width, inner, most_tokens;
  float epsilon;
} ssop_model;

/* What a run over `rows` tokens needs beside the model; `keys`, `values` and
   `scores` are of a head, for the longest text of them. */
typedef struct {
  float *x, *mixed, *context, *wide, *keys, *values, *scores;
  ssop_rows rounded;
} ssop_scratch;

#if SSOP_HAS_KERNEL

/* e^x for x of at most 0, off by 2 units in the last place; below -87 it is 0 or close to it. */
SSOP_WIDE_INLINE __m512 ssop_exp(__m512 x) {
  x = _mm512_max_ps(x, _mm512_set1_ps(-100.0f));
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT);
  __m512 rest = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
  rest = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), rest);
  __m512 sum = _mm512_set1_ps(1.9875691500e-4f);
  sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(1.3981999507e-3f));
  sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(8.3334519073e-3f));
  sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(4.1665795894e-2f));
  sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(1.6666665459e-1f));
  sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(5.0000001201e-1f));
  sum = _mm512_fmadd_ps(sum, _mm512_mul_ps(rest, rest), _mm512_add_ps(rest, _mm512_set1_ps(1.0f)));
  return _mm512_scalef_ps(sum, n);
}

/* x / 2 * (1 + erf(x / sqrt(2))); erf by Abramowitz and Stegun 7.1.26, off by 1.5e-7. */
SSOP_WIDE_INLINE __m512 ssop_gelu(__m512 x) {
  const __m512 one = _mm512_set1_ps(1.0f), z = _mm512_mul_ps(_mm512_abs_ps(x), _mm512_set1_ps(0.70710678f));
  const __m512 below = _mm512_fmadd_ps(z, _mm512_set1_ps(0.3275911f), one);
  /* One step of Newton's from 14 bits: a division takes ten cycles. */
  __m512 t = _mm512_rcp14_ps(below);
  t = _mm512_mul_ps(t, _mm512_fnmadd_ps(below, t, _mm512_set1_ps(2.0f)));
  __m512 sum = _mm512_set1_ps(1.061405429f);
  sum = _mm512_fmadd_ps(sum, t, _mm512_set1_ps(-1.453152027f));
  sum = _mm512_fmadd_ps(sum, t, _mm512_set1_ps(1.421413741f));
  sum = _mm512_fmadd_ps(sum, t, _mm512_set1_ps(-0.284496736f));
  sum = _mm512_fmadd_ps(sum, t, _mm512_set1_ps(0.254829592f));
  const __m512 tail = _mm512_mul_ps(_mm512_mul_ps(sum, t), ssop_exp(_mm512_fnmadd_ps(z, z, _mm512_setzero_ps())));
  /* 1 + erf(z) is 2 - tail, and for the negative tail. */
  const __m512 share = _mm512_mask_sub_ps(tail, _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GE_OQ),
                                          _mm512_set1_ps(2.0f), tail);
  return _mm512_mul_ps(_mm512_mul_ps(x, _mm512_set1_ps(0.5f)), share);
}

/* Mean 0 and variance 1, then gain and shift; in place. `added` (NULL: none) is added before. */
SSOP_WIDE_INLINE void ssop_normalise(float *x, const float *added, const ssop_norm *norm, ptrdiff_t width,
                                     float epsilon) {
  __m512 sum = _mm512_setzero_ps(), squares = _mm512_setzero_ps();
  for (ptrdiff_t i = 0; i < width; i += SSOP_LANES) {
    __m512 value = _mm512_loadu_ps(x + i);
    if (added) value = _mm512_add_ps(value, _mm512_loadu_ps(added + i));
    _mm512_storeu_ps(x + i, value);
    sum = _mm512_add_ps(sum, value);
  }
  const __m512 mean = _mm512_set1_ps(_mm512_reduce_add_ps(sum) / (float)width);
  for (ptrdiff_t i = 0; i < width; i += SSOP_LANES) {
    const __m512 off = _mm512_sub_ps(_mm512_loadu_ps(x + i), mean);
    squares = _mm512_fmadd_ps(off, off, squares);
  }
  const __m512 variance = _mm512_set1_ps(_mm512_reduce_add_ps(squares) / (float)width + epsilon);
  const __m512 by = _mm512_div_ps(_mm512_set1_ps(1.0f), _mm512_sqrt_ps(variance));
  for (ptrdiff_t i = 0; i < width; i += SSOP_LANES) {
    const __m512 off = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(x + i), mean), by);
    _mm512_storeu_ps(x + i, _mm512_fmadd_ps(off, _mm512_loadu_ps(norm->gain + i), _mm512_loadu_ps(norm->shift + i)));
  }
}

/* The row of a word: of each block a float16, then 16 bytes whose low halves are the first 16 numbers. */
SSOP_WIDE_INLINE void ssop_read_word(const uint8_t *word, const float *position, ptrdiff_t width, float *x) {
  for (ptrdiff_t i = 0; i < width; i += SSOP_BLOCK, word += 2 + SSOP_LANES) {
    uint16_t bits;
    memcpy(&bits, word, 2);
    const __m512 scale = _mm512_set1_ps(_cvtsh_ss(bits));
    const __m512i both = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(word + 2)));
    const __m512i eight = _mm512_set1_epi32(8);
    const __m512i low = _mm512_sub_epi32(_mm512_and_si512(both, _mm512_set1_epi32(15)), eight);
    const __m512i high = _mm512_sub_epi32(_mm512_srli_epi32(both, 4), eight);
    _mm512_storeu_ps(x + i, _mm512_fmadd_ps(_mm512_cvtepi32_ps(low), scale, _mm512_loadu_ps(position + i)));
    _mm512_storeu_ps(x + i + SSOP_LANES, _mm512_fmadd_ps(_mm512_cvtepi32_ps(high), scale,
                                                         _mm512_loadu_ps(position + i + SSOP_LANES)));
  }
}

/* The lanes of a register that are among the `count` numbers left. */
SSOP_WIDE_INLINE __mmask16 ssop_kept(ptrdiff_t count) {
  return count >= SSOP_LANES ? 0xFFFF : count <= 0 ? 0 : (__mmask16)((1u << count) - 1);
}

/* e to the scores less the greatest of them; the sum of all. What lies behind `count`, up to `filled`, becomes 0. */
SSOP_WIDE_INLINE float ssop_soften(float *scores, ptrdiff_t count, ptrdiff_t filled) {
  __m512 most = _mm512_set1_ps(-3.0e38f), sum = _mm512_setzero_ps();
  for (ptrdiff_t i = 0; i < filled; i += SSOP_LANES) {
    const __mmask16 kept = ssop_kept(count - i);
    most = _mm512_mask_max_ps(most, kept, most, _mm512_loadu_ps(scores + i));
  }
  most = _mm512_set1_ps(_mm512_reduce_max_ps(most));
  for (ptrdiff_t i = 0; i < filled; i += SSOP_LANES) {
    const __mmask16 kept = ssop_kept(count - i);
    const __m512 value = _mm512_maskz_mov_ps(kept, ssop_exp(_mm512_sub_ps(_mm512_loadu_ps(scores + i), most)));
    _mm512_storeu_ps(scores + i, value);
    sum = _mm512_add_ps(sum, value);
  }
  return _mm512_reduce_add_ps(sum);
}

/* `count` rows of a head, a constant, attend to all `tokens` of their text. `mixed` is the text's first row of query,
   key and value, `filled` the tokens filled up to SSOP_KEYS. */
SSOP_WIDE_INLINE void ssop_attend_rows(const float *mixed, ptrdiff_t width, ptrdiff_t head, ptrdiff_t row,
                                       const int count, ptrdiff_t tokens, ptrdiff_t filled, ssop_scratch *scratch,
                                       float *context) {
  const float *query = mixed + row * 3 * width + head * SSOP_HEAD, *value = scratch->values;
  const __m512 scale = _mm512_set1_ps(SSOP_SCORE_SCALE);
  for (ptrdiff_t key = 0; key < filled; key += SSOP_KEYS) {
    __m512 low[SSOP_QUERIES], high[SSOP_QUERIES];
#pragma GCC unroll 4
    for (int r = 0; r < count; r++) low[r] = high[r] = _mm512_setzero_ps();
    for (int i = 0; i < SSOP_HEAD; i++) {
      const float *keys = scratch->keys + i * filled + key;
      const __m512 here = _mm512_loadu_ps(keys), beside = _mm512_loadu_ps(keys + SSOP_LANES);
#pragma GCC unroll 4
      for (int r = 0; r < count; r++) {
        const __m512 by = _mm512_set1_ps(query[r * 3 * width + i]);
        low[r] = _mm512_fmadd_ps(by, here, low[r]);
        high[r] = _mm512_fmadd_ps(by, beside, high[r]);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < count; r++) {
      _mm512_storeu_ps(scratch->scores + r * filled + key, _mm512_mul_ps(low[r], scale));
      _mm512_storeu_ps(scratch->scores + r * filled + key + SSOP_LANES, _mm512_mul_ps(high[r], scale));
    }
  }
  __m512 first[SSOP_QUERIES], second[SSOP_QUERIES], by[SSOP_QUERIES];
#pragma GCC unroll 4
  for (int r = 0; r < count; r++) {
    by[r] = _mm512_set1_ps(1.0f / ssop_soften(scratch->scores + r * filled, tokens, filled));
    first[r] = second[r] = _mm512_setzero_ps();
  }
  for (ptrdiff_t key = 0; key < tokens; key++, value += SSOP_HEAD) {
    const __m512 low = _mm512_loadu_ps(value), high = _mm512_loadu_ps(value + SSOP_LANES);
#pragma GCC unroll 4
    for (int r = 0; r < count; r++) {
      const __m512 share = _mm512_set1_ps(scratch->scores[r * filled + key]);
      first[r] = _mm512_fmadd_ps(share, low, first[r]);
      second[r] = _mm512_fmadd_ps(share, high, second[r]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < count; r++) {
    float *to = context + (row + r) * width + head * SSOP_HEAD;
    _mm512_storeu_ps(to, _mm512_mul_ps(first[r], by[r]));
    _mm512_storeu_ps(to + SSOP_LANES, _mm512_mul_ps(second[r], by[r]));
  }
}

/* Attention within one text. */
SSOP_WIDE static void ssop_attend(const float *mixed, ptrdiff_t width, ptrdiff_t tokens, ssop_scratch *scratch,
                                  float *context) {
  const ptrdiff_t filled = (tokens + SSOP_KEYS - 1) / SSOP_KEYS * SSOP_KEYS;
  for (ptrdiff_t head = 0; head < width / SSOP_HEAD; head++) {
    for (ptrdiff_t key = 0; key < filled; key++)
      for (int i = 0; i < SSOP_HEAD; i++)
        scratch->keys[i * filled + key] =
            key < tokens ? mixed[key * 3 * width + width + head * SSOP_HEAD + i] : 0.0f;
    for (ptrdiff_t key = 0; key < tokens; key++)
      memcpy(scratch->values + key * SSOP_HEAD, mixed + key * 3 * width + 2 * width + head * SSOP_HEAD,
             SSOP_HEAD * sizeof(float));
    ptrdiff_t row = 0;
    for (; row + SSOP_QUERIES <= tokens; row += SSOP_QUERIES)
      ssop_attend_rows(mixed, width, head, row, SSOP_QUERIES, tokens, filled, scratch, context);
    for (; row < tokens; row++) ssop_attend_rows(mixed, width, head, row, 1, tokens, filled, scratch, context);
  }
}

SSOP_WIDE static void ssop_run_layer(const ssop_model *model, const ssop_layer *layer, const int32_t *lengths,
                                     ptrdiff_t texts, ptrdiff_t rows, ssop_scratch *scratch) {
  const ptrdiff_t width = model->width, inner = model->inner;
  float *x = scratch->x;
  for (ptrdiff_t row = 0; row < rows; row++) ssop_round_row(x + row * width, width, row, &scratch->rounded);
  ssop_multiply(&layer->mixing, &scratch->rounded, rows, scratch->mixed);
  for (ptrdiff_t text = 0, row = 0; text < texts; row += lengths[text++])
    ssop_attend(scratch->mixed + row * 3 * width, width, lengths[text], scratch, scratch->context + row * width);
  for (ptrdiff_t row = 0; row < rows; row++)
    ssop_round_row(scratch->context + row * width, width, row, &scratch->rounded);
  ssop_multiply(&layer->merging, &scratch->rounded, rows, scratch->context);
  for (ptrdiff_t row = 0; row < rows; row++)
    ssop_normalise(x + row * width, scratch->context + row * width, &layer->attended, width, model->epsilon);
  for (ptrdiff_t first = 0; first < rows; first += SSOP_INNER_ROWS) {
    const ptrdiff_t count = rows - first < SSOP_INNER_ROWS ? rows - first : SSOP_INNER_ROWS;
    float *part = x + first * width;
    for (ptrdiff_t row = 0; row < count; row++) ssop_round_row(part + row * width, width, row, &scratch->rounded);
    ssop_multiply(&layer->widening, &scratch->rounded, count, scratch->wide);
    for (ptrdiff_t i = 0; i < count * inner; i += SSOP_LANES)
      _mm512_storeu_ps(scratch->wide + i, ssop_gelu(_mm512_loadu_ps(scratch->wide + i)));
    for (ptrdiff_t row = 0; row < count; row++)
      ssop_round_row(scratch->wide + row * inner, inner, row, &scratch->rounded);
    ssop_multiply(&layer->narrowing, &scratch->rounded, count, scratch->context);
    for (ptrdiff_t row = 0; row < count; row++)
      ssop_normalise(part + row * width, scratch->context + row * width, &layer->done, width, model->epsilon);
  }
}

/* The mean of each text's rows, [text][width]. `ids` are words of the model, each text has 1 to `most_tokens`. */
SSOP_WIDE static void ssop_encode(const ssop_model *model, const int32_t *ids, const int32_t *lengths, ptrdiff_t texts,
                                  ssop_scratch *scratch, float *out) {
  const ptrdiff_t width = model->width, word_bytes = width / SSOP_BLOCK * (2 + SSOP_LANES);
  ptrdiff_t rows = 0;
  for (ptrdiff_t text = 0; text < texts; text++)
    for (ptrdiff_t i = 0; i < lengths[text]; i++, rows++) {
      float *x = scratch->x + rows * width;
      ssop_read_word(model->words + ids[rows] * word_bytes, model->positions + i * width, width, x);
      ssop_normalise(x, NULL, &model->norm, width, model->epsilon);
    }
  for (ptrdiff_t layer = 0; layer < model->layer_count; layer++)
    ssop_run_layer(model, model->layers + layer, lengths, texts, rows, scratch);
  const float *x = scratch->x;
  for (ptrdiff_t text = 0; text < texts; text++, out += width) {
    const __m512 share = _mm512_set1_ps(1.0f / (float)lengths[text]);
    for (ptrdiff_t i = 0; i < width; i += SSOP_LANES) {
      __m512 sum = _mm512_setzero_ps();
      for (ptrdiff_t row = 0; row < lengths[text]; row++) sum = _mm512_add_ps(sum, _mm512_loadu_ps(x + row * width + i));
      _mm512_storeu_ps(out + i, _mm512_mul_ps(sum, share));
    }
    x += lengths[text] * width;
  }
}

#else

static int ssop_has_vnni(void) { return 0; }

static void ssop_encode(const ssop_model *model, const int32_t *ids, const int32_t *lengths, ptrdiff_t texts,
                        ssop_scratch *scratch, float *out) {
  (void)model, (void)ids, (void)lengths, (void)texts, (void)scratch, (void)out;
}

#endif
#endif
