/* USDT probes of provider "ssop", for eBPF and SystemTap:

     frame_sent(stream, seq, bytes)      a frame was written into a chunk
     frame_received(stream, seq, bytes)  a frame of a document was read

   All arguments are 64 bits wide; `bytes` counts the frame with its tag and length. A probe that nobody listens to
   costs a load and a branch: its arguments are made behind a semaphore that the kernel raises. Where sys/sdt.h is
   missing (Debian: systemtap-sdt-dev) the probes are compiled out. */
#ifndef SSOP_PROBES_H
#define SSOP_PROBES_H

#include <stdint.h>

#if defined(__has_include)
#if __has_include(<sys/sdt.h>)
#define SSOP_HAS_PROBES 1
#endif
#endif
#ifndef SSOP_HAS_PROBES
#define SSOP_HAS_PROBES 0
#endif

#if SSOP_HAS_PROBES
#define _SDT_HAS_SEMAPHORES 1
#include <sys/sdt.h>

#define SSOP_SEMAPHORE(name) \
  __extension__ unsigned short ssop_##name##_semaphore \
      __attribute__((unused, section(".probes"), visibility("hidden")))
#define SSOP_IS_WATCHED(name) __builtin_expect(*(volatile unsigned short *)&ssop_##name##_semaphore, 0)
#define SSOP_SENT_WATCHERS (&ssop_frame_sent_semaphore)

SSOP_SEMAPHORE(frame_sent);
SSOP_SEMAPHORE(frame_received);

static inline void ssop_frame_sent(uint64_t stream, uint64_t seq, uint64_t bytes) {
  if (SSOP_IS_WATCHED(frame_sent)) DTRACE_PROBE3(ssop, frame_sent, stream, seq, bytes);
}

static inline void ssop_frame_received(uint64_t stream, uint64_t seq, uint64_t bytes) {
  if (SSOP_IS_WATCHED(frame_received)) DTRACE_PROBE3(ssop, frame_received, stream, seq, bytes);
}

#else

static unsigned short ssop_no_watchers __attribute__((unused)) = 0;
#define SSOP_SENT_WATCHERS (&ssop_no_watchers)

static inline void ssop_frame_sent(uint64_t stream, uint64_t seq, uint64_t bytes) {
  (void)stream, (void)seq, (void)bytes;
}

static inline void ssop_frame_received(uint64_t stream, uint64_t seq, uint64_t bytes) {
  (void)stream, (void)seq, (void)bytes;
}

#endif

/* How many listen to frame_sent of this module: for modules that write frames but have the probe hit here. */
static inline const volatile unsigned short *ssop_sent_watchers(void) { return SSOP_SENT_WATCHERS; }

/* The number of a stream that got none: from 1, for each direction of a process. */
static uint64_t ssop_streams = 0;

static inline uint64_t ssop_next_stream(void) { return __atomic_add_fetch(&ssop_streams, 1, __ATOMIC_RELAXED); }

#endif
