# cython: language_level=3, boundscheck=False, wraparound=False
"""Named tuples without a call of `tuple.__new__`, which copies what it is given twice."""


def make(type kind not None, tuple fields not None):
    """See `tuples.make`."""
    if not issubclass(kind, tuple):
        raise TypeError(f"{kind.__name__} is no tuple")
    return fill(kind, fields)
