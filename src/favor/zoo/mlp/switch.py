"""Switch: eight MLPs in every block, of which each token uses one.

Paper: Fedus et al., "Switch Transformers: Scaling to Trillion Parameter Models with Simple and Efficient Sparsity",
2021, arXiv:2101.03961
"""

import math
from functools import partial
from typing import Annotated, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from favor.zoo.card_notes import LAYER_SCALE
from favor.zoo.encoder import Encoder, Options, Size
from favor.zoo.layers import Mlp, full_precision
from favor.zoo.registry import register, vit_sizes
from favor.zoo.settings import AtLeast, Positive
from favor.zoo.taxonomy import How
from favor.zoo.training import ExtraLosses

CAPACITY_FACTOR = 1.25
BALANCE_WEIGHT = 0.01
JITTER = 0.01
INIT_SCALE = 0.1
"""The authors' choices: in training an expert's capacity, balance loss, noise on the router's input; small weights."""


class SwitchMlp(nn.Module):
    """Sends each token to the expert that its router finds most probable, and scales the result by that probability.

    In training an expert takes no more than `capacity` times its even share of the batch's tokens; to the rest the
    block's MLP adds nothing. In eval every token is served. Tensors without values are routed evenly.
    """

    def __init__(
        self,
        dim: int,
        hidden: int,
        experts: int,
        capacity: float = CAPACITY_FACTOR,
        balance: float = BALANCE_WEIGHT,
    ) -> None:
        super().__init__()
        self.capacity, self.balance_weight = capacity, balance
        self.experts = nn.ModuleList(Mlp(dim, hidden) for _ in range(experts))
        self.router = nn.Linear(dim, experts)
        self.extra_losses = ExtraLosses()

    def init_weights(self) -> None:
        """Truncated normal of standard deviation sqrt(0.1 / inputs): ten times less variance than usual."""
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=math.sqrt(INIT_SCALE / layer.in_features))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, -2)
        probabilities = self._route(tokens)
        gate, expert = probabilities.max(dim=-1)
        served = expert[:, None] == torch.arange(len(self.experts), device=x.device)
        if self.training:
            balance = served.to(gate.dtype).mean(dim=0) @ probabilities.mean(dim=0)
            self.extra_losses["balance"] = self.balance_weight * len(self.experts) * balance
        if torch.compiler.is_exporting():
            y = self._one_by_one(tokens, expert)
            return (y * gate[:, None].to(y.dtype)).view(x.shape)
        queues = expert.argsort(stable=True).split(self._loads(served))
        if self.training:
            most = math.ceil(self.capacity * len(tokens) / len(self.experts))
            queues = tuple(queue[:most] for queue in queues)
        order = torch.cat(queues)
        batches = F.embedding(order, tokens).split([len(queue) for queue in queues])
        results = torch.cat([mlp(batch) for mlp, batch in zip(self.experts, batches, strict=True)])
        y = results.new_zeros(tokens.shape).index_copy(0, order, results)
        return (y * gate[:, None].to(y.dtype)).view(x.shape)

    def _one_by_one(self, tokens: Tensor, expert: Tensor) -> Tensor:
        """What each token's expert gives: the form to export, in which loads may be values of the graph."""
        y = torch.zeros_like(tokens)
        for number, mlp in enumerate(self.experts):
            (own,) = torch.where(expert == number)
            y = y.index_put((own,), mlp(tokens[own]))
        return y

    def _route(self, tokens: Tensor) -> Tensor:
        """The probability of each expert for each token [T, experts]; autocast would route in half precision."""
        weight, bias = self.router.weight, self.router.bias
        tokens = tokens.to(weight.dtype)
        if self.training:
            tokens = tokens * torch.empty_like(tokens).uniform_(1.0 - JITTER, 1.0 + JITTER)
        with full_precision(tokens):
            return F.linear(tokens, weight, bias).softmax(dim=-1)

    def _loads(self, served: Tensor) -> list[int]:
        """How many tokens each expert gets."""
        if served.is_meta or isinstance(served, FakeTensor):
            even, more = divmod(len(served), len(self.experts))
            return [even + (index < more) for index in range(len(self.experts))]
        return served.sum(dim=0).tolist()


class SwitchEncoder(Encoder):
    """A ViT with switched MLPs that says how its costs depend on the routing."""

    def __init__(
        self, size: Size, *, experts: int, capacity: float, balance: float, **options: Unpack[Options]
    ) -> None:
        mlp = partial(SwitchMlp, experts=experts, capacity=capacity, balance=balance)
        super().__init__(size, mlp=mlp, **options)
        self.operating_point: dict[str, str | float] = {
            "routing": "by the router; even over the experts where tensors have no values",
            "experts": experts,
        }


@register(
    vit_sizes("switch_8_{size}16", aliases=["switch_8_vit_{word}_patch16", "Switch ViT-8-{letter}/16"]),
    title="Switch",
    how=How.MORE_MLPS,
    year=2021,
    paper="2101.03961",
    complexity="O(N^2)",
    changes="Every MLP is replaced by a router and 8 MLPs, of which each token uses one.",
    notes=(
        "Experts in every block and a bias in the router, as in the benchmark (121,348,168 parameters at S); the "
        "paper's language models have experts in every other block and no bias.",
        "The chosen expert's output is scaled by its probability, as in the paper; the benchmark's implementation does "
        "not scale it.",
        "As in the paper, the balance loss has weight 0.01 per block, an expert takes at most 1.25 times its even "
        "share of a training batch, and the router's input has a jitter of 0.01. In eval mode no token is dropped. In "
        "the benchmark's implementation the balance loss has weight 1, there is no jitter, and no token is dropped in "
        "training either. Settings: `balance`, `capacity`.",
        "Counted with the tokens spread evenly over the experts.",
        LAYER_SCALE,
    ),
    idle_parameters=("blocks.*.mlp.experts.*",),
    miniature={"experts": 4},
)
def switch(
    size: Size,
    experts: Positive = 8,
    capacity: Annotated[float, AtLeast(1)] = CAPACITY_FACTOR,
    balance: Annotated[float, AtLeast(0)] = BALANCE_WEIGHT,
    **options: Unpack[Options],
) -> nn.Module:
    return SwitchEncoder(size, experts=experts, capacity=capacity, balance=balance, **options)
