// SPDX-License-Identifier: Apache-2.0
//
// The lighter guard: drops in the driver what one source sends above its limits, and passes the rest to the kernel.
// Reads headers only. Two cores may take the same token at once: a limit is exact for one queue, and nearly so for more.
#include <linux/types.h>
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "../guard/gcra.h"
#include "guard.h"

struct source {
	__u64 syn_full_ns;
	__u64 packet_full_ns;
};

struct vlan {
	__be16 tag;
	__be16 type;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct source);
} sources SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, XDP_VERDICTS);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

// Prefixes that have no limits, IPv4 as ::ffff:a.b.c.d.
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 256);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct trusted_prefix);
	__type(value, __u8);
} trusted SEC(".maps");

// A section of its own, since the compiler puts constants of its own into .rodata.
const volatile struct xdp_limits limits SEC(".rodata.limits");

static __always_inline int counted(__u32 verdict)
{
	__u64 *count = bpf_map_lookup_elem(&counts, &verdict);

	if (count)
		*count += 1;
	return verdict == XDP_PASSED ? XDP_PASS : XDP_DROP;
}

static __always_inline bool has_odd_flags(const struct tcphdr *tcp)
{
	return !(tcp->fin | tcp->syn | tcp->rst | tcp->psh | tcp->ack | tcp->urg) || (tcp->syn && (tcp->fin || tcp->rst)) ||
	       (tcp->fin && tcp->rst);
}

static __always_inline int judged(__u64 key, const struct tcphdr *tcp)
{
	struct source fresh = {}, *source;
	__u64 now_ns = bpf_ktime_get_ns();

	if (tcp && has_odd_flags(tcp))
		return counted(XDP_FLAGS);
	source = bpf_map_lookup_elem(&sources, &key);
	if (!source) {
		bpf_map_update_elem(&sources, &key, &fresh, BPF_NOEXIST);
		source = bpf_map_lookup_elem(&sources, &key);
		if (!source)
			return counted(XDP_PASSED);
	}
	gcra_ns full_ns = source->packet_full_ns;
	if (!gcra_take(&full_ns, now_ns, limits.packet_interval_ns, limits.packet_tolerance_ns))
		return counted(XDP_PACKET_RATE);
	source->packet_full_ns = full_ns;
	if (!tcp || !tcp->syn || tcp->ack)
		return counted(XDP_PASSED);
	full_ns = source->syn_full_ns;
	if (!gcra_take(&full_ns, now_ns, limits.syn_interval_ns, limits.syn_tolerance_ns))
		return counted(XDP_SYN_RATE);
	source->syn_full_ns = full_ns;
	return counted(XDP_PASSED);
}

static __always_inline bool is_trusted(const struct trusted_prefix *address)
{
	return bpf_map_lookup_elem(&trusted, address) != NULL;
}

static __always_inline int judge_v4(void *at, void *end)
{
	struct trusted_prefix address = {.bits = 128};
	struct iphdr *ip = at;
	struct tcphdr *tcp;

	if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl < 5)
		return counted(XDP_MALFORMED);
	address.bytes[10] = address.bytes[11] = 0xff;
	__builtin_memcpy(address.bytes + 12, &ip->saddr, 4);
	if (is_trusted(&address))
		return counted(XDP_PASSED);
	__u64 key = 0xffffffff00000000ULL | bpf_ntohl(ip->saddr);
	if (ip->protocol != IPPROTO_TCP || ip->frag_off & bpf_htons(0x3fff))
		return judged(key, NULL);
	tcp = at + ip->ihl * 4;
	if ((void *)(tcp + 1) > end)
		return counted(XDP_MALFORMED);
	return judged(key, tcp);
}

static __always_inline int judge_v6(void *at, void *end)
{
	struct trusted_prefix address = {.bits = 128};
	struct ipv6hdr *ip = at;
	struct tcphdr *tcp;
	__u64 key;

	if ((void *)(ip + 1) > end || ip->version != 6)
		return counted(XDP_MALFORMED);
	__builtin_memcpy(address.bytes, &ip->saddr, 16);
	if (is_trusted(&address))
		return counted(XDP_PASSED);
	__builtin_memcpy(&key, &ip->saddr, 8);
	// In host order no unicast prefix can look like the key of an IPv4 address.
	key = bpf_be64_to_cpu(key);
	if (ip->nexthdr != IPPROTO_TCP)
		return judged(key, NULL);
	tcp = (void *)(ip + 1);
	if ((void *)(tcp + 1) > end)
		return counted(XDP_MALFORMED);
	return judged(key, tcp);
}

SEC("xdp")
int ssop_guard(struct xdp_md *context)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	struct ethhdr *ethernet = data;
	struct vlan *vlan = (void *)(ethernet + 1);
	__be16 type;

	if ((void *)(ethernet + 1) > end)
		return counted(XDP_MALFORMED);
	type = ethernet->h_proto;
#pragma unroll
	for (int tags = 0; tags < 2; tags++) {
		if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD))
			break;
		if ((void *)(vlan + 1) > end)
			return counted(XDP_MALFORMED);
		type = vlan->type;
		vlan++;
	}
	if (type == bpf_htons(ETH_P_IP))
		return judge_v4(vlan, end);
	if (type == bpf_htons(ETH_P_IPV6))
		return judge_v6(vlan, end);
	return counted(XDP_PASSED);
}

char LICENSE[] SEC("license") = "Apache-2.0";
