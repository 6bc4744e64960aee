"""The energy of a training run, if the device reports it; if a meter fails, the run goes on without energy."""

from favor.machine.device import Device
from favor.machine.energy import CodeCarbon, EnergyError, EnergyMeter, find_energy_meter
from favor.training.callbacks import Audience


class TrainingEnergy:
    """Joules per interval of training; None once an interval could not be measured."""

    def __init__(self, meter: EnergyMeter | None, audience: Audience) -> None:
        self._meter, self._audience = meter, audience

    @property
    def method(self) -> str:
        return self._meter.method if self._meter else "not measured"

    def start(self) -> None:
        """Start an interval."""
        if self._meter is not None:
            try:
                self._meter.start()
            except EnergyError as error:
                self._give_up(error)

    def stop(self) -> float | None:
        """Joules since `start`."""
        if self._meter is not None:
            try:
                return self._meter.stop()
            except EnergyError as error:
                self._give_up(error)
        return None

    def _give_up(self, error: EnergyError) -> None:
        self._audience.note(f"energy is not measured from here on: {error}")
        self._meter = None


def training_energy(device: Device, processes: int, audience: Audience) -> TrainingEnergy:
    """The device's own meter; an estimate from rated power is not a measurement, and takes a second each time.

    With several processes there is none: a meter sees one device, but the images are counted over all.
    """
    meter = find_energy_meter(device.kind, device.torch_device.index or 0) if processes == 1 else None
    return TrainingEnergy(None if isinstance(meter, CodeCarbon) else meter, audience)
