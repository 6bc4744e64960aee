"""The operator trace: what it sees, the life of storages, and the same work on meta, fake and real tensors."""

from collections import Counter

import pytest
import torch
from torch import Tensor, nn

from favor.errors import WorkError
from favor.trace.fake_device import backward_without_engine, copy_onto, on_meta, trace_on
from favor.trace.operator_trace import Trace, trace


class Block(nn.Module):
    """Attention, an MLP, both norms and a convolution: one of everything that matters here."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 16, 4, 4)
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.batch_norm = nn.BatchNorm1d(16)
        self.head = nn.Linear(16, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.embed(images).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(self.norm(x)).reshape(*x.shape[:2], 3, 2, 8).permute(2, 0, 3, 1, 4)
        x = x + nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.mlp(x)
        return self.head(self.batch_norm(x.mean(1)))


SHAPE = (2, 3, 16, 16)
TOKENS = 16
FORWARD_MACS = 2 * (TOKENS * 48 * 16 + TOKENS * 16 * 48 + 2 * TOKENS * TOKENS * 16 + 2 * TOKENS * 16 * 32 + 16 * 5)


def macs(recorded: Trace) -> int:
    return sum(op.work.macs_matmul for op in recorded.ops)


def meta_images() -> Tensor:
    return torch.empty(SHAPE, device="meta")


# ---- the same work everywhere


def test_meta_fake_and_real_tensors_agree_in_multiply_adds_at_inference():
    model = Block()
    traces = [
        trace(on_meta(model), meta_images()),
        trace(model, torch.ones(SHAPE)),
        trace_on("cpu", model, SHAPE),
        trace_on("cuda", model, SHAPE),
        trace_on("cuda", model, SHAPE, autocast=torch.float16),
    ]
    assert [macs(recorded) for recorded in traces] == [FORWARD_MACS] * 5


def test_meta_and_fused_training_differ_by_the_scores_that_fused_attention_makes_again():
    model = Block()
    apart = macs(trace(on_meta(model), meta_images(), training=True))
    patches = 2 * TOKENS * 48 * 16
    assert apart == 3 * FORWARD_MACS - patches, "the image wants no gradient"
    scores = 2 * TOKENS * TOKENS * 16
    for fused in (
        trace(model, torch.ones(SHAPE), training=True),
        trace_on("cuda", model, SHAPE, training=True),
        trace_on("cuda", model, SHAPE, training=True, autocast=torch.bfloat16),
    ):
        assert macs(fused) == apart + scores


def test_a_fake_cpu_gives_the_operators_and_the_peak_of_the_real_one():
    model = Block()
    for training in (False, True):
        real = trace(model, torch.ones(SHAPE), training=training)
        fake = trace_on("cpu", model, SHAPE, training=training)
        assert [op.name for op in fake.ops] == [op.name for op in real.ops]
        assert fake.peak_bytes == real.peak_bytes


def test_on_a_pretended_gpu_attention_is_one_operator_and_mixed_precision_is_on():
    recorded = trace_on("cuda", Block(), SHAPE, autocast=torch.float16)
    names = Counter(op.name for op in recorded.ops)
    assert names["aten._scaled_dot_product_flash_attention.default"] == 1
    assert names["aten.bmm.default"] == 0
    assert {op.inputs[1].dtype for op in recorded.ops if op.kind == "matmul"} == {torch.float16}
    assert {op.inputs[0].dtype for op in recorded.ops if op.kind == "norm"} >= {torch.float32}
    assert not torch.is_autocast_enabled("cuda")
    single = Counter(op.name for op in trace_on("cuda", Block(), SHAPE).ops)
    assert single["aten._scaled_dot_product_efficient_attention.default"] == 1


def test_attention_with_a_mask_is_one_operator_on_a_pretended_gpu():
    class Masked(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            mask = torch.ones(4, 4, dtype=torch.bool, device=x.device)
            return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    recorded = trace_on("cuda", Masked(), (1, 2, 4, 8), autocast=torch.float16)
    assert [op.name for op in recorded.ops if op.kind == "attention"] == [
        "aten._scaled_dot_product_efficient_attention.default"
    ]


def test_attention_is_as_it_was_after_pretending():
    trace_on("cuda", Block(), SHAPE)
    q = torch.randn(1, 1, 3, 4, generator=torch.Generator().manual_seed(0))
    expected = torch.softmax(q @ q.transpose(-1, -2) / 2, -1) @ q
    torch.testing.assert_close(nn.functional.scaled_dot_product_attention(q, q, q), expected)


def test_the_backward_pass_without_the_engine_does_what_the_engine_does():
    model = on_meta(Block())
    with_engine = trace(model, meta_images(), training=True)
    without = trace(model, meta_images(), training=True, backward=backward_without_engine)
    assert Counter(op.name for op in without.ops) == Counter(op.name for op in with_engine.ops)
    assert without.peak_bytes == pytest.approx(with_engine.peak_bytes, rel=0.01)


def test_the_backward_pass_without_the_engine_frees_what_a_node_saved_when_the_engine_does():
    class Residual(nn.Module):
        """The second convolution alone keeps its input, and its gradient meets that of the shortcut."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            return (x + self.second(x)).flatten(1)

    network = on_meta(Residual())
    with_engine = trace(network, meta_images(), training=True)
    without = trace(network, meta_images(), training=True, backward=backward_without_engine)
    backward = slice(with_engine.forward_ops, None)
    assert without.live_bytes()[backward] == pytest.approx(with_engine.live_bytes()[backward], abs=64)


