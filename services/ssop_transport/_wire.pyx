# cython: language_level=3
"""The part of a connection that its streams know."""


cdef class Room:
    """What the large messages that nobody has taken yet may hold together, on all connections of a server."""

    def __init__(self, size_t most_bytes):
        self.most_bytes = most_bytes


cdef class Wire:
    """Base of Connection."""

    cdef void want_flush(self):
        """Put on the wire, in this turn of the loop, what is submitted."""

    cdef int flush_whole(self) except -1:
        """Put on the wire what one side of a call has said in full: at once where no other call runs."""
        return 0

    cdef void note(self, object stream):
        """Tell the stream's listener, after what is being read."""
