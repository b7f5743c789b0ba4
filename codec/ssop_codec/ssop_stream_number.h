/* The first 64 bits of BLAKE2b-64 (RFC 7693) of a short text, without a key: one block, and no context. */

#ifndef SSOP_STREAM_NUMBER_H
#define SSOP_STREAM_NUMBER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SSOP_BLOCK_BYTES 128

static const uint64_t ssop_iv[8] = {
    0x6A09E667F3BCC908u, 0xBB67AE8584CAA73Bu, 0x3C6EF372FE94F82Bu, 0xA54FF53A5F1D36F1u,
    0x510E527FADE682D1u, 0x9B05688C2B3E6C1Fu, 0x1F83D9ABFB41BD6Bu, 0x5BE0CD19137E2179u,
};

static const uint8_t ssop_sigma[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

static inline uint64_t ssop_turn(uint64_t value, int bits) { return value >> bits | value << (64 - bits); }

static inline void ssop_mix(uint64_t *v, int a, int b, int c, int d, uint64_t x, uint64_t y) {
    v[a] += v[b] + x;
    v[d] = ssop_turn(v[d] ^ v[a], 32);
    v[c] += v[d];
    v[b] = ssop_turn(v[b] ^ v[c], 24);
    v[a] += v[b] + y;
    v[d] = ssop_turn(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = ssop_turn(v[b] ^ v[c], 63);
}

static inline uint64_t ssop_word(const uint8_t *at) {
    return (uint64_t)at[0] | (uint64_t)at[1] << 8 | (uint64_t)at[2] << 16 | (uint64_t)at[3] << 24
        | (uint64_t)at[4] << 32 | (uint64_t)at[5] << 40 | (uint64_t)at[6] << 48 | (uint64_t)at[7] << 56;
}

/* Of at most SSOP_BLOCK_BYTES bytes. */
static inline uint64_t ssop_hash(const char *text, size_t size) {
    uint8_t block[SSOP_BLOCK_BYTES] = {0};
    uint64_t m[16], v[16];
    /* Eight bytes of digest, no key, one leaf. */
    const uint64_t first = ssop_iv[0] ^ 0x01010008u;
    memcpy(block, text, size);
    for (int i = 0; i < 16; i++) m[i] = ssop_word(block + 8 * i);
    memcpy(v, ssop_iv, sizeof ssop_iv);
    memcpy(v + 8, ssop_iv, sizeof ssop_iv);
    v[0] = first;
    v[12] ^= size;
    v[14] = ~v[14];
    /* Unrolled, what each turn takes of the message is known, and no table is asked. */
#pragma GCC unroll 12
    for (int round = 0; round < 12; round++) {
        const uint8_t *s = ssop_sigma[round % 10];
        ssop_mix(v, 0, 4, 8, 12, m[s[0]], m[s[1]]);
        ssop_mix(v, 1, 5, 9, 13, m[s[2]], m[s[3]]);
        ssop_mix(v, 2, 6, 10, 14, m[s[4]], m[s[5]]);
        ssop_mix(v, 3, 7, 11, 15, m[s[6]], m[s[7]]);
        ssop_mix(v, 0, 5, 10, 15, m[s[8]], m[s[9]]);
        ssop_mix(v, 1, 6, 11, 12, m[s[10]], m[s[11]]);
        ssop_mix(v, 2, 7, 8, 13, m[s[12]], m[s[13]]);
        ssop_mix(v, 3, 4, 9, 14, m[s[14]], m[s[15]]);
    }
    return first ^ v[0] ^ v[8];
}

#endif
