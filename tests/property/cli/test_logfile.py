"""A log is bounded, and loses nothing but its oldest file."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ssop_cli.logfile import LogFile

MAX_BYTES = 64
writes = st.lists(st.binary(min_size=1, max_size=200) | st.just(b"a line\n"), max_size=30)


@given(writes)
def test_files_stay_in_bounds_and_hold_the_end(pieces: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.log"
        log = LogFile(path, MAX_BYTES)
        for piece in pieces:
            log.write(piece)
        log.close()
        files = [file for file in (path.with_name("x.log.1"), path) if file.exists()]
        assert len(files) <= 2
        assert all(file.stat().st_size <= MAX_BYTES for file in files)
        assert b"".join(pieces).endswith(b"".join(file.read_bytes() for file in files))
