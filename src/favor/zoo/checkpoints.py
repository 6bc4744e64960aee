"""Pretrained checkpoints: which ones a model can take, and how they get into it.

What a checkpoint is comes from timm's registry, and its file through `huggingface_hub`'s download and cache. Importing
this module imports neither timm nor torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from favor.errors import RequestError, WorkError, one_line, unknown_name
from favor.zoo.cards import TIMM

if TYPE_CHECKING:
    from torch import Tensor, nn

_VIT = {
    "ti16": ("vit_tiny_patch16_224", "vit_tiny_patch16_384"),
    "s16": ("vit_small_patch16_224", "vit_small_patch16_384"),
    "b16": ("vit_base_patch16_224", "vit_base_patch16_384"),
    "l16": ("vit_large_patch16_224", "vit_large_patch16_384"),
}
_DEIT = {
    "ti16": ("deit_tiny_patch16_224",),
    "s16": ("deit_small_patch16_224",),
    "b16": ("deit_base_patch16_224", "deit_base_patch16_384"),
}
ARCHITECTURES: Mapping[str, tuple[str, ...]] = {
    **{f"vit_{size}": architectures for size, architectures in _VIT.items()},
    "vit_b8": ("vit_base_patch8_224",),
    "vit_b32": ("vit_base_patch32_224", "vit_base_patch32_384"),
    **{f"deit_{size}": architectures for size, architectures in _DEIT.items()},
    "deit3_s16": ("deit3_small_patch16_224", "deit3_small_patch16_384"),
    "deit3_b16": ("deit3_base_patch16_224", "deit3_base_patch16_384"),
    "resnet18": ("resnet18",),
    "resnet50": ("resnet50",),
    "resnet101": ("resnet101",),
    "xcit_ti12_p16": ("xcit_tiny_12_p16_224", "xcit_tiny_12_p16_384"),
    "xcit_s12_p16": ("xcit_small_12_p16_224", "xcit_small_12_p16_384"),
    "swin_ti": ("swin_tiny_patch4_window7_224",),
    "swin_s": ("swin_small_patch4_window7_224",),
    "swinv2_ti": ("swinv2_tiny_window8_256",),
    "coat_ti": ("coat_tiny",),
    "coat_lite_ti": ("coat_lite_tiny",),
    "efficientformerv2_s0": ("efficientformerv2_s0",),
    "efficientformerv2_s1": ("efficientformerv2_s1",),
    "efficientvit_b1": ("efficientvit_b1",),
    "efficientvit_b2": ("efficientvit_b2",),
    "nextvit_s": ("nextvit_small",),
    "fastvit_t8": ("fastvit_t8",),
    "fastvit_s12": ("fastvit_s12",),
    "focalnet_ti": ("focalnet_tiny_srf",),
    "focalnet_s": ("focalnet_small_srf",),
    "mixer_s16": ("mixer_s16_224",),
    "mixer_b16": ("mixer_b16_224",),
    "swiftformer_xs": ("swiftformer_xs",),
    "swiftformer_s": ("swiftformer_s",),
    "cait_xxs24": ("cait_xxs24_224", "cait_xxs24_384"),
    "cait_s24": ("cait_s24_224", "cait_s24_384"),
}
"""Model of the zoo -> timm's architectures whose weights give the same outputs in it, the first one's by default."""
BORROWED: Mapping[str, tuple[str, ...]] = {
    **{
        f"{family}_{size}": (*_VIT[size], *_DEIT.get(size, ()))
        for family, sizes in {
            "tome_r8": ("ti16", "s16", "b16", "l16"),
            "tome_r13": ("ti16", "s16", "b16"),
            "gtp": ("ti16", "s16", "b16", "l16"),
        }.items()
        for size in sizes
    },
    **{
        f"{family}_{size}": (*_DEIT.get(size, ()), *_VIT[size])
        for family in ("evit", "evit_fuse")
        for size in ("ti16", "s16", "b16", "l16")
    },
}
"""Models that remove or merge tokens without weights of their own -> whose weights they take, trained without that."""


@dataclass(frozen=True)
class Checkpoint:
    """Pretrained weights, and how images have to be prepared for them."""

    architecture: str
    tag: str
    source: str
    """Repository on the Hugging Face Hub, or the address of the file."""
    img_size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    crop_ratio: float
    interpolation: str
    crop_mode: str
    num_classes: int
    license: str | None
    borrowed: bool = False
    """Whether the weights were trained in a network that keeps all tokens, where the model that takes them does not."""

    @property
    def name(self) -> str:
        """timm's name of it.

        >>> Checkpoint("resnet18", "a1_in1k", "", 224, (0,) * 3, (1,) * 3, 0.9, "", "", 1000, None).name
        'resnet18.a1_in1k'
        """
        return f"{self.architecture}.{self.tag}"


def architectures_of(model: str) -> tuple[str, ...]:
    """timm's architectures whose weights a model takes, by the model's own name; this imports nothing.

    >>> architectures_of("vit_ti16")
    ('vit_tiny_patch16_224', 'vit_tiny_patch16_384')
    """
    if model.lower().startswith(TIMM):
        return (model[len(TIMM) :].partition(".")[0],)
    return ARCHITECTURES.get(model) or BORROWED.get(model, ())


def checkpoints(model: str) -> tuple[Checkpoint, ...]:
    """The checkpoints that a model can take, by the model's own name; the first is the default."""
    import timm

    found: list[Checkpoint] = []
    for architecture in architectures_of(model):
        default = timm.models.get_pretrained_cfg(architecture)
        tags = timm.models.list_pretrained(f"{architecture}.*")
        # timm's own default first, and weights without ImageNet's classes last
        order = {name: (default is None or name != f"{architecture}.{default.tag}") for name in tags}
        named = sorted(tags, key=lambda name: order[name])
        found += [_checkpoint(name, borrowed=model in BORROWED) for name in named]
    wanted = model.partition(".")[2] if model.lower().startswith(TIMM) else ""
    return tuple(sorted(found, key=lambda one: (bool(wanted) and one.tag != wanted, one.num_classes != 1000)))


