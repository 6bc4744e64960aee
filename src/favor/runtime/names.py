"""The runtimes, and the devices and precisions that each supports. Imports no torch."""

import importlib.util
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from types import MappingProxyType
from typing import Literal

from favor.errors import MissingHereError, RequestError, unknown_name

Memory = Literal["allocator", "process"]

PRECISIONS = ("fp32", "bf16", "amp", "amp-fp16", "amp-bf16")
"""The precisions of PyTorch."""


@dataclass(frozen=True)
class Runtime:
    """What a runtime supports and needs. `memory` says how it is measured: by the allocator, or only for the process.

    `packages` maps the distributions that it needs to the names of their modules.
    """

    name: str
    devices: tuple[str, ...]
    precisions: tuple[str, ...]
    memory: Memory
    packages: Mapping[str, str]
    extra: str | None = None


_TORCH = MappingProxyType({"torch": "torch"})
_ONNX = MappingProxyType({"onnx": "onnx", "onnxscript": "onnxscript"})
_KNOWN = (
    Runtime("eager", ("cpu", "cuda", "mps"), PRECISIONS, "allocator", _TORCH),
    Runtime("compile", ("cpu", "cuda", "mps"), PRECISIONS, "allocator", _TORCH),
    Runtime(
        "onnxruntime",
        ("cpu", "cuda"),
        ("fp32", "fp16", "int8"),
        "process",
        MappingProxyType({**_ONNX, "onnxruntime": "onnxruntime"}),
        extra="onnx",
    ),
    Runtime(
        "openvino",
        ("cpu",),
        ("fp32", "fp16", "int8"),
        "process",
        MappingProxyType({**_ONNX, "openvino": "openvino", "nncf": "nncf"}),
        extra="openvino",
    ),
)
RUNTIMES: Mapping[str, Runtime] = MappingProxyType({runtime.name: runtime for runtime in _KNOWN})
ALL_PRECISIONS = tuple(dict.fromkeys(precision for runtime in _KNOWN for precision in runtime.precisions))
TRAINING = ("eager", "compile")
"""The runtimes that train."""
ENDINGS: Mapping[str, str] = MappingProxyType({"onnx": ".onnx", "openvino": ".xml", "torch-export": ".pt2"})
"""The formats that models are exported to -> how their files' names end."""
OPENERS: Mapping[str, str] = MappingProxyType({"onnx": "onnxruntime", "openvino": "openvino"})
"""The runtime that opens a format. PyTorch's own format may hold pickles, so favor writes it and never reads it."""
_CUDA_PROVIDER = "CUDAExecutionProvider"


def find_runtime(name: str) -> Runtime:
    """The runtime of this name."""
    if name not in RUNTIMES:
        raise unknown_name("runtime", name, RUNTIMES, "choose from " + ", ".join(RUNTIMES))
    return RUNTIMES[name]


def check(name: str, precision: str, device_kind: str, *, here: bool = True) -> Runtime:
    """The runtime, if it can run at this precision on this kind of device and is installed; refused otherwise.

    If it runs elsewhere, such as on the nodes of a cluster, it does not matter what is installed here.

    >>> check("eager", "int8", "cpu")
    Traceback (most recent call last):
    favor.errors.RequestError: eager does not run int8; onnxruntime and openvino do (--runtime onnxruntime)
    """
    runtime = find_runtime(name)
    if precision not in runtime.precisions:
        others = [other.name for other in _KNOWN if precision in other.precisions and device_kind in other.devices]
        if not others:
            raise RequestError(
                f"{name} does not run {precision} on {device_kind}; it runs {_words(runtime.precisions)}"
            )
        do = "does" if len(others) == 1 else "do"
        raise RequestError(f"{name} does not run {precision}; {_words(others)} {do} (--runtime {others[0]})")
    if device_kind not in runtime.devices:
        others = [other.name for other in _KNOWN if device_kind in other.devices and precision in other.precisions]
        remedy = f", or --runtime {_words(others, 'or')}" if others else ""
        raise RequestError(
            f"{name} does not run on {device_kind} here; use --device {_words(runtime.devices, 'or')}{remedy}"
        )
    if not here:
        return runtime
    require_packages(runtime)
    if name == "compile" and device_kind == "cpu":
        _require_compiler()
    if name == "onnxruntime" and device_kind == "cuda":
        _require_cuda_provider()
    return runtime


def runs_on(name: str, device_kind: str) -> bool:
    """Whether a runtime can use this kind of device here; one that is not installed is refused."""
    runtime = find_runtime(name)
    require_packages(runtime)
    if device_kind not in runtime.devices:
        return False
    return (name, device_kind) != ("onnxruntime", "cuda") or _CUDA_PROVIDER in _onnx_providers()


def require_packages(runtime: Runtime) -> None:
    """Refuse a runtime whose packages are not installed, with what installs them."""
    missing = [package for package, module in runtime.packages.items() if importlib.util.find_spec(module) is None]
    if missing:
        install = f"pip install 'favor[{runtime.extra}]'" if runtime.extra else f"pip install {' '.join(missing)}"
        raise MissingHereError(f"{runtime.name} needs {_words(missing)}, not installed here; {install}")


def versions(runtime: Runtime) -> dict[str, str]:
    """The versions that go onto a record."""
    return {package: metadata.version(package) for package in runtime.packages}


def _require_compiler() -> None:
    """PyTorch's compiler writes C++ on CPUs."""
    wanted = os.environ.get("CXX")
    compilers = (wanted,) if wanted else ("g++", "clang++")
    if not any(shutil.which(compiler) for compiler in compilers):
        raise MissingHereError(
            f"compile needs a C++ compiler on the CPU, but {_words(compilers, 'or')} is not here; install g++, or use "
            "--runtime eager"
        )


def _require_cuda_provider() -> None:
    import onnxruntime

    offered = _onnx_providers()
    if _CUDA_PROVIDER not in offered:
        raise MissingHereError(
            f"onnxruntime {onnxruntime.__version__} has no CUDA provider here (it has {_words(offered)}); "
            "pip install onnxruntime-gpu, or use --device cpu"
        )


def _onnx_providers() -> list[str]:
    import onnxruntime

    offered: list[str] = onnxruntime.get_available_providers()
    return offered


def _words(names: "list[str] | tuple[str, ...]", link: str = "and") -> str:
    """
    >>> _words(["a", "b", "c"], "or")
    'a, b or c'
    """
    return f" {link} ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
