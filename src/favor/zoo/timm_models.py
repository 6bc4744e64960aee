"""Networks of timm: built by name, with the four options that every model of favor takes.

timm takes seconds to import, so it is imported when the first of its networks is asked for.
"""

import math
from collections import OrderedDict
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from favor.errors import RequestError, unknown_name
from favor.zoo.registry import ImageSizes


def build_timm(
    architecture: str,
    *,
    num_classes: int,
    img_size: tuple[int, int],
    in_chans: int,
    drop_path: float,
    **settings: Any,
) -> nn.Module:
    """A network of timm with fresh weights; `settings` are passed on to its constructor.

    The image size is told to networks that are built for one size; the others take images of any size. The rate of
    drop path is always told: timm's defaults are not zero.
    """
    import timm

    config = _config(architecture)
    if config.fixed_input_size and _takes(architecture, img_size=config.input_size[-2:]):
        settings["img_size"] = img_size
    if _takes(architecture, drop_path_rate=0.0):
        settings["drop_path_rate"] = drop_path
    elif drop_path:
        raise RequestError(f"timm's {architecture!r} has no drop path; ask for a rate of 0")
    try:
        return timm.create_model(architecture, pretrained=False, num_classes=num_classes, in_chans=in_chans, **settings)
    except (TypeError, AssertionError) as error:
        height, width = img_size
        raise RequestError(
            f"timm cannot build {architecture!r} for {height} x {width} px and {settings}: {error}"
        ) from error


def build_timm_with_one_head(architecture: str, *, num_classes: int, **options: Any) -> nn.Module:
    """A network whose form in timm averages two heads, one of them for a teacher, with one head as it trains here."""
    body: Any = build_timm(architecture, num_classes=0, **options)
    head = nn.Linear(body.num_features, num_classes)
    nn.init.trunc_normal_(head.weight, std=0.02)
    nn.init.zeros_(head.bias)
    return nn.Sequential(OrderedDict(body=body, head=head))


def timm_defaults(architecture: str) -> ImageSizes:
    """The image size that timm names for an architecture."""
    return ImageSizes(default=_config(architecture).input_size[-1], multiple_of=1, at_least=1)


def resample_timm(name: str, weight: Tensor, like: Tensor) -> Tensor | None:
    """A weight of timm's with a token axis on another grid, by timm's own rules; None where it has no rule."""
    from timm.layers import resample_abs_pos_embed, resize_rel_pos_bias_table_simple

    if name == "relative_position_bias_table":
        side = (math.isqrt(like.shape[0]) + 1) // 2  # a window of w has offsets from 1 - w to w - 1
        return resize_rel_pos_bias_table_simple(weight, (side, side), like.shape)
    if name == "pos_embed" and weight.ndim == 3:
        side = math.isqrt(like.shape[1])
        return resample_abs_pos_embed(weight, [side, side], num_prefix_tokens=like.shape[1] - side * side)
    return None


def fuse_timm(module: nn.Module) -> nn.Module | None:
    """The inference form of a part of timm's, where it has one: branches become one convolution, norms go into it."""
    reparameterize: Any = getattr(module, "reparameterize", None)
    if reparameterize is not None:
        reparameterize()
        return module
    conv: Any = getattr(module, "conv", None)
    norm: Any = getattr(module, "bn", None)
    if len(list(module.children())) == 2 and isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
        # timm's norm may hold the dropout and the activation that follow it
        after: list[Any] = [norm.drop, norm.act] if hasattr(norm, "act") else []
        return nn.Sequential(fuse_conv_bn_eval(conv, norm), *after)
    return None


@cache
def _takes(architecture: str, **argument: Any) -> bool:
    """Whether a constructor takes an argument: timm does not say, so it is tried, without allocating weights."""
    import timm

    with torch.device("meta"):
        try:
            timm.create_model(architecture, pretrained=False, **argument)
        except TypeError:
            return False
    return True


def _config(architecture: str):  # type: ignore[no-untyped-def] # timm's PretrainedCfg, which is not imported here
    import timm

    if not timm.is_model(architecture):
        raise unknown_name("network of timm", architecture, timm.list_models(), "`timm.list_models()` shows all")
    return timm.models.get_pretrained_cfg(architecture) or timm.models.PretrainedCfg()
