"""Decoding: libjpeg-turbo gives Pillow's pixels, and reduced scales stay close to the whole image."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter
from timm.data import create_transform

from favor.data.decoding import UndecodableImageError, decoded
from favor.data.framing import CropMode, Framing, center_cut, cut_batch, random_cut
from favor.data.image_files import FolderPlaces, ImageFiles


def picture(width: int = 61, height: int = 45, mode: str = "RGB") -> Image.Image:
    """Noise without its finest details, as in a photo."""
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(2)).convert(mode)


def jpeg(image: Image.Image, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", **options)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("RGB", {"subsampling": "4:2:0"}),
        ("RGB", {"subsampling": "4:2:2"}),
        ("RGB", {"subsampling": "4:4:4"}),
        ("RGB", {"progressive": True}),
        ("RGB", {"keep_rgb": True}),
        ("L", {}),
        ("CMYK", {}),
    ],
)
def test_every_jpeg_has_the_pixels_that_pillow_gives(mode: str, options: dict[str, object]) -> None:
    encoded = jpeg(picture(mode=mode), **options)
    with Image.open(io.BytesIO(encoded)) as image:
        expected = np.asarray(image.convert("RGB"))
    result = decoded(encoded)
    assert np.array_equal(result.pixels, expected)
    assert (result.height, result.width) == (45, 61)


def test_a_torn_jpeg_is_broken() -> None:
    encoded = jpeg(picture())
    with pytest.raises(UndecodableImageError, match="Truncated"):
        decoded(encoded[: len(encoded) // 2])


def test_an_empty_file_is_called_empty() -> None:
    with pytest.raises(UndecodableImageError, match="the file is empty"):
        decoded(b"")


def test_what_libjpeg_only_warns_about_is_decoded() -> None:
    encoded = jpeg(picture())
    result = decoded(encoded[:-2] + b"more" + encoded[-2:])
    assert np.array_equal(result.pixels, decoded(encoded).pixels)


@pytest.mark.parametrize(
    ("side", "shape"), [(240, (240, 320)), (241, (480, 640)), (181, (240, 320)), (120, (120, 160)), (10, (60, 80))]
)
def test_a_jpeg_is_reduced_to_a_half_or_less_if_enough_pixels_are_left(side: int, shape: tuple[int, int]) -> None:
    result = decoded(jpeg(picture(640, 480)), side)
    assert result.pixels.shape[:2] == shape
    assert (result.height, result.width) == (480, 640)


def test_training_crops_of_reduced_jpegs_stay_close_to_those_of_whole_ones(tmp_path: Path) -> None:
    picture(320, 240).save(tmp_path / "a.jpg", quality=95)
    files = ImageFiles(FolderPlaces(tmp_path, ["a.jpg"]), np.zeros(1, dtype=np.int64))
    cut = random_cut(Framing(100, padding=4), 0, 0, np.array([0]))
    assert cut.may_reduce
    assert not center_cut(Framing(100), 1).may_reduce
    whole = type(cut)(cut.side, cut.img_size, cut.padding, cut.top, cut.left)
    samples = np.array([0])
    reduced, exact = (files.fetch(samples, each).images.float() for each in (cut, whole))
    difference = (reduced - exact).abs().mean().item()
    assert 0 < difference < 1  # of 255


def test_resizing_gives_pillow_s_pixels_up_to_rounding(tmp_path: Path) -> None:
    picture(90, 70).save(tmp_path / "a.png")
    files = ImageFiles(FolderPlaces(tmp_path, ["a.png"]), np.zeros(1, dtype=np.int64))
    for side in (32, 100):
        result = files.fetch(np.array([0]), center_cut(Framing(side), 1)).images[0].permute(1, 2, 0).numpy()
        width = round(90 * side / 70)
        expected = np.asarray(picture(90, 70).resize((width, side), Image.Resampling.BICUBIC))
        left = (width - side + 1) // 2
        assert np.abs(result.astype(int) - expected[:, left : left + side].astype(int)).max() <= 2


@pytest.mark.parametrize("size", [(61, 45), (45, 100), (64, 46), (20, 20)])
@pytest.mark.parametrize("crop_ratio", [1.0, 0.8])
@pytest.mark.parametrize("mode", ["squash", "border"])
def test_squashed_and_bordered_images_are_those_of_timm(
    tmp_path: Path, mode: CropMode, crop_ratio: float, size: tuple[int, int]
) -> None:
    image = picture(*size)
    image.save(tmp_path / "a.png")
    mean = (0.485, 0.456, 0.406)
    transform = create_transform(
        (3, 32, 32), interpolation="bicubic", mean=mean, crop_pct=crop_ratio, crop_mode=mode, normalize=False
    )
    fill = (124, 116, 104)
    assert fill == tuple(round(255 * value) for value in mean)
    cut = center_cut(Framing(32, crop_ratio=crop_ratio, mode=mode, fill=fill), 1)
    files = ImageFiles(FolderPlaces(tmp_path, ["a.png"]), np.zeros(1, dtype=np.int64))
    in_memory = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)[None]
    for result in (files.fetch(np.array([0]), cut).images, cut_batch(in_memory, cut)):
        difference = (result[0].int() - transform(image).int()).abs()
        assert difference.max() <= 2
    if mode == "border" and size[0] != size[1]:
        assert tuple(result[0, :, 0, 0].tolist()) == fill
