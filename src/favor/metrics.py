"""The glossary of cost indicators and qualities: what each number means, its unit and which direction is better.

Every part of favor names its numbers with these names and stores them in these units. Imports no torch.
"""

from dataclasses import dataclass
from typing import Literal

from favor.errors import unknown_name

Better = Literal["lower", "higher", "neither"]


@dataclass(frozen=True)
class Metric:
    """One indicator; `unit` is the unit that its values are stored in."""

    name: str
    title: str
    unit: str
    better: Better
    definition: str


_GLOSSARY = (
    # counted
    Metric("params", "Parameters", "1", "lower", "Elements of all parameters, each shared parameter once."),
    Metric(
        "params_trainable", "Trainable parameters", "1", "lower", "Elements of the parameters that want a gradient."
    ),
    Metric(
        "params_paper",
        "Parameters, as the X-formers paper counts",
        "1",
        "lower",
        "Elements of `weight` and `bias` of standard modules only, which leaves out bare parameters.",
    ),
    Metric(
        "model_size_paper",
        "Model size, as the X-formers paper counts",
        "B",
        "lower",
        "Bytes of one float32 input image, of twice the output of every standard module, and of `params_paper`.",
    ),
    Metric("weight_bytes", "Weights", "B", "lower", "Bytes of all parameters and persistent buffers."),
    Metric(
        "macs_matmul",
        "Multiply-adds (matmul)",
        "1",
        "lower",
        "Multiply-adds of matrix products, convolutions and attention products for one image: the closed form.",
    ),
    Metric(
        "macs",
        "Multiply-adds",
        "1",
        "lower",
        "`macs_matmul` plus half of the operations of Fourier transforms, one image.",
    ),
    Metric("flops", "FLOPs", "1", "lower", "All arithmetic for one image: two per multiply-add plus everything else."),
    Metric(
        "ops_mixed",
        "Operations, as the benchmark counts",
        "1",
        "lower",
        "Multiply-adds as one plus element-wise operations, one image: what the benchmark paper calls FLOPS.",
    ),
    Metric(
        "activations", "Activations", "1", "lower", "Elements put out by convolutions and matrix products, one image."
    ),
    Metric(
        "bytes_moved",
        "Memory access",
        "B",
        "lower",
        "Bytes read and written by every operator that is not a view, one image.",
    ),
    # speed
    Metric(
        "throughput",
        "Throughput",
        "img/s",
        "higher",
        "Images per second at inference, at the best batch size unless another is stated.",
    ),
    Metric(
        "best_batch_size", "Best batch size", "img", "neither", "The batch size with the highest inference throughput."
    ),
    Metric("latency_p50", "Latency (median)", "s", "lower", "Time of one forward pass at batch size 1, median."),
    Metric("latency_p90", "Latency (p90)", "s", "lower", "Time of one forward pass at batch size 1, 90th percentile."),
    Metric("latency_p99", "Latency (p99)", "s", "lower", "Time of one forward pass at batch size 1, 99th percentile."),
    Metric(
        "train_throughput",
        "Training throughput",
        "img/s",
        "higher",
        "Images per second in training steps, data in memory.",
    ),
    Metric(
        "train_step_time",
        "Training step",
        "s",
        "lower",
        "Time of forward, backward and optimizer step at the stated batch size, else at the reference batch.",
    ),
    Metric(
        "train_step_time_end_to_end",
        "Training step with data",
        "s",
        "lower",
        "The training step including loading and augmenting its batch.",
    ),
    Metric(
        "pipeline_idle_time",
        "Pipeline idle time",
        "s",
        "lower",
        "End-to-end step time less the step time: the wait for data.",
    ),
    Metric(
        "train_hours_per_epoch", "Training hours per epoch", "h", "lower", "Hours for one pass over the training set."
    ),
    Metric("finetune_time", "Fine-tuning time", "h", "lower", "Device hours of the whole fine-tuning."),
    # memory
    Metric(
        "inference_memory",
        "Inference memory",
        "B",
        "lower",
        "Peak of allocated bytes in a forward pass at batch size 1, weights included.",
    ),
    Metric(
        "inference_memory_best_batch",
        "Inference memory, best batch",
        "B",
        "lower",
        "Peak of allocated bytes in a forward pass at the best batch size.",
    ),
    Metric(
        "train_memory",
        "Training memory",
        "B",
        "lower",
        "Peak of allocated bytes in a training step at the stated batch size.",
    ),
    Metric(
        "memory_reserved", "Reserved memory", "B", "lower", "Peak of bytes that the allocator holds from the device."
    ),
    Metric(
        "memory_process",
        "Process memory",
        "B",
        "lower",
        "Peak of the process's resident main memory, which is the host's also where the model runs on a GPU.",
    ),
    Metric(
        "max_batch_size",
        "Largest batch",
        "img",
        "higher",
        "The largest batch whose forward pass fits into the stated memory.",
    ),
    Metric(
        "train_max_batch_size",
        "Largest training batch",
        "img",
        "higher",
        "The largest batch whose training step fits into the stated memory.",
    ),
    # energy
    Metric("energy_per_image", "Energy per image", "J", "lower", "Energy of inference divided by the images."),
    Metric(
        "train_energy_per_image",
        "Training energy per image",
        "J",
        "lower",
        "Energy of training steps divided by the images.",
    ),
    Metric(
        "carbon_per_image",
        "Carbon per image",
        "gCO2e",
        "lower",
        "Energy of one image at inference times the carbon intensity of the user's grid.",
    ),
    Metric(
        "train_carbon_per_epoch",
        "Training carbon per epoch",
        "gCO2e",
        "lower",
        "Energy of one pass over the training set times the carbon intensity of the user's grid.",
    ),
    Metric(
        "money_per_image",
        "Money per image",
        "currency",
        "lower",
        "Time of one image at inference times the user's price per hour.",
    ),
    Metric(
        "train_money_per_epoch",
        "Training money per epoch",
        "currency",
        "lower",
        "Time of one pass over the training set times the user's price per hour.",
    ),
    # quality
    Metric("top1", "Top-1 accuracy", "%", "higher", "Share of test images whose class is predicted first."),
    Metric(
        "top5", "Top-5 accuracy", "%", "higher", "Share of test images whose class is among the five predicted first."
    ),
    Metric("loss", "Loss", "nat", "lower", "Mean cross entropy on the test images."),
    Metric("train_loss", "Training loss", "nat", "lower", "Mean of the training objective over an epoch."),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _GLOSSARY}


def metric(name: str) -> Metric:
    """The glossary's entry for a name.

    >>> metric("throughput").unit
    'img/s'
    """
    try:
        return METRICS[name]
    except KeyError:
        raise unknown_name("metric", name, METRICS, "docs/metrics.md lists them") from None
