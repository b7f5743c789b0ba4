"""Ids of requests, marks of their questions, names of keys: compiled, or by the slow twin where that is not built."""

try:
    from ssop_cache.core._names import is_request_id, mark_question, name_key
except ImportError:
    from ssop_cache.core._names_py import is_request_id, mark_question, name_key

__all__ = ["is_request_id", "mark_question", "name_key"]
