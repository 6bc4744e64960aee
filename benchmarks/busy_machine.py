"""Answers on a machine that another program loads for random stretches, beside the answer of the quiet machine.

    python benchmarks/busy_machine.py [--runs 5] [--study quick] [--folder runs/busy-machine]

Runs `favor run STUDY` once on the quiet machine, then several times while all cores multiply matrices for stretches of
10 to 60 s, with pauses of 10 to 60 s. Each answer agrees with the quiet one, is undecided, or is wrong. Exits with 1 if
any is wrong. Finished runs in the folder are not repeated, so an interrupted benchmark continues. `--source DIR` runs
another checkout's favor (its `src` folder), for a comparison of before and after. Six runs of `quick` take 40 minutes.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from favor.machine.environment import is_busy, look_at_load

GOALS = ("speed", "memory", "accuracy")
LOAD = "import numpy\na = numpy.random.rand(512, 512)\nwhile True:\n    a @ a\n"


@dataclass(frozen=True)
class GoalAnswer:
    """The favored model of a goal; None if the answer is undecided, with the models that it lies between."""

    favored: str | None
    between: tuple[str, ...]

    def __str__(self) -> str:
        return self.favored or f"undecided {', '.join(self.between)}".strip()


class Load:
    """Loads all cores for random stretches until it is ended."""

    def __init__(self, seed: int, stretch: tuple[float, float], cores: int) -> None:
        self._random, self._stretch, self._cores = random.Random(seed), stretch, cores  # noqa: S311 - no secret
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.loaded = self.paused = 0.0

    def _run(self) -> None:
        while not self._ended.is_set():
            start = time.monotonic()
            environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
            command = [sys.executable, "-c", LOAD]
            programs = [subprocess.Popen(command, env=environment) for _ in range(self._cores)]
            self._ended.wait(self._random.uniform(*self._stretch))
            for program in programs:
                program.kill()
                program.wait()
            loaded_until = time.monotonic()
            self._ended.wait(self._random.uniform(*self._stretch))
            self.loaded += loaded_until - start
            self.paused += time.monotonic() - loaded_until

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def share(self) -> float:
        """The share of the time in which the machine was loaded."""
        return self.loaded / (self.loaded + self.paused)


def answers_of(study: str, folder: Path, source: Path) -> dict[str, GoalAnswer]:
    """Run a study in a folder; its answer for each goal."""
    command = [sys.executable, "-m", "favor", "run", study, "--study", str(folder), "--json"]
    ended = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(source)}, stdout=subprocess.PIPE, check=True, text=True
    )
    answer = json.loads(ended.stdout)["answer"]
    return {goal: goal_answer(answer["favored"].get(goal)) for goal in GOALS}


def goal_answer(recommendation: dict[str, object] | None) -> GoalAnswer:
    """The answer for a goal from the JSON of a recommendation; None stands for a goal that could not be ranked."""
    found = recommendation or {}
    favored, between = found.get("favored"), found.get("undecided_between", [])
    return GoalAnswer(
        favored["name"] if favored else None,  # type: ignore[index]
        tuple(choice["name"] for choice in between),  # type: ignore[attr-defined]
    )


def verdict(quiet: GoalAnswer, loaded: GoalAnswer) -> str:
    """Whether an answer agrees with the quiet one; any of the models between which that one is undecided does."""
    if loaded.favored is None:
        return "undecided"
    return "agree" if loaded.favored in (quiet.favored, *quiet.between) else "wrong"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--study", default="quick", help="a built-in study, or a .yaml file")
    parser.add_argument("--folder", type=Path, default=Path("runs/busy-machine"))
    parser.add_argument("--source", type=Path, default=Path(__file__).parents[1] / "src")
    parser.add_argument("--stretch", type=float, nargs=2, default=(10.0, 60.0), metavar=("LEAST", "MOST"))
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--anyway", action="store_true", help="start even if other programs load the machine")
    options = parser.parse_args()
    others = look_at_load(2.0)
    if is_busy(others, os.cpu_count() or 1) and not options.anyway:
        sys.exit(f"other programs use {others:.1f} processors; stop them, or use --anyway")
    quiet = answers_of(options.study, options.folder / "quiet", options.source)
    print("quiet: " + "; ".join(f"{goal}: {answer}" for goal, answer in quiet.items()), flush=True)
    counts = dict.fromkeys(("agree", "undecided", "wrong"), 0)
    for run in range(1, options.runs + 1):
        with Load(options.seed + run, tuple(options.stretch), options.cores) as load:
            loaded = answers_of(options.study, options.folder / f"loaded-{run}", options.source)
        verdicts = {goal: verdict(quiet[goal], loaded[goal]) for goal in GOALS}
        for each in verdicts.values():
            counts[each] += 1
        text = "; ".join(f"{goal}: {loaded[goal]} ({verdicts[goal]})" for goal in GOALS)
        print(f"run {run}, loaded {load.share:.0%} of the time: {text}", flush=True)
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
