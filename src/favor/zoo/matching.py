"""From what a user writes to the models that it stands for."""

from collections.abc import Iterable

from favor.errors import RequestError, unknown_name
from favor.zoo.registry import WILDCARDS, card, has_settings, list_models
from favor.zoo.settings import parse_name, spelled


def matching_models(entries: Iterable[str]) -> list[str]:
    """The models that names, aliases, patterns and classes stand for, each once, in the order given.

    Settings in brackets hold for all models of a pattern.

    >>> matching_models(["vit_s16", "vit_?16", "linformer_vit_small_patch16"])
    ['vit_s16', 'vit_b16', 'vit_l16', 'linformer_s16']
    """
    return list(dict.fromkeys(name for entry in entries for name in _matches_with_settings(entry)))


def _matches_with_settings(entry: str) -> list[str]:
    if not has_settings(entry):
        return _matches(entry)
    name, settings = parse_name(entry)
    return [card(spelled(match, settings)).name for match in _matches(name)]


def _matches(entry: str) -> list[str]:
    if not entry.strip():
        raise RequestError("a model's name is empty; `favor list` shows all")
    level, colon, key = entry.partition(":")
    if colon and level not in ("how", "where", "timm"):
        raise unknown_name("kind of model", level, ("how", "where", "timm"), "write how:kernel or where:mlp_block")
    if colon and level == "how":
        return list_models(how=key)
    if colon and level == "where":
        return list_models(where=key)
    if not any(mark in entry for mark in WILDCARDS):
        return [card(entry).name]
    if colon:
        import timm

        matches = [f"timm:{match}" for match in timm.list_models(key)]
    else:
        matches = list_models(entry)
    if not matches:
        raise RequestError(f"no model fits {entry!r}; `favor list` shows all")
    return matches
