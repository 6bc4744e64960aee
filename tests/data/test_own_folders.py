"""Folders of images as people have them: read right, or refused in one line that says what to do."""

import gc
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data.made_up import save_image
from favor.data.class_folders import count_training_images, images_below
from favor.data.decoding import UndecodableImageError, decoded, thumbnail
from favor.data.folder import images_by_class, open_with_evaluation
from favor.data.framing import Framing, center_cut, random_cut
from favor.data.image_files import LONG_SIDE, FolderPlaces, ImageFiles, SmallSet, in_memory_if_small
from favor.data.opening import open_data, open_for_evaluation
from favor.data.sources import DataSet, ImageSource
from favor.errors import RequestError


def photos(root: Path, count: int = 5, classes: tuple[str, ...] = ("ant", "bee"), ending: str = "png") -> Path:
    for label, name in enumerate(classes):
        for k in range(count):
            save_image(root / name / f"{k}.{ending}", 100 * label + k)
    return root


def opened(root: Path) -> DataSet:
    return open_data(f"folder:{root}")


def names(source: ImageSource) -> list[str]:
    assert isinstance(source, ImageFiles)
    assert isinstance(source.places, FolderPlaces)
    return source.places.relative


def refusal(root: Path) -> str:
    with pytest.raises(RequestError) as refused:
        opened(root)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_folder_without_a_split_gives_a_fifth_of_each_class_to_evaluation(tmp_path: Path) -> None:
    data = opened(photos(tmp_path, 10))
    assert np.bincount(data.train.labels).tolist() == [8, 8]
    assert np.bincount(data.evaluation.labels).tolist() == [2, 2]
    assert not set(names(data.train)) & set(names(data.evaluation))


def test_the_split_is_the_same_in_another_place_and_in_every_order_of_the_files(tmp_path: Path) -> None:
    first = names(opened(photos(tmp_path / "here")).evaluation)
    for name in ("bee", "ant"):
        for k in reversed(range(5)):
            save_image(tmp_path / "there" / name / f"{k}.png", 0)
    assert names(opened(tmp_path / "there").evaluation) == first


def test_two_images_per_class_are_enough_and_one_is_not(tmp_path: Path) -> None:
    data = opened(photos(tmp_path / "two", 2))
    assert (len(data.train), len(data.evaluation)) == (2, 2)
    assert "has no image to learn from; put two or more into each class folder" in refusal(photos(tmp_path / "one", 1))


def test_a_class_of_one_image_among_larger_ones_is_learned_from_and_not_evaluated(tmp_path: Path) -> None:
    photos(tmp_path, 5)
    save_image(tmp_path / "cat" / "0.png", 0)
    data = opened(tmp_path)
    assert np.bincount(data.train.labels, minlength=3).tolist() == [4, 4, 1]
    assert np.bincount(data.evaluation.labels, minlength=3).tolist() == [1, 1, 0]


def test_one_class_is_refused(tmp_path: Path) -> None:
    assert f"{tmp_path}: only one class, 'ant'; it needs two or more" in refusal(photos(tmp_path, classes=("ant",)))


def test_an_empty_class_folder_is_refused_by_its_name(tmp_path: Path) -> None:
    (photos(tmp_path) / "cat").mkdir()
    assert "class 'cat' has no image to learn from; put two or more into each" in refusal(tmp_path)


def test_images_outside_of_all_class_folders_are_refused(tmp_path: Path) -> None:
    save_image(photos(tmp_path) / "stray.jpg", 1)
    assert "1 image outside of the class folders, such as 'stray.jpg'; move it" in refusal(tmp_path)


@pytest.mark.parametrize("place", [".", "train", "val"])
def test_images_outside_of_all_class_folders_are_refused_in_every_part_of_a_split(tmp_path: Path, place: str) -> None:
    photos(tmp_path / "train")
    photos(tmp_path / "val")
    assert len(opened(tmp_path).evaluation) == 10
    save_image(tmp_path / place / "stray.jpg", 1)
    assert f"{tmp_path / place}: 1 image outside of the class folders, such as 'stray.jpg'" in refusal(tmp_path)


@pytest.mark.parametrize(("split", "place"), [(".", "."), ("val", "."), ("val", "val")])
def test_images_outside_of_all_class_folders_are_refused_in_an_evaluation(
    tmp_path: Path, split: str, place: str
) -> None:
    photos(tmp_path / split)
    assert len(open_for_evaluation(f"folder:{tmp_path}", ("ant", "bee"), whole=True).evaluation) == 10
    save_image(tmp_path / place / "stray.jpg", 1)
    with pytest.raises(RequestError, match="1 image outside of the class folders, such as 'stray.jpg'"):
        open_for_evaluation(f"folder:{tmp_path}", ("ant", "bee"), whole=True)


