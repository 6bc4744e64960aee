"""The top-level command: commands in groups, and errors for old spellings that name the new one."""

from typing import Any

from typer.core import TyperGroup

from favor.errors import RequestError

GROUPS = {
    "Choose": ("recommend", "pareto", "compare", "correlate", "disagree", "effects", "budget"),
    "Measure": ("measure", "load", "count", "simulate", "variability", "doctor", "devices"),
    "Train": ("train", "finetune", "evaluate", "predict", "export", "shards"),
    "Studies": ("run", "status", "resume", "cancel", "report", "figures", "table", "import", "push"),
    "The zoo": ("list", "show"),
}

OLD_OPTIONS = {
    "--into": ("--study", "--study DIR"),
    "--out": ("--study", "--study DIR"),
    "--on": ("--device", "--device NAME"),
    "--again": ("--repeat", "--repeat flagged"),
    "--retry": ("--repeat", "--repeat failed"),
    "--compile": ("--runtime", "--runtime compile"),
    "--tensorboard": ("--log", "--log tensorboard"),
    "--training": ("--phase", "--phase training"),
    "--no-training": ("--phase", "--phase inference"),
}
"""Old option -> its replacement, and how to write it."""

OLD_COMMANDS = {"export": "table STUDY... --csv|--parquet"}
OLD_FORMATS = {"--csv", "--parquet"}
"""Options of the old `favor export`, which exported records; today's exports models."""


class Door(TyperGroup):
    """The group of all commands."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the words name; an old spelling is refused with the new one."""
        if args[0] in OLD_COMMANDS and OLD_FORMATS.intersection(args):
            raise RequestError(f"`favor {args[0]}` is now `favor {OLD_COMMANDS[args[0]]}`")
        name, command, rest = super().resolve_command(ctx, args)
        _refuse_old_options(command, rest)
        return name, command, rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Plain text: importing rich for typer's panels takes longer than everything else."""
        super(TyperGroup, self).format_help(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Every command with the first sentence of its help."""
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(limit=300)) for name in names])


def _refuse_old_options(command: Any, words: list[str]) -> None:
    """Refuse an old option if the command has its replacement, and `--study` if studies are arguments."""
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    has = {option for parameter in command.params for option in parameter.opts}
    for word in words[: words.index("--")] if "--" in words else words:
        option = word.partition("=")[0]
        new, spelled = OLD_OPTIONS.get(option, ("", ""))
        if option not in has and new in has:
            raise RequestError(f"{option} is now {spelled}")
        if option == "--study" and option not in has and any(_is_study(parameter) for parameter in command.params):
            raise RequestError(f"favor {command.name} takes the study without an option: favor {command.name} DIR")


def _is_study(parameter: Any) -> bool:
    return parameter.param_type_name == "argument" and (parameter.help or "").lower().startswith("study folder")
