"""Readers of `ssop index add`: what they give, and that no document harms more than itself."""

import contextlib
import io
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.machine import stretched
from helpers.pdfs import HOSTILE_PDFS, make_pdf
from ssop_cli.documents.extract import Extract, Kind, ReadError, kind_of
from ssop_cli.documents.files import Tally, find_sources, open_file, read_bytes
from ssop_cli.documents.jsonl import MAX_LINE_BYTES, Fields, read_lines
from ssop_cli.documents.parser_process import ParserProcess
from ssop_cli.documents.parts import part_id, read_part, split_parts
from ssop_cli.terminal import visible

CHINESE = "顾客可以在三十天内退货，款项将退回原支付账户。明天北京有大雨，请注意保暖。"


@pytest.fixture(scope="module")
def parser() -> Iterator[ParserProcess]:
    with ParserProcess(timeout_s=20) as process:
        yield process


def refusal(parser: ParserProcess, kind: Kind, data: bytes, encoding: str = "") -> str:
    with pytest.raises(ReadError) as caught:
        parser.parse(kind, data, encoding)
    return str(caught.value)


def test_markdown_gives_what_a_reader_sees(parser: ParserProcess) -> None:
    source = (
        "# Returns\n\nGoods may be *returned* within\n[30 days](http://example.org).\n\n- one\n- two\n\n"
        "| a | b |\n|---|---|\n| 1 | 2 |\n\n```sh\nmake run\n```\n\n<script>x</script>\n"
    )
    assert parser.parse("markdown", source.encode()) == Extract(
        "Returns\n\nGoods may be returned within 30 days.\n\n- one\n- two\n\na | b\n1 | 2\n\nmake run", "Returns"
    )


def test_a_title_in_the_metadata_goes_before_the_heading(parser: ParserProcess) -> None:
    found = parser.parse("markdown", b"---\ntags: [a]\ntitle: 'The Title'\n---\n# Heading\n\ntext\n")
    assert found == Extract("Heading\n\ntext", "The Title")


def test_html_gives_the_main_part_without_scripts_and_menus(parser: ParserProcess) -> None:
    source = (
        "<html><head><title> Shop \n rules</title><style>p{}</style></head><body><nav>Home</nav><h1>Returns</h1>"
        "<p>Within <b>30</b> days.<br>No fee.</p><script>alert('x')</script><div hidden>no</div>"
        "<table><tr><td>a<td>b<tr><td>1<td>2</table><ul><li>one<li>two</ul><footer>2026</footer></body></html>"
    )
    assert parser.parse("html", source.encode()) == Extract(
        "Returns\n\nWithin 30 days.\nNo fee.\n\na | b\n1 | 2\n\none\ntwo", "Shop rules"
    )


def test_html_says_its_encoding(parser: ParserProcess) -> None:
    source = f'<meta charset="gb2312"><p>{CHINESE}</p>'.encode("gb18030")
    assert parser.parse("html", source) == Extract(CHINESE)


def test_pdf_gives_its_pages_with_broken_lines_joined(parser: ParserProcess) -> None:
    data = make_pdf(
        [["Goods may be returned within thirty", "days of the purchase."], ["The second page."]], title="Rules"
    )
    assert parser.parse("pdf", data) == Extract(
        "Goods may be returned within thirty days of the purchase.\n\nThe second page.", "Rules"
    )


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_what_says_its_encoding_is_read_without_a_guess(parser: ParserProcess, encoding: str) -> None:
    assert parser.parse("text", CHINESE.encode(encoding)) == Extract(CHINESE)


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("gb18030", CHINESE),
        ("big5", "顧客可以在三十天內退貨，款項將退回原支付賬戶。明天北京有大雨。"),
        ("shift_jis", "お客様は三十日以内に商品を返品できます。代金はカードに返金されます。"),
        ("euc_kr", "고객은 삼십 일 이내에 상품을 반품하고 환불을 받을 수 있습니다."),
        ("cp1251", "Покупатели могут вернуть товар в течение тридцати дней и получить деньги обратно."),
        ("cp1252", "Les clients peuvent retourner les articles achetés dans un délai de trente jours, à l'état neuf."),
        ("utf-16-le", "Goods may be returned."),
        ("utf-16-be", "Goods may be returned."),
    ],
)
def test_other_encodings_are_guessed_and_told(parser: ParserProcess, encoding: str, text: str) -> None:
    found = parser.parse("text", text.encode(encoding))
    assert found.text == text
    assert found.encoding