def checkpoint(model: str, tag: str | None = None, img_size: int | None = None) -> Checkpoint:
    """A checkpoint of a model by its tag or by timm's whole name, else the default.

    Where several have the tag, it is the one for the image size if there is any.
    """
    found = checkpoints(model)
    if not found:
        raise RequestError(f"no pretrained weights of {model} are published; leave `pretrained` out, or train it")
    wanted = tag or found[0].tag
    named = [one for one in found if wanted in (one.tag, one.name)]
    if not named:
        tags = [one.tag for one in found]
        raise unknown_name(f"checkpoint of {model}", wanted, tags, f"`favor show {model}` lists all")
    return next((one for one in named if one.img_size == img_size), named[0])


def pretrained_weights(chosen: Checkpoint) -> "dict[str, Tensor]":
    """The weights of a checkpoint under timm's names, checked against timm's network; downloaded unless cached."""
    import timm

    overlay = {} if chosen.source.startswith("http") else {"file": _file(chosen), "custom_load": False}
    try:
        network = timm.create_model(chosen.name, pretrained=True, pretrained_cfg_overlay=overlay)
    except Exception as error:  # a torn file, weights of another network, or a download that timm does itself
        place = overlay.get("file", "it from the cache")
        raise WorkError(
            f"the weights {chosen.name} from {chosen.source} cannot be loaded ({type(error).__name__}: "
            f"{one_line(error)}); if the file is broken, delete {place} and try again"
        ) from error
    return network.state_dict()


def give_pretrained_weights(model: "nn.Module", chosen: Checkpoint) -> str:
    """Put the weights of a checkpoint into a model of any image size and number of classes; what there is to say."""
    from favor.zoo.weights import load_weights

    return str(load_weights(model, pretrained_weights(chosen), (chosen.img_size, chosen.img_size)))


def imagenet_classes(chosen: Checkpoint) -> tuple[str, ...]:
    """The classes of ImageNet-1k by their WordNet ids, as its folders are named; none for weights of other classes."""
    from timm.data import ImageNetInfo

    return tuple(ImageNetInfo().label_names()) if chosen.num_classes == 1000 else ()


def imagenet_class_names() -> tuple[str, ...]:
    """The classes of ImageNet-1k in words."""
    from timm.data import ImageNetInfo

    info = ImageNetInfo()
    return tuple(info.index_to_description(index) for index in range(info.num_classes()))


def _checkpoint(name: str, borrowed: bool) -> Checkpoint:
    import timm

    config: Any = timm.models.get_pretrained_cfg(name)
    return Checkpoint(
        architecture=config.architecture,
        tag=config.tag,
        source=config.hf_hub_id or config.url,
        img_size=config.input_size[-1],
        mean=tuple(config.mean),
        std=tuple(config.std),
        crop_ratio=config.crop_pct,
        interpolation=config.interpolation,
        crop_mode=config.crop_mode,
        num_classes=config.num_classes,
        license=config.license,
        borrowed=borrowed,
    )


def _file(chosen: Checkpoint) -> str:
    """The file in the cache of the Hugging Face Hub, downloaded if it is not there."""
    import timm

    config: Any = timm.models.get_pretrained_cfg(chosen.name)
    names = [config.hf_hub_filename] if config.hf_hub_filename else ["model.safetensors", "pytorch_model.bin"]
    repository, _, revision = chosen.source.partition("@")
    try:
        return _first_of(repository, names, revision or None)
    except Exception as error:  # whatever the network and its library raise
        raise WorkError(
            f"the weights {chosen.name} cannot be downloaded from {repository} on the Hugging Face Hub "
            f"({type(error).__name__}: {one_line(error)}); check the network, set HF_HUB_OFFLINE=1 to use the cache "
            "only, or give a local file: `favor finetune FILE --model NAME`, favor.load_weights(model, state)"
        ) from error


def _first_of(repository: str, names: Sequence[str], revision: str | None) -> str:
    """The first of several files that a repository has."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    *others, last = names
    for name in others:
        try:
            return hf_hub_download(repository, name, revision=revision)
        except LocalEntryNotFoundError:
            raise  # without a network, another file is not to be had either
        except EntryNotFoundError:
            continue
    return hf_hub_download(repository, last, revision=revision)
