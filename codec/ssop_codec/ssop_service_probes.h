/* USDT probes of provider "ssop" that services hit, for eBPF and SystemTap:

     chunk_sent(stream, frames, bytes)      document frames are about to be handed to the transport
     chunk_received(stream, frames, bytes)  document frames came from the service before
     decision(tier, ns)                     a request was decided; 0 no tier, 1 lite, 2 full
     prefetch(is_hit, ns)                   a prefetch was used (1) or was for nothing (0), so long after it began

   All arguments are 64 bits wide. Durations are arguments, so that a tracer needs no memory of its own and loses none.
   Without listeners, and without sys/sdt.h, they cost what those of ssop_probes.h do. */
#ifndef SSOP_SERVICE_PROBES_H
#define SSOP_SERVICE_PROBES_H

#include "ssop_probes.h"

#if SSOP_HAS_PROBES
SSOP_SEMAPHORE(chunk_sent);
SSOP_SEMAPHORE(chunk_received);
SSOP_SEMAPHORE(decision);
SSOP_SEMAPHORE(prefetch);

static inline void ssop_chunk_sent(uint64_t stream, uint64_t frames, uint64_t bytes) {
  if (SSOP_IS_WATCHED(chunk_sent)) DTRACE_PROBE3(ssop, chunk_sent, stream, frames, bytes);
}

static inline void ssop_chunk_received(uint64_t stream, uint64_t frames, uint64_t bytes) {
  if (SSOP_IS_WATCHED(chunk_received)) DTRACE_PROBE3(ssop, chunk_received, stream, frames, bytes);
}

static inline void ssop_decision(uint64_t tier, uint64_t ns) {
  if (SSOP_IS_WATCHED(decision)) DTRACE_PROBE2(ssop, decision, tier, ns);
}

static inline void ssop_prefetch(uint64_t is_hit, uint64_t ns) {
  if (SSOP_IS_WATCHED(prefetch)) DTRACE_PROBE2(ssop, prefetch, is_hit, ns);
}

#else

static inline void ssop_chunk_sent(uint64_t stream, uint64_t frames, uint64_t bytes) {
  (void)stream, (void)frames, (void)bytes;
}

static inline void ssop_chunk_received(uint64_t stream, uint64_t frames, uint64_t bytes) {
  (void)stream, (void)frames, (void)bytes;
}

static inline void ssop_decision(uint64_t tier, uint64_t ns) { (void)tier, (void)ns; }

static inline void ssop_prefetch(uint64_t is_hit, uint64_t ns) { (void)is_hit, (void)ns; }

#endif

#endif