def test_a_named_encoding_is_used_or_refused(parser: ParserProcess) -> None:
    assert parser.parse("text", "退货".encode("gb18030"), "gb18030") == Extract("退货")
    assert "it is not ascii: wrong at byte 0" in refusal(parser, "text", b"\xff\xfe", "ascii")
    assert "no such encoding" in refusal(parser, "text", b"a", "klingon")


@pytest.mark.parametrize(
    "data",
    [
        b"\x7fELF\x02\x01\x01\x00",
        b"PK\x03\x04" + b"x" * 99,
        b"\x89PNG\r\n\x1a\n",
        os.urandom(9_999),
        b"a\0b" * 99,
        b"\0" * 9,
    ],
)
def test_a_binary_file_is_refused(parser: ParserProcess, data: bytes) -> None:
    assert "binary" in refusal(parser, "text", data)


@pytest.mark.parametrize("name", sorted(HOSTILE_PDFS))
def test_a_hostile_pdf_is_refused_or_read_in_bounded_time(name: str) -> None:
    started_s = time.monotonic()
    with ParserProcess(timeout_s=5, memory_bytes=2**30) as parser:
        with contextlib.suppress(ReadError):
            assert len(parser.parse("pdf", HOSTILE_PDFS[name]()).text) <= 16_000_000
        assert parser.parse("text", b"the next one") == Extract("the next one")
    assert time.monotonic() - started_s < stretched(9)


def test_a_pdf_with_a_password_says_so(parser: ParserProcess) -> None:
    assert refusal(parser, "pdf", HOSTILE_PDFS["password"]()) == "it needs a password"


def test_a_pdf_without_text_says_so(parser: ParserProcess) -> None:
    assert refusal(parser, "pdf", make_pdf([[], []])) == "it has no text: the pages are pictures"


HOSTILE_HTML = {
    "nested tags": b"<div>" * 100_000 + b"deep",
    "nested inline tags": b"<b>" * 100_000 + b"deep",
    "nested tables": b"<table><tr><td>" * 30_000 + b"deep",
    "entities": b"<!DOCTYPE x [<!ENTITY a '" + b"&b;" * 99 + b"'><!ENTITY b '&a;&a;'>]><p>&a;" + b"&amp;" * 200_000,
    "attributes": b"<a " + b"x=1 " * 500_000 + b">t</a>",
    "no end": b"<p title='" + b"x" * 2_000_000,
    "comments": b"<!--" * 300_000 + b"text",
    "scripts": b"<script>" * 100_000 + b"while(1);",
    "texts": b"<p>word</p>" * 200_000,
    "nulls": b"<p>a\xc0\x80b</p>",
}


@pytest.mark.parametrize("name", sorted(HOSTILE_HTML))
def test_hostile_html_is_refused_or_read_in_bounded_time(name: str) -> None:
    started_s = time.monotonic()
    with ParserProcess(timeout_s=5, memory_bytes=2**30) as parser:
        with contextlib.suppress(ReadError):
            found = parser.parse("html", HOSTILE_HTML[name])
            assert "while(1)" not in found.text
            assert len(found.text) <= 2 * len(HOSTILE_HTML[name])
        assert parser.parse("text", b"the next one") == Extract("the next one")
    assert time.monotonic() - started_s < stretched(9)


