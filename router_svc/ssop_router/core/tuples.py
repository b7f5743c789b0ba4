"""Named tuples of which each request makes some: by place, with all of their fields."""

from typing import Final

# What their own `__new__` does, without a function of Python, which costs as much as ten fields.
make: Final = tuple.__new__
