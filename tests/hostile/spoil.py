"""How files are spoiled: bytes, texts, and what lies behind checksums and compression."""

import gzip
import io
import json
import lzma
import pickletools
import random
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import pairwise

from hostile.attacks import PICKLES, extended_header, pair_of_pairs, pax_line

Spoil = Callable[[bytes, random.Random], bytes]

_NUMBERS = (
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    2**40,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
_FORMS = ("<B", "<H", ">H", "<I", ">I", "<Q", ">Q")


def spoiled_bytes(content: bytes, rng: random.Random) -> bytes:
    """A few changes of bytes: bits, numbers at the edge of their types, pieces cut, doubled, moved or made up."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        at, length = _place(len(data), rng), rng.choice((1, 2, 4, 16, 100, 1000))
        match rng.randrange(9):
            case 0 | 1 if data:
                data[at] ^= 1 << rng.randrange(8)
            case 2 if data:
                data[at] = rng.randrange(256)
            case 3 | 4:
                form = rng.choice(_FORMS)
                number = struct.pack(form, rng.choice(_NUMBERS) % 256 ** struct.calcsize(form))
                data[at : at + len(number)] = number
            case 5:
                del data[at : at + length]
            case 6:
                data[at:at] = data[at : at + length] * rng.choice((1, 2, 50))
            case 7:
                data[at:at] = rng.randbytes(length)
            case _:
                del data[_place(len(data), rng) :]
    return bytes(data)


def _place(length: int, rng: random.Random) -> int:
    """Anywhere, but most often near the start or the end, where headers are."""
    if length == 0:
        return 0
    near = rng.randrange(min(length, 200))
    return rng.choice((near, length - 1 - near, rng.randrange(length)))


_BOMB = "".join(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 8)}]\n" for level in range(1, 12))
NASTY = (
    *("", "-", "~", "null", "yes", "true", "-1", "0", "1e999", "-0.0", ".nan", ".inf", "NaN", "0x_", "0b_"),
    *("1:1:1", "1_0", "١٢", "9" * 30, "9" * 5000, "1" + "0" * 400, "1e-999", "2020-01-01", "2020-13-45"),
    *("!!bool x", "!!int x", "!!float x", "!!timestamp x", "!!binary x", "!!set {a}", "!x y", "!"),
    *("!!python/name:os.system", "*a", "&a [*a]", "&a b", f"&a0 [1]\n{_BOMB}", "<<", "=", "%", "@", "`"),
    *("[", "]", "{", "}", "[" * 3000, "{a: " * 500, "- " * 2000, "? ", "|", ">", "'", '"', ",", "a: b: c"),
    *('"\\0"', '"\\e[2J"', '"\\ud800"', '"\\x80"', "'\u2028'", "\ufeff", "\x00", "é", "\x1b[31m"),
    *("x" * 20_000, "x y " * 5000, "[1, 2]", "{a: 1}", "x.yaml", "-" * 300, "a/" * 3000),
    *("../../../etc/passwd", "/dev/zero", "/dev/stdin"),
)
_WORD = re.compile(r"[^\s,\t:\[\]{}]+")


def spoiled_text(content: bytes, rng: random.Random) -> bytes:
    """Words replaced by nasty ones, lines dropped, doubled or moved; at times bytes that are no text."""
    if rng.random() < 0.15:
        return spoiled_bytes(content, rng)
    lines = content.decode("utf-8", "replace").split("\n")
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(lines))
        match rng.randrange(6):
            case 0 | 1 | 2:
                words = list(_WORD.finditer(lines[at]))
                if words:
                    word = rng.choice(words)
                    lines[at] = lines[at][: word.start()] + rng.choice(NASTY) + lines[at][word.end() :]
            case 3:
                lines[at:at] = [lines[at]] * rng.choice((1, 1, 1000))
            case 4:
                lines[at] = rng.choice((" ", "  ", "- ", "\t", "#", rng.choice(NASTY))) + lines[at]
            case _:
                lines.pop(at)
                lines = lines or [""]
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def either(*ways: Spoil) -> Spoil:
    """One of several ways, drawn for each case."""
    return lambda content, rng: rng.choice(ways)(content, rng)


def under_compression(spoil: Spoil) -> Spoil:
    """Spoils what is in a file under gzip or xz, so that its checksum is right; other files as they are."""

    def change(content: bytes, rng: random.Random) -> bytes:
        if content.startswith(b"\x1f\x8b"):
            return gzip.compress(spoil(gzip.decompress(content), rng), 1)
        if content.startswith(b"\xfd7zXZ"):
            return lzma.compress(spoil(lzma.decompress(content), rng), preset=0)
        return spoil(content, rng)

    return change


def in_tar_headers(content: bytes, rng: random.Random) -> bytes:
    """Fields of a tar file's headers changed, their checksums made right."""
    data = bytearray(content)
    headers = [at for at in range(0, len(data) - 511, 512) if data[at + 257 : at + 262] == b"ustar"]
    for at in rng.sample(headers, min(len(headers), rng.choice((1, 1, 3)))):
        start, length = rng.choice(
            ((0, 100), (100, 8), (124, 12), (124, 12), (156, 1), (156, 1), (157, 100), (345, 155))
        )
        if start == 156:
            data[at + 156] = rng.choice(b"\x000123456789LKxgXSDVMN\xff")
        else:
            nasty = (
                *(b"../../x", b"/etc/x", b"7" * 12, b"\x80" + b"\xff" * 11, b"\xff" * 12, b"-1", b"0", b"", b"a/" * 50),
                *(rng.randbytes(length), b"9" * 8, b"\x80\0\0\0\0\0\0\0\x7f\xff\xff\xff"),
            )
            data[at + start : at + start + length] = rng.choice(nasty)[:length].ljust(length, b"\0")
        data[at + 148 : at + 156] = b" " * 8
        data[at + 148 : at + 156] = b"%06o\0 " % sum(data[at : at + 512])
    return bytes(data)


_PAX_KEYS = (
    *("path", "path", "size", "size", "linkpath", "hdrcharset", "mtime", "uid", "comment", "", "a b"),
    *(f"GNU.sparse.{key}" for key in ("map", "size", "realsize", "name", "major", "minor", "offset", "numbytes")),
)
_PAX_VALUES = (
    *("", "0", "1", "x", "-1", "1.5", "9" * 5000, str(2**40), str(2**60), str(2**70), "1,2,3", "BINARY", "é", "a\nb"),
    *("../../x", "/etc/x", "a/" * 600, "set/train/a/1.png", "set/train/c/"),
)


def with_extended_headers(content: bytes, rng: random.Random) -> bytes:
    """Extended headers put before a member of a tar file, of which some give it another path, size or map of holes."""
    places = [at for at in range(0, len(content) - 511, 512) if content[at + 257 : at + 262] == b"ustar"] or [0]
    for _ in range(rng.choice((1, 1, 2))):
        at, count = rng.choice(places), rng.choice((1, 1, 2, 5))
        fields = b"".join(pax_line(rng.choice(_PAX_KEYS), rng.choice(_PAX_VALUES)) for _ in range(count))
        body = rng.choice((fields, fields, fields, spoiled_bytes(fields, rng), b"1" * 2**17 + fields))
        content = content[:at] + extended_header(body, rng.choice((b"x", b"x", b"g", b"X"))) + content[at:]
    return content


def replaced_by(attacks: Mapping[str, bytes]) -> Spoil:
    """One of several files in the place of the right one, at times with a few changes."""

    def change(content: bytes, rng: random.Random) -> bytes:
        attack = rng.choice(list(attacks.values()))
        return attack if rng.random() < 0.5 else spoiled_bytes(attack, rng)

    return change


_OPCODES = (
    *PICKLES.values(),
    pair_of_pairs(),
    b"0",
    b"2",
    b"h\0",
    b"q\0",
    b"(",
    b"t",
    b"R",
    b"b",
    b"\x81",
    b"Q",
    b"s",
    b"a",
)


def in_opcodes(content: bytes, rng: random.Random) -> bytes:
    """Opcodes of pickles left out, doubled, moved, or replaced by some that were made to hang."""
    stream, places = io.BytesIO(content), [0]
    with suppress(ValueError):
        for _ in range(5):  # as many as there are in a file of weights
            for *_, at in pickletools.genops(stream):
                places.append(at)
    pieces = [content[at:end] for at, end in pairwise((*places, len(content)))]
    for _ in range(rng.choice((1, 1, 2, 4))):
        at, other = rng.randrange(len(pieces)), rng.choice(rng.choice((pieces[:200], _OPCODES)))
        match rng.randrange(3):
            case 0:
                pieces[at] = b""
            case 1:
                pieces[at] = other
            case _:
                pieces.insert(at, other)
    return b"".join(pieces)


def in_png_chunks(content: bytes, rng: random.Random) -> bytes:
    """A chunk of a PNG changed, its checksum made right; other images as bytes."""
    if not content.startswith(b"\x89PNG"):
        return spoiled_bytes(content, rng)
    chunks, at = [], 8
    while at + 12 <= len(content):
        size = int.from_bytes(content[at : at + 4], "big")
        chunks.append((content[at + 4 : at + 8], content[at + 8 : at + 8 + size]))
        at += 12 + size
    chosen = rng.randrange(len(chunks))
    kind, body = chunks[chosen]
    if rng.random() < 0.2:
        kind = rng.choice((b"tEXt", b"zTXt", b"iCCP", b"PLTE", b"tRNS", b"acTL", b"fcTL", b"eXIf", b"IEND", b"IDAT"))
    chunks[chosen] = (kind, spoiled_bytes(body, rng))
    told = (
        len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big") for kind, body in chunks
    )
    return content[:8] + b"".join(told)


def in_zip_members(spoil: Spoil) -> Spoil:
    """One member of a zip file spoiled, its checksum made right."""

    def change(content: bytes, rng: random.Random) -> bytes:
        with zipfile.ZipFile(io.BytesIO(content)) as old:
            members = {info.filename: old.read(info) for info in old.infolist()}
        chosen = rng.choice([*members, *(name for name in members if name.endswith("data.pkl"))])
        members[chosen] = spoil(members[chosen], rng)
        into = io.BytesIO()
        with zipfile.ZipFile(into, "w") as new:
            for name, member in members.items():
                new.writestr(name, member)
        return into.getvalue()

    return change


def in_safetensors_header(content: bytes, rng: random.Random) -> bytes:
    """The JSON before the tensors changed, its length made right."""
    size = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + size]
    if rng.random() < 0.5:
        known = json.loads(header)
        name = rng.choice(list(known))
        inner = known[name]
        key = rng.choice(list(inner))
        nasty = (
            *NASTY[:40],
            None,
            True,
            -1,
            2**63,
            2**70,
            float("inf"),
            float("nan"),
            [],
            {},
            [2**40, 2**40],
            ["F32"],
            "I64",
            "F64",
            "BOOL",
            "BF16",
            "F8_E4M3",
        )
        if key == "favor.trained" and rng.random() < 0.8:
            trained = json.loads(inner[key])
            trained[rng.choice((*trained, "model", "img_size", "img_size", "classes"))] = rng.choice(nasty)
            inner[key] = json.dumps(trained)
        else:
            inner[key] = rng.choice(nasty)
        header = json.dumps(known).encode()
    else:
        header = spoiled_text(header, rng)
    return len(header).to_bytes(8, "little") + header + content[8 + size :]
