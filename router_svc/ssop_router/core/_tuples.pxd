# cython: language_level=3

from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_SIZE, PyTuple_SET_ITEM

cdef extern from "Python.h":
    ctypedef struct PyTypeObject
    object PyType_GenericAlloc(PyTypeObject* kind, Py_ssize_t count)


cdef inline object fill(type kind, tuple fields):
    """A named tuple; `kind` is a class of them."""
    cdef Py_ssize_t place, count = PyTuple_GET_SIZE(fields)
    cdef object item, made = PyType_GenericAlloc(<PyTypeObject*>kind, count)
    for place in range(count):
        item = fields[place]
        Py_INCREF(item)
        PyTuple_SET_ITEM(made, place, item)
    return made
