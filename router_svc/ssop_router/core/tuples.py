"""Named tuples of which each request makes some: by place, with all of their fields."""

try:
    from ssop_router.core._tuples import make
except ImportError:
    # What their own `__new__` does, without a function of Python, which costs as much as ten fields.
    make = tuple.__new__  # type: ignore[assignment]

__all__ = ["make"]
