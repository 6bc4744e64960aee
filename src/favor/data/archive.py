"""Unpack archives once, into the user's cache folder, and never outside of it.

Archives are untrusted. Regular files and folders are extracted one by one; links, devices, names that lead
outside the folder and implausible sizes are refused.
"""

import gzip
import hashlib
import io
import lzma
import os
import shutil
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, Self

from favor.cache_folder import cache_folder
from favor.errors import FavorError, RequestError, WorkError, one_line, shown
from favor.regular_file import open_regular

ARCHIVE_ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".zip")
ALLOW_LARGE = "FAVOR_ALLOW_LARGE"
"""The environment variable that lifts the limits on the content of an archive."""

_TORN = (
    *(tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, EOFError, lzma.LZMAError, zlib.error),
    *(struct.error, ValueError, OverflowError),  # impossible numbers in the headers of a zip file
    RecursionError,  # tarfile calls itself for every extended header in a row
    RuntimeError,  # a zip file with a password or an unknown compression
)
_PIECE = 2**20
_FREE_BYTES, _BYTES_PER_BYTE = 10**8, 20
_FREE_MEMBERS, _BYTES_PER_MEMBER = 10_000, 100
"""A constant limit, and what each byte of the archive adds: images hardly compress, and have 100 bytes or more."""
_DEEPEST, _LONGEST_NAME = 32, 1000
_XZ_MEMORY = 2**27  # `xz -9` needs half of it; a header may demand 4 GB
_LONGEST_EXTENSION, _LONGEST_PATH = 2**20, 2**13
_LARGEST_MEMBER = 2**42


def is_archive(path: Path) -> bool:
    """Whether the path names an archive that `unpacked` can read."""
    return path.name.endswith(ARCHIVE_ENDINGS) and path.is_file()


def unpacked(archive: Path) -> Path:
    """The folder with the archive's content; a changed archive is unpacked again."""
    folder = _place(archive, archive.name.split(".tar")[0])
    if not folder.exists():
        with _writing(archive):
            beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            with _writing(archive):
                _extract(archive, beside)
                _rename(beside, folder)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    return _below_wrapping_folders(folder)


def unxz(compressed: Path) -> Path:
    """The file decompressed from xz, kept in the cache because decompression is slow."""
    file = _place(compressed, compressed.stem)
    if not file.exists():
        with _writing(compressed, "xz"), tempfile.TemporaryDirectory(dir=file.parent) as folder:
            unpacking = _Unpacking(compressed, Path(folder))
            with open_regular(compressed) as packed:
                beside = unpacking.file(file.name, _Counted(io.BufferedReader(_Xz(packed)), unpacking))
            beside.replace(file)
    return file


def _place(packed: Path, name: str) -> Path:
    """The cache folder of a file, which depends on its path, size and modification time."""
    state = packed.stat()
    identity = f"{packed.resolve()} {state.st_size} {state.st_mtime_ns}"
    key = hashlib.sha256(os.fsencode(identity)).hexdigest()[:12]
    folder = cache_folder() / "unpacked"
    with _writing(packed):
        folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name[:100]}-{key}"


@contextmanager
def _writing(packed: Path, what: str = "an archive") -> Iterator[None]:
    """Turn errors of unpacking into one line, which blames the file or the disk."""
    try:
        yield
    except FavorError:
        raise
    except _TORN as error:
        raise RequestError(f"{packed}: truncated or not {what} ({one_line(error)}); download it again") from error
    except OSError as error:
        folder = cache_folder() / "unpacked"
        raise WorkError(
            f"{packed} cannot be unpacked into {folder}: {error.strerror or one_line(error)}; "
            "set XDG_CACHE_HOME to another folder"
        ) from error


def _extract(archive: Path, folder: Path) -> None:
    with open_regular(archive) as file:
        unpacking = _Unpacking(archive, folder)
        if archive.suffix == ".zip":
            _extract_zip(file, unpacking)
        else:
            _extract_tar(file, unpacking)


