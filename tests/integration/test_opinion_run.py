"""`ssop opinion run` on a real mesh with the embedded model."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from helpers.live_mesh import LiveMesh, wait_until


def run(mesh: LiveMesh, *arguments: str, code: int) -> Any:
    """A command, and the JSON that it prints."""
    command = [
        sys.executable,
        "-m",
        "ssop_cli.main",
        "opinion",
        *arguments,
        "--state-dir",
        str(mesh.places.state),
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_posts_of_a_file_become_records_once_and_faults_are_counted(mesh: LiveMesh, tmp_path: Path) -> None:
    wait_until(mesh.is_ready, 60, "the mesh is ready")
    source = tmp_path / "posts.jsonl"
    lines = [
        {"id": "run-1", "text": "The parcel never came and nobody answers.", "lang": "en"},
        {"id": "run-2", "text": "RT @someone: The parcel never came and nobody answers.", "lang": "en"},
        {"id": "run-3", "text": ""},
    ]
    source.write_text("\n".join(json.dumps(line) for line in lines) + "\nnot json\n")
    found = run(mesh, "run", "--source", str(source), code=1)
    assert (found["posts"], found["records"]) == (2, 2)
    assert found["dead_letters"] == {"text_empty": 1, "not_json": 1}
    assert {letter["reason"] for letter in run(mesh, "dead", code=0)} >= {"text_empty", "not_json"}
    again = run(mesh, "run", "--source", str(source), code=1)
    assert (again["posts"], again["records"]) == (2, 0)
    with closing(sqlite3.connect(found["records_file"])) as base:
        rows = base.execute("SELECT key, document ->> '$.analysis.cache' FROM records ORDER BY key").fetchall()
    assert [key for key, _ in rows] == ["local/local/run-1", "local/local/run-2"]
    # One of them is the other's repost, or came when the mesh knew the answer.
    assert {cache for _, cache in rows} & {"repost", "hit", "follower"}
