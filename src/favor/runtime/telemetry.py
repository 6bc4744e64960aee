"""Turns off the usage data that OpenVINO and NNCF send to their makers by default."""

import sys


def without_telemetry() -> None:
    """Keep `openvino_telemetry`, which neither package needs, from being imported; call before importing either."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type] # None makes an import fail