class _Unpacking:
    """Writes members below a folder and limits their number and size."""

    def __init__(self, archive: Path, folder: Path) -> None:
        self.archive, self.folder = archive, folder.resolve()
        size = archive.stat().st_size
        self.most_bytes, self.most_members = (
            _FREE_BYTES + _BYTES_PER_BYTE * size,
            _FREE_MEMBERS + size // _BYTES_PER_MEMBER,
        )
        self.is_bounded = os.environ.get(ALLOW_LARGE, "0") in ("", "0")
        self._bytes = self._members = 0
        self._parents: set[Path] = set()

    def refusal(self, why: str) -> RequestError:
        return RequestError(f"{self.archive}: refused, {why}")

    def path(self, name: str) -> Path:
        """The path for a member, whose folder is created."""
        self._members += 1
        if self.is_bounded and self._members > self.most_members:
            raise self.refusal(f"more than {self.most_members:,} members{self._if_trusted}")
        parts = PurePosixPath(name).parts
        if name.startswith("/") or ".." in parts or "\0" in name:
            raise self.refusal(f"it would write outside of its folder: {shown(name)}")
        if len(parts) > _DEEPEST or len(name) > _LONGEST_NAME or any(len(os.fsencode(part)) > 255 for part in parts):
            raise self.refusal(f"a path of {len(parts)} parts and {len(name):,} characters: {shown(name)}")
        path = self.folder.joinpath(*parts)
        self._make(path.parent if parts else path)
        return path

    def make_folder(self, name: str) -> None:
        self._make(self.path(name))

    def file(self, name: str, content: "IO[bytes] | _Counted") -> Path:
        path = self.path(name)
        if path.is_dir():
            raise self.refusal(f"{shown(name)} is both a file and a folder")
        with path.open("wb") as file:
            while piece := content.read(_PIECE):
                file.write(piece)
        return path

    def count(self, read: int) -> None:
        """Add to the number of unpacked bytes."""
        self._bytes += read
        if self.is_bounded and self._bytes > self.most_bytes:
            raise self.refusal(f"it unpacks to more than {self.most_bytes / 1e6:,.0f} MB{self._if_trusted}")

    @property
    def _if_trusted(self) -> str:
        return f", too much for its own size; if you trust it, set {ALLOW_LARGE}=1"

    def _make(self, folder: Path) -> None:
        if folder in self._parents:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise self.refusal(f"{shown(folder.name)} is both a file and a folder") from error
        if not folder.resolve().is_relative_to(self.folder):
            raise self.refusal(f"it would write outside of its folder: {shown(str(folder))}")
        self._parents.add(folder)


def _extract_zip(file: BinaryIO, unpacking: _Unpacking) -> None:
    with zipfile.ZipFile(file) as content:
        if sum(member.compress_size for member in content.infolist()) > os.fstat(file.fileno()).st_size:
            raise unpacking.refusal("its members share content, so that reading them may take for ever")
        for member in content.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            if member.filename.endswith("/"):
                unpacking.make_folder(member.filename)
            elif member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                # Of the others, Python unpacks any size at once.
                raise unpacking.refusal(f"{shown(member.filename)} is compressed with another method than deflate")
            elif kind in (0, stat.S_IFREG):
                with content.open(member) as compressed:
                    unpacking.file(member.filename, _Counted(compressed, unpacking))
            else:
                raise unpacking.refusal(f"{shown(member.filename)} is a link or a device, not a file or a folder")


def _extract_tar(file: BinaryIO, unpacking: _Unpacking) -> None:
    stream = _Counted(_decompressed(file), unpacking)
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=TarHeader) as tar:  # type: ignore[call-overload]
        while (member := tar.next()) is not None:
            tar.members.clear()  # else it keeps them all in memory
            if member.isdir():
                unpacking.make_folder(member.name)
            elif is_plain_file(member) and (content := tar.extractfile(member)) is not None:
                unpacking.file(member.name, content)
            else:
                raise unpacking.refusal(f"{shown(member.name)} is a link or a device, not a file or a folder")
    while stream.read(_PIECE):
        pass  # read to the end, where the checksum is


def is_plain_file(member: tarfile.TarInfo) -> bool:
    """Whether a member of a tar file is a regular, not sparse file; sparse files have holes of any size."""
    return member.isreg() and not member.issparse()


def _decompressed(file: BinaryIO) -> BinaryIO:
    """The tar file in a file that may be compressed."""
    magic = file.read(6)
    file.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]
    return io.BufferedReader(_Xz(file)) if magic == b"\xfd7zXZ\0" else file


class _Counted:
    """A stream that counts its bytes, including those of a tar file's headers."""

    def __init__(self, stream: IO[bytes], unpacking: _Unpacking) -> None:
        self._stream, self._unpacking = stream, unpacking

    def read(self, size: int) -> bytes:
        piece = self._stream.read(size)
        self._unpacking.count(len(piece))
        return piece


