"""The registry: a card per model, and the way from a name to a network.

Cards are also shipped as data (`index.py`): until a model is built or a plugin is loaded, nothing here imports torch.
"""

import fnmatch
import importlib
import importlib.util
import inspect
import logging
import numbers
import operator
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, SupportsIndex, TypeVar, get_args

from favor.errors import FavorError, RequestError, one_line, unknown_name
from favor.zoo.cards import HUB, TIMM, Card, ImageSizes, Origin
from favor.zoo.checkpoints import (
    Checkpoint,
    PushedModel,
    checkpoint,
    give_pretrained_weights,
    give_pushed_weights,
    pushed_model,
)
from favor.zoo.index import read_index
from favor.zoo.settings import check_setting, parse_name, spelled
from favor.zoo.taxonomy import How, Where

if TYPE_CHECKING:
    from torch import nn


Builder = Callable[..., "nn.Module"]
ImageSize = int | tuple[int, int]
Level = TypeVar("Level", Where, How)
_log = logging.getLogger("favor.zoo")
PLUGINS_VARIABLE = "FAVOR_PLUGINS"
WILDCARDS = "*?["
BRACKETS = "()"
"""What settings are written in, as in `linformer_s16(k=256)`."""
LARGEST_COUNT = 2**31 - 1
"""More classes or channels are a typing error; they would overflow the sizes of tensors."""
COMMON_OPTIONS = ("num_classes", "img_size", "in_chans", "drop_path")


@dataclass(frozen=True)
class Variant:
    """One named setting of an architecture."""

    name: str
    settings: Mapping[str, object] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    image_sizes: ImageSizes | None = None


@dataclass(frozen=True)
class Entry:
    """A card, and what builds its model."""

    card: Card
    build: Builder
    settings: Mapping[str, object]
    miniature: Mapping[str, object]


_entries: dict[str, Entry] = {}
_names: dict[str, str] = {}
"""Every name and alias in lower case -> the name of the model that it leads to."""
_plugins: dict[Path, list[str]] = {}
_origin_of_new_entries: Origin | None = None


def register(
    variants: Sequence[Variant],
    *,
    title: str,
    how: How | None,
    year: int | None,
    paper: str | None,
    changes: str,
    complexity: str | None = None,
    origin: Origin = "own",
    family: str | None = None,
    image_sizes: ImageSizes = ImageSizes(),  # noqa: B008 - frozen
    notes: Sequence[str] = (),
    idle_parameters: Sequence[str] = (),
    graph_breaks: str | None = None,
    miniature: Mapping[str, object] | None = None,
) -> Callable[[Builder], Builder]:
    """Enter a builder's variants into the registry.

    The builder is called with a variant's settings and `num_classes, img_size, in_chans, drop_path`. `family` is the
    builder's name unless given. `miniature` are the settings of a small instance that the tests can run in a moment.
    """

    def enter(build: Builder) -> Builder:
        for variant in variants:
            card = Card(
                name=variant.name,
                family=family or build.__name__,
                title=title,
                where=how.where if how else None,
                how=how,
                year=year,
                paper=paper,
                origin=_origin_of_new_entries or origin,
                complexity=complexity,
                changes=changes,
                image_sizes=variant.image_sizes or image_sizes,
                notes=(*notes, *variant.notes),
                aliases=variant.aliases,
                idle_parameters=tuple(idle_parameters),
                graph_breaks=graph_breaks,
            )
            _enter(Entry(card, build, variant.settings, _miniature(build, miniature)))
        return build

    return enter


def register_variant(build: Builder, variant: Variant, of: str | None = None) -> None:
    """Enter one more variant of a registered builder, with its card; `of` names a model where its cards differ."""
    like = next((entry for entry in _entries.values() if entry.build is build and of in (None, entry.card.name)), None)
    if like is None:
        raise RequestError(f"{of or build.__name__} is not registered yet; import its file first")
    card = replace(
        like.card,
        name=variant.name,
        image_sizes=variant.image_sizes or like.card.image_sizes,
        notes=(*variant.notes, *like.card.notes),
        aliases=variant.aliases,
    )
    _enter(Entry(card, build, variant.settings, like.miniature))


