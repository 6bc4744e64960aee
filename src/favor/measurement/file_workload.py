"""Inference of an exported model in ONNX Runtime or OpenVINO."""

from favor.machine.device import Peak
from favor.machine.messages import Channel
from favor.runtime.exported import ExportedModel
from favor.runtime.memory import METHOD, RUNS, growth
from favor.runtime.opening import FileSession, open_file
from favor.runtime.session import Choice, as_array
from favor.trace.workload import Call, random_images


class FileInference:
    """Forward passes of a file on images in memory. One session runs all batch sizes where one file takes them."""

    def __init__(self, exported: ExportedModel, choice: Choice, img_size: int, channel: Channel) -> None:
        self._exported, self._choice, self._img_size = exported, choice, img_size
        self._file = exported.file(1)
        self._session: FileSession = open_file(self._file, choice)
        facts = self._session.facts
        channel.environment({"provider": facts.provider, **facts.versions})
        if exported.batch_sizes is not None:
            channel.environment({"fixed_batch_sizes": " ".join(map(str, exported.batch_sizes))})

    @property
    def batch_sizes(self) -> tuple[int, ...] | None:
        return self._exported.batch_sizes

    def at(self, batch_size: int) -> Call:
        """A forward pass of a batch."""
        file = self._exported.file(batch_size)
        if file != self._file:
            self._file, self._session = file, open_file(file, self._choice)
        session, images = self._session, random_images(batch_size, self._img_size)
        array = as_array(images)

        def run() -> None:
            session.outputs(array)

        return Call(run, (images,))

    def peak(self, batch_size: int, *, roughly: bool) -> Peak:
        """The memory of a separate process: the runtime's allocator does not report its own."""
        runs = 1 if roughly else RUNS
        grown = growth(self._exported.file(batch_size), self._choice, batch_size, self._img_size, runs)
        return Peak(grown.middle, None, f"{METHOD}, median of {runs} processes", grown.least, grown.most)
