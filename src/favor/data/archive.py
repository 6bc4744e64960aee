"""Archives are unpacked once, into the user's cache folder, and never outside of it."""

import gzip
import hashlib
import lzma
import os
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path

from favor.errors import RequestError, WorkError

ARCHIVE_ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".zip")


_TORN = (
    *(tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, EOFError, lzma.LZMAError, zlib.error),
    RuntimeError,  # a zip file that wants a password, or is compressed in a way that Python does not know
)


def is_archive(path: Path) -> bool:
    """Whether the path names an archive that `unpacked` takes."""
    return path.name.endswith(ARCHIVE_ENDINGS) and path.is_file()


def cache_folder() -> Path:
    """Where favor keeps what it can make again: $XDG_CACHE_HOME/favor, or ~/.cache/favor."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "favor"


def unpacked(archive: Path) -> Path:
    """The folder with the archive's content; a changed archive is unpacked anew."""
    folder = _place(archive, archive.name.split(".tar")[0])
    if not folder.exists():
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            _extract(archive, beside)
            _rename(beside, folder)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    return _below_wrapping_folders(folder)


def unxz(compressed: Path) -> Path:
    """The file without its compression by xz, which takes long enough to do it once only."""
    file = _place(compressed, compressed.stem)
    if not file.exists():
        try:
            content = lzma.decompress(compressed.read_bytes())
        except lzma.LZMAError as error:
            raise RequestError(f"{compressed}: torn or not xz ({error}); get it again") from error
        with tempfile.NamedTemporaryFile(prefix=f".{file.name}-", dir=file.parent, delete=False) as beside:
            beside.write(content)
        Path(beside.name).replace(file)
    return file


def _place(packed: Path, name: str) -> Path:
    """Where the content of a file goes: another path, size or time of change is another place."""
    state = packed.stat()
    key = hashlib.sha256(f"{packed.resolve()} {state.st_size} {state.st_mtime_ns}".encode()).hexdigest()[:12]
    folder = cache_folder() / "unpacked"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WorkError(
            f"{packed} cannot be unpacked into {folder}: {error.strerror}; name another cache in XDG_CACHE_HOME"
        ) from error
    return folder / f"{name}-{key}"


def _extract(archive: Path, folder: Path) -> None:
    try:
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as content:
                content.extractall(folder)  # noqa: S202 - it takes names that lead outside for names inside
            return
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
            while tar.fileobj is not None and tar.fileobj.read(1 << 20):
                pass  # gzip's checksum is at the very end, beyond the last member
    except tarfile.FilterError as error:
        raise RequestError(f"{archive}: refused, it would write outside of its folder: {error}") from error
    except _TORN as error:
        raise RequestError(f"{archive}: torn or not an archive ({error}); get it again") from error
    except OSError as error:
        raise WorkError(f"{archive} cannot be unpacked into {folder.parent}: {error.strerror or error}") from error


def _rename(beside: Path, folder: Path) -> None:
    try:
        beside.rename(folder)
    except OSError:
        if not folder.exists():  # else another process was faster, and its content is the same
            raise


def _below_wrapping_folders(folder: Path) -> Path:
    """Most archives wrap their content in one folder, which is not part of the layout."""
    while True:
        entries = list(folder.iterdir())
        if len(entries) != 1 or not entries[0].is_dir():
            return folder
        folder = entries[0]
