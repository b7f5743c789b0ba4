"""Certificates for tests, made by the openssl program."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

_KEY = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
NAMES = "DNS:mesh.test,DNS:localhost,IP:127.0.0.1"


@dataclass(frozen=True)
class Files:
    """A key and its certificate."""

    key: Path
    certificate: Path

    def replace(self, other: "Files") -> None:
        """Put another pair in its place, each file at once, as a renewal does."""
        self.replace_certificate(other)
        self.replace_key(other)

    def replace_certificate(self, other: "Files") -> None:
        """Only the certificate, which fits the key no more."""
        _put(other.certificate, self.certificate)

    def replace_key(self, other: "Files") -> None:
        """Only the key."""
        _put(other.key, self.key)


def _put(source: Path, target: Path) -> None:
    fresh = target.with_suffix(".fresh")
    fresh.touch(mode=0o600)
    fresh.write_bytes(source.read_bytes())
    fresh.replace(target)


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True, env={**os.environ, "LC_ALL": "C"})


def make_authority(folder: Path, name: str = "ca") -> Files:
    """An authority of its own."""
    made = Files(folder / f"{name}.key", folder / f"{name}.pem")
    # Python 3.13 refuses an authority that does not say what its key is for (RFC 5280, section 4.2.1.3).
    usage = "-addext keyUsage=critical,keyCertSign,cRLSign"
    _run(f"openssl req -x509 {_KEY} {usage} -days 2 -keyout {made.key} -out {made.certificate} -subj /CN={name}")
    return made


def make_certificate(folder: Path, authority: Files, name: str = "mesh", names: str = NAMES) -> Files:
    """A certificate of the authority for these names, for servers and clients."""
    made = Files(folder / f"{name}.key", folder / f"{name}.pem")
    request, extensions = folder / f"{name}.csr", folder / f"{name}.ext"
    extensions.write_text(f"subjectAltName={names}\nextendedKeyUsage=serverAuth,clientAuth\n")
    _run(f"openssl req -new {_KEY} -keyout {made.key} -out {request} -subj /CN={name}")
    _run(
        f"openssl x509 -req -in {request} -CA {authority.certificate} -CAkey {authority.key} -CAcreateserial"
        f" -days 1 -extfile {extensions} -out {made.certificate}"
    )
    return made
