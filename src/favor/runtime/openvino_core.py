"""OpenVINO's core, which reads and compiles models. Imports no torch."""

from functools import cache
from typing import Any

from favor.runtime.telemetry import without_telemetry


@cache
def openvino_core() -> Any:
    """The core of this process, which is never destroyed.

    A core sets an alternate signal stack for its thread when it first uses the CPU, and frees it when it is destroyed.
    If two cores are not destroyed in reverse order, a freed stack stays set, and the next signal that Python handles
    (Ctrl-C, the end of a child process) crashes the process. Seen with OpenVINO 2026.4.
    """
    without_telemetry()
    import openvino

    return openvino.Core()