def test_files_and_folders_that_programs_leave_behind_are_not_images_and_not_classes(tmp_path: Path) -> None:
    photos(tmp_path)
    for litter in (".DS_Store", "Thumbs.db", "desktop.ini", "._0.png"):
        (tmp_path / "ant" / litter).write_bytes(b"litter")
        (tmp_path / litter).write_bytes(b"litter")
    for folder in ("__MACOSX", ".thumbnails", "@eaDir"):
        save_image(tmp_path / folder / "0.png", 9)
        save_image(tmp_path / "ant" / folder / "0.png", 9)
    data = opened(tmp_path)
    assert data.classes == ("ant", "bee")
    assert len(data.train) + len(data.evaluation) == 10


@pytest.mark.parametrize("ending", ["JPG", "JPEG", "Png", "webp", "WEBP", "bmp", "tiff", "GIF"])
def test_endings_are_read_in_any_case(tmp_path: Path, ending: str) -> None:
    data = opened(photos(tmp_path, 2, ending=ending))
    fetched = data.train.fetch(np.arange(2), center_cut(Framing(8), 2))
    assert not fetched.broken
    assert abs(int(fetched.images[1, 0, 0, 0]) - 100) < 4


def test_heic_images_are_refused_with_what_to_do_also_under_another_name(tmp_path: Path) -> None:
    photos(tmp_path)
    content = b"\0\0\0\x18ftypheic" + bytes(20)
    (tmp_path / "ant" / "IMG_1.HEIC").write_bytes(content)
    said = refusal(tmp_path)
    assert "1 image in a format that favor does not read, such as 'IMG_1.HEIC'; convert to JPEG" in said
    assert images_below(tmp_path / "ant")[1] == ["IMG_1.HEIC"]
    (tmp_path / "ant" / "IMG_1.HEIC").rename(tmp_path / "ant" / "9.jpg")
    fetched = images_by_class(tmp_path, ("ant", "bee")).fetch(np.array([5]), center_cut(Framing(8), 1))
    assert fetched.broken[0].reason == "a HEIC or AVIF image, which favor cannot read; convert it to JPEG"


@pytest.mark.parametrize("ending", ["avif", "HIF", "DNG", "CR3", "NEF", "ARW", "RAF", "RW2", "orf", "pef", "SRW"])
def test_images_in_formats_that_favor_does_not_read_are_refused(tmp_path: Path, ending: str) -> None:
    (photos(tmp_path) / "ant" / f"IMG_1.{ending}").write_bytes(b"raw")
    assert f"1 image in a format that favor does not read, such as 'IMG_1.{ending}'" in refusal(tmp_path)


def test_transparent_pixels_are_white_whatever_color_they_hide(tmp_path: Path) -> None:
    hidden = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    hidden.paste((200, 0, 0, 255), (0, 0, 4, 8))
    palette = hidden.convert("P")
    palette.info["transparency"] = palette.getpixel((7, 0))
    for number, image in enumerate((hidden, palette, Image.new("LA", (8, 8), (0, 0)))):
        image.save(tmp_path / f"{number}.png")
        pixels = decoded((tmp_path / f"{number}.png").read_bytes()).pixels
        assert pixels[0, 7].tolist() == [255, 255, 255]
    assert decoded((tmp_path / "0.png").read_bytes()).pixels[0, 0].tolist() == [200, 0, 0]


