"""Training recipes: named YAML files, validated when they are read. Imports no torch."""

import hashlib
import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from favor.errors import RequestError, path_text, shown, unknown_name
from favor.pipeline import Pipeline
from favor.yaml_file import YamlFile

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
NotNegative = Annotated[float, Field(ge=0.0)]
Triple = tuple[Share, Share, Share]
Scalar = str | bool | int | float

_FOR_PEOPLE = frozenset({"doc"})
# Keys that a run may change without changing the pipeline: they are conditions of their own.
_OUTSIDE_OF_THE_PIPELINE = frozenset({*_FOR_PEOPLE, "data", "img_size", "seed"})


def _fp32_by_its_long_name(precision: object) -> object:
    """`fp32` for `float32`, the spelling of older checkpoints and recipes."""
    return "fp32" if precision == "float32" else precision


PrecisionName = Annotated[Literal["fp32", "amp", "amp-fp16", "amp-bf16"], BeforeValidator(_fp32_by_its_long_name)]


class Recipe(BaseModel):
    """How a model is trained; every number that could change the result is here."""

    # Bounds alone let NaN through: it is neither below nor above any.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    name: str
    version: int = Field(ge=1)
    doc: str
    data: str
    img_size: int = Field(ge=1)

    epochs: int = Field(ge=1)
    batch_size: int = Field(ge=1, description="images per optimizer step, over all processes and micro-batches")
    optimizer: Literal["adam", "adamw", "lamb", "sgd"]
    lr: Positive
    eps: Positive = 1e-8
    beta1: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    beta2: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.999
    momentum: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    weight_decay: NotNegative = 0.0
    schedule: Literal["cosine", "constant"] = "cosine"
    min_lr: NotNegative = 0.0
    warmup_epochs: NotNegative = 0.0
    warmup_lr: NotNegative = 0.0
    clip_grad: Positive | None = Field(default=None, description="largest norm of the gradient; null: no limit")
    layer_decay: Annotated[float, Field(gt=0.0, le=1.0)] | None = Field(
        default=None,
        description="factor on the learning rate for every twelfth of the network below the head; null: none",
    )
    patience: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="stop after this many epochs without a better result; null: never"
    )

    label_smoothing: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    drop_path: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    precision: PrecisionName = Field(
        default="fp32", description="amp: PyTorch's default on the device, float16 on GPUs and bfloat16 on CPUs"
    )

    crop_padding: int = Field(default=0, ge=0, description="pixels of reflection padding before a random crop")
    eval_crop_ratio: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    interpolation: Literal["bicubic", "bilinear"] | None = Field(
        default=None, description="how images are resized; null: bicubic"
    )
    flip: Share = 0.0
    grey: Share = 0.0
    solarize: Share = 0.0
    blur: Share = 0.0
    color_jitter: Share = 0.0
    cutmix: Share = 0.0
    mean: Triple = (0.485, 0.456, 0.406)
    std: tuple[Positive, Positive, Positive] = (0.229, 0.224, 0.225)
    seed: int = Field(default=0, ge=0, lt=2**63)

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.grey + self.solarize + self.blur > 1.0 + 1e-9:
            raise ValueError("one of grey, solarize and blur is chosen for an image, so their sum is at most 1")
        if self.schedule == "cosine" and self.min_lr > self.lr:
            raise ValueError(f"min_lr {self.min_lr} is above the peak, lr {self.lr}")
        if self.warmup_epochs and self.warmup_lr > self.lr:
            raise ValueError(f"warmup_lr {self.warmup_lr} is above the peak, lr {self.lr}")
        if self.warmup_epochs >= self.epochs:
            raise ValueError(
                f"warmup_epochs {self.warmup_epochs:g} leave nothing of epochs {self.epochs}; set warmup_epochs lower, "
                "for example --set warmup_epochs=0"
            )
        return self

    def flat(self) -> dict[str, Scalar]:
        """The resolved recipe as conditions of a record (`recipe.lr` and so on), without null values."""
        values: dict[str, Scalar] = {}
        for key, value in self.model_dump(exclude=set(_FOR_PEOPLE)).items():
            if value is not None:
                values[f"recipe.{key}"] = " ".join(map(str, value)) if isinstance(value, tuple) else value
        return values


KEYS = tuple(Recipe.model_fields)


