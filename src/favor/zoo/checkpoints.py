"""Pretrained checkpoints: which ones a model can take, and how they get into it.

What a checkpoint is comes from timm's registry, and its file through `huggingface_hub`'s download and cache. Importing
this module imports neither timm nor torch.
"""

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from favor.errors import RequestError, WorkError, one_line, unknown_name
from favor.zoo.cards import HUB, TIMM

if TYPE_CHECKING:
    from torch import Tensor, nn

_log = logging.getLogger("favor.zoo")

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

_STRIKES_BACK = "ResNet Strikes Back"
_RECIPES: Mapping[str, str] = {
    "a1": f"{_STRIKES_BACK} A1 (600 epochs)",
    "a2": f"{_STRIKES_BACK} A2 (300 epochs)",
    "a3": f"{_STRIKES_BACK} A3 (100 epochs, 160 px)",
    "a1h": f"{_STRIKES_BACK} A1, more regularized",
    **dict.fromkeys(("b1k", "b2k", "c1", "c2", "c2ns", "c3", "d", "d1", "d2"), f"a variant of {_STRIKES_BACK}"),
    **dict.fromkeys(("ra", "ra2", "ra3", "ra4"), "timm's RandAugment recipe"),
    "aa": "AutoAugment",
    "am": "AugMix",
    "ap": "AdvProp",
    "augreg": "AugReg",
    "augreg2": "AugReg, fine-tuned by timm",
    "bt": "bag of tricks",
    "clip": "CLIP",
    "dino": "DINO, self-supervised",
    "fcmae": "masked autoencoder",
    "gluon": "GluonCV",
    "mae": "masked autoencoder, self-supervised",
    "miil": "MIIL",
    "mim": "masked image modeling",
    "ns": "Noisy Student",
    "openai": "CLIP",
    "orig": "as in the ViT paper",
    "ram": "AugMix with RandAugment",
    "sam": "sharpness-aware minimization",
    "ssl": "semi-supervised",
    "sw": "Swin's recipe, modified",
    "swag": "weakly supervised by hashtags",
    "swsl": "semi-weakly supervised",
    "tv": "torchvision",
    "tv2": "torchvision, second recipe",
    "wsl": "weakly supervised by hashtags",
    "apple": "Apple",
    "bd": "ByteDance",
    "fb": "Meta",
    "goog": "Google",
    "ms": "Microsoft",
    "snap": "Snap",
}
"""Words of timm's tags that say how weights were trained, or by whom."""
_EPOCHS = re.compile(r"e(\d+)|(\d+)ep?")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_WEIGHT_ENDINGS = (".safetensors", ".bin", ".pth", ".pt")


@dataclass(frozen=True)
class Checkpoint:
    """Pretrained weights, and how images have to be prepared for them."""

    architecture: str
    tag: str
    source: str
    """Repository on the Hugging Face Hub, the address of the file, or the path of a local one."""
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
    test_img_size: int | None = None
    test_crop_ratio: float | None = None
    """The larger image size, and the crop there, at which the weights are more accurate, if their author names one."""

    @property
    def file(self) -> Path | None:
        """The local file that the weights are in, instead of the published ones."""
        return Path(self.source) if self.source.endswith(_WEIGHT_ENDINGS) and "://" not in self.source else None

    @property
    def name(self) -> str:
        """timm's name of it.

        >>> Checkpoint("resnet18", "a1_in1k", "", 224, (0,) * 3, (1,) * 3, 0.9, "", "", 1000, None).name
        'resnet18.a1_in1k'
        """
        return f"{self.architecture}.{self.tag}"

    def crop_at(self, img_size: int) -> float:
        """The share of an image's side that is cropped at an image size.

        >>> known = ("resnet18", "a1_in1k", "", 224, (0, 0, 0), (1, 1, 1), 0.95, "", "", 1000, None, False)
        >>> resnet = Checkpoint(*known, test_img_size=288, test_crop_ratio=1.0)
        >>> resnet.crop_at(224), resnet.crop_at(288)
        (0.95, 1.0)
        """
        return self.test_crop_ratio or self.crop_ratio if img_size == self.test_img_size else self.crop_ratio

    def at(self, img_size: int) -> "Checkpoint":
        """The same weights, used at an image size."""
        return replace(self, img_size=img_size, crop_ratio=self.crop_at(img_size))

    @property
    def recipe(self) -> str:
        """How the weights were trained, in the few words that timm's tag stands for; empty if it says only the data."""
        return recipe_in_words(self.tag)


