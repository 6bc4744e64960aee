"""Files that were made to hang, to crash or to fill the memory of a reader, in a few bytes."""

import base64
import struct
import zlib

BOMB = zlib.decompress(
    base64.b64decode(
        "eNpzisqwNHSMVAuO5ON8dJ8xvs+B4QADA4cCg0GDr5vTAtWVXA3TR+VH5Ye+vEdN/EmGrqATIHkWsIoz"
        "rJrLJio5J7p08osXuVoETPjW8YQJAOT97O0="
    )
)
"""A gigabyte of zeros under bzip2, as 785 bytes that take 20 s to make."""


def bomb_in_zip(name: bytes = b"set/train/a/0.png") -> bytes:
    """A zip file with the bomb; Python's zipfile cannot write what is compressed already."""
    about = struct.pack("<HHHHIIIHH", 0, 12, 0, 0, 0, len(BOMB), 2**30, len(name), 0)
    local = b"PK\3\4" + struct.pack("<H", 46) + about + name + BOMB
    central = b"PK\1\2" + struct.pack("<HH", 46, 46) + about + struct.pack("<HHHII", 0, 0, 0, 0, 0) + name
    return local + central + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)


def tar_header(name: str, size: int, kind: bytes = b"0") -> bytearray:
    """The header of a member of a tar file, its size in base 256 where it is a large one."""
    field = b"%011o\0" % size if size < 8**11 else b"\x80" + size.to_bytes(11, "big")
    header = bytearray(512)
    header[:100] = name.encode().ljust(100, b"\0")
    header[100:108] = header[108:116] = header[116:124] = b"0000644\0"
    header[124:136], header[136:148], header[156:157], header[257:265] = field, b"0" * 11 + b"\0", kind, b"ustar\x0000"
    return with_checksum(header)


def with_checksum(header: bytearray) -> bytearray:
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return header


def extended_header(content: bytes, kind: bytes = b"x") -> bytes:
    """An extended header of a tar file, which is about the next member, or of kind `g` about all that follow."""
    return bytes(tar_header("./PaxHeader", len(content), kind)) + content + bytes(-len(content) % 512)


def pax_line(key: str, value: str) -> bytes:
    """A field of an extended header."""
    rest = f" {key}={value}\n".encode()
    length = len(rest) + 1
    while len(str(length)) + len(rest) != length:
        length = len(str(length)) + len(rest)
    return str(length).encode() + rest


def member(name: str, size: int, kind: bytes = b"0") -> bytes:
    """A member of which the header says any size, with one block of content."""
    return bytes(tar_header(name, size, kind)) + bytes(512)


def _sparse_and_extended() -> bytes:
    header = tar_header("a", 0, b"S")
    header[482] = 1  # further maps follow, where the file ends
    return bytes(with_checksum(header))


TARS = {
    "a size for all that hides the size of a member": extended_header(pax_line("size", "0"), b"g")
    + member("a.png", 2**60)
    + member("b.png", 9),
    "a size beyond 64 bits": extended_header(pax_line("size", "0"), b"g") + member("a.png", 2**70),
    "a megabyte of digits": extended_header(b"1" * 2**20) + member("a.png", 9),
    "a sparse file with a text as its size": extended_header(pax_line("GNU.sparse.size", "x")) + member("a.png", 9),
    "a sparse file of 10 million pieces": extended_header(
        pax_line("GNU.sparse.major", "1") + pax_line("GNU.sparse.minor", "0")
    )
    + bytes(tar_header("a.png", 2**25))
    + b"10000000\n"
    + b"1\n" * 2**24,
    "a sparse file whose maps are missing": _sparse_and_extended(),
    "a size that is no number": extended_header(pax_line("size", "-1")) + member("a.png", 9),
    "an extended header without a member": extended_header(pax_line("path", "a.png")) + bytes(1024),
    "an extended header that is cut": extended_header(pax_line("path", "a" * 999))[:700],
    "a line that is longer than its header": extended_header(b"999 path=a\n") + member("a.png", 9),
}


def pair_of_pairs(levels: int = 40) -> bytes:
    """Opcodes that make a tuple of the same tuple twice, and so on: 2^levels values to whoever walks through it."""
    return b")" + b"".join(b"q%ch%c\x86" % (100 + level, 100 + level) for level in range(levels))


PICKLES = {
    "a key of 2^40 parts": b"}" + pair_of_pairs() + b"Ns",
    "a value of 2^40 parts": b"}X\5\0\0\0label" + pair_of_pairs() + b"s",
    "a name of 2^40 parts": b"}X\x0b\0\0\0label_names](" + pair_of_pairs() * 10 + b"es",
    "a state of 2^40 parts": b"ccollections\nOrderedDict\n)R" + pair_of_pairs() + b"b",
    "a set of 2^40 parts": b"c__builtin__\nset\n(](" + pair_of_pairs() + b"etR",
    "an unknown function with 2^40 parts": b"cnumpy\ndtype\n" + pair_of_pairs() + b"\x85R",
    "a call of 2^40 parts": pair_of_pairs() + b")R",
    "a list in itself": b"]q\0h\0a",
    "a dict in a list in itself": b"}q\0X\1\0\0\0a]h\0as",
    "a list that grows after it was used": b"]q\0(h\0h\0h\0tq\1h\0K\1a",
    "a list that grows in a tuple": b"]q\0\x85h\0h\0a\x86",
    "64 GB of zeros": b"cbuiltins\nbytearray\n\x8a\x05\0\0\0\0\x10\x85R",
    "64 GB of zeros as a new object": b"c__builtin__\nbytearray\n\x8a\x05\0\0\0\0\x10\x85\x81",
    "a tensor of 2^36 numbers": b"ctorch._tensor\nTensor\n\x8a\x05\0\0\0\0\x10\x85R",
    "a storage of 2^36 bytes": b"ctorch.storage\nUntypedStorage\n\x8a\x05\0\0\0\0\x10\x85R",
    "a codec of quadratic time": b"c_codecs\nencode\nX\0\0\2\0"
    + "\u0101".encode() * 2**16
    + b"X\x08\0\0\0punycode\x86R",
    "an integer of 5,000 digits": b"}U\x06labels](\x8b\x20\x08\0\0" + b"\x7f" * 2080 + b"es",
    "a key that is no Unicode": b"}X\x03\0\0\0\xed\xa0\x80Ns",
}
"""The bodies of pickles; a protocol goes before them and a stop after them."""


def as_pickle(body: bytes) -> bytes:
    return b"\x80\x02" + body + b"."


SAID = (
    '{"model": "vit_ti16", "img_size": Infinity, "classes": []}',
    '{"model": "vit_ti16", "img_size": 1e999, "classes": []}',
    '{"model": "vit_ti16", "img_size": -1, "classes": []}',
    '{"model": "vit_ti16", "img_size": 224, "classes": "abc"}',
    '{"model": ["vit_ti16"], "img_size": 224, "classes": []}',
    "[" * 100_000,
    '{"more":' * 100_000,
    "{}",
)
"""What the header of a pushed file may say of its model."""
