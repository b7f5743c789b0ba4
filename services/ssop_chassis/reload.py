"""SIGHUP: read the settings again, make hold what can change while the process runs, and say what can't."""

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Generic, TypeVar

from ssop_chassis import logs
from ssop_chassis.settings import MeshSettings, Settings, SettingsError

S = TypeVar("S", bound=Settings)
_log = logging.getLogger(__name__)


class Reloader(Generic[S]):
    """Knows what holds. `reloads` make new settings hold, and return the names of those that they can change."""

    def __init__(
        self,
        mesh: MeshSettings,
        settings: S,
        load: Callable[[], tuple[MeshSettings, S]],
        reloads: Sequence[Callable[[S], Collection[str]]],
    ) -> None:
        self._mesh = mesh
        self._settings = settings
        self._load = load
        self._reloads = reloads

    def reload(self) -> None:
        """Read and apply; settings that can't be used change nothing, and the log says why."""
        try:
            mesh, settings = self._load()
        except SettingsError as error:
            _log.error("the settings were not reloaded", extra={"faults": str(error).splitlines()})
            return
        reloadable = {name for reload in self._reloads for name in reload(settings)}
        logs.set_level(mesh.log_level)
        changed = _changes(self._settings, settings)
        changed_mesh = _changes(self._mesh, mesh)
        # What waits for a restart is compared with what runs, so that it is said at each reload until then.
        self._settings = _take(self._settings, settings, reloadable & changed)
        self._mesh = _take(self._mesh, mesh, {"log_level"})
        _log.warning(
            "the settings were reloaded",
            extra={
                "changed": sorted((changed & reloadable) | (changed_mesh & {"log_level"})),
                "needs_restart": sorted((changed - reloadable) | (changed_mesh - {"log_level"})),
            },
        )


M = TypeVar("M", bound=Settings)


def _changes(old: Settings, new: Settings) -> set[str]:
    return {name for name in type(old).model_fields if getattr(old, name) != getattr(new, name)}


def _take(old: M, new: M, names: Collection[str]) -> M:
    return old.model_copy(update={name: getattr(new, name) for name in names})
