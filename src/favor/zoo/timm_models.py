"""Networks of timm: built by name, with the four options that every model of favor takes.

timm takes seconds to import, so it is imported when the first of its networks is asked for.
"""

import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from favor.errors import RequestError, unknown_name
from favor.zoo.layers import check_image_size, source_grid
from favor.zoo.registry import ImageSizes

OPTIONS_OF_FAVOR = {
    "num_classes": "num_classes",
    "img_size": "img_size",
    "in_chans": "in_chans",
    "drop_path_rate": "drop_path",
}
"""timm's name -> ours, of what every model of favor takes as an option."""


def build_timm(
    architecture: str,
    network: Mapping[str, object] | None = None,
    *,
    num_classes: int,
    img_size: tuple[int, int],
    in_chans: int,
    drop_path: float,
) -> nn.Module:
    """A network of timm with fresh weights; `network` are further arguments of its constructor.

    The image size is told to networks that are built for one size; the others take images of any size. The rate of
    drop path is always told: timm's defaults are not zero.
    """
    import timm

    config = _config(architecture)
    settings: dict[str, Any] = dict(network or {})
    for theirs, ours in OPTIONS_OF_FAVOR.items():
        if theirs in settings:
            raise RequestError(f"{theirs} is not a setting of the network; say {ours}={settings[theirs]!r} beside it")
    offered: dict[str, Any] = {"drop_path_rate": drop_path}
    if config.fixed_input_size:
        # a few of timm's networks know squares only
        offered["img_size"] = img_size[0] if img_size[0] == img_size[1] else img_size
    while True:
        try:
            model = timm.create_model(
                architecture, pretrained=False, num_classes=num_classes, in_chans=in_chans, **settings, **offered
            )
            break
        except (TypeError, AssertionError) as error:
            # timm does not say which arguments a constructor takes, so it is tried
            if refused := [name for name in offered if f"unexpected keyword argument '{name}'" in str(error)]:
                del offered[refused[0]]
                continue
            height, width = img_size
            raise RequestError(
                f"timm cannot build {architecture!r} for {height} x {width} px and {settings | offered}: {error}"
            ) from error
    known = _known_arguments(model)
    for name in settings:
        if known is not None and name not in known:
            raise unknown_name(f"setting of timm's {architecture}", name, known, "timm would ignore it")
    taken = {name for name in offered if known is None or name in known}
    if drop_path and "drop_path_rate" not in taken:
        raise RequestError(f"timm's {architecture!r} has no drop path; ask for a rate of 0")
    if "img_size" in taken and not {"strict_img_size", "dynamic_img_size"} & set(settings):
        model.register_forward_pre_hook(partial(_check_images, img_size))
    return model


def build_any_timm(
    architecture: str,
    *,
    num_classes: int,
    img_size: tuple[int, int],
    in_chans: int,
    drop_path: float,
    **settings: object,
) -> nn.Module:
    """Any network of timm; `settings` are passed on to its constructor."""
    return build_timm(
        architecture, settings, num_classes=num_classes, img_size=img_size, in_chans=in_chans, drop_path=drop_path
    )


