"""SLAB: linear attention with a ReLU kernel and a depthwise convolution; LayerNorm gives way to a foldable batch norm.

Paper: Guo et al., "SLAB: Efficient Transformers with Simplified Linear Attention and Progressive Re-parameterized Batch
Normalization", 2024, arXiv:2405.11582
"""

from functools import partial
from typing import ClassVar, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from favor.errors import RequestError
from favor.zoo.attention import HeadMixer
from favor.zoo.card_notes import LAYER_SCALE
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.layers import LayerNorm, resize_tokens
from favor.zoo.mixing.kernel.linear import kernel_attention
from favor.zoo.pools import MeanPool
from favor.zoo.registry import register, vit_sizes
from favor.zoo.slots import Tokens
from favor.zoo.taxonomy import How

LAYER_NORM_UNTIL = 0.16
"""The part of training in which LayerNorm gives way: the authors' 60,000 steps of 300 epochs with batches of 1024."""
LINEAR_BEHIND = {"norm1": "mixer.qkv", "norm2": "mlp.fc1", "norm": "head"}
"""The layer that a norm is folded into; before the head there is the mean over the tokens, which is linear too."""


class SlabMixer(HeadMixer):
    """Attention with the kernel relu(q) relu(k)^T plus a 5 x 5 depthwise convolution of the values: O(N d^2)."""

    fixed_tokens: ClassVar[bool] = True

    def __init__(self, dim: int, heads: int, tokens: Tokens, rotary: bool = False) -> None:
        super().__init__(dim, heads, tokens, rotary=rotary)
        if tokens.class_token:
            raise RequestError("SLAB convolves its tokens and has no place for a class token; use pool=MeanPool()")
        self.key_positions = nn.Parameter(torch.zeros(1, tokens.count, dim))
        self.depthwise = nn.Conv2d(self.head_dim, self.head_dim, 5, padding=2, groups=self.head_dim)

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k = k + self.key_positions.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return kernel_attention(q.relu(), k.relu(), v) + self.convolve(v)

    def convolve(self, v: Tensor) -> Tensor:
        """The heads share one kernel; they are convolved side by side, as channels of one image."""
        image = self.join(v).contiguous().transpose(1, 2).unflatten(2, self.tokens.grid)
        weight = self.depthwise.weight.repeat(self.heads, 1, 1, 1)
        bias = self.depthwise.get_parameter("bias").repeat(self.heads)
        local = F.conv2d(image, weight, bias, padding=2, groups=len(weight))
        return local.flatten(2).unflatten(1, (self.heads, -1)).transpose(2, 3)

    def resample(self, name: str, weight: Tensor) -> Tensor:
        """Bicubic interpolation of the keys' positions."""
        return resize_tokens(weight, self.tokens.grid)


class RepBatchNorm(nn.Module):
    """Batch norm plus a learned multiple of the input; at inference a factor and a shift per channel."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1))
        self.batch_norm = nn.BatchNorm1d(dim)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return self.batch_norm(x.flatten(0, -2)).view(x.shape) + self.alpha * x
        factor, shift = self.inference_form()
        return x * factor + shift

    def inference_form(self) -> tuple[Tensor, Tensor]:
        """Factor and shift per channel."""
        norm = self.batch_norm
        scale = norm.weight * (norm.get_buffer("running_var") + norm.eps).rsqrt()
        return scale + self.alpha, norm.bias - norm.get_buffer("running_mean") * scale


class ProgressiveNorm(nn.Module):
    """LayerNorm at the start of training, RepBatchNorm from `until` on and at inference, a mixture in between."""

    layer_norm_share: Tensor

    def __init__(self, dim: int, until: float = LAYER_NORM_UNTIL) -> None:
        super().__init__()
        if not 0.0 < until <= 1.0:
            raise RequestError(f"layer_norm_until is a share of training, more than 0 and at most 1, not {until}")
        self.until = until
        self.layer_norm = LayerNorm(dim)
        self.rep_norm = RepBatchNorm(dim)
        self.register_buffer("layer_norm_share", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return self.rep_norm(x)
        return self.layer_norm_share * self.layer_norm(x) + (1 - self.layer_norm_share) * self.rep_norm(x)

    def set_progress(self, fraction: float) -> None:
        """At a quarter of the way to `until`, 0.75 are LayerNorm."""
        self.layer_norm_share.fill_(max(1 - fraction / self.until, 0.0))


class SlabEncoder(Encoder):
    """The shell with SLAB's parts; its inference form has the norms folded into the linear layers behind them."""

    def __init__(self, size: Size, *, layer_norm_until: float, **options: Unpack[Options]) -> None:
        self.without_norms = partial(Encoder, size, mixer=SlabMixer, norm=nn.Identity, pool=MeanPool(), **options)
        norm = partial(ProgressiveNorm, until=layer_norm_until)
        super().__init__(size, mixer=SlabMixer, norm=norm, pool=MeanPool(), **options)

    @torch.no_grad()
    def fuse(self) -> nn.Module:
        """The plain shell without norms: W (f x + s) + b = (W f) x + (W s + b)."""
        with torch.device("meta"):
            fused = self.without_norms()
        kept = fused.state_dict()
        state = {name: weight for name, weight in self.state_dict().items() if name in kept}
        for name, norm in self.named_modules():
            if isinstance(norm, ProgressiveNorm):
                block, _, place = name.rpartition(".")
                linear = f"{block}.{LINEAR_BEHIND[place]}".lstrip(".")
                factor, shift = norm.rep_norm.inference_form()
                state[f"{linear}.bias"] = state[f"{linear}.bias"] + state[f"{linear}.weight"] @ shift
                state[f"{linear}.weight"] = state[f"{linear}.weight"] * factor
        fused.load_state_dict(state, assign=True)
        return fused.eval()


@register(
    vit_sizes("slab_{size}16", aliases=["slab_{word}_patch16", "SLAB-{letter}/16"]),
    title="SLAB",
    how=How.KERNEL,
    year=2024,
    paper="2405.11582",
    complexity="O(N)",
    changes="Linear attention with the kernel relu(q) relu(k)^T and a depthwise convolution of the values; LayerNorm "
    "is replaced in the course of training by a batch norm that inference folds into the linear layers.",
    notes=(
        "As in the authors' SLAB-DeiT: the mean of the tokens instead of a class token; learned positions on the keys "
        "of each block; a 5 x 5 convolution whose kernel the heads share.",
        "The share of LayerNorm falls linearly from 1 to 0 over the first 16 % of training. In the authors' code that "
        "takes 60,000 steps, 16 % of 300 epochs at batch size 1024. Setting: `layer_norm_until`.",
        "Evaluation uses the batch norm alone, as in the authors' code. A model that was not trained past that point, "
        "or whose training loop reported no progress, evaluates badly.",
        "Counted in the form that is trained; inference is measured in the form of `favor.fuse`, without batch norms.",
        "At the start of training the batch norm has no share, so its parameters get no gradient.",
        "The benchmark's implementation takes 224 px only; this one takes any size and resamples the keys' positions.",
        LAYER_SCALE,
    ),
    idle_parameters=("*.rep_norm.*", "norm.rep_norm.*"),
)
def slab(size: Size, layer_norm_until: float = LAYER_NORM_UNTIL, **options: Unpack[Options]) -> nn.Module:
    return SlabEncoder(size, layer_norm_until=layer_norm_until, **options)
