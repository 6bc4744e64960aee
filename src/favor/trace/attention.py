"""How softmax attention is computed: by a fused kernel, or plainly, with the matrix of its weights in memory.

Papers before PyTorch 2.0 measured plain attention. It is the same function, but it takes more memory: with the number
of tokens squared instead of linearly.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal, get_args

from favor.errors import unknown_name

Attention = Literal["fused", "plain"]
ATTENTION: tuple[str, ...] = get_args(Attention)


def check_attention(name: str) -> None:
    """Refuse an implementation that does not exist."""
    if name not in ATTENTION:
        raise unknown_name("attention", name, ATTENTION, "choose from " + ", ".join(ATTENTION))


def attention_conditions(name: str) -> dict[str, str]:
    """What a record says of it: fused attention, PyTorch's default, is not mentioned.

    >>> attention_conditions("plain"), attention_conditions("fused")
    ({'attention': 'plain'}, {})
    """
    check_attention(name)
    return {} if name == "fused" else {"attention": name}


def attention_implementation(name: str) -> AbstractContextManager[object]:
    """Compute `scaled_dot_product_attention` in this way inside the context."""
    check_attention(name)
    if name == "fused":
        return nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(SDPBackend.MATH)
