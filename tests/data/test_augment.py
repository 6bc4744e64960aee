"""Batched augmentations equal torchvision's, image by image, with the same numbers."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as tv

from favor.data.augment import (
    Augmentation,
    Batch,
    Key,
    Normalization,
    augmented,
    blurred,
    color_jittered,
    cutmixed,
    flipped,
    luma,
    three_augmented,
)
from favor.data.draws import Draw
from favor.data.framing import Cut, Framing, center_cut, cut_batch, random_cut
from favor.errors import RequestError

KEY = Key(seed=3, epoch=5, samples=np.arange(100, 124))
ALL = Augmentation(flip=0.5, grey=1 / 3, solarize=1 / 3, blur=1 / 3, color_jitter=0.3, cutmix=1.0)


def pictures(count: int = 24, height: int = 20, width: int = 20, seed: int = 0) -> Tensor:
    return torch.rand(count, 3, height, width, generator=torch.Generator().manual_seed(seed))


def squares(count: int = 24, height: int = 20, width: int = 20) -> Tensor:
    return (pictures(count, height, width) * 256).to(torch.uint8)


def close(a: Tensor, b: Tensor, within: float = 1e-5) -> bool:
    return float((a - b).abs().max()) < within


def test_flipping_mirrors_the_images_whose_draw_is_below_the_probability() -> None:
    images, flips = pictures(), KEY.uniform(Draw.FLIP) < 0.5
    assert 0 < flips.sum() < 24
    for image, result, flip in zip(images, flipped(images, KEY, 0.5), flips, strict=True):
        assert torch.equal(result, tv.horizontal_flip(image) if flip else image)


def test_color_jitter_is_torchvisions_with_factors_and_order_of_each_image() -> None:
    images = pictures()
    factors = [KEY.uniform(draw, 0.7, 1.3) for draw in (Draw.BRIGHTNESS, Draw.CONTRAST, Draw.SATURATION)]
    orders = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    picked = (KEY.uniform(Draw.JITTER_ORDER) * 6).astype(int)
    assert len(set(picked)) == 6
    changes = (tv.adjust_brightness, tv.adjust_contrast, tv.adjust_saturation)
    results = color_jittered(images, KEY, 0.3)
    for k, image in enumerate(images):
        for operation in orders[picked[k]]:
            image = changes[operation](image, float(factors[operation][k]))
        assert close(results[k], image, 2e-4)  # torchvision weighs red with 0.2989
        assert not close(results[k], image * 1.03, 2e-4)


def test_three_augment_does_exactly_one_of_its_three_to_every_image() -> None:
    images = pictures()
    results = three_augmented(images, KEY, ALL)
    kinds = set()
    sigmas = KEY.uniform(Draw.BLUR_SIGMA, 0.2, 2.0)
    for k, (image, result) in enumerate(zip(images, results, strict=True)):
        blur = blurred(image[None], torch.tensor(sigmas[k : k + 1]).float())[0]
        candidates = {
            "grey": tv.rgb_to_grayscale(image, num_output_channels=3),
            "solarize": tv.solarize(image, 128 / 255),
            "blur": blur,
        }
        fitting = [name for name, candidate in candidates.items() if close(result, candidate, 2e-4)]
        assert len(fitting) == 1
        kinds.update(fitting)
    assert kinds == {"grey", "solarize", "blur"}


def test_the_shares_of_three_augment_are_those_asked_for() -> None:
    key = Key(0, 0, np.arange(3000))
    images = torch.tensor([0.9, 0.5, 0.1]).view(1, 3, 1, 1).expand(3000, 3, 2, 2).contiguous()
    results = three_augmented(images, key, Augmentation(grey=0.2, solarize=0.5))
    grey = (results[:, 0] == results[:, 2]).all((1, 2))
    untouched = (results == images).all((1, 2, 3))
    assert float(grey.float().mean()) == pytest.approx(0.2, abs=0.04)
    assert float(untouched.float().mean()) == pytest.approx(0.3, abs=0.04)


def test_blur_is_torchvisions_away_from_the_border_and_keeps_even_areas() -> None:
    images, sigmas = pictures(3, 40, 36), torch.tensor([0.2, 1.0, 2.0])
    results = blurred(images, sigmas)
    for image, result, sigma in zip(images, results, sigmas, strict=True):
        expected = tv.gaussian_blur(image, [25, 25], [float(sigma)] * 2)
        assert close(result[:, 12:-12, 12:-12], expected[:, 12:-12, 12:-12])
    even = torch.full((1, 3, 8, 8), 0.7)
    assert close(blurred(even, torch.tensor([2.0])), even)


def test_luma_is_the_brightness_of_television() -> None:
    assert close(luma(pictures()), tv.rgb_to_grayscale(pictures()), 2e-4)


def test_cutmix_takes_a_box_of_the_neighbor_and_tells_the_share_that_is_left() -> None:
    images = torch.arange(24.0).view(24, 1, 1, 1).expand(24, 3, 16, 16)
    results, share = cutmixed(images, KEY, 1.0)
    for k in range(24):
        own = results[k, 0] == k
        assert torch.equal(~own, results[k, 0] == (k - 1) % 24)
        assert float(own.float().mean()) == pytest.approx(float(share[k]))
        rows, columns = (~own).any(1).sum(), (~own).any(0).sum()
        assert int((~own).sum()) == int(rows * columns)  # a box, not a scatter
    assert share.min() < 0.5 < share.max()


def test_the_share_of_cutmix_before_the_border_cuts_it_off_is_uniform() -> None:
    key = Key(0, 0, np.arange(4000))
    _, share = cutmixed(torch.zeros(4000, 1, 8, 8), key, 1.0)
    _, half = cutmixed(torch.zeros(4000, 1, 8, 8), key, 0.5)
    assert float(share.mean()) > 0.5  # boxes are cut off at the border
    assert float((half == 1).float().mean()) - float((share == 1).float().mean()) / 2 == pytest.approx(0.5, abs=0.05)


def test_targets_are_distributions_with_the_weight_where_the_pixels_are() -> None:
    batch = Batch(
        torch.zeros(2, 3, 4, 4), torch.tensor([0, 1]), np.array([0, 1]), torch.tensor([1, 1]), torch.tensor([0.75, 0.4])
    )
    assert close(batch.targets(4), torch.tensor([[0.75, 0.25, 0, 0], [0, 1.0, 0, 0]]))
    smooth = batch.targets(4, 0.2)
    assert close(smooth, 0.8 * batch.targets(4) + 0.05)
    assert close(smooth.sum(1), torch.ones(2))


def test_a_sample_looks_the_same_whatever_batch_it_is_in() -> None:
    everything_but_cutmix = Augmentation(0.5, 1 / 3, 1 / 3, 1 / 3, 0.3)
    labels = torch.arange(24)

    def batch(part: slice) -> Tensor:
        key = Key(KEY.seed, KEY.epoch, KEY.samples[part])
        return augmented(squares()[part], labels[part], key, everything_but_cutmix, Normalization()).images

    whole = batch(slice(None))
    assert close(torch.cat([batch(slice(0, 7)), batch(slice(7, None))]), whole)
    later = augmented(squares(), labels, Key(3, 6, KEY.samples), everything_but_cutmix, Normalization()).images
    assert not close(later, whole, 0.1)


def test_normalization_takes_off_the_mean_and_divides_by_the_deviation() -> None:
    batch = augmented(squares(), torch.zeros(24, dtype=torch.long), KEY, Augmentation(), Normalization())
    expected = tv.normalize(squares().float() / 255, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    assert close(batch.images, expected)


@pytest.mark.parametrize("wrong", [{"flip": 1.5}, {"cutmix": -0.1}, {"grey": 0.6, "blur": 0.6}])
def test_probabilities_that_are_none_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(RequestError, match="augmentation"):
        Augmentation(**wrong)


def test_a_random_crop_is_a_window_of_the_image_padded_by_reflection() -> None:
    images = squares(24, 20, 26)
    cut = random_cut(Framing(20, padding=4), 0, 0, np.arange(24))
    results = cut_batch(images, cut)
    padded = tv.pad(images, [4, 4], padding_mode="reflect")
    windows = padded.unfold(2, 20, 1).unfold(3, 20, 1)  # (B, 3, positions, positions, 20, 20)
    found = set()
    for k in range(24):
        same = (windows[k] == results[k][:, None, None]).all(-1).all(-1).all(0).nonzero()
        assert len(same) == 1
        found.add(tuple(same[0].tolist()))
    assert len(found) > 15


def test_every_position_of_a_random_crop_is_as_likely() -> None:
    image = torch.arange(8, dtype=torch.uint8).view(1, 1, 8, 1).expand(4000, 3, 8, 8)
    results = cut_batch(image, random_cut(Framing(8, padding=2), 0, 0, np.arange(4000)))
    second_rows = results[:, 0, 3, 0].bincount()  # row 3 of the window shows rows 1 to 5 of the image
    assert second_rows[1:6].min() > 650
    assert int(second_rows.sum()) == int(second_rows[1:6].sum())


def test_the_center_cut_is_torchvisions_resize_and_center_crop() -> None:
    images = squares(4, 30, 40)
    results = cut_batch(images, center_cut(Framing(14, crop_ratio=0.875), 4))
    expected = tv.center_crop(tv.resize(images, [16], interpolation=tv.InterpolationMode.BICUBIC, antialias=True), [14])
    assert (results.int() - expected.int()).abs().max() <= 1


def test_an_image_of_the_right_size_is_left_alone_by_the_center_cut() -> None:
    assert torch.equal(cut_batch(squares(), center_cut(Framing(20), 24)), squares())


def test_a_frame_that_cannot_be_is_refused() -> None:
    with pytest.raises(RequestError, match="the side must be 1 or more"):
        Framing(0)
    with pytest.raises(RequestError, match="a border needs a color"):
        Framing(8, mode="border")


@pytest.mark.parametrize(("img_size", "crop_ratio"), [(10**9, 1.0), (224, 1e-9)])
def test_a_frame_for_which_images_would_be_enlarged_without_limit_is_refused(img_size: int, crop_ratio: float) -> None:
    with pytest.raises(RequestError, match="images would be resized to more than 65,536 pixels"):
        Framing(img_size, crop_ratio=crop_ratio)


def test_padding_larger_than_the_image_is_reflected_again_and_again() -> None:
    cut = Cut(2, 2, 5, np.array([0.0]), np.array([0.0]))
    image = torch.tensor([[0, 1], [2, 3]], dtype=torch.uint8).expand(1, 3, 2, 2)
    assert cut_batch(image, cut)[0, 0].tolist() == [[3, 2], [1, 0]]
