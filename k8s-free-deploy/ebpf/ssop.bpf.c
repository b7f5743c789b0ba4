// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Counts what the USDT probes of the mesh tell: frames and bytes by process, and durations. Each probe is described in
   codec/ssop_codec/ssop_probes.h and ssop_service_probes.h. Nothing is read of a process but the arguments of its probes:
   numbers, sizes, durations. */
#include <stdbool.h>
#include <linux/types.h>
#include <linux/bpf.h>
#include <linux/ptrace.h>
/* One spec for each place of each probe in each library that is attached to. */
#define BPF_USDT_MAX_SPEC_CNT 1024
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/usdt.bpf.h>

/* Powers of two of nanoseconds: slot n counts durations below 2^(n+1). */
#define SLOTS 40
#define PROCESSES 8192
#define FRAMES_UNDER_WAY 65536
#define STREAMS 16384

enum event { MADE, DECODED, SENT, RECEIVED };
enum duration { FRAME, RELAY, DECISION, DECISION_LITE, DECISION_FULL, PREFETCH_WASTED, PREFETCH_HIT, DURATIONS };

struct frame_key {
  __u64 stream, seq;
};

struct relay_key {
  __u64 stream, process;
};

struct place {
  __u32 process, event;
};

struct count {
  __u64 frames, bytes;
};

struct histogram {
  __u64 slot[SLOTS];
  __u64 sum_ns;
};

/* Inode and device of the exporter's PID namespace; zeros for the first one, whose numbers the kernel gives anyway. */
struct scope {
  __u64 device, inode;
};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct scope);
} scopes SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_HASH);
  __uint(max_entries, PROCESSES);
  __type(key, struct place);
  __type(value, struct count);
} counts SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, DURATIONS);
  __type(key, __u32);
  __type(value, struct histogram);
} durations SEC(".maps");

/* Hits that no room was left to count. */
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u64);
} uncounted SEC(".maps");

/* When a frame was made, until a process of this host reads it. Most go to other hosts, so the oldest make room. */
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, FRAMES_UNDER_WAY);
  __type(key, struct frame_key);
  __type(value, __u64);
} made_at SEC(".maps");

/* When a process got the oldest chunk of a stream that it has not sent on. */
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, STREAMS);
  __type(key, struct relay_key);
  __type(value, __u64);
} came_at SEC(".maps");

static __always_inline __u32 current_process(void) {
  __u32 zero = 0;
  struct scope *scope = bpf_map_lookup_elem(&scopes, &zero);
  struct bpf_pidns_info inner = {};
  if (!scope || !scope->inode) return bpf_get_current_pid_tgid() >> 32;
  return bpf_get_ns_current_pid_tgid(scope->device, scope->inode, &inner, sizeof(inner)) ? 0 : inner.tgid;
}

/* A probe can be hit while another one is being counted on the same CPU, so additions are atomic. */
static __always_inline void count(__u32 process, enum event event, __u64 frames, __u64 bytes) {
  struct place place = {.process = process, .event = event};
  struct count *found = bpf_map_lookup_elem(&counts, &place);
  if (!found) {
    struct count none = {};
    bpf_map_update_elem(&counts, &place, &none, BPF_NOEXIST);
    found = bpf_map_lookup_elem(&counts, &place);
  }
  if (found) {
    __sync_fetch_and_add(&found->frames, frames);
    __sync_fetch_and_add(&found->bytes, bytes);
    return;
  }
  __u32 zero = 0;
  __u64 *lost = bpf_map_lookup_elem(&uncounted, &zero);
  if (lost) __sync_fetch_and_add(lost, 1);
}

static __always_inline __u32 slot_of(__u64 ns) {
  __u32 slot = 0;
  if (ns >> 32) slot += 32, ns >>= 32;
  if (ns >> 16) slot += 16, ns >>= 16;
  if (ns >> 8) slot += 8, ns >>= 8;
  if (ns >> 4) slot += 4, ns >>= 4;
  if (ns >> 2) slot += 2, ns >>= 2;
  if (ns >> 1) slot += 1;
  return slot < SLOTS ? slot : SLOTS - 1;
}

static __always_inline void measure(__u32 which, __u64 ns) {
  struct histogram *found = bpf_map_lookup_elem(&durations, &which);
  if (!found) return;
  __sync_fetch_and_add(&found->slot[slot_of(ns)], 1);
  __sync_fetch_and_add(&found->sum_ns, ns);
}

SEC("usdt")
int BPF_USDT(frame_sent, __u64 stream, __u64 seq, __u64 bytes) {
  struct frame_key key = {.stream = stream, .seq = seq};
  __u64 now = bpf_ktime_get_ns();
  bpf_map_update_elem(&made_at, &key, &now, BPF_ANY);
  count(current_process(), MADE, 1, bytes);
  return 0;
}

SEC("usdt")
int BPF_USDT(frame_received, __u64 stream, __u64 seq, __u64 bytes) {
  struct frame_key key = {.stream = stream, .seq = seq};
  __u64 *made = bpf_map_lookup_elem(&made_at, &key);
  if (made) {
    measure(FRAME, bpf_ktime_get_ns() - *made);
    bpf_map_delete_elem(&made_at, &key);
  }
  count(current_process(), DECODED, 1, bytes);
  return 0;
}

SEC("usdt")
int BPF_USDT(chunk_received, __u64 stream, __u64 frames, __u64 bytes) {
  struct relay_key key = {.stream = stream, .process = current_process()};
  __u64 now = bpf_ktime_get_ns();
  bpf_map_update_elem(&came_at, &key, &now, BPF_NOEXIST);
  count(key.process, RECEIVED, frames, bytes);
  return 0;
}

SEC("usdt")
int BPF_USDT(chunk_sent, __u64 stream, __u64 frames, __u64 bytes) {
  struct relay_key key = {.stream = stream, .process = current_process()};
  __u64 *came = bpf_map_lookup_elem(&came_at, &key);
  if (came) {
    measure(RELAY, bpf_ktime_get_ns() - *came);
    bpf_map_delete_elem(&came_at, &key);
  }
  count(key.process, SENT, frames, bytes);
  return 0;
}

SEC("usdt")
int BPF_USDT(decision, __u64 tier, __u64 ns) {
  measure(tier <= 2 ? DECISION + tier : DECISION, ns);
  return 0;
}

SEC("usdt")
int BPF_USDT(prefetch, __u64 is_hit, __u64 ns) {
  measure(is_hit ? PREFETCH_HIT : PREFETCH_WASTED, ns);
  return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
