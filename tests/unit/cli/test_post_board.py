"""Posts on a terminal while they are analysed."""

import contextlib
import io
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from rich.console import Console

from ssop_cli.post_board import PostBoard, Progress, newest_text
from ssop_cli.posts import Post
from ssop_cli.summary import Outcome

POSTS = [Post("a", "The login fails."), Post("b", "All is well.")]


class Screen:
    """A board of posts, two where none are given, with two fields each, on a pipe."""

    def __init__(self, posts: Sequence[Post] = POSTS) -> None:
        self.file = io.StringIO()
        self.board = PostBoard(Console(file=self.file, width=100), posts, 2, is_quiet=False)
        self.progress = {post.id: Progress(post, time.monotonic()) for post in posts}

    def show(self, post_id: str, fields: Mapping[str, Any], verdict: str = "") -> str:
        """What the screen shows after these fields of a post, and its end where there is a verdict."""
        progress = self.progress[post_id]
        progress.fields.update(fields)
        progress.outcome = Outcome(post_id, verdict) if verdict else None
        self.board.update(progress)
        return self.file.getvalue()


def test_field_of_the_first_post_shows_as_it_comes() -> None:
    screen = Screen()
    assert "The login fails." not in screen.show("a", {})
    text = screen.show("a", {"sentiment": -2})
    assert "a: The login fails." in text
    assert text.splitlines()[-1].split()[-2:] == ["sentiment", "-2"]
    assert screen.show("a", {"summary": "x"}).splitlines()[-1].endswith('"x"')


def test_posts_that_end_before_the_first_one_show_after_it() -> None:
    screen = Screen()
    screen.show("a", {"sentiment": -2})
    assert "ok" not in screen.show("b", {"sentiment": 1}, "ok")
    lines = [line.split() for line in screen.show("a", {"summary": "x"}, "ok").splitlines()]
    assert [line[:3] for line in lines[-2:]] == [["b", "1/2", "ok"], ["a", "2/2", "ok"]]


def test_first_post_that_fails_without_a_field_holds_nobody_up() -> None:
    screen = Screen()
    screen.show("b", {"sentiment": 1}, "ok")
    rows = screen.show("a", {}, "error").splitlines()[-2:]
    assert [row.split()[0] for row in rows] == ["b", "a"]


@pytest.mark.parametrize("control", ["\x1b[2J", "\x1b]0;title\x07", "\x9b2J", "\u202e", "\r"])
def test_nothing_of_a_post_or_its_answer_moves_the_cursor(control: str) -> None:
    name = f"a{control}"
    screen = Screen([Post(name, name)])
    screen.show(name, {name: name})
    newest = newest_text({name: name}).plain
    shown = screen.show(name, {}, "error") + newest
    assert control[0] not in shown
    assert shown.count("a") >= 4


def test_posts_of_one_id_are_shown_apart() -> None:
    file = io.StringIO()
    posts = [Post("a", "The first."), Post("a", "The second.")]
    board = PostBoard(Console(file=file, width=100), posts, 1, is_quiet=False)
    first, second = (Progress(post, time.monotonic()) for post in posts)
    second.fields["summary"] = "two"
    board.update(second)
    assert file.getvalue() == ""
    first.fields["summary"] = "one"
    board.update(first)
    assert ("The first." in file.getvalue(), "two" in file.getvalue()) == (True, False)
    first.outcome = second.outcome = Outcome("a", "ok")
    board.update(second)
    board.update(first)
    assert [line.split()[-1] for line in file.getvalue().splitlines()[-2:]] == ["two", "one"]


def test_posts_that_are_done_show_where_the_first_is_interrupted() -> None:
    screen = Screen()
    with contextlib.suppress(KeyboardInterrupt), screen.board:
        screen.show("a", {"sentiment": -2})
        assert "ok" not in screen.show("b", {"sentiment": 1}, "ok")
        raise KeyboardInterrupt
    rows = [line.split() for line in screen.file.getvalue().splitlines()[-2:]]
    assert [row[:3] for row in rows] == [["post", "fields", "verdict"], ["b", "1/2", "ok"]]


def test_posts_that_were_shown_are_not_shown_again_at_the_end() -> None:
    screen = Screen()
    with screen.board:
        screen.show("b", {"sentiment": 1}, "ok")
        screen.show("a", {"sentiment": -2}, "ok")
    assert screen.file.getvalue().count(" ok ") == 2
