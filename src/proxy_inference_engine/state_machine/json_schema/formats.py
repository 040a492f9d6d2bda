"""The formats of strings that the library does not know, or knows too loosely, as regular expressions of their RFCs.

Where a format is no regular language, or has rules for single characters (names in other scripts, regular expressions),
what is accepted is less than all of it, and never anything that is not of it. All are anchored at both ends.
"""

from collections.abc import Callable
from typing import NamedTuple

# What the library enforces as it should.
OF_THE_LIBRARY = frozenset(("duration", "ipv4", "uuid"))

_HEX = "[0-9A-Fa-f]"
_ESCAPED = f"%{_HEX}{{2}}"


def _dates() -> str:
    """RFC 3339: days that exist, the 29th of February in leap years."""
    leap = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
    long, short = "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])", "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    return f"(?:[0-9]{{4}}-(?:{long}|{short}|02-(?:0[1-9]|1[0-9]|2[0-8]))|{leap}-02-29)"


def _times() -> str:
    """RFC 3339; a leap second only where the minute is the last of a day in UTC, told with an offset of whole hours."""
    ordinary = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
    offsets = [f"{(23 + hours) % 24:02}:59:60SECONDS[+]{hours:02}:00" for hours in range(24)]
    offsets += [f"{(23 - hours) % 24:02}:59:60SECONDS-{hours:02}:00" for hours in range(24)]
    leap = "|".join(["23:59:60SECONDS[Zz]", *offsets]).replace("SECONDS", r"(?:\.[0-9]+)?")
    return f"(?:{ordinary}|{leap})"


def _addresses(more: str) -> tuple[str, str]:
    """RFC 3986, and RFC 3987 with `more` characters: a whole address, and a reference."""
    plain = f"A-Za-z0-9\\-._~!$&'()*+,;={more}"
    char = f"(?:[{plain}:@]|{_ESCAPED})"
    user, name = f"(?:[{plain}:]|{_ESCAPED})*@", f"(?:[{plain}]|{_ESCAPED})*"
    future = f"v{_HEX}+[.][{plain.replace(more, '') if more else plain}:]+"
    authority = f"(?:{user})?(?:\\[(?:{_ipv6()}|{future})\\]|{name})(?::[0-9]*)?"
    rest = f"(?:/{char}*)*"
    absolute = f"//{authority}{rest}|/(?:{char}+{rest})?"
    tail = f"(?:\\?(?:{char}|[/?])*)?(?:#(?:{char}|[/?])*)?"
    scheme = "[A-Za-z][A-Za-z0-9+.-]*"
    first = f"(?:[{plain}@]|{_ESCAPED})+"
    whole = f"{scheme}:(?:{absolute}|{char}+{rest})?{tail}"
    return whole, f"(?:{whole}|(?:{absolute}|{first}{rest})?{tail})"


def _ipv4() -> str:
    byte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
    return f"{byte}(?:[.]{byte}){{3}}"


def _ipv6() -> str:
    """RFC 4291: eight groups, of which one run may be left out, the last two perhaps as IPv4."""
    group = f"{_HEX}{{1,4}}"
    last = f"(?:{group}:{group}|{_ipv4()})"
    ways = [f"(?:{group}:){{6}}{last}", f"::(?:{group}:){{5}}{last}"]
    for after in range(4, -1, -1):
        ways.append(f"(?:(?:{group}:){{0,{4 - after}}}{group})?::(?:{group}:){{{after}}}{last}")
    ways += [f"(?:(?:{group}:){{0,5}}{group})?::{group}", f"(?:(?:{group}:){{0,6}}{group})?::"]
    return "|".join(ways)


def _templates() -> str:
    """RFC 6570."""
    letter = f"(?:[A-Za-z0-9_]|{_ESCAPED})"
    variable = f"{letter}(?:[.]?{letter})*(?::[1-9][0-9]{{0,3}}|[*])?"
    literal = f"[!#$&()*+,./0-9:;=?@A-Z\\[\\]_a-z~{_MORE}{_PRIVATE}-]"
    return f"(?:{literal}|{_ESCAPED}|\\{{[+#./;?&=,!@|]?{variable}(?:,{variable})*\\}})*"


