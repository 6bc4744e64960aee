"""Options as a small study: requests of the command line and of Python, checked and resolved like a study file."""

from collections.abc import Mapping, Sequence
from typing import Any

from favor.errors import RequestError, Step, shown
from favor.study.resolved import Command, ResolvedStudy
from favor.study.schema import study_in


def study_from_options(
    command: Command, models: Sequence[str], phases: Sequence[str], options: Mapping[str, Any], **parts: object
) -> ResolvedStudy:
    """The study that options ask for, checked and resolved like a study file."""
    from favor.study.resolve import resolve  # imports torch, so only here

    given = plain_options(options)
    if "budget" in given:
        given["budget"] = {"measurement": given["budget"]}
    # A name that is given twice on the command line counts once.
    content = {"models": tuple(dict.fromkeys(models)), "phases": tuple(phases), **given, **parts}
    source = OptionsSource(content)
    return resolve(study_in(source, default_name=command), source, command)


def train_options(options: Mapping[str, Any]) -> dict[str, object]:
    """The `train` part of a study from the options of a training run."""
    given = plain_options(options)
    overrides = [str(entry) for entry in options.get("set") or []]
    seeds = [entry for entry in overrides if _is_seed(entry)]
    if seeds:
        seed = seeds[-1].partition("=")[2].strip()
        if not seed.isdecimal() or len(seed) > 18:
            raise RequestError(f"--set {shown(seeds[-1])}: write a whole number of 0 or more, with at most 18 digits")
        given["seeds"] = (int(seed),)
        given["set"] = tuple(entry for entry in overrides if not _is_seed(entry))
    return given


def _is_seed(override: str) -> bool:
    return override.partition("=")[0].strip() == "seed"


def plain_options(options: Mapping[str, Any]) -> dict[str, object]:
    """The options that were given, as a study file has them."""
    return {name: _plain(name, value) for name, value in options.items() if value not in (None, [])}


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


class OptionsSource:
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
        names = [str(step) for step in path if step not in ("train", "models", "report", "load")][:1]
        text = str(why)
        if not names or names[0].isdecimal() or text.startswith("--"):
            return RequestError(text)
        field = names[0]
        return RequestError(f"{option_name(field, field in ('precisions', 'runtimes', 'img_sizes'))}: {text}")


def option_name(name: str, is_list: bool) -> str:
    """The option of a field; an option that is given several times is in the singular."""
    return "--" + (name.removesuffix("s") if is_list else name).replace("_", "-")