def _miniature(build: Builder, given: Mapping[str, object] | None) -> Mapping[str, object]:
    """The settings of a small instance; what plugs into the shell needs to say nothing about it."""
    from favor.zoo.encoder import Size

    shell = {"size": Size(48, 4, 3)} if "size" in inspect.signature(build).parameters else {}
    return {"img_size": 64, "num_classes": 10, **shell, **(given or {})}


def _enter(entry: Entry) -> None:
    name = entry.card.name
    for word in (name, *entry.card.aliases):
        if not word or word.lower().startswith(TIMM) or any(mark in word for mark in WILDCARDS + BRACKETS):
            raise RequestError(
                f"{word!r} cannot name a model: a name is not empty, has none of {' '.join(WILDCARDS)}, which make "
                f"patterns, nor of {' '.join(BRACKETS)}, which hold settings, and does not start with {TIMM}"
            )
        if word.lower() in _names:
            raise RequestError(f"the name {word!r} is registered twice; choose another name for the new model")
    _entries[name] = entry
    _names.update({word.lower(): name for word in (name, *entry.card.aliases)})


def list_models(
    pattern: str = "*",
    *,
    where: Where | str | None = None,
    how: How | str | None = None,
    origin: Origin | None = None,
    family: str | None = None,
) -> list[str]:
    """Names of the models that fit, in the order of the taxonomy and the files.

    >>> list_models("vit_*16")
    ['vit_ti16', 'vit_s16', 'vit_b16', 'vit_l16']
    """
    where = _choice(Where, "place", where)
    how = _choice(How, "strategy", how)
    if origin is not None and origin not in get_args(Origin):
        raise unknown_name("origin", origin, get_args(Origin), "choose from " + ", ".join(get_args(Origin)))
    return [
        card.name
        for card in _ordered_cards()
        if fnmatch.fnmatchcase(card.name.lower(), pattern.lower())
        and (where is None or card.where is where)
        and (how is None or card.how is how)
        and (origin is None or card.origin == origin)
        and (family is None or card.family == family)
    ]


def card(name: str) -> Card:
    """The card of a model, by its name, an alias, or `timm:NAME`; each of them may have settings.

    The card's name is the same for all spellings: settings in order, without those that are the model's anyway.

    >>> card("linformer_s16").complexity
    'O(N)'
    >>> card("EViT-S/16(keep=.5, shrink=none)").name  # doctest: +SKIP
    'evit_s16(keep=0.5)'
    """
    if has_settings(name):
        return find_entry(name).card
    if _is_timm(name):
        return _timm_entry(name).card
    cards, names = _cards_and_names()
    return cards[_name_of(name, names)]


def create_model(
    name: str,
    *,
    num_classes: int | None = None,
    img_size: ImageSize | None = None,
    in_chans: int = 3,
    drop_path: float = 0.0,
    pretrained: bool | str = False,
    **settings: object,
) -> "nn.Module":
    """Build a model, with fresh weights unless `pretrained`: true, or the tag of a checkpoint of `favor show NAME`.

    `hub:USER/NAME` instead of a tag is a model that `favor push` uploaded. Image size and number of classes are those
    of the weights unless given; without weights, the card's image size and 1000 classes.
    `settings` replace those of the variant, such as `size` or a number of the mixer's own; a name may have them, too.
    Pretrained weights are resampled to another image size; a head of other classes starts anew.

    >>> model = create_model("linformer_s16(k=32)", num_classes=10, img_size=384)
    >>> model = create_model("vit_s16", pretrained=True)  # doctest: +SKIP
    """
    entry = find_entry(name)
    for twice in settings.keys() & parse_name(name)[1].keys():
        raise RequestError(f"{twice} is given twice: in the name {name!r} and beside it; give it once")
    chosen = _pretrained(entry.card.name, pretrained, img_size)
    if chosen is not None and img_size is None:
        img_size = chosen.img_size
    if num_classes is None:
        num_classes = chosen.num_classes if isinstance(chosen, PushedModel) else 1000
    sides = _sides(entry.card.image_sizes.default if img_size is None else img_size)
    entry.card.image_sizes.check(name, sides)
    if not _is_share(drop_path):
        raise RequestError(f"drop_path is a share of images, 0 or more and less than 1, not {drop_path!r}")
    settings = _with_size_by_name(settings)
    _check_settings(entry, settings)
    model = entry.build(
        **{**entry.settings, **settings},
        num_classes=_count("num_classes", num_classes),
        img_size=sides,
        in_chans=_count("in_chans", in_chans),
        drop_path=float(drop_path),
    )
    model.img_size = sides  # type: ignore[assignment] # weights made for another image are told apart by it
    if isinstance(chosen, PushedModel):
        _log.info("%s with the weights %s: %s", name, pretrained, give_pushed_weights(model, chosen))
    elif chosen is not None:
        level, borrowed = (
            (logging.WARNING, ", trained without reducing tokens") if chosen.borrowed else (logging.INFO, "")
        )
        _log.log(
            level, "%s with the weights %s%s: %s", name, chosen.name, borrowed, give_pretrained_weights(model, chosen)
        )
    return model


