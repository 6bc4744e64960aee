"""Text to show: records, files and plugins made safe for a terminal or a figure; numbers with their words."""

import re
from collections.abc import Sequence

_UNSAFE = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters: a terminal obeys them, and renderers abort on NUL
    "\u2028\u2029\u202a-\u202e\u2066-\u2069"  # line breaks of Unicode, and marks that change the direction of text
    "\ud800-\udfff\ufffe\uffff"  # what no encoding can write
    "]"
)
# Only from the start of a blank: from each of its spaces, a long one without a line break would take hours.
_LINE_BREAKS = re.compile(r"(?<!\s)\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
_LONG_WORD = re.compile(r"\S{301,}")
_MARKDOWN = str.maketrans({letter: f"\\{letter}" for letter in "\\`*[]|"} | {"<": "&lt;"})


def printable(text: str) -> str:
    r"""The text with its control characters spelled out; line feeds and tabs stay.

    >>> print(printable("\x1b[31mred\x00"))
    \x1b[31mred\x00
    """
    return _UNSAFE.sub(_spelled_out, text)


def require_printable(text: str) -> str:
    """The text itself; a ValueError if it has control characters or invisible marks."""
    if not text.isprintable():
        raise ValueError(f"{cut_to_line(ascii(text), 100)} has characters that cannot be printed")
    return text


def cut_to_line(text: str, longest: int = 300) -> str:
    """The text on one line, safe to print, truncated to `longest` characters.

    >>> cut_to_line("mat1 and mat2\\n  do not fit")
    'mat1 and mat2 do not fit'
    """
    line = printable(" ".join(text.split()))
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


def on_one_line(text: str) -> str:
    r"""The text on one line, safe to print; words of more than 300 characters are shortened.

    >>> on_one_line("first\n  second")
    'first second'
    >>> len(on_one_line("9" * 5000))
    203
    """
    return _LONG_WORD.sub(_cut, printable(_LINE_BREAKS.sub(" ", text)))


def in_markdown(text: str) -> str:
    r"""The text on one line as Markdown shows it: no HTML, link, code or table cell begins or ends in it.

    >>> print(in_markdown("vit_s16 | <script> [x](y)"))
    vit_s16 \| &lt;script> \[x\](y)
    """
    return on_one_line(text).translate(_MARKDOWN)


def ordinal(number: int) -> str:
    """A place in a ranking.

    >>> ordinal(1), ordinal(22), ordinal(111)
    ('1st', '22nd', '111th')
    """
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return str(number) + {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")


def plural(count: int, noun: str) -> str:
    """A count with its noun.

    >>> plural(1, "model"), plural(3, "model")
    ('1 model', '3 models')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def first_few(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """Names in a sentence, each once; the first of them where they are many.

    >>> first_few(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    unique = list(dict.fromkeys(names))
    return separator.join(unique[:most]) + (f" and {len(unique) - most} more" if len(unique) > most else "")


def _spelled_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def _cut(found: re.Match[str]) -> str:
    word = found[0]
    return f"{word[:100]}...{word[-100:]}"