@pytest.mark.parametrize("side", [None, 32])
@pytest.mark.parametrize("ending", ["png", "jpg", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_photos_are_turned_as_the_camera_was_held(
    tmp_path: Path, orientation: int, ending: str, side: int | None
) -> None:
    from PIL import ImageOps

    pixels = np.zeros((64, 128, 3), dtype=np.uint8)
    pixels[:16, :32] = 255  # whole blocks of a JPEG
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = tmp_path / f"photo.{ending}"
    Image.fromarray(pixels).save(file, exif=exif, lossless=True)
    with Image.open(file) as image:
        expected = np.asarray(ImageOps.exif_transpose(image))
    found = decoded(file.read_bytes(), side, upright=True)
    assert (found.height, found.width) == expected.shape[:2] == ((64, 128) if orientation <= 4 else (128, 64))
    scale = 2 if side and ending == "jpg" else 1
    assert found.pixels.shape[:2] == (found.height // scale, found.width // scale)
    assert np.abs(found.pixels.astype(int) - expected[::scale, ::scale]).max() <= 2
    assert np.abs(decoded(file.read_bytes()).pixels.astype(int) - pixels).max() <= 2


def test_own_photos_are_turned_and_the_images_of_known_sets_are_not_as_in_timm(tmp_path: Path) -> None:
    top_is_white = np.zeros((8, 8, 3), dtype=np.uint8)
    top_is_white[:4] = 255
    upside_down = Image.Exif()
    upside_down[0x0112] = 3
    for split in ("train", "val", "test"):
        for number in range(1, 103):
            folder = tmp_path / split / f"{number:03d}"
            folder.mkdir(parents=True)
            Image.fromarray(top_is_white).save(folder / "photo.png", exif=upside_down)

    def top(source: ImageSource) -> int:
        return int(source.fetch(np.arange(1), center_cut(Framing(8), 1)).images[0, 0, 0, 0])

    own, known = opened(tmp_path), open_data(f"flowers102:{tmp_path}")
    assert [top(own.train), top(own.evaluation), top(in_memory_if_small(own.train, 8))] == [0, 0, 0]
    assert [top(known.train), top(known.evaluation), top(in_memory_if_small(known.train, 8))] == [255, 255, 255]
    again = open_with_evaluation(tmp_path / "train", own.classes, ["001/photo.png"])
    assert [top(again.train), top(again.evaluation)] == [0, 0]


def test_an_image_with_torn_exif_is_read_as_it_is(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8), (9, 9, 9)).save(tmp_path / "photo.jpg", exif=b"Exif\0\0II*\0\xff\xff\xff\xff\x01")
    assert decoded((tmp_path / "photo.jpg").read_bytes(), upright=True).pixels.shape == (8, 8, 3)


def test_grayscale_of_8_and_16_bits_is_read(tmp_path: Path) -> None:
    for name in ("ant", "bee"):
        save_image(tmp_path / name / "0.png", 50, mode="L")
        Image.fromarray(np.full((8, 8), 50 * 256, dtype=np.uint16)).save(tmp_path / name / "1.png")
    fetched = images_by_class(tmp_path, ("ant", "bee")).fetch(np.arange(4), center_cut(Framing(8), 4))
    assert fetched.images.unique().tolist() == [50]


@pytest.mark.parametrize("pair", [("train", "val"), ("Train", "Test"), ("training", "validation"), ("TRAIN", "valid")])
def test_splits_that_are_there_are_used_in_whatever_case(tmp_path: Path, pair: tuple[str, str]) -> None:
    photos(tmp_path / pair[0], 3)
    photos(tmp_path / pair[1], 2)
    data = opened(tmp_path)
    assert (data.classes, len(data.train), len(data.evaluation)) == (("ant", "bee"), 6, 4)


def test_a_split_with_training_images_only_says_how_to_have_it_split(tmp_path: Path) -> None:
    photos(tmp_path / "train")
    assert refusal(tmp_path).endswith(f"add one, or pass {tmp_path}/train to split it")


def test_a_split_whose_test_images_have_no_classes_says_how_to_have_the_training_images_split(tmp_path: Path) -> None:
    photos(tmp_path / "train")
    save_image(tmp_path / "test" / "1.jpg", 1)  # as on Kaggle
    assert refusal(tmp_path) == (
        f"{tmp_path}: test/ has no class folders, so its images have no labels; add them, or pass {tmp_path}/train to "
        "split it"
    )


def test_the_folder_that_one_is_in_is_called_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(photos(tmp_path / "bugs"))
    assert Path(open_data("folder:.").place).name == "bugs"
    monkeypatch.chdir(tmp_path / "bugs" / "ant")
    assert Path(open_data("folder:..").place).name == "bugs"
    assert open_data("folder:../../bugs").place == "../../bugs"


def test_class_names_keep_their_spaces_and_letters(tmp_path: Path) -> None:
    classes = ("Gänse blümchen", "rød=rose", "雏菊")
    assert opened(photos(tmp_path, classes=classes)).classes == classes


def test_accents_that_are_written_in_two_ways_are_one_class(tmp_path: Path) -> None:
    photos(tmp_path / "train", classes=("ant", "caf\u00e9"))
    photos(tmp_path / "val", classes=("ant", "cafe\u0301"))
    assert np.bincount(opened(tmp_path).evaluation.labels).tolist() == [5, 5]


def test_a_class_name_that_no_terminal_can_show_is_refused(tmp_path: Path) -> None:
    photos(tmp_path)
    (tmp_path / os.fsdecode(b"b\xff\xfe")).mkdir()
    assert "is not a valid class name; rename it" in refusal(tmp_path)


def test_images_in_folders_below_a_class_belong_to_it(tmp_path: Path) -> None:
    photos(tmp_path)
    save_image(tmp_path / "ant" / "2024" / "june" / "7.png", 7)
    data = opened(tmp_path)
    assert "ant/2024/june/7.png" in names(data.train) + names(data.evaluation)


def test_links_to_folders_and_files_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    photos(tmp_path / "album")
    photos(tmp_path / "disk", classes=("june",))
    ant = tmp_path / "album" / "ant"
    for name, target in (("2024", tmp_path / "disk"), ("all", tmp_path / "album"), ("itself", Path("itself"))):
        (ant / name).symlink_to(target)
    (tmp_path / "disk" / "back").symlink_to(ant)
    (ant / "5.png").symlink_to(ant / "4.png")
    images, _ = images_below(ant)
    linked = [f"{place}/{k}.png" for place in ("2024/june", "all/bee") for k in range(5)]
    assert images == sorted([*linked, *(f"{k}.png" for k in range(6))])


def test_the_evaluation_images_of_a_training_stay_its_own_when_more_images_come(tmp_path: Path) -> None:
    before = names(opened(photos(tmp_path)).evaluation)
    photos(tmp_path, 40)
    again = open_with_evaluation(tmp_path, ("ant", "bee"), before)
    assert names(again.evaluation) == before
    assert len(again.train) == 80 - len(before)


def test_training_images_are_counted_without_opening_them(tmp_path: Path) -> None:
    assert count_training_images(photos(tmp_path / "whole", 10)) == 16
    photos(tmp_path / "split" / "train", 3)
    photos(tmp_path / "split" / "val", 2)
    assert count_training_images(tmp_path / "split") == 6


def test_a_small_set_in_memory_gives_the_same_crops_and_the_same_broken_images(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "a").mkdir()
    for k in range(3):
        Image.fromarray(rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(tmp_path / "a" / f"{k}.png")
    (tmp_path / "a" / "3.png").write_bytes(b"not an image")
    files = images_by_class(tmp_path, ("a",))
    small = in_memory_if_small(files, 16)
    assert isinstance(small, SmallSet)
    assert in_memory_if_small(files, 5000) is files
    samples = np.arange(4)
    squashed = center_cut(Framing(16, crop_ratio=0.8, mode="squash"), 4)
    for _ in range(2):
        for cut in (center_cut(Framing(16, crop_ratio=0.8), 4), squashed, random_cut(Framing(16, 2), 0, 1, samples)):
            one, other = files.fetch(samples, cut), small.fetch(samples, cut)
            assert (one.images == other.images).all()
            assert one.samples.tolist() == other.samples.tolist() == [0, 1, 2]
            assert one.broken == other.broken
    for file in (tmp_path / "a").iterdir():
        file.unlink()
    assert len(small.fetch(samples, center_cut(Framing(16, crop_ratio=0.8), 4)).samples) == 3


def test_a_set_in_memory_keeps_no_exception_whose_traceback_would_keep_a_batch(tmp_path: Path) -> None:
    photos(tmp_path, 2)
    (tmp_path / "ant" / "0.png").write_bytes(b"not an image")
    small = in_memory_if_small(images_by_class(tmp_path, ("ant", "bee")), 8)
    for _ in range(2):
        fetched = small.fetch(np.arange(4), center_cut(Framing(8), 4))
        assert (fetched.samples.tolist(), len(fetched.broken)) == ([1, 2, 3], 1)
    gc.collect()
    assert not [kept for kept in gc.get_objects() if type(kept) is UndecodableImageError]


def test_panoramas_take_no_more_than_twice_the_memory_of_a_small_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    side, width = 16, 128
    for k in range(4):
        save_image(tmp_path / "a" / f"{k}.png", 50 * k, (width, side))
    estimated = int(4 * 3 * LONG_SIDE * side**2)
    monkeypatch.setattr("favor.data.image_files.SMALL_SET", estimated)
    small, cut = in_memory_if_small(images_by_class(tmp_path, ("a",)), side), center_cut(Framing(side), 4)
    assert isinstance(small, SmallSet)
    for _ in range(2):
        assert small.fetch(np.arange(4), cut).images[:, 0, 0, 0].tolist() == [0, 50, 100, 150]
    for file in (tmp_path / "a").iterdir():
        file.unlink()
    in_memory = small.fetch(np.arange(4), cut).samples.tolist()
    assert in_memory == [0]
    assert len(in_memory) * 3 * side * width <= 2 * estimated < (len(in_memory) + 1) * 3 * side * width


def test_a_thumbnail_is_small_and_tells_nothing_but_its_pixels(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x010E] = "home"
    Image.new("RGB", (900, 300), (9, 9, 9)).save(tmp_path / "a.jpg", exif=exif)
    small = thumbnail((tmp_path / "a.jpg").read_bytes())
    assert b"home" not in small
    assert decoded(small).pixels.shape == (85, 256, 3)
