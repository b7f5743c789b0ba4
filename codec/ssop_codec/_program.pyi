from .rules import Schema

class Program:
    """The tables of a schema in C; immutable."""

    schema: Schema
    def __init__(self, schema: Schema) -> None: ...

def program_of(schema: Schema) -> Program: ...
