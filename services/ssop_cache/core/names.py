"""Ids of requests and marks of their questions: by compiled code, or by its slow twin where that is not built."""

try:
    from ssop_cache.core._names import is_request_id, mark_question
except ImportError:
    from ssop_cache.core._names_py import is_request_id, mark_question

__all__ = ["is_request_id", "mark_question"]