@pytest.mark.parametrize(
    "data",
    [b"> " * 50_000 + b"x", b"- " * 50_000 + b"x", b"[" * 100_000, b"*a " * 100_000, b"`" * 100_000, b"|a" * 50_000],
)
def test_hostile_markdown_is_refused_or_read_in_bounded_time(data: bytes) -> None:
    started_s = time.monotonic()
    with ParserProcess(timeout_s=5) as parser:
        with contextlib.suppress(ReadError):
            parser.parse("markdown", data)
        assert parser.parse("text", b"the next one") == Extract("the next one")
    assert time.monotonic() - started_s < stretched(9)


def test_what_takes_too_long_says_so() -> None:
    with ParserProcess(timeout_s=1) as parser:
        assert refusal(parser, "html", b"<div>" * 100_000) == "reading it takes longer than 1 s"


def test_what_takes_too_much_memory_says_so() -> None:
    with ParserProcess(memory_bytes=400 * 2**20) as parser:
        assert refusal(parser, "html", b"<p>a</p>" * 1_000_000) == "it needs more than 400 MiB of memory to read"
        assert parser.parse("text", b"the next one") == Extract("the next one")


def test_the_parser_knows_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSOP_API_KEY", "secret")
    with ParserProcess() as parser:
        parser.parse("text", b"x")
        assert parser._process is not None
        assert b"SSOP_API_KEY" not in Path(f"/proc/{parser._process.pid}/environ").read_bytes()


def test_lines_of_json_are_documents_and_bad_ones_are_told() -> None:
    data = (
        b'\xef\xbb\xbf{"id": "a", "text": "one", "title": "T"}\n\n{"id": 7, "text": "two"}\n{"text": "three"}\n'
        b'not json\n[1]\n{"id": "x"}\n{"id": true, "text": "t"}\n{"id": "y", "text": 5}\n\xff\n'
        + b"[" * 200_000
        + b'\n{"id": "s", "text": "\\ud800"}\n{"id": "last", "text": "end"}'
    )
    lines = list(read_lines(io.BytesIO(data), "f.jsonl", Fields()))
    assert [(line.id, line.text, line.title) for line in lines if not line.fault] == [
        ("a", "one", "T"),
        ("7", "two", ""),
        ("f.jsonl#L4", "three", ""),
        ("last", "end", ""),
    ]
    assert [line.id for line in lines if line.fault] == [f"f.jsonl#L{n}" for n in (5, 6, 7, 8, 9, 10, 11, 12)]


def test_a_line_without_end_is_passed_over() -> None:
    data = b'{"text": "' + b"x" * (2 * MAX_LINE_BYTES) + b'"}\n{"id": "b", "text": "fine"}\n'
    lines = list(read_lines(io.BytesIO(data), "f", Fields()))
    assert [(line.id, bool(line.fault)) for line in lines] == [("f#L1", True), ("b", False)]


def test_other_fields_of_lines_can_be_named() -> None:
    (line,) = read_lines(io.BytesIO(b'{"_id": "a", "body": "b", "head": "c"}'), "f", Fields("_id", "body", "head"))
    assert (line.id, line.text, line.title) == ("a", "b", "c")


@pytest.mark.parametrize(
    ("name", "head", "kind"),
    [
        ("a.MD", b"", "markdown"),
        ("a.htm", b"", "html"),
        ("a.pdf", b"", "pdf"),
        ("a.ndjson", b"", "jsonl"),
        ("a.bin", b"%PDF-1.4", "pdf"),
        ("page", b"\xef\xbb\xbf\n<!DOCTYPE HTML>", "html"),
        ("README", b"hello", "text"),
    ],
)
def test_a_kind_is_told_by_name_or_head(name: str, head: bytes, kind: Kind) -> None:
    assert kind_of(name, head) == kind


