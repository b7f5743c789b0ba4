"""The string formats that the codec checks, each judged when the string is whole."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from datetime import date
from typing import Final

from .pattern_syntax import PatternError
from .pattern_syntax import parse as parse_pattern

_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})", re.ASCII)
_TIME = re.compile(
    r"([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60)(?:\.\d+)?(?:[zZ]|([+-])([01]\d|2[0-3]):([0-5]\d))", re.ASCII
)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_EMAIL_LOCAL = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_EMAIL_QUOTED = re.compile(r'"(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\[\x20-\x7e])*"')
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_CHAR = r"[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2}"
_AUTHORITY = (
    r"//(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?"
    r"(?:\[(?P<ip>[0-9A-Fa-f:.]+|[vV][0-9A-Fa-f]+\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\]"
    r"|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(?::\d*)?"
)
_PATH = rf"(?:{_AUTHORITY}(?:/(?:{_CHAR})*)*|/?(?:(?:{_CHAR})+(?:/(?:{_CHAR})*)*)?)"
_TAIL = rf"(?:\?(?:{_CHAR}|[/?])*)?(?:#(?:{_CHAR}|[/?])*)?"
_URI = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]*:{_PATH}{_TAIL}", re.ASCII)
_RELATIVE = re.compile(rf"(?![^/?#]*:){_PATH}{_TAIL}", re.ASCII)
_DURATION = re.compile(
    r"P(?:\d+W|(?=\d|T)(?:\d+Y)?(?:\d+M)?(?:\d+D)?(?:T(?=\d)(?:\d+H)?(?:\d+M)?(?:\d+S)?)?)", re.ASCII
)
_UCS = re.compile("[\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef\U00010000-\U000efffd]")
_VARIABLE = r"(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})+(?:\.(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})+)*(?::[1-9][0-9]{0,3}|\*)?"
_TEMPLATE = re.compile(
    r"(?:[^\x00-\x20\x7f\"<>\\^`{|}%]|%[0-9A-Fa-f]{2}|\{[+#./;?&=,!@|]?" + _VARIABLE + r"(?:," + _VARIABLE + r")*\})*"
)
_PRIVATE = re.compile("[\ue000-\uf8ff\U000f0000-\U0010fffd]")
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*", re.DOTALL)
_RELATIVE_POINTER = re.compile(r"(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^~/]|~[01])*)*)", re.DOTALL)


def is_date(text: str) -> bool:
    """RFC 3339 full-date; the day exists."""
    match = _DATE.fullmatch(text)
    if match is None:
        return False
    year, month, day = (int(group) for group in match.groups())
    if year == 0:
        # 0000 is a leap year of the proleptic calendar, which `date` does not reach.
        year = 2000
    try:
        date(year, month, day)
    except ValueError:
        return False
    return True


def is_time(text: str) -> bool:
    """RFC 3339 full-time with its offset; a leap second only at 23:59:60 UTC."""
    match = _TIME.fullmatch(text)
    if match is None:
        return False
    hour, minute, second, sign, offset_hour, offset_minute = match.groups()
    if second != "60":
        return True
    utc_min = int(hour) * 60 + int(minute)
    if sign is not None:
        shift_min = int(offset_hour) * 60 + int(offset_minute)
        utc_min += -shift_min if sign == "+" else shift_min
    return utc_min % 1440 == 23 * 60 + 59


def is_date_time(text: str) -> bool:
    """RFC 3339 date-time."""
    return len(text) > 11 and text[10] in "Tt" and is_date(text[:10]) and is_time(text[11:])


def is_uuid(text: str) -> bool:
    """RFC 4122 text form, any case."""
    return _UUID.fullmatch(text) is not None


def is_ipv4(text: str) -> bool:
    """Four decimal numbers without leading zeros."""
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return text.isascii()


def is_ipv6(text: str) -> bool:
    """RFC 4291 text form without a zone."""
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return "%" not in text and text.isascii()


def is_hostname(text: str) -> bool:
    """RFC 1123: labels of letters, digits and inner hyphens, 253 characters at most."""
    return len(text) <= 253 and all(_LABEL.fullmatch(label) for label in text.split("."))


def is_email(text: str) -> bool:
    """RFC 5321 mailbox: local part of at most 64 octets, a host name or an address literal."""
    local, at, domain = text.rpartition("@")
    if not at or len(local) > 64:
        return False
    if not (_EMAIL_LOCAL.fullmatch(local) or _EMAIL_QUOTED.fullmatch(local)):
        return False
    if domain.startswith("[") and domain.endswith("]"):
        literal = domain[1:-1]
        return is_ipv6(literal[5:]) if literal.startswith("IPv6:") else is_ipv4(literal)
    return is_hostname(domain)


def is_uri(text: str) -> bool:
    """RFC 3986 URI with its scheme."""
    return _has_good_address(_URI.fullmatch(text))


def is_uri_reference(text: str) -> bool:
    """RFC 3986 URI, or a reference relative to one."""
    return _has_good_address(_URI.fullmatch(text) or _RELATIVE.fullmatch(text))


def _has_good_address(match: re.Match[str] | None) -> bool:
    if match is None:
        return False
    literal = match["ip"]
    return literal is None or literal[0] in "vV" or is_ipv6(literal)


def is_duration(text: str) -> bool:
    """RFC 3339 appendix A: units without a gap in between, or weeks alone."""
    if _DURATION.fullmatch(text) is None:
        return False
    date_part, _, time_part = text[1:].partition("T")
    units = "".join(c for c in date_part if c.isalpha())
    times = "".join(c for c in time_part if c.isalpha())
    return units != "YD" and times != "HS"


def is_iri(text: str) -> bool:
    """RFC 3987 IRI with its scheme: a URI where letters beyond ASCII may stand."""
    return is_uri(_plain(text))


def is_iri_reference(text: str) -> bool:
    """RFC 3987 IRI, or a reference relative to one."""
    return is_uri_reference(_plain(text))


def _plain(text: str) -> str:
    """The IRI with a letter for what a URI lacks; characters of private use stand in the query only."""
    address, mark, query = text.partition("?")
    return _UCS.sub("a", address) + mark + _PRIVATE.sub("a", _UCS.sub("a", query))


def is_json_pointer(text: str) -> bool:
    """RFC 6901."""
    return _POINTER.fullmatch(text) is not None


def is_relative_json_pointer(text: str) -> bool:
    """A number of levels up, then a pointer or `#`."""
    return _RELATIVE_POINTER.fullmatch(text) is not None


def is_uri_template(text: str) -> bool:
    """RFC 6570."""
    return _TEMPLATE.fullmatch(text) is not None


def is_regex(text: str) -> bool:
    """A regular expression that one of two readers takes: ours of ECMA-262, or that of Python."""
    try:
        parse_pattern(text, max_depth=100)
    except PatternError:
        try:
            re.compile(text)
        except (re.error, RecursionError, OverflowError):
            return False
    return True


_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*"
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DAY = (
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    f"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP_YEAR}-02-29)"
)
_HOUR = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\\.[0-9]+)?(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_ATOM = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_URI_CHARS = r"[!#$%&'()*+,\-.\/0-9:;=?@A-Z_a-z~\[\]]*"
SHAPES: Final[dict[str, str]] = {
    "date": f"^{_DAY}$",
    "time": f"^{_HOUR}$",
    "date-time": f"^{_DAY}[Tt]{_HOUR}$",
    "uuid": "^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
    "ipv4": r"^(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?:\.|$)){4}$",
    "ipv6": "^[0-9a-fA-F:.]+$",
    "hostname": f"^{_HOST}$",
    "email": rf'^(?:{_ATOM}(?:\.{_ATOM})*|"(?:[ !#-\[\]-~]|\\[ -~])*")@(?:\[[^\]]*\]|{_HOST})$',
    "uri": rf"^[A-Za-z][A-Za-z0-9+.\-]*:{_URI_CHARS}$",
    "uri-reference": f"^{_URI_CHARS}$",
    "duration": "^P(?:[0-9]+W|(?:[0-9]+Y)?(?:[0-9]+M)?(?:[0-9]+D)?(?:T(?:[0-9]+H)?(?:[0-9]+M)?(?:[0-9]+S)?)?)$",
    "json-pointer": "^(?:/(?:[^~/]|~[01])*)*$",
}
"""Regular expressions that every text of a format matches, and most others do not: they tell early what the format
itself tells when the text is whole."""

FORMATS: Final[dict[str, Callable[[str], bool]]] = {
    "date": is_date,
    "time": is_time,
    "date-time": is_date_time,
    "uuid": is_uuid,
    "ipv4": is_ipv4,
    "ipv6": is_ipv6,
    "hostname": is_hostname,
    "email": is_email,
    "uri": is_uri,
    "uri-reference": is_uri_reference,
    "duration": is_duration,
    "iri": is_iri,
    "iri-reference": is_iri_reference,
    "uri-template": is_uri_template,
    "json-pointer": is_json_pointer,
    "relative-json-pointer": is_relative_json_pointer,
    "regex": is_regex,
}
