"""One network, traced once, and a calibration with round numbers."""

import pytest

from favor.simulation.calibration import Calibration, Efficiency, Residuals, Training
from favor.simulation.kernels import CLASSES
from favor.simulation.networks import Network, network


@pytest.fixture(scope="session")
def small_vit() -> Network:
    return network("vit_xs4", "inference", "amp", num_classes=10)


@pytest.fixture
def calibration() -> Calibration:
    return Calibration(
        device="rtx3090",
        devices=("rtx3090",),
        devices_compiled=("rtx3090",),
        devices_training=("rtx3090",),
        fitted_on=("round numbers",),
        networks=0,
        tile_cycles=500.0,
        step_cycles=500.0,
        kernel_seconds=1e-6,
        training=Training(1.0, 1.0),
        residuals=Residuals(
            within=0.05,
            compiled=0.1,
            matrix=0.1,
            lanes=0.1,
            memory=0.1,
            host=0.3,
            training=0.1,
            training_elsewhere=0.15,
            full=0.2,
        ),
        classes={name: Efficiency(matrix=0.5, lanes=4.0, memory=0.8) for name in CLASSES},
        newer={},
    )