class _Xz(io.RawIOBase):
    """Decompresses an xz file; unlike `lzma.open`, in limited memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._decompressor = file, lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while True:
            given = b""
            if self._decompressor.eof:  # another stream may follow, after zeros
                given = (self._decompressor.unused_data.lstrip(b"\0")) or self._file.read(_PIECE).lstrip(b"\0")
                if not given:
                    return 0
                self._decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY)
            elif self._decompressor.needs_input and not (given := self._file.read(_PIECE)):
                raise EOFError("it ends in the middle")
            piece = self._decompressor.decompress(given, len(buffer))
            if piece:
                buffer[: len(piece)] = piece
                return len(piece)


class TarHeader(tarfile.TarInfo):
    """The header of a member; on a damaged header, tarfile would silently take the archive to end there.

    Of extended headers, only paths and sizes are read, and by code of our own: on some that tarfile reads, it hangs or
    fails with errors of any kind. Sparse files are refused before their maps are read.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        most = _MOST_BYTES.get(header.type, _LARGEST_MEMBER)
        if not 0 <= header.size <= most:
            raise tarfile.ReadError(f"a header says {header.size:,} bytes")
        if header.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError(f"{shown(header.name)} is a sparse file")
        return header

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(tarfile_)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise  # the zeros that mark the end
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"{one_line(error)} at byte {tarfile_.offset:,}") from error

    def _proc_pax(self, tarfile_: tarfile.TarFile) -> Self:
        """The next header, with this extended header's path and size; a global extended header changes nothing."""
        content = tarfile_.fileobj.read(self._block(self.size))  # type: ignore[attr-defined]
        if len(content) < self.size:
            raise tarfile.ReadError("a truncated extended header")
        fields = _pax_fields(content[: self.size])
        del content  # what is kept here is kept for each of the extended headers in a row
        try:
            member = self.fromtarfile(tarfile_)
        except tarfile.EOFHeaderError as error:  # type: ignore[attr-defined]
            raise tarfile.ReadError("an extended header without a member") from error
        member.offset = self.offset
        if self.type != tarfile.XGLTYPE and b"path" in fields:
            member.name = fields[b"path"].decode("utf-8", "surrogateescape").rstrip("/")
        if self.type != tarfile.XGLTYPE and b"size" in fields:
            size = fields[b"size"]
            if not size.isdigit() or len(size) > 20 or int(size) > _LARGEST_MEMBER:
                raise tarfile.ReadError(f"an extended header says {shown(size)} bytes")
            member.size = int(size)
            if member.isreg():
                tarfile_.offset = member.offset_data + member._block(member.size)  # type: ignore[attr-defined]
        return member


def _pax_fields(content: bytes) -> dict[bytes, bytes]:
    """Size and path in an extended header, which has lines of `LENGTH KEY=VALUE`.

    >>> _pax_fields(b"9 size=1\\n12 path=a/b\\n11 mtime=1\\n")
    {b'size': b'1', b'path': b'a/b'}
    """
    fields: dict[bytes, bytes] = {}
    start = 0
    while start < len(content):
        length = content[start : start + 8].partition(b" ")[0]
        end = start + (int(length) if length.isdigit() else 0)
        key, equals, value = content[start + len(length) + 1 : end - 1].partition(b"=")
        if not equals or content[end - 1 : end] != b"\n":
            raise tarfile.ReadError("a damaged extended header")
        if key.startswith(b"GNU.sparse."):
            raise tarfile.ReadError("an extended header of a sparse file")
        if key in (b"path", b"size"):
            if len(value) > _LONGEST_PATH:
                raise tarfile.ReadError(f"an extended header with a {key.decode()} of {len(value):,} bytes")
            fields[key] = value
        start = end
    return fields


_MOST_BYTES = {
    **dict.fromkeys((tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE), _LONGEST_EXTENSION),
    **dict.fromkeys((tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK), _LONGEST_PATH),
}


def _rename(beside: Path, folder: Path) -> None:
    try:
        beside.rename(folder)
    except OSError:
        if not folder.exists():  # else another process was faster, with the same content
            raise


def _below_wrapping_folders(folder: Path) -> Path:
    """Skip the single folder that most archives wrap their content in."""
    while True:
        entries = list(folder.iterdir())
        if len(entries) != 1 or not entries[0].is_dir():
            return folder
        folder = entries[0]
