"""Devices as data: the specification of a GPU with its source, validated when it is read. Imports no torch."""

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from favor.errors import RequestError, shown, unknown_name
from favor.yaml_file import YamlFile

Positive = Annotated[float, Field(ge=1e-6, le=1e9)]

_DOUBLED = 96  # float32 products per cycle of a multiprocessor, between 64 and 128
_LANES = 32  # numbers that a multiprocessor of any generation loads or stores per cycle
_VOLTA, _AMPERE = 7.0, 8.0  # compute capabilities
_FLOAT32_PER_CYCLE, _FLOPS_PER_BYTE = (16, 512), (2, 2000)
"""Limits far beyond any GPU (64 to 138 products per cycle of a multiprocessor, 14 to 403 half-precision operations
per byte from memory): a number beyond them is not in the unit of its key."""
# Bounds alone let NaN through: it is neither below nor above any.
_STRICT = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Peaks(BaseModel):
    """Peak of dense products accumulated in float32, in TFLOP/s; null if the device does not support the type."""

    model_config = _STRICT

    fp16: Positive
    fp32: Positive
    bf16: Positive | None = None
    tf32: Positive | None = None


class Device(BaseModel):
    """A GPU as its specification describes it; the units are in the names."""

    model_config = _STRICT

    name: str = Field(min_length=1)
    title: str = Field(min_length=1)
    aliases: tuple[str, ...] = ()
    compute_capability: float = Field(ge=1, lt=20)  # 8.6, not 86
    multiprocessors: int = Field(ge=1, le=1024)
    clock_mhz: Positive
    tflops: Peaks
    bandwidth_gb_s: Positive
    cache_mb: Positive
    memory_gib: Positive
    launch_us: Positive = Field(description="time that the host takes to launch one operator")
    sustained: Annotated[float, Field(gt=0.0, le=1.5)] = Field(
        description="share of the peak that large matrix products sustain: below 1 if power or heat limits the clock; "
        "in half precision, models use an even smaller share of fast tensor cores"
    )
    sustained_deviation: Annotated[float, Field(ge=0.0, le=1.0)] = Field(
        description="relative standard deviation of `sustained`: small if it was measured, large if it is a guess"
    )
    sustained_bandwidth: Annotated[float, Field(gt=0.0, le=1.5)] = Field(
        default=1.0,
        description="share of the bandwidth that streaming kernels sustain, relative to the same kernels on GDDR6X: "
        "lower for GDDR7",
    )
    bandwidth_deviation: Annotated[float, Field(ge=0.0, le=1.0)] = Field(
        default=0.13,
        description="relative standard deviation of `sustained_bandwidth`: small if a card with this type of memory "
        "was measured; the default is for types of memory that nobody measured",
    )
    sources: tuple[str, ...] = Field(min_length=1)

    def peak_flops(self, unit: str) -> float:
        """FLOP/s of products in a type; devices without TF32 compute in float32.

        >>> device("rtx3090").peak_flops("fp16")
        71200000000000.0
        """
        known = self.tflops.model_dump()
        peak = known[unit] if unit != "tf32" or known[unit] is not None else known["fp32"]
        if peak is None:
            raise RequestError(f"{self.title} does not support {unit}; choose amp or fp32")
        return peak * 1e12

    @property
    def bandwidth(self) -> float:
        """Bytes per second of the memory, as specified."""
        return self.bandwidth_gb_s * 1e9

    @property
    def streaming_rate(self) -> float:
        """Bytes per second that an efficiency of 1 means: the bandwidth, as far as this kind of memory sustains it.

        >>> device("rtx3090").streaming_rate == device("rtx3090").bandwidth
        True
        """
        return self.bandwidth * self.sustained_bandwidth

    @property
    def cache(self) -> float:
        """Bytes of the cache that all multiprocessors share."""
        return self.cache_mb * 1e6

    @property
    def memory(self) -> int:
        """Bytes of memory."""
        return round(self.memory_gib * 2**30)

    @property
    def clock(self) -> float:
        """Cycles per second."""
        return self.clock_mhz * 1e6

    @property
    def products_per_cycle(self) -> float:
        """Half-precision operations per cycle of a multiprocessor; a multiply-add is two."""
        return self.peak_flops("fp16") / (self.multiprocessors * self.clock)

    @property
    def loads_per_second(self) -> float:
        """Numbers that all CUDA cores load or store per second."""
        return self.multiprocessors * self.clock * _LANES

    @property
    def operations_per_second(self) -> float:
        """Float32 operations of all CUDA cores per second; a multiply-add is one."""
        return self.peak_flops("fp32") / 2

    @property
    def has_tf32(self) -> bool:
        """Whether its tensor cores accept float32, rounded to TF32."""
        return self.tflops.tf32 is not None

    @property
    def has_doubled_lanes(self) -> bool:
        """Whether a multiprocessor has 128 CUDA cores for float32 and not 64, judged by its peak."""
        return self.compute_capability >= _AMPERE and self.float32_per_cycle > _DOUBLED

    @property
    def float32_per_cycle(self) -> float:
        """Float32 products per cycle of a multiprocessor, judged by its peak.

        >>> round(device("a100").float32_per_cycle)
        64
        """
        return self.peak_flops("fp32") / (2 * self.multiprocessors * self.clock)

    @property
    def has_early_matrix_units(self) -> bool:
        """Whether its tensor cores are those of Volta or Turing."""
        return _VOLTA <= self.compute_capability < _AMPERE

    @property
    def has_flash_attention(self) -> bool:
        """Whether it runs PyTorch's flash attention; before Ampere the memory-efficient kernel is used."""
        return self.compute_capability >= _AMPERE


