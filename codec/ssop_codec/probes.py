"""What services tell the kernel's tracers: numbers of frames and bytes, and durations; never a value, a key or an id.

Nobody listening, a call costs some tens of nanoseconds.
"""

from ._service_probes import chunk_received, chunk_sent, decided, prefetched, stream_number

__all__ = ["chunk_received", "chunk_sent", "decided", "prefetched", "stream_number"]
