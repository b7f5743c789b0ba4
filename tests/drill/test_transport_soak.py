"""What a million calls, 100,000 cancels and 10,000 reconnects leave behind on the native transport: nothing.

`python tests/drill/test_transport_soak.py [--share F]` prints slopes; `--share 0.01` is a hundredth of it all.
"""

import argparse
import tempfile
from pathlib import Path

import pytest
import uvloop

from helpers.transport_soak import Growth, soak_calls, soak_cancels, soak_reconnects

pytestmark = [pytest.mark.needs("native_transport"), pytest.mark.timeout(0)]
CALLS, CANCELS, RECONNECTS = 1_000_000, 100_000, 10_000


async def soak(folder: Path, share: float) -> list[Growth]:
    """All three, in one process."""
    found = []
    for growth in (
        soak_calls(folder, int(CALLS * share)),
        soak_cancels(folder, int(CANCELS * share), 1),
        soak_reconnects(folder, int(RECONNECTS * share), 1),
    ):
        found.append(await growth)
        print(found[-1], flush=True)
    return found


async def test_long_use_leaves_nothing_behind(tmp_path: Path) -> None:
    for growth in await soak(tmp_path, 1):
        whole = growth.count / 100_000
        assert growth.objects * whole < 200
        assert growth.rss_kib * whole < 4_096


def main() -> None:
    """Run it and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        uvloop.run(soak(Path(folder), options.share))


if __name__ == "__main__":
    main()