def test_the_backward_pass_without_the_engine_gives_the_engines_gradients():
    class Shared(nn.Module):
        """A broadcast sum, a parameter used twice, an unused output and a function of one's own."""

        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.linspace(-1, 1, 4))

        def forward(self, x: Tensor) -> Tensor:
            values, _ = (x + self.w).max(dim=-1, keepdim=True)
            return (Doubled.apply(x * self.w) + values) * self.w

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad

    model, x = Shared(), torch.arange(12.0).reshape(3, 4) / 6
    gradients = []
    for backward in (torch.autograd.backward, backward_without_engine):
        model.zero_grad()
        backward(model(x).square().sum())
        gradients.append(model.w.grad.clone())
    assert gradients[0].abs().max() > 1
    torch.testing.assert_close(gradients[1], gradients[0])


# ---- storages


def test_the_peak_of_a_chain_of_layers_is_its_closed_form():
    chain = nn.Sequential(nn.Linear(8, 64, bias=False), nn.Tanh(), nn.Linear(64, 2, bias=False)).to("meta")
    recorded = trace(chain, torch.empty(10, 8, device="meta"))
    weights, images, hidden = 4 * (8 * 64 + 64 * 2), 4 * 10 * 8, 4 * 10 * 64
    assert recorded.peak_bytes == weights + images + 2 * hidden, "the first layer's output and its tanh"


def test_an_operator_in_place_makes_no_storage():
    def peak(inplace: bool) -> int:
        chain = nn.Sequential(nn.Linear(8, 64, bias=False), nn.ReLU(inplace)).to("meta")
        return trace(chain, torch.empty(10, 8, device="meta")).peak_bytes

    assert peak(inplace=False) - peak(inplace=True) == 4 * 10 * 64


def test_views_share_their_storage_and_parts_of_an_unbind_too():
    class Views(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            return (x * 2).view(2, 12).t().unbind(1)

    recorded = trace(Views(), torch.empty(4, 6, device="meta"))
    made = {place for op, used in recorded.steps for place in used[len(op.inputs) :]}
    assert len(made) == 1
    assert len(recorded.ops[-1].outputs) == 2


def test_calls_that_do_the_same_are_one_operator_in_places_of_their_own():
    recorded = trace(nn.Sequential(*(nn.ReLU() for _ in range(3))), torch.empty(4, 6, device="meta"))
    assert len(recorded.steps) == 3
    assert len({id(op) for op, _ in recorded.steps}) == 1
    assert [used for _, used in recorded.steps] == [(0, 1), (1, 2), (2, 3)]


def test_an_operator_with_many_outputs_lists_them_all():
    class Sorted(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return torch.sort(x)

    op = trace(Sorted(), torch.empty(3, 4, device="meta")).ops[-1]
    assert [(spec.shape, spec.dtype) for spec in op.outputs] == [((3, 4), torch.float32), ((3, 4), torch.int64)]
    assert op.bytes_written == 3 * 4 * (4 + 8)


def test_storages_know_their_roles_and_gradients_weigh_as_much_as_parameters():
    recorded = trace(on_meta(Block()), meta_images(), training=True)
    size = Counter()
    for storage in recorded.storages:
        size[storage.role] += storage.size
    parameters = 4 * sum(p.numel() for p in Block().parameters())
    assert size["parameter"] == size["gradient"] == parameters
    assert size["input"] == 4 * 2 * 3 * 16 * 16
    assert size["buffer"] == 4 * (16 + 16) + 8


def test_what_the_backward_pass_needs_is_marked_as_kept():
    network = nn.Sequential(nn.Linear(8, 64, bias=False), nn.Tanh(), nn.Linear(64, 2, bias=False)).to("meta")
    recorded = trace(network, torch.empty(10, 8, device="meta"), training=True)
    kept = [s.size for s in recorded.storages if s.kept_for_backward]
    # tanh keeps its output, which is the second layer's input too; the first layer's output is not needed.
    assert kept.count(4 * 10 * 64) == 1
    assert not any(s.kept_for_backward for s in trace(network, torch.empty(10, 8, device="meta")).storages)


def test_an_activation_dies_after_its_last_use():
    chain = nn.Sequential(*(nn.Tanh() for _ in range(6)))
    recorded = trace(chain, torch.empty(1000, device="meta"))
    lives = [(s.first, s.last) for s in recorded.storages if s.role == "activation"]
    assert lives == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 5)]


def test_the_peak_equals_pytorchs_own_account_of_allocations():
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 10)).eval()
    x = torch.ones(32, 64)
    recorded = trace(model, x)
    with torch.no_grad(), torch.profiler.profile(profile_memory=True) as profile:
        model(x)
    live = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    before = sum(s.size for s in recorded.storages if s.first < 0)
    assert recorded.peak_bytes - before == peak


