"""`favor export`: a model as a file that runs without favor."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from favor.cli.console import emit_json, emit_table, examples
from favor.cli.train import Pretrained, Weights
from favor.cli.zoo import AsJson, load_plugins
from favor.terminal import note

if TYPE_CHECKING:
    from favor.runtime.card import ExportCard

EXAMPLES = examples(
    ("favor export runs/train/runs/RUN -o model.onnx", "the best model of a run, for ONNX Runtime"),
    (
        "favor export best.safetensors -o model.xml --runtime openvino --precision int8",
        "calibrated on images that it was trained on",
    ),
    (
        "favor export best.safetensors -o model.onnx --precision int8 --calibration folder:photos",
        "calibrated on your images",
    ),
    ("favor export vit_s16 --pretrained -o vit.onnx", "published weights, for ImageNet's classes"),
    ("favor export vit_s16 -o vit.onnx --dynamic-batch", "random weights; one file for all batch sizes"),
)


def add_commands(app: typer.Typer) -> None:
    app.command("export", epilog=EXAMPLES)(export_command)


def export_command(
    source: Annotated[
        str, typer.Argument(metavar="NAME|CHECKPOINT|RUN", help="A model, a checkpoint file, or a run's folder.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The file: .onnx, .xml (OpenVINO) or .pt2 (PyTorch).")],
    runtime: Annotated[str, typer.Option("--runtime", help="onnx, openvino or torch-export.")] = "onnx",
    dynamic_batch: Annotated[
        bool, typer.Option("--dynamic-batch", help="Take any batch size (default: one image).")
    ] = False,
    pretrained: Pretrained = False,
    weights: Weights = None,
    img_size: Annotated[
        int | None, typer.Option("--img-size", metavar="PIXELS", help="Image size of a named model (default: its own).")
    ] = None,
    precision: Annotated[str, typer.Option("--precision", help="fp32, fp16 or int8.")] = "fp32",
    calibration: Annotated[
        str | None,
        typer.Option(metavar="NAME[:PATH]", help="int8: calibration images (default: the checkpoint's)."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="NAME[:PATH]", help="Dataset of the self-test (default: the checkpoint's)."),
    ] = None,
    images: Annotated[int | None, typer.Option(help="Images in the self-test (default: 64, or 512 for int8).")] = None,
    as_json: AsJson = False,
) -> None:
    """Export a model, with a JSON card beside it, and compare its outputs with eager mode on real images."""
    from favor.training.export import ExportRequest, export

    load_plugins()
    card = export(
        ExportRequest(
            source,
            output,
            runtime,
            precision,
            dynamic_batch,
            data,
            calibration,
            images,
            weights or pretrained,
            img_size,
        )
    )
    if card.dataset is None:
        note(f"{card.model} has random weights; export a checkpoint to get a trained model")
    if card.self_test.data == "synthetic":
        note("compared on generated images because no real ones were found; name some with --data NAME[:PATH]")
    if as_json:
        emit_json({"file": str(output), **card.model_dump(mode="json")})
    else:
        _print(output, card)


def _print(file: Path, card: "ExportCard") -> None:
    from favor.runtime.exported import files_of
    from favor.units import format_quantity

    test = card.self_test
    row = {
        "file": str(file),
        "size": format_quantity(float(sum(part.stat().st_size for part in files_of(file))), "B"),
        **({"calibrated on": card.calibration} if card.calibration else {}),
        "compared on": f"{test.images} of {test.data}",
        "largest deviation": f"{test.largest_deviation:.2g} ({test.relative_deviation:.1e} of the largest output)",
        "top-1 agreement": f"{test.top1_agreement:.1f} %",
    }
    if test.top1 is not None and test.top1_change is not None:
        row["top-1"] = f"{test.top1 + test.top1_change:.2f} %"
        row["change of top-1"] = (
            f"{test.top1_change:+.2f} points ({test.top1_change_low:+.2f} to {test.top1_change_high:+.2f})"
        )
    emit_table(
        f"{card.model}, {card.precision}, {card.img_size} px, against eager mode", tuple(row), [tuple(row.values())]
    )
