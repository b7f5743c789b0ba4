"""Commands that only talk to a mesh need no packages of services."""

import subprocess
import sys

CODE = """
import sys
import ssop_cli.app, ssop_cli.ask, ssop_cli.analyze, ssop_cli.status, ssop_cli.keys
heavy = {"pydantic", "redis", "uvloop", "prometheus_client", "numpy", "xllamacpp", "ssop_inference"}
print(*sorted(heavy & set(sys.modules)))
"""


def test_asking_imports_no_service() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_help_is_quick_because_grpc_is_not_imported() -> None:
    code = "import sys, ssop_cli.app; print('grpc' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
