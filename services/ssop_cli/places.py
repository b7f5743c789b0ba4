"""Where a mesh of `ssop up` keeps its things: the state directory, and a short one for sockets."""

import hashlib
import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ssop_cli.failure import EXIT_SETTINGS, CommandError


@dataclass(frozen=True, slots=True)
class Places:
    """Paths of one mesh. `state` lasts; `run` holds sockets and may go when the mesh is down."""

    state: Path
    run: Path

    @property
    def lock(self) -> Path:
        """Held by the supervisor."""
        return self.state / "lock"

    @property
    def report(self) -> Path:
        """What the supervisor says about itself and its children."""
        return self.state / "supervisor.json"

    @property
    def settings(self) -> Path:
        """The generated ssop.toml."""
        return self.state / "ssop.toml"

    @property
    def secret(self) -> Path:
        """The mesh's secret."""
        return self.state / "secret"

    @property
    def keys(self) -> Path:
        """HMACs of the API keys."""
        return self.state / "keys.toml"

    @property
    def client_key(self) -> Path:
        """The one plain API key, for this user's own commands."""
        return self.state / "client.key"

    @property
    def tiers(self) -> Path:
        """Which models serve the tiers of the default mesh."""
        return self.state / "tiers.json"

    @property
    def logs(self) -> Path:
        """Logs of the supervisor and its children."""
        return self.state / "logs"

    def log(self, child: str) -> Path:
        """The log of one child."""
        return self.logs / f"{child}.log"

    def socket(self, child: str) -> Path:
        """The socket of one child."""
        return self.run / f"{child}.sock"


def find_state_dir(given: Path | None, environ: Mapping[str, str]) -> Path:
    """The state directory: as given, SSOP_STATE_DIR, $XDG_STATE_HOME/ssop, or ~/.local/state/ssop; absolute."""
    if given is not None:
        return given.expanduser().absolute()
    if named := environ.get("SSOP_STATE_DIR"):
        return Path(named).expanduser().absolute()
    base = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base).absolute() / "ssop"


def find_places(state: Path, environ: Mapping[str, str]) -> Places:
    """The paths that belong to a state directory. Makes nothing.

    A socket's path may have 107 bytes only (unix(7)), so sockets lie in a short directory named after a hash of the
    state directory's path.
    """
    tag = hashlib.sha256(os.fsencode(state)).hexdigest()[:10]
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if runtime and os.access(runtime, os.W_OK | os.X_OK) and len(os.fsencode(runtime)) <= 64:
        return Places(state, Path(runtime) / f"ssop-{tag}")
    return Places(state, Path(tempfile.gettempdir()) / f"ssop-{os.getuid()}-{tag}")


def make_places(places: Places) -> None:
    """Make the directories, for this user alone. Raises CommandError if another user owns one."""
    for folder in (places.state, places.run, places.logs):
        make_private(folder)


def make_private(folder: Path) -> None:
    """Make a directory that only this user may enter, or see that it is one."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise CommandError(
                f"{folder} is not a directory of this user",
                advice="remove it, or name another place with --state-dir",
                exit_code=EXIT_SETTINGS,
            )
        folder.chmod(0o700)
    except OSError as error:
        raise CommandError(
            f"can't make {folder}: {error.strerror}",
            advice="name another place with --state-dir",
            exit_code=EXIT_SETTINGS,
        ) from error


def write_private(path: Path, text: str) -> None:
    """Write a file that only this user may read, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)
