# cython: language_level=3
"""A document that is being rebuilt from frames."""

from libc.stdint cimport uint32_t, uint64_t

from ssop_codec._frame cimport Frame
from ssop_codec._table cimport FieldTable
from ssop_codec._tree cimport Tree


cdef class Document:
    cdef readonly uint64_t missing  # document frames that were lost, as far as is known
    cdef Frame header_frame         # the first; None until it came
    cdef Frame end_frame
    cdef FieldTable table
    cdef Tree tree
    cdef uint32_t node_count        # as the header says
    cdef uint64_t next_seq
    cdef uint32_t max_nodes
    cdef bint is_text
    cdef list parts
    cdef tuple parts_of

    cdef bint follows(self, uint64_t seq) except -1
    cdef int header_arrived(self, Frame frame) except -1
    cdef int end_arrived(self, Frame frame) except -1
    cdef int field_arrived(self, Frame frame) except -1
