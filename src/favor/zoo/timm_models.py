"""Networks of timm: built by name, with the four options that every model of favor takes.

timm takes seconds to import, so it is imported when the first of its networks is asked for.
"""

from torch import nn

from favor.errors import RequestError, unknown_name
from favor.zoo.registry import ImageSizes


def build_timm(
    architecture: str,
    *,
    num_classes: int,
    img_size: tuple[int, int],
    in_chans: int,
    drop_path: float,
    **settings: object,
) -> nn.Module:
    """A network of timm with fresh weights; `settings` are passed on to its constructor.

    The image size is told only to networks that are built for one size; the others take images of any size.
    """
    import timm

    if _is_built_for_one_size(architecture):
        settings["img_size"] = img_size
    if drop_path:
        settings["drop_path_rate"] = drop_path
    try:
        return timm.create_model(
            architecture, pretrained=False, num_classes=num_classes, in_chans=in_chans, **settings
        )
    except (TypeError, AssertionError) as error:
        height, width = img_size
        raise RequestError(f"timm cannot build {architecture!r} for {height} x {width} px and {settings}: {error}") from error


def timm_defaults(architecture: str) -> ImageSizes:
    """The image size that timm names for an architecture."""
    return ImageSizes(default=_config(architecture).input_size[-1], multiple_of=1, at_least=1)


def _is_built_for_one_size(architecture: str) -> bool:
    return bool(_config(architecture).fixed_input_size)


def _config(architecture: str):  # type: ignore[no-untyped-def]  # noqa: ANN202 - timm's PretrainedCfg, not imported here
    import timm

    if not timm.is_model(architecture):
        raise unknown_name("network of timm", architecture, timm.list_models(), "`timm.list_models()` shows all")
    return timm.models.get_pretrained_cfg(architecture) or timm.models.PretrainedCfg()
