"""The comparison of nodes, and the sum of a score: compiled where the extension is built, its twin elsewhere."""

try:
    from ssop_router.core._choice import add_up, choose_both, choose_node
except ImportError:
    from ssop_router.core._choice_py import add_up, choose_both, choose_node

__all__ = ["add_up", "choose_both", "choose_node"]
