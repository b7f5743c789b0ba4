"""Links in the documentation, and names of its pages in code: what they point to is there."""

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^[ \t]*```.*?^[ \t]*```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
IN_CODE = re.compile(r"(?<![\w/.-])((?:docs|k8s-free-deploy|codec)/[\w./-]+\.md)(?:#([\w-]+))?")
SOURCES = ("*.py", "*.pyx", "*.toml", "*.yml", "*.sh", "*.service", "*.conf", "Makefile", ".ci/run")


def tracked(*patterns: str) -> list[str]:
    """Files of the repository, by their paths."""
    done = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for path in done.stdout.splitlines() if (ROOT / path).is_file()]


PAGES = tracked("*.md")


@cache
def anchors(path: Path) -> frozenset[str]:
    """What a link into a page may name after the `#`: its headings, as hosts of repositories write them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", path.read_text()), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", heading).strip().lower() for heading in headings)
    return frozenset(re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in plain)


def links(page: str) -> Iterator[str]:
    """Links of a page that stay in the repository."""
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", (ROOT / page).read_text()))
    yield from (link for link in LINK.findall(text) if not re.match(r"\w+:", link))


def fault_of(target: Path, anchor: str) -> str:
    """What is wrong with a place; empty if nothing."""
    if not target.exists():
        return "there is no such file"
    if anchor and target.suffix == ".md" and anchor not in anchors(target):
        return "the page has no such heading"
    return ""


@pytest.mark.parametrize("page", PAGES)
def test_links_of_a_page_lead_somewhere(page: str) -> None:
    faults = {}
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = ((ROOT / page).parent / path).resolve() if path else ROOT / page
        faults[link] = fault_of(target, anchor)
    assert not {link: fault for link, fault in faults.items() if fault}


def test_pages_that_code_names_are_there() -> None:
    faults = {
        f"{path}: {page}#{anchor}": fault
        for path in tracked(*SOURCES)
        if not path.startswith("tests/")
        for page, anchor in IN_CODE.findall((ROOT / path).read_text(errors="replace"))
        if (fault := fault_of(ROOT / page, anchor))
    }
    assert not faults


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("## A router that goes", "a-router-that-goes"),
        ("### `ssop top`, and [more](x.md)", "ssop-top-and-more"),
        ("## 你自己的模型", "你自己的模型"),
    ],
)
def test_a_heading_is_an_anchor(tmp_path: Path, heading: str, anchor: str) -> None:
    page = tmp_path / "a.md"
    page.write_text(f"# Page\n\n```\n# a comment\n```\n{heading}\n")
    assert anchors(page) == {"page", anchor}


def test_a_link_to_nothing_is_found(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text("# Page\n")
    assert [bool(fault_of(*place)) for place in ((page, "page"), (page, "none"), (tmp_path / "b.md", ""))] == [
        False,
        True,
        True,
    ]
