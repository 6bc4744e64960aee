"""What creates a model for a dataset and runs it in a runtime; None for a model that favor does not have."""

import functools
import shlex

from favor.analyze.setting import EAGER
from favor.runtime.names import ENDINGS, OPENERS
from favor.zoo.cards import TIMM, Card
from favor.zoo.index import read_index

# Classes of the datasets that favor knows by name; a model has 1000 by default.
CLASSES = {
    "imagenet-1k": 1000,
    "imagenet-real": 1000,
    "cars": 196,
    "places365": 365,
    "digits": 10,
    "cifar10": 10,
    "cifar10-mini": 10,
    "cifar100": 100,
    "fashion-mnist": 10,
    "flowers102": 102,
    "tiny-imagenet": 200,
    "synthetic": 10,
}
AUTOCAST = {"amp-fp16": "torch.float16", "amp-bf16": "torch.bfloat16"}
USUAL_CLASSES, _USUAL_IMG_SIZE = 1000, 224


def default_img_size(name: str, origin: str | None) -> int | None:
    """The image size that a model is created with unless another one is given; None if favor does not have the model.

    >>> default_img_size("vit_s16", "own"), default_img_size("vit_xs4", "own"), default_img_size("gone_s", "own")
    (224, 32, None)
    """
    cards = _cards()
    card = cards.get(name.partition("(")[0])
    if card is not None:
        return card.image_sizes.default
    exists = name.startswith(TIMM) or origin == "plugin" or (not cards and origin is not None)
    return _USUAL_IMG_SIZE if exists else None


def num_classes_of(dataset: str | None) -> int | str:
    """The number of classes of a dataset or a subset of it, or the Python that counts them.

    >>> num_classes_of("digits"), num_classes_of("cifar100[400+100]"), num_classes_of("photos")
    (10, 100, 'len(classes)')
    """
    return CLASSES.get((dataset or "").partition("[")[0], "len(classes)")


def creation(
    name: str, img_size: int | None, dataset: str, origin: str | None, weights: str | None = None
) -> str | None:
    """The call that creates a model for the dataset, with the weights of one of timm's tags if one is given.

    With weights it names the image size: without one, the model would have that of the weights' training.

    >>> creation("vit_s16", 384, "cifar10", "own")
    'favor.create_model("vit_s16", num_classes=10, img_size=384)'
    >>> creation("resnet50", 224, "imagenet-1k", "timm", "a1_in1k")
    'favor.create_model("resnet50", img_size=224, pretrained="a1_in1k")'
    >>> creation("timm:levit_256", 224, "imagenet-1k", "timm", "fb_dist_in1k")
    'favor.create_model("timm:levit_256.fb_dist_in1k", img_size=224, pretrained=True)'
    >>> creation("vit_xs4", 32, "photos", "own")
    'favor.create_model("vit_xs4", num_classes=len(classes))'
    """
    default = default_img_size(name, origin)
    if default is None:
        return None
    of_timm = name.startswith(TIMM)
    arguments = [f'"{name}.{weights}"' if of_timm and weights else f'"{name}"']
    classes = num_classes_of(dataset)
    if classes != USUAL_CLASSES:
        arguments.append(f"num_classes={classes}")
    if img_size is not None and (img_size != default or weights is not None):
        arguments.append(f"img_size={img_size}")
    if weights is not None:
        arguments.append("pretrained=True" if of_timm else f'pretrained="{weights}"')
    return f"favor.create_model({', '.join(arguments)})"


def deployment(
    name: str,
    call: str | None,
    runtime: str | None,
    precision: str | None,
    weights: str | None = None,
    img_size: int | None = None,
    run: str | None = None,
) -> str | None:
    """The line that gets a model into its runtime and precision, given the call that creates it; None if it is all.

    An export of a name has published weights if a tag is given, and then names the image size; else random ones at the
    model's default size: other sizes and classes are those of a `run`, whose weights the user trained.

    >>> deployment("vit_s16", 'favor.create_model("vit_s16")', "compile", "fp32")
    'torch.compile(favor.create_model("vit_s16"))'
    >>> deployment("vit_s16", 'favor.create_model("vit_s16")', "eager", "bf16")
    'favor.create_model("vit_s16").bfloat16()'
    >>> deployment("vit_s16", 'favor.create_model("vit_s16")', "compile", "amp-bf16")
    'torch.compile(favor.create_model("vit_s16")), called under torch.autocast(device_type, torch.bfloat16)'
    >>> deployment("vit_s16", 'favor.create_model("vit_s16")', "openvino", "fp32")
    'favor export vit_s16 -o vit_s16.xml --runtime openvino'
    >>> deployment("vit_xs4", 'favor.create_model("vit_xs4", num_classes=10)', "onnxruntime", "int8")
    'favor export RUN -o vit_xs4.onnx --runtime onnx --precision int8'
    >>> deployment("resnet50", 'favor.create_model("resnet50", ...)', "openvino", "fp32", "a1_in1k", 288)
    'favor export resnet50 --weights a1_in1k --img-size 288 -o resnet50.xml --runtime openvino'
    """
    if call is None:
        return None
    if runtime in (EAGER, "compile"):
        in_torch = f"{call}.bfloat16()" if precision == "bf16" else call
        line = f"torch.compile({in_torch})" if runtime == "compile" else in_torch
        if precision in AUTOCAST:
            return f"{line}, called under torch.autocast(device_type, {AUTOCAST[precision]})"
        return None if line == call else line
    form = next((form for form, opener in OPENERS.items() if opener == runtime), None)
    if form is None:
        return None
    file = name.removeprefix(TIMM).partition("(")[0] + ENDINGS[form]
    options = "" if precision in (None, "fp32") else f" --precision {precision}"
    source = _exported(name, call, precision, weights, img_size) if run is None else shlex.quote(run)
    return f"favor export {source} -o {file} --runtime {form}{options}"


def _exported(name: str, call: str, precision: str | None, weights: str | None, img_size: int | None) -> str:
    """What `favor export` takes to write the model that a call creates.

    >>> _exported("timm:levit_256", "", "int8", "fb_dist_in1k", 224)
    'timm:levit_256.fb_dist_in1k --pretrained --img-size 224 --calibration folder:PATH'
    """
    if weights is None:
        is_as_exported = precision != "int8" and call == f'favor.create_model("{name}")'
        return shlex.quote(name) if is_as_exported else "RUN"
    published = f"{name}.{weights} --pretrained" if name.startswith(TIMM) else f"{name} --weights {weights}"
    published += "" if img_size is None else f" --img-size {img_size}"
    return published + (" --calibration folder:PATH" if precision == "int8" else "")


@functools.cache
def _cards() -> dict[str, Card]:
    """The zoo's cards by name; empty if the index is out of date, for example while a model is being written."""
    return read_index() or {}
