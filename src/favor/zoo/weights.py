"""Loading weights into a model of another image size or another number of classes."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from favor.errors import RequestError, shown
from favor.zoo.timm_models import has_square_windows, resample_timm

_log = logging.getLogger("favor.zoo")


@runtime_checkable
class Resamples(Protocol):
    """A part that owns weights with a token axis and knows how to bring them from another grid to its own."""

    def resample(self, name: str, weight: Tensor) -> Tensor:
        """The weight `name` of this part for its own tokens; raise RequestError where there is no sense in it."""
        ...


@runtime_checkable
class DrawsMore(Protocol):
    """A part that owns random numbers, of which another number of tokens needs more or fewer."""

    def draw_more(self, name: str, numbers: Tensor) -> Tensor:
        """The numbers `name` that are there, cut or with more of them, the same ones at every loading."""
        ...


@runtime_checkable
class TakesOtherNames(Protocol):
    """A model whose weights are also published under other names."""

    def own_names(self, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The state under this model's names, under which it may be already."""
        ...


@dataclass(frozen=True)
class Loaded:
    """What loading did besides copying: weights resampled, those left as they were, and random numbers drawn anew.

    `not_finite` are weights that were copied although they hold NaN or infinity.
    """

    resampled: tuple[str, ...]
    replaced: tuple[str, ...]
    drawn: tuple[str, ...] = ()
    not_finite: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = []
        if self.resampled:
            said.append("resampled to the new token grid: " + ", ".join(self.resampled))
        if self.drawn:
            said.append("random numbers kept, and what is missing drawn anew: " + ", ".join(self.drawn))
        if self.replaced:
            said.append("new head, since the weights have none for these classes: " + ", ".join(self.replaced))
        if self.not_finite:
            said.append("weights that are not finite: " + _some(self.not_finite))
        return "; ".join(said) or "all weights copied as they are"


def load_weights(model: nn.Module, state: Mapping[str, Tensor], img_size: tuple[int, int] | None = None) -> Loaded:
    """Copy weights into a model; resample those with a token axis, and leave a head of other classes untrained.

    `img_size` is (height, width) of the images that the weights were made for; weights do not tell it themselves, and
    unless it is given they are taken to be made for square ones.

    >>> print(load_weights(vit_at_384_px, vit_at_224_px.state_dict()))  # doctest: +SKIP
    resampled to the new token grid: positions.weight
    """
    _check_aspect_ratio(model, img_size)
    if isinstance(model, TakesOtherNames):
        state = model.own_names(state)
    own = model.state_dict()
    heads = head_names(model)
    shared = {name: state[first] for name, first in _first_names(model).items() if first in state}
    state = {**shared, **state}
    unknown = [name for name in state if name not in own]
    without_head = not any(_under(name, heads) for name in state)
    missing = [name for name in own if name not in state and not (without_head and _under(name, heads))]
    if unknown or missing:
        raise RequestError(
            f"the weights are of another architecture than {type(model).__name__}: "
            f"{len(unknown)} unknown ({_some(unknown)}), {len(missing)} missing ({_some(missing)})"
        )
    _check_types(state, own)
    resampled: list[str] = []
    replaced: list[str] = []
    drawn: list[str] = []
    fitted: dict[str, Tensor] = {}
    for name, weight in own.items():
        given = state.get(name)
        if given is not None and given.shape == weight.shape:
            fitted[name] = given
        elif _under(name, heads):
            fitted[name] = weight
            replaced.append(name)
        else:
            assert given is not None  # noqa: S101 - a missing name was refused above
            fitted[name] = _resample(model, name, given, weight)
            (drawn if isinstance(_owner(model, name), DrawsMore) else resampled).append(name)
    # A mask of the model's own may hold infinities, and is no sign of a broken file.
    not_finite = tuple(name for name, given in fitted.items() if _is_finite(own[name]) and not _is_finite(given))
    if not_finite:
        _log.warning("the weights hold NaN or infinity in %s; the file is broken", _some(not_finite))
    model.load_state_dict(fitted)
    return Loaded(tuple(resampled), tuple(replaced), tuple(drawn), not_finite)


