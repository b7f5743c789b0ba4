"""Takes prompts apart, once for each request: compiled where the extension is built, its twin elsewhere."""

try:
    from ssop_router.core._parts import read_parts
except ImportError:
    from ssop_router.core._parts_py import read_parts

__all__ = ["read_parts"]
