// SPDX-License-Identifier: Apache-2.0
//
// What the XDP program and its loader agree on.
#ifndef SSOP_XDP_GUARD_H
#define SSOP_XDP_GUARD_H

enum xdp_verdict { XDP_PASSED, XDP_MALFORMED, XDP_FLAGS, XDP_SYN_RATE, XDP_PACKET_RATE, XDP_VERDICTS };

struct xdp_limits {
	__u64 syn_interval_ns, syn_tolerance_ns;
	__u64 packet_interval_ns, packet_tolerance_ns;
};

// The key of an LPM trie: the number of bits that count, and an IPv6 address in network order.
struct trusted_prefix {
	__u32 bits;
	__u8 bytes[16];
};

#endif
