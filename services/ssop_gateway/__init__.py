"""The HTTP edge: SSOP as JSON over SSE and NDJSON, the OpenAI-compatible API, and the console page.

It holds no key and no secret: what a client sends as its key goes on to the router, which judges it.
"""
