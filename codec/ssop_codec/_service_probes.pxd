# cython: language_level=3
"""Probes of the kernel's tracers that a relay in C hits; the header says which."""

from libc.stdint cimport uint64_t


cdef void note_received(uint64_t stream, uint64_t frames, uint64_t size_bytes) noexcept
cdef void note_sent(uint64_t stream, uint64_t frames, uint64_t size_bytes) noexcept
