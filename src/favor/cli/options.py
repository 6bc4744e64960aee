"""Command-line options generated from the schema of studies: the same names, types, defaults and help."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


Group = Literal["measure", "train", "load"]


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
    from favor.study.schema import Budget, Load, MeasureOptions, StudyFile, Train

    machine = {name: StudyFile.model_fields[name] for name in ("device", "threads")}
    log = {"log": StudyFile.model_fields["log"]}
    if group == "train":
        of_training = {name: field for name, field in Train.model_fields.items() if field.description}
        return of_training | {"attention": StudyFile.model_fields["attention"]} | machine
    if group == "load":
        shared = ["img_sizes", "num_classes", "precisions", "runtimes", "calibration", "checkpoint", "attention"]
        shared += ["memory_limit", "time_limit"]
        return dict(Load.model_fields) | machine | {name: StudyFile.model_fields[name] for name in shared} | log
    of_study = {"img_sizes": StudyFile.model_fields["img_sizes"], "budget": Budget.model_fields["measurement"]}
    return machine | of_study | dict(MeasureOptions.model_fields) | log


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
    from favor.study.options import option_name

    kind, is_text, is_list = _kind(field)
    words = [option_name(name, is_list)]
    if kind is bool and field.default:
        words = [f"{words[0]}/--no-{name.replace('_', '-')}"]
    metavar = {"batch_size": "N|best", "p99": "LATENCY"}.get(name)
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