def _pretrained(name: str, wanted: bool | str, img_size: ImageSize | None) -> Checkpoint | PushedModel | None:
    if wanted is False:
        return None
    if isinstance(wanted, str) and wanted.startswith(HUB):
        pushed = pushed_model(wanted)
        if pushed.model != name:
            raise RequestError(f"{wanted} holds {pushed.model}, not {name}; name that model")
        return pushed
    if wanted is not True and not isinstance(wanted, str):
        raise RequestError(f"pretrained is true, false or the tag of a checkpoint, not {wanted!r}")
    height = None if img_size is None else _sides(img_size)[0]
    return checkpoint(name, None if wanted is True else wanted, height)


def create_miniature(name: str, **options: object) -> "nn.Module":
    """A small instance of a model's family, for tests and demonstrations; `options` as for `create_model`."""
    return create_model(name, **{**find_entry(name).miniature, **options})  # type: ignore[arg-type]


def load_plugin(path: str | Path) -> list[str]:
    """Load a user's own file with `@register` in it; returns the names that it brought. A file is loaded once.

    What the file prints goes to stderr: stdout is for data.
    """
    file = Path(path).resolve()
    if not file.is_file():
        what = "is a folder" if file.is_dir() else "does not exist"
        raise RequestError(f"plugin {str(path)!r} {what}; give the path of a Python file")
    if file in _plugins:
        return _plugins[file]
    _load_package()
    before = set(_entries)
    _plugins[file] = []  # known from here on: a plugin may ask for the list of models while it is loaded
    try:
        _execute(file)
    except BaseException as error:
        unregister(set(_entries) - before)
        del _plugins[file]
        if isinstance(error, KeyboardInterrupt):
            raise
        where = f"plugin {str(path)!r}"
        if isinstance(error, FavorError):
            raise RequestError(f"{where}: {one_line(error)}") from error
        raise RequestError(
            f"{where}, line {_line_in(file, error)}: {type(error).__name__}: {one_line(error)}"
        ) from error
    _plugins[file] = [name for name in _entries if name not in before]
    if not _plugins[file]:
        del _plugins[file]
        raise RequestError(f"plugin {str(path)!r} registers no model; decorate a builder with favor.register(...)")
    return _plugins[file]


def loaded_plugins() -> tuple[Path, ...]:
    """The files of the plugins that are loaded, for a process that has to load them too."""
    return tuple(_plugins)


def _execute(file: Path) -> None:
    """Run a plugin as a module of its own name."""
    module_name = f"favor_plugin_{file.stem}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise RequestError("it is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    with _entries_of("plugin"), redirect_stdout(sys.stderr):
        spec.loader.exec_module(module)


def unregister(names: Collection[str]) -> None:
    """Take models out of the registry; a plugin that has none left can be loaded again."""
    for name in names:
        for word in (name, *_entries.pop(name).card.aliases):
            del _names[word.lower()]
    for file in [file for file, brought in _plugins.items() if brought and not _entries.keys() & brought]:
        del _plugins[file]