def tree(folder: Path) -> Path:
    for name in ("docs/a.md", "docs/sub/b.txt", "docs/.git/c.md", "docs/.hidden.md", "docs/d.png", "docs/sub/e.PDF"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (folder / "docs/link.md").symlink_to(folder / "docs/a.md")
    (folder / "docs/sub/up").symlink_to(folder / "docs")
    (folder / "docs/loop.md").symlink_to(folder / "docs/loop.md")
    os.mkfifo(folder / "docs/pipe.txt")
    return folder


def test_a_folder_stands_for_its_files_of_known_kinds(tmp_path: Path) -> None:
    tally = Tally()
    base = tree(tmp_path)
    found = [source.id for source in find_sources([str(base / "docs")], base, tally)]
    assert found == ["docs/a.md", "docs/pipe.txt", "docs/sub/b.txt", "docs/sub/e.PDF"]
    assert (tally.unknown_kind, tally.links) == (1, 2)


def test_ids_are_the_same_however_a_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tree(tmp_path)
    monkeypatch.chdir(base)
    for name in ("docs", "docs/", "./docs", str(base / "docs"), "docs/sub/../"):
        assert next(iter(find_sources([name], base, Tally()))).id == "docs/a.md"
    assert [source.id for source in find_sources(["docs/**/*.txt"], base, Tally())] == [
        "docs/pipe.txt",
        "docs/sub/b.txt",
    ]
    monkeypatch.chdir(base / "docs")
    assert next(iter(find_sources(["."], base, Tally()))).id == "docs/a.md"


def test_a_file_outside_the_base_is_named_by_its_folder(tmp_path: Path) -> None:
    base = tree(tmp_path)
    assert next(iter(find_sources([str(base / "docs/a.md")], base / "elsewhere", Tally()))).id == "docs/a.md"


def test_a_pattern_that_matches_nothing_is_told(tmp_path: Path) -> None:
    (source,) = find_sources([str(tmp_path / "*.md")], tmp_path, Tally())
    assert source.fault == "no file matches"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("docs/pipe.txt", "no regular file"),
        ("docs", "no regular file"),
        ("docs/loop.md", "circle"),
        ("gone.md", "can't be opened"),
        ("/dev/zero", "no regular file"),
    ],
)
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, name: str, reason: str) -> None:
    base = tree(tmp_path)
    with pytest.raises(ReadError, match=reason):
        open_file(base / name)


def test_a_link_that_is_named_is_followed(tmp_path: Path) -> None:
    base = tree(tmp_path)
    with open_file(base / "docs/link.md") as file:
        assert read_bytes(file, 10) == b"x"


def test_a_file_over_the_limit_is_refused() -> None:
    assert read_bytes(io.BytesIO(b"x" * 10), 10) == b"x" * 10
    with pytest.raises(ReadError, match="larger than"):
        read_bytes(io.BytesIO(b"x" * 11), 10)


@pytest.mark.parametrize("text", ["word " * 100, "字" * 500, "a" * 999, "😀" * 99, "para\n\n" * 80, ""])
def test_parts_are_the_text_and_fit(text: str) -> None:
    parts = list(split_parts(text, 100))
    assert "".join(parts) == text
    assert max(len(part.encode()) for part in parts) <= 100


def test_parts_are_named_after_their_document() -> None:
    assert [part_id("d", n) for n in (1, 2)] == ["d", "d#2"]
    assert [read_part(name) for name in ("d#3", "d", "d#L3", "a#b#2", "d#1", "#2", "d#²", "d#" + "9" * 99)] == [
        ("d", 3), ("d", 1), ("d#L3", 1), ("a#b", 2), ("d#1", 1), ("", 2), ("d#²", 1), ("d#" + "9" * 99, 1),
    ]  # fmt: skip


def test_what_would_steer_a_terminal_is_shown_as_a_blot() -> None:
    assert visible("a\x1b[2J\x9b1mb\u202ec\n\td") == "a\ufffd[2J\ufffd1mb\ufffdc\n\td"
