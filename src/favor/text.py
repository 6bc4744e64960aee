"""Make text from records, files and plugins safe to show: on a terminal, on one line, in a figure."""

import re

_UNSAFE = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters: a terminal obeys them, and renderers abort on NUL
    "\u2028\u2029\u202a-\u202e\u2066-\u2069"  # line breaks of Unicode, and marks that change the direction of text
    "\ud800-\udfff\ufffe\uffff"  # what no encoding can write
    "]"
)
_LINE_BREAKS = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
_LONG_WORD = re.compile(r"\S{301,}")


def printable(text: str) -> str:
    r"""The text with its control characters spelled out; line feeds and tabs stay.

    >>> print(printable("\x1b[31mred\x00"))
    \x1b[31mred\x00
    """
    return _UNSAFE.sub(_spelled_out, text)


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


def ordinal(number: int) -> str:
    """A place in a ranking.

    >>> ordinal(1), ordinal(22), ordinal(111)
    ('1st', '22nd', '111th')
    """
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return str(number) + {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")


def _spelled_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def _cut(found: re.Match[str]) -> str:
    word = found[0]
    return f"{word[:100]}...{word[-100:]}"