@cache
def recipe_names() -> tuple[str, ...]:
    """The names of the built-in recipes."""
    return tuple(sorted(Path(file.name).stem for file in _folder().iterdir() if file.name.endswith(".yaml")))


def load_recipe(name: str, overrides: Iterable[str] = ()) -> Recipe:
    """The recipe of this name, or in this file (a path that ends in .yaml), with `key=value` overrides.

    >>> load_recipe("deit3-pretrain", ["lr=1e-3"]).lr
    0.001
    """
    source = _read(name)
    written = source.mapping("a recipe")
    for key in written:
        if key not in KEYS:
            raise source.error((key,), unknown_name("key of a recipe", key, KEYS))
    changed = dict(parse_override(override) for override in overrides)
    try:
        return Recipe.model_validate({key: _number_or(value) for key, value in written.items()} | changed)
    except ValidationError as error:
        first = error.errors()[0]
        why = first["msg"].removeprefix("Value error, ")
        if first["loc"] and first["type"] != "missing":
            why += f", not {shown(first['input'])}"
        if not first["loc"]:  # a conflict between keys has no single line
            raise RequestError(f"recipe {name}: {why}") from error
        if first["loc"][0] in changed:
            raise RequestError(f"recipe {name}: --set {path_text(first['loc'])}: {why}") from error
        raise source.error(first["loc"], why) from error


def pipeline_of(recipe: Recipe, minutes: float | None = None, source: str | None = None) -> str:
    """A recipe's name and version, and the changed keys; `source` is the name or the file that it was loaded from.

    The user's own file may be edited under the same version, so the pipeline also has a hash of what the file says.

    >>> pipeline_of(load_recipe("laptop-digits", ["lr=2e-3", "seed=1"]))
    'laptop-digits@1 lr=0.002'
    """
    source = source or (recipe.name if recipe.name in recipe_names() else None)
    original = load_recipe(source) if source else recipe
    file_hash = _hash_of(original) if source and is_recipe_file(source) else None
    return str(Pipeline(recipe.name, recipe.version, file_hash, changes(recipe, original, minutes), minutes))


def changes(recipe: Recipe, original: Recipe, minutes: float | None = None) -> dict[str, object]:
    """The keys of a pipeline that differ from the original; if `minutes` end the training, epochs do not count.

    >>> changes(load_recipe("laptop-digits", ["lr=2e-3", "epochs=9"]), load_recipe("laptop-digits"), minutes=5)
    {'lr': 0.002}
    """
    ignored = _OUTSIDE_OF_THE_PIPELINE | (frozenset() if minutes is None else {"epochs"})
    values = recipe.model_dump(exclude=set(ignored))
    return {key: value for key, value in values.items() if value != getattr(original, key)}


def _hash_of(recipe: Recipe) -> str:
    # Without defaults, so that a key that favor adds later changes no hash.
    said = recipe.model_dump(mode="json", exclude=set(_OUTSIDE_OF_THE_PIPELINE), exclude_defaults=True)
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:8]


def is_recipe_file(name: str) -> bool:
    """Whether it is the path of a recipe rather than the name of a built-in one."""
    return name.endswith((".yaml", ".yml"))


def parse_override(text: str) -> tuple[str, object]:
    """The key and the value of `--set key=value`; values are written as in the files.

    >>> parse_override("epochs=5")
    ('epochs', 5)
    """
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise RequestError(f"--set {shown(text)}: write key=value, such as --set epochs=5")
    if key not in KEYS:
        raise unknown_name("key of a recipe", key, KEYS)
    if key in ("name", "version", "doc"):
        raise RequestError(f"--set {key}: identifies the recipe and cannot be set; write your own recipe file")
    return key, _number_or(YamlFile(f"--set {key}", value).content)


def _folder() -> Any:
    return files("favor.training") / "recipes"


def _read(name: str) -> YamlFile:
    if is_recipe_file(name):
        return YamlFile.read(Path(name))
    if name not in recipe_names():
        raise unknown_name(
            "recipe", name, recipe_names(), f"known: {', '.join(recipe_names())}; or give the path of a .yaml file"
        )
    return YamlFile(f"recipe {name}", (_folder() / f"{name}.yaml").read_text(encoding="utf-8"))


def _number_or(value: object) -> object:
    """Read `1e-3` as a number, which YAML 1.1 does only with a dot."""
    if isinstance(value, tuple):
        return tuple(_number_or(item) for item in value)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value
