"""Which models run in which runtime: one cell after the other, each in a process of its own with a time limit.

    python benchmarks/runtime_matrix.py                       # what is missing; --repeat failed or all: again
    python benchmarks/runtime_matrix.py vit_s16 'afno_*'      # these models only
    python benchmarks/runtime_matrix.py --miniature           # small instances: 4 blocks, 64 px
    python benchmarks/runtime_matrix.py --write               # docs/runtimes.md from the records, nothing is run

Every model of the benchmark's Table 5, and the eight that the paper describes without results, at its own image size.
Records are appended to src/favor/runtime/matrix.jsonl. The last one of a cell counts, and one of the whole model before
one of its miniature. 165 cells take 80 minutes of one core, 50 as miniatures. Weights are fresh, but parts which
start as zero or nearly so (biases, LayerScale) are given values: what they hide would not be compared.
"""

import argparse
import csv
import fnmatch
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from favor.atomic_file import write_whole
from favor.errors import FavorError
from favor.runtime.matrix import RECORDS, Cell, every_cell, read_cells

if TYPE_CHECKING:
    from torch import Tensor, nn

ROOT = Path(__file__).parents[1]
TABLE5 = ROOT / "src/favor/records/published/favor_table5.csv"
UNTRAINED = (
    *("halonet_h0", "reformer_s16", "performer_s16", "linear_s16"),
    *("flt_s16", "scatterbrain_s16", "avit_s16", "gtp_s16"),
)
RUNTIMES = ("onnxruntime", "openvino", "compile")
BATCH, OTHER_BATCH = 2, 3
TITLES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "compile": "torch.compile"}
MARK = "<!-- matrix: python benchmarks/runtime_matrix.py --write -->"
LIMIT = 900
"""Seconds of processor time."""
TOLERANCE = 1e-4
"""The largest deviation, as a share of the largest output, of a cell that works; float32 itself is off by 1e-6.

Trained weights can amplify rounding more, so `favor export` allows 1e-3.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", default=["*"])
    parser.add_argument("--repeat", choices=("failed", "all"))
    parser.add_argument("--runtime", action="append", choices=RUNTIMES)
    parser.add_argument("--miniature", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--cell", nargs=4, metavar=("MODEL", "RUNTIME", "FOLDER", "SIZE"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.cell:
        model, runtime, folder, size = asked.cell
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 10))
        print(json.dumps(run_cell(model, runtime, Path(folder), size).as_dict()))
        return
    if not asked.write:
        run_missing(asked.patterns, asked.runtime or RUNTIMES, asked.repeat, "miniature" if asked.miniature else "own")
    write_whole(ROOT / "docs/runtimes.md", page(read_cells()).encode())


def models() -> list[str]:
    with TABLE5.open() as file:
        return [row["name"] for row in csv.DictReader(file)] + list(UNTRAINED)


def run_missing(patterns: list[str], runtimes: Sequence[str], repeat: str | None, size: str) -> None:
    known = {(cell.model, cell.runtime): cell for cell in every_cell() if cell.size == size}
    wanted = [name for name in models() if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    for place, name in enumerate(wanted, 1):
        with tempfile.TemporaryDirectory() as folder:  # ONNX Runtime and OpenVINO open the same file
            for runtime in runtimes:
                before = known.get((name, runtime))
                if before and not (repeat == "all" or (repeat == "failed" and before.status != "works")):
                    continue
                cell = run_apart(name, runtime, folder, size)
                with RECORDS.open("a") as file:
                    file.write(json.dumps(cell.as_dict()) + "\n")
                told = f"{cell.deviation:.1e}" if cell.deviation is not None else cell.reason
                print(
                    f"[{place}/{len(wanted)}] {name} {runtime}: {cell.status} {told}, {cell.seconds:.0f} s", flush=True
                )


def run_apart(name: str, runtime: str, folder: str, size: str) -> Cell:
    """A cell in a process of its own, whose processor time is limited: on a busy machine the clock says nothing."""
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, __file__, "--cell", name, runtime, folder, size],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, problems = process.communicate()
    if process.returncode == -signal.SIGXCPU:
        why = f"not done after {LIMIT} s of processor time"
        return Cell(name, runtime, "fails", size, reason=why, seconds=time.monotonic() - started)
    if process.returncode:
        last = [line for line in problems.splitlines() if line.strip()][-1:] or [f"exit code {process.returncode}"]
        return Cell(name, runtime, "fails", size, reason=last[0].strip(), seconds=time.monotonic() - started)
    return Cell(**json.loads(out.splitlines()[-1]))


def run_cell(name: str, runtime: str, folder: Path, size: str) -> Cell:
    import torch

    from favor.runtime.export import traced, write_onnx
    from favor.runtime.opening import open_file
    from favor.runtime.session import Choice, Session
    from favor.runtime.torch_session import TorchSession
    from favor.zoo.fuse import fuse
    from favor.zoo.registry import create_miniature, create_model

    started = time.monotonic()
    choice = Choice(runtime, threads=1)
    choice.check()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = fuse(with_visible_parts(create_miniature(name) if size == "miniature" else create_model(name)))
    px = model.img_size[0]
    images = torch.randn(OTHER_BATCH, 3, px, px, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected = model(images)
    exact = float64_outputs(model, images)
    batch = OTHER_BATCH if runtime == "compile" else None
    try:
        if runtime == "compile":
            session: Session = TorchSession(model, images, choice)
        else:
            file, fixed = folder / "dynamic.onnx", folder / "fixed.onnx"
            try:
                if not (file.exists() or fixed.exists()):
                    write_onnx(traced(model, images[:BATCH], dynamic_batch=True), file)
            except FavorError:
                write_onnx(traced(model, images, dynamic_batch=False), fixed)
            if fixed.exists():
                file, batch = fixed, OTHER_BATCH
            session = open_file(file, choice)
        outputs = session.run(images)
    except FavorError as error:
        reason = str(error).replace(f"{folder}/", "")
        return Cell(name, runtime, "fails", size, px, batch, reason=reason, seconds=time.monotonic() - started)
    scale = float(expected.abs().max())
    deviation = float((outputs - expected).abs().max()) / scale
    return Cell(
        name,
        runtime,
        "works" if deviation <= TOLERANCE else "deviates",
        size,
        px,
        batch,
        deviation=deviation,
        float32_deviation=float((exact - expected).abs().max()) / scale,
        versions=dict(session.facts.versions),
        seconds=time.monotonic() - started,
    )


def with_visible_parts(model: "nn.Module") -> "nn.Module":
    """The model with noise where parameters start as zero, and one where they start as a small constant."""
    import torch

    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            first = float(parameter.flatten()[0])
            if abs(first) >= 0.5 or not bool((parameter == first).all()):
                continue
            noise = 0.02 * torch.randn(parameter.shape, generator=generator)
            parameter.copy_(noise if first == 0.0 else torch.ones_like(noise))
    return model


def float64_outputs(model: "nn.Module", images: "Tensor") -> "Tensor":
    import copy

    import torch

    with torch.inference_mode():
        return copy.deepcopy(model).double()(images.double()).float()


def page(cells: dict[tuple[str, str], Cell]) -> str:
    """docs/runtimes.md: the words of its head, which are kept, and the table."""
    head = (ROOT / "docs/runtimes.md").read_text().partition(MARK)[0]
    counted = [cells[key] for key in cells if key[1] in RUNTIMES]
    works = sum(cell.status == "works" for cell in counted)
    dynamic = sum(cell.batch_size is None for cell in counted if cell.status == "works" and cell.runtime != "compile")
    missing = len(RUNTIMES) * len(models()) - len(counted)
    exported = sum(cell.status == "works" for cell in counted if cell.runtime != "compile")
    whole = sum(cell.size == "own" for cell in counted)
    footnote = " ² the batch size is fixed in the file." if any(map(_has_fixed_batch, counted)) else ""
    lines = [
        MARK,
        "",
        f"{works} of {len(counted)} cells work ({100 * works / max(len(counted), 1):.0f} %)"
        f"{f'; {missing} have not been run yet' if missing else ''}. "
        f"The whole model ran in {whole} of them, a small instance of its family (¹) in the others. "
        f"{dynamic} of {exported} working cells of ONNX Runtime and OpenVINO take any batch size.{footnote}",
        "",
        "| model | " + " | ".join(TITLES[runtime] for runtime in RUNTIMES) + " | eager, float64 |",
        "|---|" + "---|" * (len(RUNTIMES) + 1),
    ]
    for name in models():
        own = [cells[name, runtime] for runtime in RUNTIMES if (name, runtime) in cells]
        rounding = next((f"{cell.float32_deviation:.0e}" for cell in own if cell.float32_deviation is not None), "")
        told = " | ".join(_told(cells.get((name, runtime))) for runtime in RUNTIMES)
        lines.append(f"| `{name}` | {told} | {rounding} |")
    return head + "\n".join(lines) + "\n"


def _has_fixed_batch(cell: Cell) -> bool:
    return cell.runtime != "compile" and bool(cell.batch_size)


def _told(cell: Cell | None) -> str:
    if cell is None:
        return "not run yet"
    marks = ("¹" if cell.size == "miniature" else "") + ("²" if _has_fixed_batch(cell) else "")
    if cell.status == "works":
        return f"{cell.deviation:.0e}{marks}"
    reason = (cell.reason or "").replace("|", "\\|")
    return f"deviates by {cell.deviation:.0e}{marks}" if cell.status == "deviates" else f"fails: {reason}{marks}"


if __name__ == "__main__":
    main()
