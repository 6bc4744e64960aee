"""The base class of dispatch modes, which see every operator that runs."""

from torch.utils._python_dispatch import TorchDispatchMode


class EagerMode(TorchDispatchMode):
    """A dispatch mode around code that is never compiled."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Nothing here is compiled. Otherwise PyTorch would import the compiler and check for it at every call.
        return False
