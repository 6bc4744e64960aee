"""The glossary of cost indicators and qualities: what each number means, its unit and which direction is better.

Every part of favor names its numbers with these names and stores them in these units. Imports no torch.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

from favor.errors import unknown_name
from favor.trace.conditions import Phase

Better = Literal["lower", "higher", "neither"]
Group = Literal["counted", "speed", "memory", "energy", "money", "fidelity", "quality"]


@dataclass(frozen=True)
class Metric:
    """One indicator; `unit` is the unit that its values are stored in.

    `conditions` are what its values depend on besides the model, its training and the machine.
    `at_best_batch`: by definition at the best batch size; a given batch size is a different setting.
    `exact`: the same in every run, so a value without an interval is certain.
    `signed`: a change, which may be below zero.
    `extrapolated`: from smaller batches, unless the interval has no width: then it was measured as it is.
    `phase`: whose cost it is; counts and accuracies belong to inference.
    """

    group: Group
    name: str
    title: str
    unit: str
    better: Better
    definition: str
    conditions: tuple[str, ...] = ()
    at_best_batch: bool = False
    exact: bool = False
    signed: bool = False
    extrapolated: bool = False
    phase: Phase = "inference"

    @property
    def sign(self) -> int:
        """The factor that makes lower values better."""
        return -1 if self.better == "higher" else 1

    @property
    def depends_on_device(self) -> bool:
        """Whether its values depend on the device, unlike counts and accuracies.

        >>> METRICS["throughput"].depends_on_device, METRICS["params"].depends_on_device
        (True, False)
        """
        return self.group not in ("counted", "quality")


_counted, _speed, _memory, _energy, _money, _fidelity, _quality = (
    partial(Metric, group, exact=group == "counted") for group in get_args(Group)
)
_training_speed, _training_memory, _training_energy, _training_money, _training_quality = (
    partial(of_group, phase="training") for of_group in (_speed, _memory, _energy, _money, _quality)
)

_GLOSSARY = (
    _counted("params", "Parameters", "1", "lower", "Number of parameters; shared parameters count once."),
    _counted("params_trainable", "Trainable parameters", "1", "lower", "Number of parameters that require a gradient."),
    _counted(
        "params_paper",
        "Parameters, as the X-formers paper counts them",
        "1",
        "lower",
        "Elements of `weight` and `bias` of standard modules only, without bare parameters.",
    ),
    _counted(
        "model_size_paper",
        "Model size, as the X-formers paper counts it",
        "B",
        "lower",
        "Bytes in float32: one image, `params_paper`, and twice the outputs of all modules (with attention weights).",
    ),
    _counted("weight_bytes", "Weights", "B", "lower", "Bytes of all parameters and persistent buffers."),
    _counted(
        "macs_matmul",
        "Multiply-adds (matmul)",
        "1",
        "lower",
        "Multiply-adds of matrix products, convolutions and attention, per image.",
    ),
    _counted(
        "macs",
        "Multiply-adds",
        "1",
        "lower",
        "`macs_matmul` plus half of the FLOPs of Fourier transforms, per image.",
    ),
    _counted("flops", "FLOPs", "1", "lower", "All arithmetic per image: two per multiply-add plus everything else."),
    _counted(
        "ops_mixed",
        "Operations, as the benchmark counts",
        "1",
        "lower",
        "Multiply-adds (counted as one) plus element-wise operations, per image: the benchmark paper's FLOPS.",
    ),
    _counted(
        "activations", "Activations", "1", "lower", "Output elements of convolutions and matrix products, per image."
    ),
    _counted(
        "bytes_moved",
        "Memory access",
        "B",
        "lower",
        "Bytes read and written by all operators except views, per image.",
    ),
    _speed(
        "throughput",
        "Throughput",
        "img/s",
        "higher",
        "Images per second at inference, at the best batch size unless another one is given.",
        conditions=("batch_size",),
        at_best_batch=True,
    ),
    _speed(
        "best_batch_size", "Best batch size", "img", "neither", "The batch size with the highest inference throughput."
    ),
    _speed(
        "max_qps",
        "Largest load",
        "img/s",
        "higher",
        "Most images per second at which 99 % are answered within the given limit (arriving as a Poisson process in "
        "the scenario `server`; other scenarios: load.md).",
        conditions=("p99_limit", "scenario"),
    ),
    _speed("latency_p50", "Latency (median)", "s", "lower", "Time of one forward pass at batch size 1, median."),
    _speed("latency_p90", "Latency (p90)", "s", "lower", "Time of one forward pass at batch size 1, 90th percentile."),
    _speed("latency_p99", "Latency (p99)", "s", "lower", "Time of one forward pass at batch size 1, 99th percentile."),
    _speed(
        "preparation_time",
        "Preparation",
        "s",
        "lower",
        "Time to get a model ready in its runtime, once: compiling, or exporting, quantizing and opening the file.",
    ),
    _training_speed(
        "train_throughput",
        "Training throughput",
        "img/s",
        "higher",
        "Images per second in training steps, without data loading, over all processes.",
        conditions=("batch_size", "reference_batch", "processes", "micro_batch_size", "optimizer"),
        at_best_batch=True,
    ),
    _training_speed(
        "train_step_time",
        "Training step",
        "s",
        "lower",
        "Time of forward pass, backward pass and optimizer step, at the given or the reference batch size.",
        conditions=("batch_size", "reference_batch", "processes", "micro_batch_size", "optimizer"),
    ),
    _training_speed(
        "train_step_time_end_to_end",
        "Training step with data",
        "s",
        "lower",
        "Time of a training step including data loading and augmentation.",
        conditions=("batch_size", "processes", "micro_batch_size", "optimizer"),
    ),
    _training_speed(
        "pipeline_idle_time",
        "Pipeline idle time",
        "s",
        "lower",
        "Time per step spent waiting for data: end-to-end step time minus step time.",
        conditions=("batch_size", "processes", "micro_batch_size", "optimizer"),
    ),
    _training_speed(
        "train_hours_per_epoch",
        "Training hours per epoch",
        "h",
        "lower",
        "Wall-clock hours of one pass over the training set.",
        conditions=("epoch_images", "processes", "optimizer"),
    ),
    _training_speed(
        "train_device_hours_per_epoch",
        "Device hours per epoch",
        "h",
        "lower",
        "Hours of one pass over the training set, summed over all devices that train.",
        conditions=("epoch_images", "optimizer"),
    ),
    _training_speed(
        "train_device_hours",
        "Training, device hours",
        "h",
        "lower",
        "Hours of the whole training, summed over all devices that train.",
        conditions=("dataset", "pipeline"),
    ),
    _training_speed(
        "finetune_time",
        "Fine-tuning time",
        "h",
        "lower",
        "Device hours of a complete fine-tuning.",
        conditions=("dataset", "pipeline"),
    ),
    _memory(
        "inference_memory",
        "Inference memory",
        "B",
        "lower",
        "Peak allocated memory of a forward pass at batch size 1, including weights.",
        exact=True,
    ),
    _memory(
        "inference_memory_best_batch",
        "Inference memory, best batch",
        "B",
        "lower",
        "Peak allocated memory of a forward pass at the best batch size.",
        exact=True,
    ),
    _memory(
        "file_size",
        "Size on disk",
        "B",
        "lower",
        "Bytes of the file that ONNX Runtime or OpenVINO opens.",
        exact=True,
    ),
    _training_memory(
        "train_memory",
        "Training memory",
        "B",
        "lower",
        "Peak allocated memory of a training step at the given or best batch size, of the process that needs the most.",
        conditions=("batch_size", "processes", "micro_batch_size", "optimizer"),
        exact=True,
    ),
    _training_memory(
        "train_memory_total",
        "Training memory, all processes",
        "B",
        "lower",
        "Sum over all processes of the peak allocated memory of a training step.",
        conditions=("batch_size", "processes", "micro_batch_size", "optimizer"),
        exact=True,
    ),
    _training_memory(
        "train_memory_reference_batch",
        "Training memory, reference batch",
        "B",
        "lower",
        "Peak allocated memory of a training step at the reference batch size (2048), undivided, on one device.",
        conditions=("reference_batch", "optimizer"),
        extrapolated=True,
    ),
    _memory(
        "memory_reserved",
        "Reserved memory",
        "B",
        "lower",
        "Peak memory that the allocator has reserved on the device.",
        conditions=("batch_size",),
    ),
    _training_memory(
        "train_memory_reserved",
        "Reserved memory of training",
        "B",
        "lower",
        "Peak memory that the allocator has reserved on the device for training steps.",
        conditions=("batch_size", "processes", "micro_batch_size", "optimizer"),
    ),
    _memory(
        "memory_process",
        "Process memory",
        "B",
        "lower",
        "Peak resident memory of the process: host memory, even if the model runs on a GPU.",
        conditions=("batch_size",),
    ),
    _training_memory(
        "train_memory_process",
        "Process memory of training",
        "B",
        "lower",
        "Peak resident memory of the process that trains: host memory, even if the model runs on a GPU.",
        conditions=("batch_size", "processes", "micro_batch_size", "optimizer"),
    ),
    _memory(
        "max_batch_size",
        "Largest batch",
        "img",
        "higher",
        "Largest batch size whose forward pass fits into the given memory.",
        conditions=("fit_memory",),
        exact=True,
    ),
    _training_memory(
        "train_max_batch_size",
        "Largest training batch",
        "img",
        "higher",
        "Largest batch size whose training step fits into the given memory.",
        conditions=("fit_memory", "optimizer"),
        exact=True,
    ),
    _energy(
        "energy_per_image",
        "Energy per image",
        "J",
        "lower",
        "Energy of inference per image.",
        conditions=("batch_size",),
        at_best_batch=True,
    ),
    _training_energy(
        "train_energy_per_image",
        "Training energy per image",
        "J",
        "lower",
        "Energy of training steps per image.",
        conditions=("batch_size", "optimizer"),
        at_best_batch=True,
    ),
    _training_energy(
        "train_energy",
        "Training energy",
        "J",
        "lower",
        "Energy of all steps of a training run.",
        conditions=("dataset", "pipeline"),
    ),
    _training_energy(
        "train_carbon",
        "Training carbon",
        "gCO2e",
        "lower",
        "Energy of all steps of a training run times the carbon intensity of the electricity.",
        conditions=("grid_intensity", "dataset", "pipeline"),
    ),
    _energy(
        "carbon_per_image",
        "Carbon per image",
        "gCO2e",
        "lower",
        "Energy per image at inference times the carbon intensity of the electricity.",
        conditions=("grid_intensity", "batch_size"),
        at_best_batch=True,
    ),
    _training_energy(
        "train_carbon_per_epoch",
        "Training carbon per epoch",
        "gCO2e",
        "lower",
        "Energy of one epoch times the carbon intensity of the electricity.",
        conditions=("grid_intensity", "epoch_images", "optimizer"),
    ),
    _money(
        "money_per_image",
        "Money per image",
        "currency",
        "lower",
        "Time per image at inference times the price per hour.",
        conditions=("price_per_hour", "batch_size"),
        at_best_batch=True,
    ),
    _training_money(
        "train_money",
        "Training money",
        "currency",
        "lower",
        "Device hours of the whole training times the price of a device per hour.",
        conditions=("price_per_hour", "dataset", "pipeline"),
    ),
    _training_money(
        "train_money_per_epoch",
        "Training money per epoch",
        "currency",
        "lower",
        "Time of one epoch times the price per hour.",
        conditions=("price_per_hour", "epoch_images", "optimizer"),
    ),
    _fidelity(
        "top1_change",
        "Change of top-1",
        "pp",
        "higher",
        "Top-1 accuracy of the quantized model minus that of the float one, on the same images.",
        conditions=("dataset", "pipeline", "pretraining", "pretraining_pipeline", "epochs", "minutes"),
        signed=True,
    ),
    _fidelity(
        "top1_agreement",
        "Top-1 agreement",
        "%",
        "higher",
        "Share of images for which the quantized model and the float one have the same top prediction.",
    ),
    _quality("top1", "Top-1 accuracy", "%", "higher", "Share of test images whose class is the top prediction."),
    _quality(
        "top5", "Top-5 accuracy", "%", "higher", "Share of test images whose class is among the top five predictions."
    ),
    _quality("loss", "Loss", "nat", "lower", "Mean cross entropy over the test images."),
    _training_quality("train_loss", "Training loss", "nat", "lower", "Mean of the training objective over an epoch."),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _GLOSSARY}
QUALITIES = tuple(metric.name for metric in _GLOSSARY if metric.group == "quality")
DEVICE_METRICS = tuple(metric.name for metric in _GLOSSARY if metric.depends_on_device)


def metric(name: str) -> Metric:
    """The glossary entry for a name.

    >>> metric("throughput").unit
    'img/s'
    """
    try:
        return METRICS[name]
    except KeyError:
        raise unknown_name("metric", name, METRICS, "docs/metrics.md lists them") from None
