# cython: language_level=3

from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_SIZE, PyTuple_SET_ITEM

cdef extern from "Python.h":
    ctypedef struct PyTypeObject
    object PyType_GenericAlloc(PyTypeObject* kind, Py_ssize_t count)

cdef extern from *:
    """
    /* From 3.14 on a tuple remembers its hash, and fresh memory says that it is 0. */
    #if PY_VERSION_HEX >= 0x030E0000
    #define SSOP_FORGET_HASH(made) (((PyTupleObject *)(made))->ob_hash = -1)
    #else
    #define SSOP_FORGET_HASH(made) ((void)0)
    #endif
    """
    void forget_hash "SSOP_FORGET_HASH"(object made)


cdef inline object fill(type kind, tuple fields):
    """A named tuple; `kind` is a class of them."""
    cdef Py_ssize_t place, count = PyTuple_GET_SIZE(fields)
    cdef object item, made = PyType_GenericAlloc(<PyTypeObject*>kind, count)
    forget_hash(made)
    for place in range(count):
        item = fields[place]
        Py_INCREF(item)
        PyTuple_SET_ITEM(made, place, item)
    return made
