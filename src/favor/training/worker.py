"""The training worker: trains one model with one recipe, and writes records and checkpoints into the study itself."""

import logging
import os
import signal
import time

from favor.errors import RequestError
from favor.machine.messages import Channel
from favor.machine.worker import serve
from favor.records.schema import Record
from favor.training.callbacks import StepNews
from favor.training.local_ranks import started_ranks
from favor.training.request import TrainingRequest
from favor.training.slurm_step import variables_of_slurm
from favor.units import format_span

SECONDS_BETWEEN_STEPS = 0.5


class Reporter:
    """Reports the training to the parent: a step now and then, a note for every epoch."""

    def __init__(self, model: str, channel: Channel) -> None:
        self._model, self._channel = model, channel
        self._told = 0.0

    def note(self, text: str) -> None:
        self._channel.note(text)

    def stepped(self, news: StepNews) -> None:
        if time.monotonic() - self._told < SECONDS_BETWEEN_STEPS:
            return
        self._told = time.monotonic()
        top1 = "" if news.top1 is None else f", top-1 {news.top1:.1f} %"
        speed = f"{_rate(news)}, ends in {format_span(news.seconds_left)}"
        self._channel.progress(f"epoch {news.epochs:.2f}, loss {news.loss:.3f}{top1}, {speed}")

    def evaluated(self, record: Record, news: StepNews) -> None:
        self._channel.note(epoch_line(self._model, record, news))


class _Notes(logging.Handler):
    """Sends warnings to the parent, such as one of a broken image that is left out; stderr is not shown."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(logging.WARNING)
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        self._channel.note(record.getMessage())


def _rate(news: StepNews) -> str:
    rate = news.images_per_second
    return f"{rate:.0f} img/s" if rate >= 10 else f"{rate:.1f} img/s"


def epoch_line(model: str, record: Record, news: StepNews) -> str:
    """The result of an epoch on one line."""
    top1, top5, loss = (record.metrics[name].value for name in ("top1", "top5", "loss"))
    return (
        f"{model} epoch {record.conditions['epochs']}: loss {news.loss:.4f}, top-1 {top1:.2f} %, top-5 {top5:.2f} %, "
        f"test loss {loss:.4f}, {_rate(news)}, {format_span(news.seconds_left)} left"
    )


def run(request: str, channel: Channel) -> None:
    """Run the requested training; a wrong request is refused, and nothing is written."""
    from favor.training.run import train
    from favor.zoo.registry import load_plugin

    asked = TrainingRequest.from_json(request)
    channel.begin("training")
    logging.getLogger("favor").addHandler(_Notes(channel))
    try:
        for plugin in asked.plugins:
            load_plugin(plugin)
        os.environ.update(variables_of_slurm(os.environ))
        with started_ranks(asked):
            outcome = train(asked, Reporter(asked.model, channel))
    except RequestError as error:
        channel.refused(str(error))
        return
    if outcome.ending == "stopped":
        channel.failed("failed", "interrupted")
    else:
        channel.done()


if __name__ == "__main__":
    # As a cluster does at the end of a time slot: the training saves a checkpoint and ends.
    serve(run, when_the_parent_ends=lambda: os.kill(os.getpid(), signal.SIGTERM))