def recipe_in_words(tag: str) -> str:
    """The recipe that a tag of timm's states, besides the data.

    >>> recipe_in_words("augreg_in21k_ft_in1k"), recipe_in_words("ra4_e3600_r224_in1k"), recipe_in_words("in1k")
    ('AugReg', "timm's RandAugment recipe, 3600 epochs, 224 px", '')
    """
    words = []
    for token in tag.split("_"):
        if token in _RECIPES:
            words.append(_RECIPES[token])
        elif epochs := _EPOCHS.fullmatch(token):
            words.append(f"{epochs[1] or epochs[2]} epochs")
        elif token.startswith("r") and token[1:].isdigit():
            words.append(f"{token[1:]} px")
    return ", ".join(words)


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

    Where several have the tag, it is the one for the image size if there is any. Instead of a tag, the path of a file
    with weights in timm's layout: images are prepared as for the default checkpoint.
    """
    found = checkpoints(model)
    if not found:
        raise RequestError(f"no pretrained weights of {model} are published; leave `pretrained` out, or train it")
    if tag is not None and tag.endswith(_WEIGHT_ENDINGS):
        if not Path(tag).is_file():
            raise RequestError(f"{tag}: there is no such file; give a file, or a tag of `favor show {model}`")
        of_size = next((one for one in found if one.img_size == img_size), found[0])
        return replace(of_size, source=tag)
    wanted = tag or found[0].tag
    named = [one for one in found if wanted in (one.tag, one.name)]
    if not named:
        tags = [one.tag for one in found]
        raise unknown_name(f"checkpoint of {model}", wanted, tags, f"`favor show {model}` lists all")
    return next((one for one in named if one.img_size == img_size), named[0])


def pretrained_weights(chosen: Checkpoint) -> "dict[str, Tensor]":
    """The weights of a checkpoint under timm's names, checked against timm's network; downloaded unless cached."""
    import timm
    from timm.models._hub import download_cached_file

    overlay: dict[str, object] = {}
    has_address = "://" in chosen.source
    if not has_address:
        file = chosen.file or Path(_file(chosen))
        overlay = {"file": str(file), "custom_load": False}
    try:
        if has_address:  # into the folder in which timm looks for it
            file = Path(download_cached_file(chosen.source, check_hash=False))
        if file.suffix != ".safetensors":
            from favor.zoo.pickled_weights import check_pickled_weights

            check_pickled_weights(file)
        network = timm.create_model(chosen.name, pretrained=True, pretrained_cfg_overlay=overlay)
    except RequestError:
        raise
    except Exception as error:  # a torn file, weights of another network, or a download
        reason, place = f"{type(error).__name__}: {one_line(error)}", overlay.get("file", "it from the cache")
        remedy = f"if the file is broken, delete {place} and try again"
        if chosen.file:
            remedy = f"they must be those of timm's {chosen.architecture}"
        raise WorkError(
            f"the weights {chosen.name} from {chosen.source} cannot be loaded ({reason}); {remedy}"
        ) from error
    return network.state_dict()


def give_pretrained_weights(model: "nn.Module", chosen: Checkpoint) -> str:
    """Put the weights of a checkpoint into a model of any image size and number of classes; what there is to say."""
    from favor.zoo.weights import load_weights

    return str(load_weights(model, pretrained_weights(chosen), (chosen.img_size, chosen.img_size)))


@dataclass(frozen=True)
class PushedModel:
    """A model that `favor push` uploaded: its file in the cache, and what the file says of it."""

    file: str
    model: str
    img_size: int
    num_classes: int


class _Said(msgspec.Struct):
    """What a pushed file says of its model, as far as it is needed here."""

    model: str
    img_size: Annotated[int, msgspec.Meta(gt=0, lt=2**16)]
    classes: tuple[str, ...]


def pushed_file(address: str) -> str:
    """The model file at `hub:USER/NAME[@REVISION]`, downloaded unless it is in the cache."""
    return _downloaded("the model", address.removeprefix(HUB), ["model.safetensors"])


def pushed_model(address: str) -> PushedModel:
    """The model at `hub:USER/NAME[@REVISION]`."""
    from safetensors import SafetensorError, safe_open

    file = pushed_file(address)
    try:
        with safe_open(file, framework="pt") as content:
            said = msgspec.json.decode((content.metadata() or {})["favor.trained"], type=_Said)
        return PushedModel(file, said.model, said.img_size, len(said.classes))
    except (SafetensorError, KeyError, msgspec.DecodeError, RecursionError) as error:
        raise WorkError(
            f"{address}: not a model that `favor push` uploaded; download its file and give it to `favor finetune FILE "
            "--model NAME`"
        ) from error


def give_pushed_weights(model: "nn.Module", pushed: PushedModel) -> str:
    """Put the weights of a pushed model into one of any image size and number of classes; what there is to say."""
    from safetensors.torch import load_file

    from favor.zoo.weights import load_weights

    return str(load_weights(model, load_file(pushed.file), (pushed.img_size, pushed.img_size)))


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
        test_img_size=config.test_input_size[-1] if config.test_input_size else None,
        test_crop_ratio=config.test_crop_pct,
    )


def _file(chosen: Checkpoint) -> str:
    """The file in the cache of the Hugging Face Hub, downloaded if it is not there."""
    import timm

    config: Any = timm.models.get_pretrained_cfg(chosen.name)
    names = [config.hf_hub_filename] if config.hf_hub_filename else ["model.safetensors", "pytorch_model.bin"]
    return _downloaded(
        f"the weights {chosen.name}", chosen.source, names, instead="name a local file (--weights FILE), "
    )


def _downloaded(what: str, source: str, names: Sequence[str], instead: str = "") -> str:
    """The first of several files of a repository, which may be followed by `@` and a revision.

    `instead` is what else to do without a network.
    """
    from huggingface_hub import constants, try_to_load_from_cache
    from huggingface_hub.errors import (
        LocalEntryNotFoundError,
        RemoteEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    repository, _, revision = source.partition("@")
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it tells of every attempt, and the last one raises
    try:
        found = (try_to_load_from_cache(repository, name, revision=revision or None) for name in names)
        cached = next((file for file in found if isinstance(file, str)), None)
        if cached is None and not constants.HF_HUB_OFFLINE:
            # A warning, since without a network half a minute passes before the error.
            _log.warning("downloading %s from %s on the Hugging Face Hub", what, source)
        try:
            file = _first_of(repository, names, revision or None)
        except LocalEntryNotFoundError:  # without a network, the cache may have another of the files
            if cached is None:
                raise
            file = cached
    except Exception as error:  # whatever the network and its library raise
        folder, cache = f"models--{repository.replace('/', '--')}", constants.HF_HUB_CACHE
        command = f"hf download {repository}{f' --revision {revision}' if revision else ''}"
        copying = f"run `{command}` on a machine with a network and copy {folder} from its cache into {cache}"
        if constants.HF_HUB_OFFLINE:
            raise WorkError(
                f"{what} from {repository}: not in the cache of the Hugging Face Hub, and HF_HUB_OFFLINE=1 allows no "
                f"download; {instead}unset it, or {copying}"
            ) from error
        if isinstance(error, RepositoryNotFoundError | RevisionNotFoundError | RemoteEntryNotFoundError):
            raise WorkError(
                f"{what} cannot be downloaded from {source} on the Hugging Face Hub: it does not exist, or has no "
                f"{' or '.join(names)}; check the name, and log in with `hf auth login` if it is private"
            ) from error
        cause = error.__cause__ or error
        raise WorkError(
            f"{what} cannot be downloaded from {repository} on the Hugging Face Hub ({type(cause).__name__}: "
            f"{one_line(cause)}); {instead}check the network, or {copying}"
        ) from error
    finally:
        logger.setLevel(level)
    if cached is None:
        _require_whole(Path(file), what)
    return file


def _require_whole(file: Path, what: str) -> None:
    """Refuse a downloaded file whose content is not what the Hub announced: large files are named by their SHA-256."""
    blob = file.resolve()
    if not _SHA256.fullmatch(blob.name):
        return
    with blob.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != blob.name:
        blob.unlink()
        file.unlink(missing_ok=True)
        raise WorkError(
            f"{what}: the download is damaged (SHA-256 {found[:12]}..., the Hub announced {blob.name[:12]}...) and was "
            "deleted; try again"
        )


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
