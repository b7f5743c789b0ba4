# cython: language_level=3, boundscheck=False, wraparound=False
"""Named tuples without a call of `tuple.__new__`, which copies what it is given twice."""


cdef extern from "Python.h":
    bint PyType_HasFeature(type kind, unsigned long feature)
    unsigned long Py_TPFLAGS_TUPLE_SUBCLASS


def make(type kind not None, tuple fields not None):
    """See `tuples.make`."""
    if not PyType_HasFeature(kind, Py_TPFLAGS_TUPLE_SUBCLASS):
        raise TypeError(f"{kind.__name__} is no tuple")
    return fill(kind, fields)
