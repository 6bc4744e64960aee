"""What looks at every operator that runs."""

from torch.utils._python_dispatch import TorchDispatchMode


class EagerMode(TorchDispatchMode):
    """A dispatch mode around code that is never compiled."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Nothing here is compiled; PyTorch's guard against it would import the compiler and sit in every call.
        return False