# ---- running


def test_a_model_that_returns_a_tuple_trains_on_all_its_logits():
    class TwoHeads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(8, 3), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            return self.one(x), {"distilled": self.two(x), "tokens": x}

    recorded = trace(on_meta(TwoHeads()), torch.empty(4, 8, device="meta"), training=True)
    gradients = [storage for storage in recorded.storages if storage.role == "gradient"]
    assert len(gradients) == 4
    assert {op.phase for op in recorded.ops} == {"forward", "backward"}
    assert [op.phase for op in recorded.ops].index("backward") == recorded.forward_ops


def test_a_model_without_logits_trains_on_the_sum_of_its_outputs():
    recorded = trace(nn.Conv2d(3, 4, 3, device="meta"), torch.empty(2, 3, 8, 8, device="meta"), training=True)
    assert "aten.convolution_backward.default" in {op.name for op in recorded.ops}


def test_the_extra_losses_of_a_model_are_part_of_its_training():
    class Balanced(nn.Module):
        def __init__(self, extra: bool) -> None:
            super().__init__()
            self.layer, self.extra, self.extra_losses = nn.Linear(4, 3), extra, {}

        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x)
            if self.extra and self.training:
                self.extra_losses["gram"] = (y.T @ y).sum()
            return y

    plain, balanced = (
        trace(Balanced(extra).to("meta"), torch.empty(2, 4, device="meta"), training=True) for extra in (False, True)
    )
    # The product of the extra term and, on the way back, one for each of its two factors.
    assert macs(balanced) - macs(plain) == 3 * (3 * 2 * 3)


def test_a_model_that_no_parameter_feeds_cannot_train():
    with pytest.raises(WorkError, match="nothing to train"):
        trace(nn.Tanh(), torch.empty(2, 3, device="meta"), training=True)


def test_tracing_leaves_modes_and_gradients_as_they_were():
    model = Block().train()
    model.norm.eval()
    trace(model, torch.ones(SHAPE))
    trace(model, torch.ones(SHAPE), training=True)
    assert (model.training, model.norm.training, model.head.training) == (True, False, True)
    assert all(p.grad is None for p in model.parameters())


def test_a_network_that_makes_tensors_without_a_device_counts_on_meta_tensors():
    class Positions(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.arange(x.shape[1])

    assert trace(Positions(), torch.empty(2, 3, device="meta")).ops[-1].work.other_flops == 6


@pytest.mark.parametrize("question", [lambda x: x.sum().item(), lambda x: x.nonzero(), lambda x: x[x > 0]])
def test_a_model_that_asks_for_values_is_an_error_that_says_so(question):
    class Asking(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            question(x)
            return x

    with pytest.raises(WorkError, match="Asking reads the values of a tensor .*operating point"):
        trace(Asking(), torch.empty(2, 3, device="meta"))
    with pytest.raises(WorkError, match="Asking reads the values of a tensor"):
        trace_on("cuda", Asking(), (1, 2, 3, 4))
    assert trace(Asking(), torch.ones(2, 3)).ops


def test_a_model_that_fails_is_an_error_with_its_name_its_images_and_its_reason():
    with pytest.raises(WorkError, match=r"Linear failed in its forward pass on images of \(2, 3\): RuntimeError: "):
        trace(nn.Linear(4, 5, device="meta"), torch.empty(2, 3, device="meta"))


def test_a_copy_onto_another_device_copies_no_value_and_keeps_shared_weights_shared():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    model[0].plain = torch.ones(3)
    copied = copy_onto(model, lambda tensor: torch.empty_like(tensor, device="meta"))
    assert copied[0].weight is copied[1].weight
    assert {p.device.type for p in copied.parameters()} == {"meta"} == {copied[0].plain.device.type}
    assert {p.device.type for p in model.parameters()} == {"cpu"}


class Tangled(nn.Module):
    """Refers to its parts from outside of PyTorch's registers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.again = self.first
        self.memory = nn.LSTM(4, 4)  # restores itself in a way of its own
        self.unregistered = [self.first]
        self.by_name = {"first": self.first, "options": {"scale": 2.0}}
        self.run = self.twice

    def twice(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(self.first(x))


def test_a_copy_refers_to_its_own_parts_only():
    model = Tangled()
    copied = copy_onto(model, lambda tensor: torch.empty_like(tensor, device="meta"))
    assert type(copied) is Tangled
    assert copied.first is not model.first
    assert copied.again is copied.unregistered[0] is copied.by_name["first"] is copied.first
    assert copied.run.__self__ is copied
    assert copied.by_name["options"] == {"scale": 2.0}
    assert copied.by_name["options"] is not model.by_name["options"]
    assert {p.device.type for p in copied.parameters()} == {"meta"}
    assert len([*copied.modules()]) == 3
    assert copied.memory(torch.empty(1, 1, 4, device="meta"))[0].shape == (1, 1, 4)
