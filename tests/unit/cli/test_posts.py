"""Posts, their schema, and the shipped ones."""

import json
import re
from pathlib import Path

import jsonschema_rs
import pytest

from ssop_cli.failure import CommandError
from ssop_cli.posts import Asker, read_posts, read_schema, shipped
from ssop_codec import compile_schema

FIELDS = [
    "main_entity", "entity_type", "event_type", "sentiment_score", "sentiment_label", "severity", "confidence",
    "summary", "evidence", "language", "audience", "suggested_action",
]  # fmt: skip


def test_the_shipped_schema_has_twelve_fields_in_order() -> None:
    schema = read_schema(None)
    assert list(schema["properties"]) == FIELDS
    assert schema["required"] == FIELDS
    assert schema["additionalProperties"] is False


def test_every_shipped_field_is_bounded() -> None:
    for name, field in read_schema(None)["properties"].items():
        assert "enum" in field or "maxLength" in field or {"minimum", "maximum"} <= field.keys(), name


def test_the_shipped_schema_is_one() -> None:
    jsonschema_rs.meta.validate(read_schema(None))
    compile_schema(read_schema(None))


def test_the_shipped_posts_have_distinct_ids_and_say_where_they_come_from() -> None:
    rows = [json.loads(line) for line in shipped("posts.jsonl").read_text(encoding="utf-8").split("\n") if line]
    assert len({row["id"] for row in rows}) == len(rows) >= 40
    attribution = shipped("ATTRIBUTION.md").read_text(encoding="utf-8")
    assert all(row["licence"] and row["source"] in attribution for row in rows)


def test_the_attribution_counts_right() -> None:
    rows = [json.loads(line) for line in shipped("posts.jsonl").read_text(encoding="utf-8").split("\n") if line]
    counted = {}
    for line in shipped("ATTRIBUTION.md").read_text(encoding="utf-8").splitlines():
        if match := re.match(r"\| (.+?)(?: \(.*?\))? \| (\d+) \|", line):
            counted[match[1]] = int(match[2])
    assert counted == {source: sum(row["source"] == source for row in rows) for source in counted}
    assert sum(counted.values()) == len(rows)


def test_the_shipped_posts_hold_the_nasty_ones() -> None:
    texts = "\n".join(post.text for post in read_posts(None, None))
    assert all(part in texts for part in ("<|im_start|>", "Ignore the schema", "👍", "\\", "忽略"))


def test_the_limit_cuts() -> None:
    assert len(read_posts(None, 3)) == 3


def test_an_id_is_made_where_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"text": "a"}\n\n{"text": "b", "id": 7}\n')
    assert [post.id for post in read_posts(tmp_path / "p.jsonl", None)] == ["line-1", "7"]


def test_separators_inside_a_text_do_not_end_a_line(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"text": "a\u2028b"}\n', encoding="utf-8")
    assert [post.text for post in read_posts(tmp_path / "p.jsonl", None)] == ["a\u2028b"]


@pytest.mark.parametrize("line", ["{", "[]", "{}", '{"text": 1}', '{"text": ""}'])
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "p.jsonl").write_text(f'{{"text": "a"}}\n{line}\n')
    with pytest.raises(CommandError, match="line 2"):
        read_posts(tmp_path / "p.jsonl", None)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text("\n")
    with pytest.raises(CommandError, match="no posts"):
        read_posts(tmp_path / "p.jsonl", None)


def test_braces_of_a_post_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text(json.dumps({"text": "{0} {text}"}) + "\n")
    (post,) = read_posts(tmp_path / "p.jsonl", None)
    assert Asker(has_own_schema=True).messages_for(post)[-1]["content"] == "Post: {0} {text}"


def test_a_schema_of_the_users_own_is_asked_without_a_hint(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"text": "I love it"}\n')
    (post,) = read_posts(tmp_path / "p.jsonl", None)
    assert Asker(has_own_schema=True).messages_for(post)[-1]["content"] == "Post: I love it"


def test_the_shipped_schema_is_asked_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"text": "I love it, best phone ever"}\n')
    (post,) = read_posts(tmp_path / "p.jsonl", None)
    messages = Asker().messages_for(post)
    assert [message["role"] for message in messages] == ["system", "user"]
    assert messages[-1]["content"].endswith('"sentiment_label": "positive"')
