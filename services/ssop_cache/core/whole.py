"""Whether an answer is fit to be stored: by compiled code, or by its slow twin where that is not built."""

try:
    from ssop_cache.core._whole import is_whole
except ImportError:
    from ssop_cache.core._whole_py import is_whole

__all__ = ["is_whole"]