_POINTER = "(?:/(?:[^/~]|~[01])*)*"
# Characters of RFC 3987, without the marks that turn the direction of writing.
_MORE = r"\x{a0}-\x{200d}\x{2010}-\x{2029}\x{202f}-\x{d7ff}\x{f900}-\x{fdcf}\x{fdf0}-\x{ffef}"
_MORE += r"\x{10000}-\x{1fffd}\x{20000}-\x{2fffd}\x{30000}-\x{3fffd}"
_PRIVATE = r"\x{e000}-\x{f8ff}"
# Letters of which each may stand anywhere in a name (RFC 5892): no marks, no signs that need a neighbour.
_LETTERS = (
    r"\x{df}-\x{f6}\x{f8}-\x{ff}\x{3b1}-\x{3c9}\x{430}-\x{45f}"
    r"\x{905}-\x{939}\x{e01}-\x{e2f}\x{3041}-\x{3096}\x{30a1}-\x{30fa}\x{4e00}-\x{9fa5}\x{ac00}-\x{d7a3}"
)
_FROM_THE_RIGHT = r"\x{5d0}-\x{5ea}\x{621}-\x{63a}\x{641}-\x{64a}"


def _hosts() -> str:
    """RFC 1123, without labels that have two hyphens where those do that stand for other scripts (RFC 5891).

    One label of up to 63 characters and six of up to 30 are never more than 253.
    """
    end, inner = "[A-Za-z0-9]", "[A-Za-z0-9-]"
    label = f"{end}(?:{inner}{{0,2}}{end}|{inner}(?:{end}{inner}|-{end}){inner}{{0,MOST}}{end})?"
    return f"{label.replace('MOST', '58')}(?:[.]{label.replace('MOST', '25')}){{0,6}}"


def _names() -> str:
    """RFC 5890, with labels that cannot be too long once they are written in ASCII; none that begin with xn--.

    Where one label is written from the right, the others are too, or begin with a letter (RFC 5893).
    """
    rest = "(?:[A-Za-z0-9]|[A-Za-z0-9](?:-?[A-Za-z0-9]){0,29})?"
    from_the_left = f"(?:[A-Za-z0-9]{rest}|[a-z0-9{_LETTERS}]{{1,12}})"
    from_both = f"(?:[A-Za-z]{rest}|[{_FROM_THE_RIGHT}]{{1,12}})"
    stop = r"[.\x{3002}\x{ff0e}\x{ff61}]"
    return f"(?:{from_the_left}(?:{stop}{from_the_left}){{0,5}}|{from_both}(?:{stop}{from_both}){{0,5}})"


def _mail() -> str:
    """RFC 5321, without quoted names: 64 characters before the @, 63 of a label, 253 of all labels."""
    char, end = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]", "[A-Za-z0-9]"
    lengths = ((64, 1, 0, 0), (44, 19, 1, 1), (19, 44, 1, 1), (32, 31, 1, 1), (24, 12, 2, 3), (16, 7, 4, 6))
    name = "|".join(f"{char}{{1,{a}}}(?:[.]{char}{{1,{b}}}){{{c},{d}}}" for a, b, c, d in lengths)
    label, shorter = (f"{end}(?:[A-Za-z0-9-]{{0,{most}}}{end})?" for most in (61, 28))
    return f"(?:{name})@(?:{label}(?:[.]{label}){{0,2}}|{label}(?:[.]{shorter}){{0,6}}|\\[{_ipv4()}\\])"


def _mail_in_any_script() -> str:
    """RFC 6531, without quoted names and addresses in brackets; before the @ are at most 64 bytes.

    No letter of ours has more than three.
    """
    plain = "A-Za-z0-9!#$%&'*+/=?^_`{|}~-"
    letter = f"[{_LETTERS}{_FROM_THE_RIGHT}{plain}]"
    name = f"(?:[{plain}]{{1,40}}(?:[.][{plain}]{{1,11}}){{0,2}}|{letter}{{1,13}}(?:[.]{letter}{{1,7}})?)"
    return f"{name}@{_names()}"


