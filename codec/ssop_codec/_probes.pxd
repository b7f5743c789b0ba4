# cython: language_level=3
"""Probes of the kernel's tracers; the header says which."""

from libc.stdint cimport uint64_t

cdef extern from "ssop_probes.h" nogil:
    const bint SSOP_HAS_PROBES
    void ssop_frame_sent(uint64_t stream, uint64_t seq, uint64_t bytes)
    void ssop_frame_received(uint64_t stream, uint64_t seq, uint64_t bytes)
    const volatile unsigned short* ssop_sent_watchers()
    uint64_t ssop_next_stream()