class OneHead(nn.Module):
    """A network whose form in timm averages two heads, one of them for a teacher, with one head as it trains here."""

    def __init__(self, body: Any, num_classes: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(body.num_features, num_classes)
        nn.init.trunc_normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.body(images))

    def no_weight_decay(self) -> set[str]:
        """What timm exempts of its network."""
        return {f"body.{name}" for name in self.body.no_weight_decay()}

    def own_names(self, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """timm's weights under the names of this model; one head of mean weights gives the mean of timm's two."""
        if any(name.startswith("body.") for name in state):
            return state
        own: dict[str, Tensor] = {}
        for name, weight in state.items():
            part, _, leaf = name.partition(".")
            if part == "head":
                own[name] = (weight + state.get(f"head_dist.{leaf}", weight)) / 2
            elif part != "head_dist":
                own[f"body.{name}"] = weight
        return own


def build_timm_with_one_head(
    architecture: str, network: Mapping[str, object] | None = None, *, num_classes: int, **options: Any
) -> nn.Module:
    """A network of timm that has two heads there, with one."""
    return OneHead(build_timm(architecture, network, num_classes=0, **options), num_classes)


def timm_defaults(architecture: str) -> ImageSizes:
    """What timm says of an architecture's image size: the default, and whether the network takes one size only."""
    config = _config(architecture)
    return ImageSizes(default=config.input_size[-1], multiple_of=1, at_least=1, fixed=config.fixed_input_size)


def resample_timm(owner: Any, name: str, weight: Tensor, like: Tensor) -> Tensor | None:
    """A weight of timm's with a token axis, for the grid or the window of its owner; None where there is no rule."""
    if name == "relative_position_bias_table" and weight.ndim == 2 and hasattr(owner, "window_size"):
        return resample_biases(weight, like.shape[0], owner.window_size)
    if name == "attention_biases" and weight.ndim == 2 and hasattr(owner, "resolution"):
        return resample_distances(weight, owner.resolution)
    if name == "pos_embed" and weight.ndim == 3 and hasattr(owner.patch_embed, "grid_size"):
        from timm.layers import resample_abs_pos_embed

        grid = owner.patch_embed.grid_size
        first = like.shape[1] - grid[0] * grid[1]
        old = source_grid(weight.shape[1] - first, like=grid)
        return resample_abs_pos_embed(weight, list(grid), list(old), num_prefix_tokens=first)
    return None


def has_square_windows(model: nn.Module) -> bool:
    """Whether all tables of biases belong to square windows, whose number of offsets tells their side."""
    windows = [module.window_size for module in model.modules() if hasattr(module, "relative_position_bias_table")]
    return all(window[0] == window[1] for window in windows)  # type: ignore[index] # timm's pairs


def resample_biases(table: Tensor, rows: int, window: tuple[int, int]) -> Tensor:
    """Bicubic interpolation over the offsets in a window, from a window of the same aspect ratio; further rows stay."""
    offsets = _offsets(window)
    first = table.shape[0] - (rows - offsets[0] * offsets[1])
    old = _window_of(first, like=window)
    image = table[:first].T.reshape(1, -1, *_offsets(old))
    resized = F.interpolate(image, size=offsets, mode="bicubic", align_corners=False)
    return torch.cat([resized.flatten(2)[0].T, table[first:]])


def resample_distances(biases: Tensor, grid: tuple[int, int]) -> Tensor:
    """[heads, H * W] biases by distance in rows and columns, interpolated as the offsets of either sign they stand for.

    Cut off at distance zero, a bicubic interpolation would not know that the biases go on behind it.
    """
    height, width = source_grid(biases.shape[1], grid)
    image = biases.float().unflatten(1, (height, width))[None]
    offsets = F.pad(image, (width - 1, 0, height - 1, 0), mode="reflect")
    resized = F.interpolate(offsets, size=_offsets(grid), mode="bicubic", align_corners=True)
    return resized[0, :, grid[0] - 1 :, grid[1] - 1 :].flatten(1).to(biases.dtype)


def _offsets(window: tuple[int, int]) -> tuple[int, int]:
    """A window of w tokens has offsets from 1 - w to w - 1."""
    return 2 * window[0] - 1, 2 * window[1] - 1


def _window_of(offsets: int, like: tuple[int, int]) -> tuple[int, int]:
    """The window with so many offsets and the aspect ratio of another.

    >>> _window_of(21, like=(4, 8))
    (2, 4)
    """
    for height in range(1, offsets + 1):
        width, rest = divmod(height * like[1], like[0])
        if rest == 0 and (2 * height - 1) * (2 * width - 1) == offsets:
            return height, width
    raise RequestError(f"{offsets} biases belong to no window of the aspect ratio of {like[0]} x {like[1]}")


def fuse_timm(module: nn.Module) -> nn.Module | None:
    """The inference form of a part of timm's, where it has one: branches become one convolution, norms go into it."""
    reparameterize: Any = getattr(module, "reparameterize", None)
    if reparameterize is not None:
        if getattr(module, "reparam_conv", None) is None:  # else it has its inference form already
            reparameterize()
        return module
    conv: Any = getattr(module, "conv", None)
    norm: Any = getattr(module, "bn", None)
    # Parts are registered in the order in which they run. A norm before its convolution (DPN) cannot go into it.
    in_order = [*module.children()] == [conv, norm]
    if in_order and isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
        # timm's norm may hold the dropout and the activation that follow it
        after: list[Any] = [norm.drop, norm.act] if hasattr(norm, "act") else []
        return nn.Sequential(fuse_conv_bn_eval(conv, norm), *after)
    return None


def _check_images(img_size: tuple[int, int], model: nn.Module, inputs: tuple[Tensor]) -> None:
    check_image_size(inputs[0], img_size)


def _known_arguments(model: nn.Module) -> set[str] | None:
    """What a constructor looks at, where it swallows all else; None where timm refuses the unknown itself."""
    known: set[str] = set()
    for kind in type(model).__mro__:
        parameters = inspect.signature(kind.__init__).parameters.values()  # type: ignore[misc] # a class, no instance
        known |= {p.name for p in parameters}
        # a class with a configuration takes changes of it, and that one refuses what it does not have
        if "cfg" in known or not any(p.kind is p.VAR_KEYWORD for p in parameters):
            return None
        if not any(p.kind is p.VAR_POSITIONAL for p in parameters):
            break  # it keeps the rest to itself; one with *args, too, hands all on to its parent
    return known


def _config(architecture: str):  # type: ignore[no-untyped-def] # timm's PretrainedCfg, which is not imported here
    import timm

    if not timm.is_model(architecture):
        raise unknown_name("network of timm", architecture, timm.list_models(), "`timm.list_models()` shows all")
    return timm.models.get_pretrained_cfg(architecture) or timm.models.PretrainedCfg()
