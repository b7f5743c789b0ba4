/* SPDX-License-Identifier: Apache-2.0
 *
 * What the front does with a packet: pass it, or drop it for a named reason. No I/O, no clock, no allocation: the
 * caller brings packet, time and memory. One guard belongs to one core.
 */
#ifndef SSOP_GUARD_H
#define SSOP_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gcra.h"

enum guard_verdict {
    GUARD_PASS,
    GUARD_MALFORMED,   /* lengths that contradict each other; nothing to answer */
    GUARD_FLAGS,       /* TCP flags that no stack sends: none, SYN with FIN or RST, FIN with RST */
    GUARD_SYN_RATE,    /* the source opens connections faster than it may */
    GUARD_PACKET_RATE, /* the source sends packets faster than it may */
    GUARD_SYN_GUARD,   /* too many SYNs from everybody: the first one of a source that is not known yet */
    GUARD_VERDICTS
};

/* Limits of one guard; rates are per second and from 1, bursts in packets and from 1. */
struct guard_limits {
    uint32_t syn_rate, syn_burst;       /* of one source */
    uint32_t packet_rate, packet_burst; /* of one source */
    uint32_t guard_rate, guard_burst;   /* SYNs of all sources, above which the SYN guard is up for a second */
};

/* A source: an IPv4 address, or the first 64 bits of an IPv6 address. */
struct guard_source {
    uint64_t key; /* 0: free */
    gcra_ns syn_full_ns, packet_full_ns;
    gcra_ns first_syn_ns;     /* of a source that has yet to show that it retransmits */
    gcra_ns trusted_until_ns; /* it has shown it */
};

#define GUARD_WAYS 4
#define GUARD_MIN_SOURCES 64

struct guard {
    struct guard_limits limits;
    gcra_ns syn_interval_ns, syn_tolerance_ns;
    gcra_ns packet_interval_ns, packet_tolerance_ns;
    gcra_ns guard_interval_ns, guard_tolerance_ns;
    gcra_ns guard_full_ns, guarded_until_ns;
    uint64_t seed;
    uint32_t sets;
    uint32_t spread;
    struct guard_source *sources;
    uint64_t counts[GUARD_VERDICTS];
    uint64_t evictions;
};

/* What a guard's answer about one packet is: the verdict, and which of `spread` ways it goes. */
struct guard_answer {
    enum guard_verdict verdict;
    uint32_t way;
};

/* Bytes of the table for so many sources: rounded up to a power of two, at least GUARD_MIN_SOURCES. */
size_t guard_table_bytes(uint32_t sources);

/* Make a guard over a zeroed table of `guard_table_bytes(sources)` bytes, aligned to 64; `spread` is from 1.
 *
 * `seed` is secret and random: who knows it can aim at one set of the table, or at one way. False if a limit is 0.
 */
bool guard_init(struct guard *guard, const struct guard_limits *limits, void *table, uint32_t sources,
                uint32_t spread, uint64_t seed);

/* Judge an Ethernet frame of which `length` bytes are in `data`; `now_ns` must not be 0 and not go back. Counts. */
struct guard_answer guard_judge(struct guard *guard, const uint8_t *data, uint32_t length, gcra_ns now_ns);

/* The verdict's name in metrics. */
const char *guard_name(enum guard_verdict verdict);

#endif
