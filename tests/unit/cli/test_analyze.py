"""What is written of posts that were analysed."""

import json
from pathlib import Path

from ssop_cli.analyze import write_results
from ssop_cli.posts import Post
from ssop_cli.summary import Outcome


def test_posts_of_one_id_keep_their_languages(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    posts = [Post("a", "One.", "en"), Post("a", "Zwei.", "de")]
    write_results(path, [Outcome("a", "ok"), Outcome("a", "error")], posts)
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [(line["verdict"], line["lang"]) for line in lines] == [("ok", "en"), ("error", "de")]
