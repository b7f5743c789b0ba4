# cython: language_level=3
"""The part of a connection that its streams know."""


cdef class Wire:
    """Base of Connection."""

    cdef void want_flush(self):
        """Put on the wire, in this turn of the loop, what is submitted."""

    cdef void note(self, object stream):
        """Tell the stream's listener, after what is being read."""
