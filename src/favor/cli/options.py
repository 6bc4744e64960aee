"""Command-line options generated from the schema of studies: the same names, types, defaults and help."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand

from favor.errors import RequestError, Step

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from favor.study.resolved import Command, ResolvedStudy

Group = Literal["measure", "train"]


def add_command(
    app: typer.Typer,
    name: str,
    function: Callable[..., None],
    epilog: str,
    group: Group,
    only: Iterable[str] = (),
    without: Iterable[str] = (),
    **defaults: object,
) -> None:
    """Add a command whose `**options` are one option for each field of a group of the schema.

    The schema is read when the command is used: pydantic would make `favor --help` slow.
    """

    class CommandWithOptions(TyperCommand):
        @cached_property
        def _made(self) -> Any:
            made = typer.Typer(add_completion=False)
            made.command(name)(_with_options(function, group, only, without, defaults))
            return typer.main.get_command(made)

        @property
        def params(self) -> Any:
            return self._made.params

        @params.setter
        def params(self, value: object) -> None:
            """Ignored: the parameters are generated on first use."""

        @property
        def callback(self) -> Any:
            return self._made.callback

        @callback.setter
        def callback(self, value: object) -> None:
            """Ignored: the callback is generated with the parameters."""

    def described() -> None: ...

    described.__doc__ = function.__doc__
    app.command(name, epilog=epilog, cls=CommandWithOptions)(described)


def _fields(group: Group) -> "dict[str, FieldInfo]":
    """The fields of the schema behind a group of options."""
    from favor.study.schema import Budget, MeasureOptions, StudyFile, Train

    machine = {name: StudyFile.model_fields[name] for name in ("device", "threads")}
    if group == "train":
        of_training = {name: field for name, field in Train.model_fields.items() if field.description}
        return of_training | {"attention": StudyFile.model_fields["attention"]} | machine
    of_study = {"img_sizes": StudyFile.model_fields["img_sizes"], "budget": Budget.model_fields["measurement"]}
    return machine | of_study | dict(MeasureOptions.model_fields)


def _with_options(
    function: Callable[..., None],
    group: Group,
    only: Iterable[str],
    without: Iterable[str],
    defaults: Mapping[str, object],
) -> Callable[..., None]:
    """The function with the generated options in its signature, where typer reads them."""
    parameters = inspect.signature(function).parameters.values()
    own = [entry.replace(kind=entry.KEYWORD_ONLY) for entry in parameters if entry.kind is not entry.VAR_KEYWORD]
    made = [
        _option(name, field, defaults.get(name))
        for name, field in _fields(group).items()
        if (not only or name in only) and name not in without
    ]
    required = [entry for entry in own if entry.default is entry.empty]
    optional = [entry for entry in own if entry.default is not entry.empty]

    def command(**given: Any) -> None:
        function(**given)

    command.__signature__ = inspect.Signature([*required, *made, *optional])  # type: ignore[attr-defined]
    command.__doc__ = function.__doc__
    return command


def _option(name: str, field: "FieldInfo", default: object) -> inspect.Parameter:
    kind, is_text, is_list = _kind(field)
    words = [_word(name, is_list)]
    if kind is bool and field.default:
        words = [f"{words[0]}/--no-{name.replace('_', '-')}"]
    metavar = "N|best" if name == "batch_size" else None
    if is_text and not is_list:
        metavar = metavar or ("SECONDS" if kind is float else "SIZE")
        kind = str
    shown = default if default is not None else field.default
    if not isinstance(shown, str | int | float | bool) or name == "img_sizes":
        shown = None
    annotation: Any = list[kind] if is_list else kind  # type: ignore[valid-type]
    if is_list:
        shown = list(field.default) if isinstance(field.default, tuple) and field.default else None
    option = typer.Option(*words, metavar=metavar, help=field.description)
    given = str(shown) if is_text and shown is not None else shown
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=given,
        annotation=Annotated[annotation if given is not None else annotation | None, option],
    )


def _kind(field: "FieldInfo") -> tuple[type, bool, bool]:
    """The plain type of a field, whether it is text with a unit such as 8GiB, and whether it is a list."""
    from pydantic import BaseModel, BeforeValidator

    kind: Any = field.annotation
    metadata = list(field.metadata)
    choices = [choice for choice in get_args(kind) if choice is not type(None)]
    if get_origin(kind) is not tuple and choices:
        kind = choices[0]
    if get_origin(kind) is Annotated:
        kind, *more = get_args(kind)
        metadata += more
    if get_origin(kind) is tuple:
        element = get_args(kind)[0]
        return (get_args(element)[0] if get_origin(element) is Annotated else element), False, True
    is_text = any(isinstance(entry, BeforeValidator) for entry in metadata)
    return (str if issubclass(kind, BaseModel) else kind), is_text, False


def _word(name: str, is_list: bool) -> str:
    return "--" + (name.removesuffix("s") if is_list else name).replace("_", "-")


class CommandLine:
    """Options as the source of a study; its errors name the option."""

    def __init__(self, content: dict[str, object]) -> None:
        self.place = "command line"
        self._content = content

    def mapping(self, what: str) -> dict[str, object]:
        """The options by the names of their fields."""
        return self._content

    def line(self, path: Sequence[Step]) -> int:
        """Always 1: a command line has one line."""
        return 1

    def error(self, path: Sequence[Step], why: object) -> RequestError:
        """The error for an option."""
        names = [str(step) for step in path if step not in ("train", "models", "report")][:1]
        text = str(why)
        if not names or names[0].isdecimal() or text.startswith("--"):
            return RequestError(text)
        field = names[0]
        return RequestError(f"{_word(field, field in ('precisions', 'img_sizes'))}: {text}")


def study_from_options(
    command: "Command", models: Sequence[str], phases: Sequence[str], options: Mapping[str, Any], **parts: object
) -> "ResolvedStudy":
    """The study that options ask for, checked and resolved as a study file is."""
    from favor.study.resolve import resolve
    from favor.study.schema import study_in

    given = {name: _plain(name, value) for name, value in options.items() if value not in (None, [])}
    if "budget" in given:
        given["budget"] = {"measurement": given["budget"]}
    # A name that is given twice on the command line counts once.
    content = {"models": tuple(dict.fromkeys(models)), "phases": tuple(phases), **given, **parts}
    source = CommandLine(content)
    return resolve(study_in(source, default_name=command), source, command)


def train_options(options: Mapping[str, Any]) -> dict[str, object]:
    """The `train` part of a study from the options of a training."""
    given = {name: _plain(name, value) for name, value in options.items() if value not in (None, [])}
    overrides = [str(entry) for entry in options.get("set") or []]
    seeds = [entry.removeprefix("seed=") for entry in overrides if entry.startswith("seed=")]
    if seeds and seeds[-1].isdecimal():
        given["seeds"] = (int(seeds[-1]),)
        given["set"] = tuple(entry for entry in overrides if not entry.startswith("seed="))
    return given


def _plain(name: str, value: object) -> object:
    """A value as in a study file: lists become tuples, and a time without a unit is in seconds."""
    if isinstance(value, list):
        return tuple(value)
    if name == "batch_size" and str(value).isdecimal():
        return int(str(value))
    if name in ("budget", "time_limit", "save_every") and _is_number(str(value)):
        return f"{value} s"
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
