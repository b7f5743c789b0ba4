# cython: language_level=3
"""A document that is being rebuilt from frames."""

from libc.stdint cimport uint32_t, uint64_t


cdef class Document:
    cdef readonly object header     # first header frame, or None
    cdef readonly object end        # or None
    cdef readonly object result     # the document so far
    cdef readonly uint64_t missing  # document frames that were lost, as far as is known
    cdef uint64_t next_seq
    cdef uint32_t max_nodes
    cdef uint32_t max_tokens
    cdef Py_ssize_t max_array_gap   # what is left of the cap
    cdef bint counts_once           # sizes of objects are those of distinct keys
    cdef list nodes                 # FieldNode, by number
    cdef list chains                # tokens from the root to each node; None until asked for
    cdef dict far_chains            # the same from the target of a reference
    cdef list parts
    cdef tuple parts_of
    # containers[i] is the container at the path tokens[:i]; only these may still grow.
    cdef list containers
    cdef list tokens

    cdef bint follows(self, uint64_t seq) except -1
    cdef int header_arrived(self, object header) except -1
    cdef int end_arrived(self, object end) except -1
    cdef tuple resolve(self, uint32_t node, list steps)
    cdef tuple _chain(self, uint32_t start, uint32_t node)
    cdef int _fill(self, list out, tuple chain, list steps, Py_ssize_t first, Py_ssize_t last, bint is_last) except -1
    cdef int part_arrived(self, tuple tokens, object piece) except -1
    cdef dict value_arrived(self, tuple tokens, object value, uint32_t parts)
    cdef dict close_arrived(self, tuple tokens, uint64_t size, bint is_array)
    cdef object _container(self, tuple tokens)
    cdef int _put(self, object container, object token, object value) except -1
