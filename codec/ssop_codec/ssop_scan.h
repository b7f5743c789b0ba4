/* Runs of bytes of a string that stand for themselves, by blocks.

   A byte is plain where it is ASCII, no control, no quote and no backslash. Blocks are of 16 bytes where the instruction
   set that every machine of its kind has can compare them at once (SSE2 on x86-64, NEON on aarch64), else of 8 bytes in
   a register. No byte at or behind `end` is read. SSOP_NO_SIMD leaves the portable form alone. */
#ifndef SSOP_SCAN_H
#define SSOP_SCAN_H

#include <stdint.h>
#include <string.h>

#define SSOP_LIKELY(x) __builtin_expect(!!(x), 1)
#define SSOP_UNLIKELY(x) __builtin_expect(!!(x), 0)

#if !defined(SSOP_NO_SIMD) && defined(__SSE2__)
#define SSOP_BLOCKS 1
#include <emmintrin.h>
#elif !defined(SSOP_NO_SIMD) && defined(__aarch64__) && defined(__ARM_NEON)
#define SSOP_BLOCKS 2
#include <arm_neon.h>
#else
#define SSOP_BLOCKS 0
#endif

/* Powers of ten that a double holds exactly. */
static const double ssop_powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                     1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static inline int ssop_is_plain(uint8_t c) { return (uint8_t)(c - 0x20) < 0x60 && c != 0x22 && c != 0x5C; }

static inline uint64_t ssop_load8(const uint8_t *p) {
  uint64_t word;
  memcpy(&word, p, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  word = __builtin_bswap64(word);
#endif
  return word;
}

/* The high bit of each byte that is not plain is set; above the first of them other bits may be, too. */
static inline uint64_t ssop_special8(uint64_t word) {
  const uint64_t ones = 0x0101010101010101u, highs = 0x8080808080808080u;
  uint64_t quote = word ^ (ones * 0x22), slash = word ^ (ones * 0x5C);
  return (((quote - ones) & ~quote) | ((slash - ones) & ~slash) | ((word - ones * 0x20) & ~word) | word) & highs;
}

static inline const uint8_t *ssop_skip_plain_portably(const uint8_t *p, const uint8_t *end) {
  while (end - p >= 8) {
    uint64_t special = ssop_special8(ssop_load8(p));
    if (special) return p + (__builtin_ctzll(special) >> 3);
    p += 8;
  }
  while (p < end && ssop_is_plain(*p)) p++;
  return p;
}

#if SSOP_BLOCKS == 1

/* A bit for each of 16 bytes that is not plain. Compared as signed, what is not ASCII is less than a blank. */
static inline uint32_t ssop_special16(const uint8_t *p) {
  __m128i block = _mm_loadu_si128((const __m128i *)p);
  __m128i special = _mm_or_si128(
      _mm_cmplt_epi8(block, _mm_set1_epi8(0x20)),
      _mm_or_si128(_mm_cmpeq_epi8(block, _mm_set1_epi8(0x22)), _mm_cmpeq_epi8(block, _mm_set1_epi8(0x5C))));
  return (uint32_t)_mm_movemask_epi8(special);
}

static inline const uint8_t *ssop_skip_plain(const uint8_t *p, const uint8_t *end) {
  while (end - p >= 16) {
    uint32_t special = ssop_special16(p);
    if (special) return p + __builtin_ctz(special);
    p += 16;
  }
  return ssop_skip_plain_portably(p, end);
}

#elif SSOP_BLOCKS == 2

static inline const uint8_t *ssop_skip_plain(const uint8_t *p, const uint8_t *end) {
  while (end - p >= 16) {
    uint8x16_t block = vld1q_u8(p);
    uint8x16_t special = vorrq_u8(vcgeq_u8(vsubq_u8(block, vdupq_n_u8(0x20)), vdupq_n_u8(0x60)),
                                  vorrq_u8(vceqq_u8(block, vdupq_n_u8(0x22)), vceqq_u8(block, vdupq_n_u8(0x5C))));
    /* Four bits for each byte. */
    uint64_t bits = vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(vreinterpretq_u16_u8(special), 4)), 0);
    if (bits) return p + (__builtin_ctzll(bits) >> 2);
    p += 16;
  }
  return ssop_skip_plain_portably(p, end);
}

