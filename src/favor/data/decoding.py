"""From the bytes of an image file to pixels, within limits.

JPEGs go to libjpeg-turbo directly (simplejpeg), which takes half of Pillow's time for small images and gives the same
pixels. Pillow decodes all other formats, and decides about JPEGs that libjpeg-turbo warns about.
"""

import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from favor.data.framing import resized_shape
from favor.errors import one_line

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "PPM", "GIF")
"""The formats that are decoded. Pillow detects formats by content, and for some of them starts other programs."""
MOST_PIXELS = 89_478_485
"""Pillow's threshold for decompression bombs; the largest image of ImageNet has 60 million pixels."""
MOST_BYTES = 4 * MOST_PIXELS
_JPEG_START = b"\xff\xd8\xff"
_JPEG_SCAN, _JPEG_END = b"\xda", b"\xd9"
_JPEG_MARKER = re.compile(rb"\xff([\xc0-\xcf\xd9-\xfe])")  # what stands in the data of a scan is escaped
_MOST_SCANS = 100
"""A progressive JPEG has about ten; each takes as long as decoding the whole image, and 14 bytes."""
_HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1", b"avif", b"avis")
_ORIENTATION = 0x0112  # in EXIF
_TURNED: dict[int, Callable[[NDArray[np.uint8]], NDArray[np.uint8]]] = {
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.transpose(1, 0, 2),
    6: lambda pixels: np.rot90(pixels, -1),
    7: lambda pixels: np.rot90(pixels, 2).transpose(1, 0, 2),
    8: np.rot90,
}
"""EXIF's orientation -> what turns the stored pixels upright."""
_HEADER = 2**17
"""Bytes at the start of a JPEG in which its EXIF data begin: one segment before them has at most 64 KiB."""
_THUMBNAIL_SIDE = 256
_LEAST_REDUCTION = 2
"""libjpeg-turbo decodes to 7/8, 6/8 and so on too, but without vector instructions: slower than the whole image."""


class UndecodableImageError(Exception):
    """Bytes that are not a usable image, and why."""


@dataclass(frozen=True)
class Decoded:
    """RGB pixels (H, W, 3), and the size of the image, which is larger if it was decoded at a reduced scale."""

    pixels: NDArray[np.uint8]
    height: int
    width: int


def decoded(encoded: bytes, side: int | None = None, upright: bool = False) -> Decoded:
    """The image as RGB; grayscale gets three equal channels, 16 bits become 8, transparency becomes white.

    With `upright`, it is rotated by its EXIF orientation. With `side`, a JPEG is decoded at a half of its size or less
    (eighths) where that leaves at least the pixels that it will be resized to: the given length of its shorter side.
    """
    is_jpeg = encoded.startswith(_JPEG_START)
    if is_jpeg and _scans(encoded) > _MOST_SCANS:
        raise UndecodableImageError(f"a JPEG of more than {_MOST_SCANS} scans")
    jpeg = _turbo(encoded, side) if is_jpeg else None
    if jpeg is not None and not (upright and b"Exif" in encoded[:_HEADER]):  # without opening it in Pillow, too
        return jpeg
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(encoded), formats=FORMATS) as image:
            check_size(image.width, image.height)
            stored = jpeg or Decoded(np.array(_rgb(image)), image.height, image.width)
            return _upright(stored, image) if upright else stored
    except UndecodableImageError:
        raise
    except Exception as error:
        raise _undecodable(error, encoded) from error


def thumbnail(encoded: bytes) -> bytes:
    """The image as a small JPEG without metadata."""
    image, jpeg = Image.fromarray(decoded(encoded, _THUMBNAIL_SIDE, upright=True).pixels), io.BytesIO()
    image.thumbnail((_THUMBNAIL_SIDE, _THUMBNAIL_SIDE))
    image.save(jpeg, "JPEG", quality=80)
    return jpeg.getvalue()


def format_of(encoded: bytes) -> str:
    """The format of an image, from its header alone.

    >>> format_of(b"P5 1 1 255 x")
    'PPM'
    """
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(encoded), formats=FORMATS) as image:
            return str(image.format)
    except Exception as error:
        raise _undecodable(error, encoded) from error


def check_size(width: int, height: int) -> None:
    """Refuse images of too many pixels."""
    if width * height > MOST_PIXELS:
        megapixels = f"{width * height / 1e6:,.0f} megapixels"
        raise UndecodableImageError(
            f"{width} x {height} pixels; {megapixels} exceed the limit of {MOST_PIXELS / 1e6:.0f}"
        )


def _scans(encoded: bytes) -> int:
    """How many scans a JPEG has, up to one more than the limit; what follows its end, as a phone's video, is not read.

    >>> _scans(b"\\xff\\xd8\\xff\\xda\\x00\\x02 \\xff\\x00 \\xff\\xd9 \\xff\\xda\\xff\\xda")
    1
    """
    scans = at = 0
    while scans <= _MOST_SCANS and (marker := _JPEG_MARKER.search(encoded, at)) and marker[1] != _JPEG_END:
        scans += marker[1] == _JPEG_SCAN
        at = marker.end() + int.from_bytes(encoded[marker.end() : marker.end() + 2])
    return scans


def _turbo(encoded: bytes, side: int | None) -> Decoded | None:
    """A JPEG decoded by libjpeg-turbo; None for colors it does not convert, and where it warns or fails."""
    try:
        height, width, colors, _ = simplejpeg.decode_jpeg_header(encoded)
        if colors not in ("YCbCr", "Gray"):
            return None
        check_size(width, height)
        if side is None:
            return Decoded(simplejpeg.decode_jpeg(encoded, "RGB"), height, width)
        least_height, least_width = resized_shape(height, width, side)
        pixels = simplejpeg.decode_jpeg(
            encoded, "RGB", min_height=least_height, min_width=least_width, min_factor=_LEAST_REDUCTION
        )
        return Decoded(pixels, height, width)
    except ValueError:
        return None


def _upright(stored: Decoded, image: Image.Image) -> Decoded:
    """The pixels as the camera was held."""
    try:
        orientation = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # noqa: BLE001 - Pillow may raise anything on malformed EXIF, without which an image is upright
        return stored
    if orientation not in _TURNED:
        return stored
    pixels = np.ascontiguousarray(_TURNED[orientation](stored.pixels))
    size = (stored.width, stored.height) if orientation >= 5 else (stored.height, stored.width)
    return Decoded(pixels, *size)


def _undecodable(error: Exception, encoded: bytes) -> UndecodableImageError:
    """The reason of an error that Pillow's plugins raised, which on malformed bytes may be any."""
    if isinstance(error, UnidentifiedImageError):  # its own message shows an object's address
        if encoded[4:8] == b"ftyp" and encoded[8:12] in _HEIF_BRANDS:
            return UndecodableImageError("a HEIC or AVIF image, which favor cannot read; convert it to JPEG")
        if not encoded:
            return UndecodableImageError("the file is empty")
        return UndecodableImageError(f"not an image in one of the formats {', '.join(FORMATS)}")
    return UndecodableImageError(f"{type(error).__name__}: {one_line(error)}")


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # PIL would clip these at 255, which makes them white
        grey = np.asarray(image).astype(np.int64) >> 8
        return Image.fromarray(grey.clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise UndecodableImageError("its pixels are floats, whose range is unknown")
    if image.has_transparency_data:
        visible = image.convert("RGBA")
        white = Image.new("RGBA", visible.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, visible).convert("RGB")
    return image.convert("RGB")