def vit_sizes(
    name: str, sizes: str = "ti s b", *, aliases: Sequence[str] = (), notes: Sequence[str] = (), **settings: object
) -> list[Variant]:
    """A variant per size of ViT; `name` and `aliases` have places for the size: {size}, {word} or {letter}.

    >>> [variant.name for variant in vit_sizes("linformer_{size}16", "ti s", aliases=["linformer_vit_{word}_patch16"])]
    ['linformer_ti16', 'linformer_s16']
    """
    from favor.zoo.encoder import SIZES

    words = {"ti": "tiny", "s": "small", "b": "base", "l": "large"}
    return [
        Variant(
            name.format(size=size),
            {"size": SIZES[size], **settings},
            aliases=tuple(alias.format(size=size, word=words[size], letter=size.title()) for alias in aliases),
            notes=tuple(notes),
        )
        for size in sizes.split()
    ]


def _line_in(file: Path, error: BaseException) -> int | str:
    """The last line of a file that an error passed through."""
    if isinstance(error, SyntaxError) and error.lineno:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.lineno and Path(frame.filename) == file]
    return lines[-1] if lines else "?"


@contextmanager
def _entries_of(origin: Origin) -> Iterator[None]:
    global _origin_of_new_entries  # `register` is a decorator: it cannot be handed the loader's state
    before, _origin_of_new_entries = _origin_of_new_entries, origin
    try:
        yield
    finally:
        _origin_of_new_entries = before  # a plugin may load another one, and goes on registering after it


@cache
def _load_package() -> None:
    """Import every file of the zoo: registering is importing."""
    package = importlib.import_module("favor.zoo")
    for module in pkgutil.walk_packages(package.__path__, "favor.zoo."):
        importlib.import_module(module.name)


def _load_environment_plugins() -> None:
    for path in filter(None, os.environ.get(PLUGINS_VARIABLE, "").split(os.pathsep)):
        load_plugin(path)


def package_cards() -> list[Card]:
    """The cards of the package's own models, read from its source: what the index has to hold."""
    _load_package()
    return [entry.card for entry in _entries.values() if entry.card.origin != "plugin"]


@cache
def shipped_index() -> tuple[dict[str, Card], dict[str, str]] | None:
    """The shipped cards, and every name and alias in lower case; None if the zoo's source has changed since."""
    cards = read_index()
    if cards is None:
        return None
    return cards, {word.lower(): card.name for card in cards.values() for word in (card.name, *card.aliases)}


def _cards_and_names() -> tuple[dict[str, Card], dict[str, str]]:
    """All cards, and the name that each name and alias leads to; torch is imported only if the index lacks a model."""
    _load_environment_plugins()
    index = shipped_index()
    if index is not None and _entries.keys() <= index[0].keys():
        return index
    _load_package()
    return {name: entry.card for name, entry in _entries.items()}, _names


def find_entry(name: str) -> Entry:
    if has_settings(name):
        base, settings = parse_name(name)
        return _with_settings(find_entry(base), settings)
    if _is_timm(name):
        return _timm_entry(name)
    _load_package()
    _load_environment_plugins()
    return _entries[_name_of(name, _names)]


def has_settings(name: str) -> bool:
    """Whether a name has settings, as in `linformer_s16(k=256)`."""
    if not isinstance(name, str):
        raise RequestError(f"name a model by a string such as 'vit_s16', not {name!r}")
    return BRACKETS[0] in name


def _with_settings(entry: Entry, given: Mapping[str, object]) -> Entry:
    """The model with other settings; if the zoo has it by a name of its own, that one."""
    settings = _with_size_by_name(dict(given))
    _check_settings(entry, settings)
    defaults = {p.name: p.default for p in inspect.signature(entry.build).parameters.values()}
    before = {**defaults, **entry.settings}
    after = {**before, **settings}
    for other in (entry, *_entries.values()):
        is_like = other.build is entry.build and other.card.image_sizes == entry.card.image_sizes
        if is_like and {**defaults, **other.settings} == after:
            return other
    changed = {key: given[key] for key in given if key not in before or settings[key] != before[key]}
    name = spelled(entry.card.name, changed)
    note = f"{entry.card.name} with other settings than its own, which the card describes: {name}."
    card = replace(entry.card, name=name, aliases=(), notes=(note, *entry.card.notes))
    return replace(entry, card=card, settings={**entry.settings, **settings})


