"""Bytes to text: byte order marks, UTF-8, what an HTML head says, and at last a guess, which is told."""

import re
from typing import Final

from ssop_cli.documents.extract import ReadError

_MARKS: Final = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
# Code pages that differ in a few letters only, as 1250 from 1252, are not told apart: the more common one stands.
_CANDIDATES: Final = [
    "gb18030", "big5", "cp932", "euc_jp", "cp949", "cp1252", "cp1251", "koi8_r", "cp1253", "cp1255", "cp1256",
    "tis_620",
]  # fmt: skip
_META: Final = re.compile(rb"<meta[^>]{0,256}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]{1,40})", re.IGNORECASE)
_HEAD_BYTES: Final = 4_096
_SAMPLE_BYTES: Final = 65_536
# Of PDF, zip (and office files), ELF, PNG, JPEG, GIF, gzip, bzip2, old office files.
_SIGNS: Final = (
    b"%PDF-",
    b"PK\x03\x04",
    b"\x7fELF",
    b"\x89PNG",
    b"\xff\xd8\xff",
    b"GIF8",
    b"\x1f\x8b",
    b"BZh",
    b"\xd0\xcf\x11\xe0",
)


def decode(data: bytes, *, encoding: str = "", is_html: bool = False) -> tuple[str, str]:
    """The text, and the encoding if it was guessed. Raises ReadError for what is no text."""
    if encoding:
        return _decode_as(data, encoding, f"it is not {encoding}"), ""
    for mark, name in _MARKS:
        if data.startswith(mark):
            return _decode_as(data, name, f"its byte order mark says {name}, and it is not"), ""
    if data.startswith(_SIGNS):
        raise ReadError("it is a binary file")
    if b"\0" in data:
        return _decode_wide(data)
    try:
        return data.decode("utf-8"), ""
    except UnicodeDecodeError:
        pass
    if is_html and (found := _META.search(data[:_HEAD_BYTES])):
        named = found[1].decode("ascii").lower()
        # What says gb2312 or gbk is often more than that; gb18030 reads all of it (WHATWG Encoding, 10.1).
        named = "gb18030" if named in {"gb2312", "gbk"} else named
        try:
            return data.decode(named), ""
        except (UnicodeDecodeError, LookupError):
            pass
    return _guess(data)


def _decode_as(data: bytes, encoding: str, fault: str) -> str:
    try:
        return data.decode(encoding)
    except LookupError:
        raise ReadError(f"no such encoding: {encoding}") from None
    except UnicodeDecodeError as error:
        raise ReadError(f"{fault}: wrong at byte {error.start}") from None


def _decode_wide(data: bytes) -> tuple[str, str]:
    """UTF-16 without a mark has a zero in every second byte where it is Latin text; anything else is binary."""
    sample = data[:_SAMPLE_BYTES]
    half = max(1, len(sample) // 2)
    for start, name in ((1, "utf-16-le"), (0, "utf-16-be")):
        if sample[start::2].count(0) > 0.4 * half and sample[1 - start :: 2].count(0) < 0.05 * half:
            return _decode_as(data, name, "it is a binary file"), name
    raise ReadError("it is a binary file")


def _guess(data: bytes) -> tuple[str, str]:
    from charset_normalizer import from_bytes  # noqa: PLC0415 - only where it is needed

    sample = data
    if len(data) > _SAMPLE_BYTES:
        # The end of a line is the end of a character in every candidate.
        sample = data[:_SAMPLE_BYTES].rpartition(b"\n")[0] or data[:_SAMPLE_BYTES]
    best = from_bytes(sample, cp_isolation=_CANDIDATES).best()
    if best is None:
        raise ReadError("its encoding is not recognised: name it with --encoding, or it is a binary file")
    return _decode_as(data, best.encoding, f"it seems to be {best.encoding}, and is not"), best.encoding