@cache
def built_in_devices() -> tuple[Device, ...]:
    """The built-in devices by name."""
    return tuple(_built_in(name) for name in _built_in_names())


@cache
def _built_in_names() -> tuple[str, ...]:
    folder: Any = files("favor.simulation") / "devices"
    return tuple(sorted(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml")))


@cache
def _built_in(name: str) -> Device:
    file = f"{name}.yaml"  # of the device's own name, so that one can be read without the others
    return _checked(YamlFile(file, (files("favor.simulation") / "devices" / file).read_text(encoding="utf-8")))


def device(name: str) -> Device:
    """The device of this name or alias, or in this file (a path that ends in .yaml).

    >>> device("a100").title
    'NVIDIA A100 SXM4 40 GB'
    """
    if name.endswith((".yaml", ".yml")):
        return _own(name)
    if name in _built_in_names():
        return _built_in(name)
    by_name = _by_name()
    if _plain(name) not in by_name:
        known = [entry.name for entry in built_in_devices()]
        remedy = f"known: {', '.join(known)}; or give the path of a .yaml file (docs/simulation.md)"
        raise unknown_name("device", name, known, remedy)
    return by_name[_plain(name)]


def _own(name: str) -> Device:
    """The device in a file; it must not have the name of a built-in one, whose numbers it would be taken for."""
    source = YamlFile.read(Path(name))
    own = _checked(source)
    taken = _by_name().get(_plain(own.name))
    if taken is not None:
        why = f"{shown(own.name)} is built in ({taken.title}); choose another name"
        raise source.error(("name",), why)
    return own


@cache
def _by_name() -> dict[str, Device]:
    """The built-in devices by all their names."""
    return {_plain(name): entry for entry in built_in_devices() for name in (entry.name, *entry.aliases)}


def known_as(known: Device, name: str) -> bool:
    """Whether a name, as records and drivers write it, means this device.

    >>> known_as(device("a100"), "NVIDIA A100-SXM4-40GB")
    True
    """
    return _plain(name) in {_plain(alias) for alias in (known.name, known.title, *known.aliases)}


def _plain(name: str) -> str:
    """A name without case, spaces and punctuation.

    >>> _plain("RTX_4090"), _plain("rtx-4090")
    ('rtx4090', 'rtx4090')
    """
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")


def _checked(source: YamlFile) -> Device:
    content, known = source.mapping("a device"), list(Device.model_fields)
    for key in content:
        if key not in known:
            raise source.error((key,), unknown_name("key of a device", key, known))
    try:
        found = Device.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        given = f", not {shown(first['input'])}" if first["type"] != "missing" else ""
        raise source.error(first["loc"], first["msg"] + given) from error
    per_byte = found.peak_flops("fp16") / found.bandwidth
    for key, value, (least, most), what, keys in (
        ("clock_mhz", found.float32_per_cycle, _FLOAT32_PER_CYCLE, "float32 products per cycle and multiprocessor",
         "tflops.fp32, multiprocessors and clock_mhz"),
        ("bandwidth_gb_s", per_byte, _FLOPS_PER_BYTE, "operations per byte", "tflops.fp16 and bandwidth_gb_s"),
    ):  # fmt: skip
        if not least <= value <= most:
            why = f"{value:.3g} {what} are not between {least} and {most}; check the units of {keys}"
            raise source.error((key,), why)
    return found