def _check_types(state: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    """Refuse numbers of another kind: they would be cast without a word, integers to weights of no meaning."""
    for name, given in state.items():
        if given.is_meta:
            raise RequestError(f"weight {shown(name)} is a meta tensor, which has a shape but no numbers")
        if given.layout != torch.strided or given.is_quantized or _kind(given) != _kind(own[name]):
            raise RequestError(
                f"weight {name!r} has the type {given.dtype}, which cannot hold what the model has there "
                f"({own[name].dtype}); was the file quantized, or made by another program?"
            )


def _kind(weight: Tensor) -> str:
    if weight.dtype == torch.bool:
        return "bool"
    if weight.is_floating_point() and weight.element_size() == 1:
        return "scaled"  # 8 bits hold a weight only together with a scale, which the file has under another name
    return "floating point" if weight.is_floating_point() else "complex" if weight.is_complex() else "integer"


def _is_finite(weight: Tensor) -> bool:
    return bool(torch.isfinite(weight.float() if weight.is_floating_point() else weight).all())


def _some(names: Sequence[str]) -> str:
    """The first names of many; those of a file may be anything."""
    return ", ".join(name if name.isprintable() and len(name) < 100 else shown(name) for name in names[:3]) + (
        ", ..." if len(names) > 3 else ""
    )


def _check_aspect_ratio(model: nn.Module, img_size: tuple[int, int] | None) -> None:
    """Refuse weights for images of another shape: 14 x 14 positions fit 7 x 28 tokens in number only."""
    target = getattr(model, "img_size", None)
    if target is None or not _has_places(model):
        return
    height, width = img_size or (1, 1)
    if height * target[1] == width * target[0]:
        return
    ours = f"{type(model).__name__} is built for images of {target[0]} x {target[1]} px and has weights for each place"
    if img_size is None:
        raise RequestError(
            f"{ours}; say for which images the weights were made, as img_size=({target[0]}, {target[1]})"
        )
    raise RequestError(
        f"{ours}; weights for {height} x {width} px are of another aspect ratio, for which there is no resampling rule"
    )


def _has_places(model: nn.Module) -> bool:
    """Whether weights belong to places in the image, or to offsets in windows or grids of a shape of their own."""
    positions = any(
        name.rpartition(".")[2] in ("pos_embed", "attention_biases") for name, _ in model.named_parameters()
    )
    return positions or not has_square_windows(model) or any(isinstance(part, Resamples) for part in model.modules())


def weights_to_save(model: nn.Module) -> dict[str, Tensor]:
    """The state of a model with every shared weight once, as safetensors wants it; `load_weights` takes it back."""
    first = _first_names(model)
    return {name: weight.contiguous() for name, weight in model.state_dict().items() if first[name] == name}


def _first_names(model: nn.Module) -> dict[str, str]:
    """For every name of the state, the first name of the same weight: another one where parts share weights."""
    first: dict[int, str] = {}
    return {name: first.setdefault(id(weight), name) for name, weight in model.state_dict(keep_vars=True).items()}


def head_names(model: nn.Module) -> tuple[str, ...]:
    """The names of the classification layers: our shell's `head`, or what timm says of its network."""
    config = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None) or {}
    names = config.get("classifier", "head")
    return (names,) if isinstance(names, str) else tuple(names)


def _under(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def _owner(model: nn.Module, name: str) -> nn.Module:
    """The part that a weight belongs to."""
    return model.get_submodule(name.rpartition(".")[0])


def _resample(model: nn.Module, name: str, given: Tensor, weight: Tensor) -> Tensor:
    owner, leaf = _owner(model, name), name.rpartition(".")[2]
    shapes = f"{tuple(given.shape)} in the file, {tuple(weight.shape)} in the model"
    if isinstance(owner, Resamples):
        result = owner.resample(leaf, given)
    elif isinstance(owner, DrawsMore):
        result = owner.draw_more(leaf, given)
    elif (
        type(owner).__module__.startswith("timm.")
        and (timm_result := resample_timm(owner, leaf, given, weight)) is not None
    ):
        result = timm_result
    else:
        raise RequestError(
            f"weight {name!r} has another shape ({shapes}) and {type(owner).__name__} has no rule to resample it"
        )
    if result.shape != weight.shape:
        raise RequestError(
            f"weight {name!r} has another shape ({shapes}), which another image size does not explain; "
            "was it made with other settings?"
        )
    return result