def _expressions() -> str:
    """What ECMA-262 takes with the flag u, and other readers too; ranges of characters that are surely in order.

    Parentheses stand in as many others as people read; what is looked ahead at, in none.
    """
    signs = r"^$\\.*+?()\[\]{}|/"
    escape = f"\\\\(?:[dDwWsSfnrtv{signs}]|x{_HEX}{{2}}|u{_HEX}{{4}})"
    ranges = "a-[a-z]|[a-z]-z|A-[A-Z]|[A-Z]-Z|0-[0-9]|[0-9]-9"
    inside = f"{ranges}|{escape}|\\\\[b-]"
    first, member = f"(?:{inside}|[^\\\\\\]\\[\\x00-\\x1f^-])", f"(?:{inside}|[^\\\\\\]\\[\\x00-\\x1f-])"
    members = f"\\[(?:(?:{first}|\\^{member}){member}*-?|\\^?-)\\]"
    times = r"(?:[*+?]|\{[0-9]{1,3}(?:,|,[1-9][0-9]{3})?\}|\{[01],[1-9][0-9]{0,2}\}|\{[2-9],[1-9][0-9]{1,2}\})\??"
    free = f"[|^$]|\\\\[bB]|(?:[^\\\\^$.*+?()\\[\\]{{}}|\\x00-\\x1f]|[.]|{escape}|{members})(?:{times})?"
    group = f"(?:{free})*"
    for _ in range(2):
        group = f"(?:{free}|\\((?:\\?:)?{group}\\)(?:{times})?)*"
    return f"(?:{free}|\\((?:\\?:)?{group}\\)(?:{times})?|\\(\\?[=!](?:{free})*\\))*"


_FORMATS: dict[str, Callable[[], str]] = {
    "date": _dates,
    "time": _times,
    "date-time": lambda: f"{_dates()}[Tt]{_times()}",
    "hostname": _hosts,
    "ipv6": _ipv6,
    "uri": lambda: _addresses("")[0],
    "uri-reference": lambda: _addresses("")[1],
    "iri": lambda: _addresses(_MORE)[0],
    "iri-reference": lambda: _addresses(_MORE)[1],
    "uri-template": _templates,
    "json-pointer": lambda: _POINTER,
    "relative-json-pointer": lambda: f"(?:0|[1-9][0-9]*)(?:#|{_POINTER})",
    "idn-hostname": _names,
    "email": _mail,
    "idn-email": _mail_in_any_script,
    "regex": _expressions,
}
PATTERNS = {name: f"^(?:{make()})$" for name, make in _FORMATS.items()}


class PlainTexts(NamedTuple):
    """Texts of a format that is too large to be counted: as long as they are no longer, each begins many more."""

    pattern: str
    longest: int | None = None


_PLAIN_PATH = f"(?:/(?:[A-Za-z0-9._~-]|{_ESCAPED})*)*"
_PLAIN_QUERY = rf"(?:\?(?:[A-Za-z0-9._~&=-]|{_ESCAPED})*)?(?:#[A-Za-z0-9._~-]*)?"
_PLAIN_URI = PlainTexts(f"^[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9.-]+(?::[0-9]*)?{_PLAIN_PATH}{_PLAIN_QUERY}$")
_PLAIN_HOST = "[a-z0-9]+(?:[.][a-z0-9]+){1,2}"
_PLAIN_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:Z|[+-][01][0-9]:[0-5][0-9])"
PLAIN_TEXTS = {
    "date-time": PlainTexts(f"^[0-9]{{4}}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])T{_PLAIN_TIME}$"),
    "email": PlainTexts(f"^[A-Za-z0-9_+-]+(?:[.][A-Za-z0-9_+-]+)?@{_PLAIN_HOST}$", 28),
    "hostname": PlainTexts(f"^{_PLAIN_HOST}$", 18),
    "ipv4": PlainTexts("^[1-9][0-9]?(?:[.][1-9][0-9]?){3}$"),
    "iri": _PLAIN_URI,
    "iri-reference": _PLAIN_URI,
    "time": PlainTexts(f"^{_PLAIN_TIME}$"),
    "uri": _PLAIN_URI,
    "uri-reference": _PLAIN_URI,
    "uuid": PlainTexts(f"^{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}$"),
}