#else

static inline const uint8_t *ssop_skip_plain(const uint8_t *p, const uint8_t *end) {
  return ssop_skip_plain_portably(p, end);
}

#endif

/* The bytes of the code point of UTF-8 that begins at `p` with a byte beyond ASCII (the table of RFC 3629); 0 where none
   does, or where `end` cuts it. */
static inline uint32_t ssop_code_point_bytes(const uint8_t *p, const uint8_t *end) {
  uint8_t c = p[0];
  if (end - p < 2 || (p[1] & 0xC0) != 0x80) return 0;
  if (c < 0xE0) return c >= 0xC2 ? 2 : 0;
  if (end - p < 3 || (p[2] & 0xC0) != 0x80) return 0;
  if (c < 0xF0) return (c == 0xE0 && p[1] < 0xA0) || (c == 0xED && p[1] > 0x9F) ? 0 : 3;
  if (end - p < 4 || (p[3] & 0xC0) != 0x80 || c > 0xF4) return 0;
  return (c == 0xF0 && p[1] < 0x90) || (c == 0xF4 && p[1] > 0x8F) ? 0 : 4;
}

/* Skip whole code points that stand for themselves, `*left` at most, which gets what is left of them. */
static inline const uint8_t *ssop_skip_text(const uint8_t *p, const uint8_t *end, uint64_t *left) {
  uint64_t chars = *left;
  while (p < end && chars) {
    const uint8_t *stop = (uint64_t)(end - p) > chars ? p + chars : end;
    const uint8_t *q = ssop_skip_plain(p, stop);
    chars -= (uint64_t)(q - p);
    p = q;
    while (p < end && chars && *p >= 0x80) {
      uint32_t size = ssop_code_point_bytes(p, end);
      if (!size) goto out;
      p += size;
      chars--;
    }
    if (p < end && chars && !ssop_is_plain(*p)) break;
  }
out:
  *left = chars;
  return p;
}

static inline int ssop_equal(const uint8_t *left, const uint8_t *right, size_t size) {
  if (size >= 8) {
    size_t at = 0;
    for (; at + 8 < size; at += 8)
      if (ssop_load8(left + at) != ssop_load8(right + at)) return 0;
    return ssop_load8(left + size - 8) == ssop_load8(right + size - 8);
  }
  if (size >= 4) {
    uint32_t a, b, c, d;
    memcpy(&a, left, 4), memcpy(&b, right, 4);
    memcpy(&c, left + size - 4, 4), memcpy(&d, right + size - 4, 4);
    return a == b && c == d;
  }
  while (size--)
    if (left[size] != right[size]) return 0;
  return 1;
}

/* Copy bytes of which a block may be read and written behind the last one, where `slack` says that it may be read. */
static inline void ssop_copy(uint8_t *to, const uint8_t *from, size_t size, int has_slack) {
  if (has_slack && size <= 32) {
    memcpy(to, from, 16);
    if (size > 16) memcpy(to + 16, from + 16, 16);
  } else {
    memcpy(to, from, size);
  }
}

static inline uint32_t ssop_varint_bytes(uint64_t value) {
  return (uint32_t)((63 - __builtin_clzll(value | 1)) * 9 + 73) >> 6;
}

/* Blanks between tokens: space, line feed, return, tab. Indents are runs of spaces. */
static inline const uint8_t *ssop_skip_blanks(const uint8_t *p, const uint8_t *end) {
  while (p < end && *p <= 0x20 && (*p == 0x20 || *p == 0x0A || *p == 0x0D || *p == 0x09)) {
    p++;
    while (end - p >= 8 && ssop_load8(p) == 0x2020202020202020u) p += 8;
  }
  return p;
}

#endif
