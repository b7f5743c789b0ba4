"""Section `ebpf` of `ssop.toml`."""

from pathlib import Path

from pydantic import Field

from ssop_chassis.settings import Settings


class EbpfSettings(Settings):
    """What the exporter of the kernel's view is told."""

    listen: str = Field("127.0.0.1:9435", min_length=1, description="`host:port` of its Prometheus metrics.")
    object_file: Path = Field(
        Path("/usr/local/lib/ssop/ssop.bpf.o"), description="The BPF object that `k8s-free-deploy/ebpf` builds."
    )
    codec_dirs: list[Path] = Field(
        default=[],
        description="Folders of `ssop_codec` whose probes are watched even before a process has loaded them. None: the "
        "exporter's own.",
    )
    is_host_wide: bool = Field(True, description="Find the libraries that any process of this host has loaded, too.")
    scan_ms: int = Field(
        2_000, ge=100, description="How often processes are looked through for libraries, and files for replacements."
    )
    poll_ms: int = Field(
        500, ge=50, description="How often the counts are read, so that short-lived processes can be told apart."
    )
