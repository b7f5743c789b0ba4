"""PDFs for tests, written by hand: good ones, and ones that were made to do harm."""

import zlib
from collections.abc import Callable, Sequence


def make_pdf(
    pages: Sequence[Sequence[str]], *, title: str = "", trailer: str = "", kids: str = "", flate: bytes = b""
) -> bytes:
    """A PDF with Latin text, a line each; `flate` is a compressed content stream for the first page instead."""
    objects: list[bytes] = [b""] * (3 + 2 * len(pages))
    names = kids or " ".join(f"{4 + 2 * n} 0 R" for n in range(len(pages)))
    objects[0] = b"<< /Type /Catalog /Pages 2 0 R >>"
    objects[1] = f"<< /Type /Pages /Kids [{names}] /Count {len(pages)} >>".encode()
    objects[2] = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    for number, lines in enumerate(pages):
        shown = "".join(f"({line}) Tj 0 -14 Td\n" for line in lines)
        content = f"BT /F1 12 Tf 40 780 Td\n{shown}ET".encode("latin-1")
        entry = f"/Length {len(content)}"
        if flate and number == 0:
            content, entry = flate, f"/Length {len(flate)} /Filter /FlateDecode"
        objects[3 + 2 * number] = (
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {5 + 2 * number} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        ).encode()
        objects[4 + 2 * number] = f"<< {entry} >>\nstream\n".encode() + content + b"\nendstream"
    if title:
        objects.append(f"<< /Title ({title}) >>".encode())
        trailer += f" /Info {len(objects)} 0 R"
    data = b"%PDF-1.7\n"
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(data))
        data += b"%d 0 obj\n" % number + body + b"\nendobj\n"
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    start = len(data)
    data += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1) + table
    return data + f"trailer << /Size {len(objects) + 1} /Root 1 0 R {trailer} >>\nstartxref\n{start}\n%%EOF\n".encode()


def password_pdf() -> bytes:
    """A PDF that can't be read without its password."""
    secret = "<" + "41" * 32 + ">"
    entry = f"/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O {secret} /U {secret} >> /ID [<00><00>]"
    return make_pdf([["secret"]], trailer=entry)


def bomb_pdf(mebibytes: int) -> bytes:
    """A PDF of a kilobyte for each MiB that its content stream unpacks to."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(b"(" + b"x" * (2**20 - 8) + b") Tj\n") + packer.flush(zlib.Z_FULL_FLUSH)
    return make_pdf([["x"]], flate=b"\x78\xda" + block * mebibytes + b"\x03\x00" + bytes(4))


GOOD = make_pdf([["a page"]])
HOSTILE_PDFS: dict[str, Callable[[], bytes]] = {
    "password": password_pdf,
    "cut": lambda: GOOD[: len(GOOD) // 2],
    "only a head": lambda: b"%PDF-1.7\n",
    "garbage": lambda: b"%PDF-1.7\n" + bytes(range(256)) * 400,
    "pages in a circle": lambda: make_pdf([["a page"]], kids="2 0 R"),
    "many pages in a circle": lambda: make_pdf([["a page"]], kids="2 0 R " * 5_000),
    "tables in a circle": lambda: GOOD.replace(b"/Root 1 0 R", b"/Root 1 0 R /Prev 9"),
    "endless stream": lambda: GOOD.replace(b"\nendstream", b"").replace(b"/Length ", b"/Length 99999999"),
    "bomb": lambda: bomb_pdf(2_000),
    "nested": lambda: GOOD.replace(b"(a page)", b"[" * 200_000),
}
"""PDFs by what is wrong with them."""
