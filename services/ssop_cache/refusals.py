"""What a server means that answers and refuses. Redis 6.2 has the words of the cause within the error of a script."""

from redis.exceptions import OutOfMemoryError, ResponseError


def is_full(error: ResponseError) -> bool:
    """Its memory is used up, and it evicts nothing."""
    return isinstance(error, OutOfMemoryError) or "OOM command" in str(error)


def is_replica(error: ResponseError) -> bool:
    """It takes no writes any more: a master that was made a replica."""
    return "READONLY" in str(error)


def name_of(error: ResponseError) -> str:
    """The class of a refusal that has one, else its first word; never its text, which may quote arguments."""
    if type(error) is not ResponseError:
        return type(error).__name__
    return str(error).split(" ", 1)[0][:32]
