"""`LocalRouter`: the router's decision core in this process. Its packages are imported when it is asked for."""

from functools import cache
from typing import Any

from ssop_sdk.statuses import error_of_status


@cache
def load_local(name: str) -> Any:
    """`LocalRouter`, `LocalNode` or `Choice`. Raises ImportError, which says what to install."""
    try:
        from ssop_chassis.errors import MeshError  # noqa: PLC0415
        from ssop_router import local  # noqa: PLC0415
    except ImportError as error:
        raise ImportError(f"LocalRouter needs more packages ({error.name}): pip install 'ssop-mesh[server]'") from error
    if name != "LocalRouter":
        return getattr(local, name)

    class LocalRouter(local.LocalRouter):
        __doc__ = local.LocalRouter.__doc__

        def translate(self, error: MeshError) -> Exception:
            """The SDK's error for what the core refuses."""
            status = error.to_status()
            return error_of_status(error.code, error.message, status.SerializeToString())

    return LocalRouter