def _is_timm(name: str) -> bool:
    return name.lower().startswith(TIMM)


def _name_of(word: str, names: Mapping[str, str]) -> str:
    """The model's own name for a name or an alias."""
    if word.lower() not in names:
        raise unknown_name("model", word, names, "`favor list` shows all")
    return names[word.lower()]


def _timm_entry(name: str) -> Entry:
    from favor.zoo.timm_models import build_any_timm, timm_defaults

    architecture = name[len(TIMM) :]
    defaults = timm_defaults(architecture)
    timm_card = Card(
        name=TIMM + architecture,
        family="timm",
        title=architecture,
        where=None,
        how=None,
        year=None,
        paper=None,
        origin="timm",
        complexity=None,
        changes="A network of timm that is not in favor's taxonomy.",
        image_sizes=defaults,
    )
    return Entry(timm_card, build_any_timm, {"architecture": architecture}, {})


def _ordered_cards() -> list[Card]:
    strategies = list(How)
    cards, _ = _cards_and_names()
    return sorted(cards.values(), key=lambda card: strategies.index(card.how) if card.how else len(strategies))


def _choice(kind: type[Level], what: str, value: Level | str | None) -> Level | None:
    if value is None or isinstance(value, kind):
        return value
    by_key = {member.key: member for member in kind}
    key = str(value).lower().replace("-", "_").replace(" ", "_")
    if key not in by_key:
        raise unknown_name(what, str(value), by_key, "choose from " + ", ".join(by_key))
    return by_key[key]


def _count(what: str, value: SupportsIndex) -> int:
    """A whole number of 1 or more that a tensor can have; numpy's integers will do, true and false will not."""
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number < 1 or isinstance(value, bool):
        raise RequestError(f"{what} must be a whole number of 1 or more, not {value!r}")
    if number > LARGEST_COUNT:
        raise RequestError(f"{what} must be {LARGEST_COUNT:,} or less, not {value!r}")
    return number


def _is_share(value: object) -> bool:
    return isinstance(value, numbers.Real) and 0.0 <= float(value) < 1.0


def _sides(img_size: ImageSize) -> tuple[int, int]:
    """Height and width, from one side of a square or from both."""
    sides = tuple(img_size) if isinstance(img_size, tuple | list) else (img_size, img_size)
    try:
        height, width = (operator.index(side) for side in sides)
    except (TypeError, ValueError):
        raise RequestError(f"img_size is a side in pixels or (height, width), such as 224, not {img_size!r}") from None
    return height, width


def _with_size_by_name(settings: dict[str, object]) -> dict[str, object]:
    """Settings in which a size of ViT may be named, as in `size="b"`."""
    from favor.zoo.encoder import SIZES

    name = settings.get("size")
    if not isinstance(name, str):
        return settings
    if name not in SIZES:
        raise unknown_name("size", name, SIZES, "choose from " + ", ".join(SIZES))
    return {**settings, "size": SIZES[name]}


def _check_settings(entry: Entry, settings: Mapping[str, object]) -> None:
    """Refuse a setting that the builder does not have, and a value that its annotation does not allow.

    What builds any network of timm passes all of them on. An annotation in quotes may name what is there for type
    checkers only, and is not looked at.
    """
    parameters = inspect.signature(entry.build).parameters.values()
    if any(p.kind is p.VAR_KEYWORD and p.name == "settings" for p in parameters):
        return
    # another architecture is another model: it is asked for by its own name
    named = {p.name: p.annotation for p in parameters if p.kind is not p.VAR_KEYWORD}
    known = {name: named[name] for name in named if name not in (*COMMON_OPTIONS, "architecture")}
    for name, value in settings.items():
        if name not in known:
            remedy = f"{entry.card.family} takes " + (", ".join(sorted(known)) or "none")
            raise unknown_name(f"setting of {entry.card.name}", name, known, remedy)
        if known[name] is not inspect.Parameter.empty and not isinstance(known[name], str):
            check_setting(f"{name} of {entry.card.name}", value, known[name])
