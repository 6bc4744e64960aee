"""OpenVINO and NNCF report their use to their makers unless told not to; favor tells them not to."""

import sys


def without_telemetry() -> None:
    """Keep `openvino_telemetry` from being imported, which both packages do without; call before importing either."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type] # None makes an import fail
