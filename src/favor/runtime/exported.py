"""The files of an exported model: one for all batch sizes, or one for each. Imports no torch."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from favor.errors import RequestError

ANY_BATCH = 0


def files_of(file: Path) -> tuple[Path, ...]:
    """All files of an exported model, the weights first: OpenVINO keeps them beside the graph."""
    return (file.with_suffix(".bin"), file) if file.suffix == ".xml" else (file,)


@dataclass(frozen=True)
class ExportedModel:
    """The file of each batch size; that of `ANY_BATCH` takes all."""

    files: Mapping[int, Path]

    @property
    def batch_sizes(self) -> tuple[int, ...] | None:
        """The batch sizes that it takes; None for any."""
        return None if ANY_BATCH in self.files else tuple(sorted(self.files))

    def file(self, batch_size: int) -> Path:
        """The file for batches of this size."""
        path = self.files.get(ANY_BATCH) or self.files.get(batch_size)
        if path is None:
            sizes = ", ".join(map(str, self.batch_sizes or ()))
            raise RequestError(f"no file for batches of {batch_size}: the graph fixes the batch size, here {sizes}")
        return path

    def size(self) -> int:
        """Bytes on disk of the file for single images."""
        return sum(part.stat().st_size for part in files_of(self.file(1)))

    def save(self, file: Path) -> None:
        """Save the names of the files."""
        names = {str(batch_size): path.name for batch_size, path in self.files.items()}
        file.write_text(json.dumps(names))

    @classmethod
    def load(cls, file: Path) -> "ExportedModel":
        """The files whose names `save` wrote, beside that file."""
        names = json.loads(file.read_text())
        return cls({int(batch_size): file.with_name(name) for batch_size, name in names.items()})
