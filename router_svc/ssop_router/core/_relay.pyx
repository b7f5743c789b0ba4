# cython: language_level=3, boundscheck=False, wraparound=False
"""The way of chunks through the router, from the stream of a node to that of a client, and what is written down of them.

Most chunks are the next fields and nothing else, and need all of it: one call takes them through.
"""

from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport uint64_t

from ssop_codec._service_probes cimport note_received, note_sent
from ssop_codec._survey cimport Course, Survey

from ssop_codec import FrameError


cdef class Sends:
    """See the stub."""

    def __cinit__(self, Py_ssize_t most_frames=0):
        self.most_frames = most_frames
        self.chunks = []

    @property
    def is_noting(self):
        return self.most_frames > 0

    def note_up_to(self, Py_ssize_t most_frames):
        self.most_frames = most_frames

    cpdef note(self, long long at_us, Py_ssize_t size_bytes, Py_ssize_t frames, bytes heads):
        self.put(at_us, size_bytes, frames, heads)

    cpdef count(self, Py_ssize_t frames, Py_ssize_t size_bytes):
        self.frames += frames
        self.size_bytes += size_bytes

    cdef int put(self, long long at_us, Py_ssize_t size_bytes, Py_ssize_t frames, bytes heads) except -1:
        if self.noted_frames + frames > self.most_frames:
            self.left_out += 1
            # No hole: what is noted is the beginning.
            self.noted_frames = self.most_frames
            return 0
        self.noted_frames += frames
        self.chunks.append((at_us, size_bytes, heads))
        return 0


cdef class Backlog:
    """See the stub."""

    def __cinit__(self, Py_ssize_t quiet_bytes, Py_ssize_t most_bytes):
        self.quiet_bytes = quiet_bytes
        self.most_bytes = most_bytes
        self.chunks = []

    @property
    def is_full(self):
        return self.total_bytes > self.most_bytes

    @property
    def is_due(self):
        return bool(self.chunks) and (self.is_urgent or self.size_bytes > self.quiet_bytes)

    def add(self, bytes chunk not None):
        self.put(chunk)

    def take(self):
        cdef bytes whole = b"".join(self.chunks)
        self.chunks = []
        self.size_bytes = 0
        return whole

    def close(self):
        self.is_closed = True
        self.chunks = []
        self.size_bytes = 0

    cdef bint takes(self, Py_ssize_t size_bytes):
        """Nothing is to be done about so many bytes more."""
        return self.is_closed or not (
            self.is_urgent
            or self.size_bytes + size_bytes > self.quiet_bytes
            or self.total_bytes + size_bytes > self.most_bytes
        )

    cdef int put(self, bytes chunk) except -1:
        if self.is_closed:
            return 0
        self.size_bytes += PyBytes_GET_SIZE(chunk)
        self.total_bytes += PyBytes_GET_SIZE(chunk)
        self.chunks.append(chunk)
        return 0


cdef class Way:
    """See the stub."""

    def __cinit__(self, write, uint64_t stream, *_):
        self.write = write
        self.stream = stream

    def send(self, bytes chunk not None, uint64_t frames):
        return self.pass_on(chunk, frames)

    cdef object pass_on(self, bytes chunk, uint64_t frames):
        if self.is_shut:
            self.dropped += frames
            return None
        note_sent(self.stream, frames, PyBytes_GET_SIZE(chunk))
        return self.write(chunk)


cdef class Relay:
    """See the stub."""

    def connect(self, Course course not None, Sends sends not None, Way way, Backlog backlog, *, uint64_t stream,
                clock, double started_s, patience):
        self.course = course
        self.sends = sends
        self.way = way
        self.backlog = backlog
        self.stream = stream
        self.clock = clock
        self.started_s = started_s
        self.patience = patience

    def take(self, bytes chunk not None):
        cdef Survey found
        cdef double now_s
        cdef Py_ssize_t size_bytes = PyBytes_GET_SIZE(chunk)
        if not self.is_passing or self.way is None or not (self.backlog is None or self.backlog.takes(size_bytes)):
            return self.look(chunk)
        try:
            found = self.course.next_fields(chunk)
        except FrameError:
            return self.look(chunk)
        if found is None:
            return self.look(chunk)
        note_received(self.stream, found.frames, size_bytes)
        if self.backlog is not None:
            self.backlog.put(chunk)
        if self.sends.most_frames:
            now_s = self.clock()
            self.sends.put(<long long>((now_s - self.started_s) * 1e6), size_bytes, found.frames, found.heads)
        pending = self.way.pass_on(chunk, found.frames)
        self.sends.frames += found.frames
        self.sends.size_bytes += size_bytes
        if pending is not None:
            return self.hold(pending)
        self.patience.set(self.stall_s)
        return None

    cpdef object look(self, bytes chunk):
        raise NotImplementedError

    cpdef object hold(self, pending):
        raise NotImplementedError
