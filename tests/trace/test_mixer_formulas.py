"""The multiply-adds of every mixer of ours are its closed form, to the unit."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from torch import nn

from favor.trace.operator_trace import trace
from favor.zoo.attention import Attention, HeadMixer
from favor.zoo.mixing.fixed.synthesizer_fd import FactorizedDenseMixer
from favor.zoo.mixing.fixed.synthesizer_fr import FactorizedRandomMixer
from favor.zoo.mixing.fourier.afno import AfnoMixer
from favor.zoo.mixing.fourier.fnet import FNetMixer
from favor.zoo.mixing.fourier.gfnet import GlobalFilter
from favor.zoo.mixing.kernel.flt import FltMixer
from favor.zoo.mixing.kernel.hydra import HydraMixer
from favor.zoo.mixing.kernel.linear import LinearMixer
from favor.zoo.mixing.kernel.performer import PerformerMixer
from favor.zoo.mixing.kernel.polysa import PolyMixer
from favor.zoo.mixing.kernel.scatterbrain import ScatterbrainMixer
from favor.zoo.mixing.kernel.slab import SlabMixer
from favor.zoo.mixing.low_rank.linformer import LinformerMixer
from favor.zoo.mixing.low_rank.nystrom import NystromMixer
from favor.zoo.mixing.sparse.halonet import HaloAttention
from favor.zoo.mixing.sparse.informer import AuthorsMixer, InformerMixer
from favor.zoo.mixing.sparse.reformer import ReformerMixer
from favor.zoo.mixing.sparse.routing import RoutingMixer
from favor.zoo.mixing.sparse.sinkhorn import BlockSortMixer, PooledSinkhornMixer, SinkhornMixer
from favor.zoo.registry import list_models
from favor.zoo.slots import Tokens


@dataclass(frozen=True)
class Case:
    """A mixer of D channels in H heads on h x w patches: N tokens, d channels a head."""

    D: int
    H: int
    h: int
    w: int
    class_token: bool = True

    @property
    def d(self) -> int:
        return self.D // self.H

    @property
    def patches(self) -> int:
        return self.h * self.w

    @property
    def N(self) -> int:  # noqa: N802 - what every paper calls the number of tokens
        return self.patches + self.class_token

    @property
    def projections(self) -> int:
        """Queries, keys, values, and the projection at the end."""
        return 4 * self.N * self.D**2


def attention(queries: int, keys: int, channels: int) -> int:
    """Scores and the mean of values, over all heads together."""
    return 2 * queries * keys * channels


def softmax(c: Case) -> int:
    return c.projections + attention(c.N, c.N, c.D)


def linformer(c: Case, k: int) -> int:
    return c.projections + 2 * k * c.N * c.D + attention(c.N, k, c.D)


def nystrom(c: Case, landmarks: int, taps: int, steps: int = 6) -> int:
    m = min(landmarks, c.N)
    joined = m * m * c.D + 4 * steps * c.H * m**3 + m * m * c.D
    return c.projections + attention(m, c.N, c.D) + joined + attention(c.N, m, c.D) + taps * c.N * c.D


def routing(c: Case, clusters: int) -> int:
    members = math.ceil(c.N / clusters)
    return c.projections + 2 * clusters * c.N * c.D + clusters * attention(members, members, c.D)


def sorted_blocks(c: Case, blocks: int) -> int:
    length = math.ceil(c.N / blocks)
    blocks = math.ceil(c.N / length)
    padding = blocks * length - c.N
    sorting = 2 * 2 * blocks * blocks * length * c.D  # keys and values, each block with the one that is sorted to it
    share_of_tokens = c.H * blocks * blocks * length if padding else 0
    return c.projections + sorting + share_of_tokens + blocks * attention(length, 2 * length, c.D)


def sinkhorn(c: Case, blocks: int) -> int:
    count = math.ceil(c.N / math.ceil(c.N / blocks))
    return sorted_blocks(c, blocks) + count * c.D**2 + count * c.H * count * c.D


def pooled_sinkhorn(c: Case, blocks: int) -> int:
    count = math.ceil(c.N / math.ceil(c.N / blocks))
    return sorted_blocks(c, blocks) + count * count * c.D


def informer(c: Case, factor: int) -> int:
    active = min(factor * math.ceil(math.log(c.N)), c.N)
    return c.projections + c.N * active * c.D + attention(active, c.N, c.D)


def reformer(c: Case, chunk: int, directions: int, rounds: int) -> int:
    chunks = math.ceil(c.N / chunk)
    length = math.ceil(c.N / chunks)
    seen = length if chunks == 1 else 2 * length
    hashing = c.N * c.D * rounds * directions
    return 3 * c.N * c.D**2 + hashing + rounds * chunks * attention(length, seen, c.D)


def synthesizer_fd(c: Case) -> int:
    scores = c.N * c.D * c.H * (c.h + c.w + c.class_token)
    return 2 * c.N * c.D**2 + scores + c.N**2 * c.D


def synthesizer_fr(c: Case, k: int) -> int:
    return 2 * c.N * c.D**2 + c.H * c.N**2 * k + c.N**2 * c.D


def performer(c: Case, count: int) -> int:
    return c.projections + 2 * c.N * count * c.D + 2 * c.N * count * c.D


def performer_relu(c: Case, count: int) -> int:
    return performer(c, count) + c.H * c.N * count


def flt(c: Case, count: int, modes: int, waves: int) -> int:
    places = 2 * modes * waves
    return performer(c, count) + 2 * c.H * c.N * places * count + c.H * c.patches * 2 * modes * waves


def linear(c: Case) -> int:
    return c.projections + c.N * c.D + 2 * c.N * c.d * c.D


def scatterbrain(c: Case, count: int, cluster: int) -> int:
    width = math.ceil(c.N / max(1, c.N // cluster))
    pairs = math.ceil(c.N / width) * width**2
    features_and_hash = 2 * c.N * count * c.D + 2 * c.N * c.D
    sparse = pairs * c.D + c.H * pairs * count + c.H * pairs * (c.d + 1)
    return c.projections + features_and_hash + sparse + 2 * c.H * c.N * count * (c.d + 1)


def polysa(c: Case) -> int:
    return c.projections + c.N * c.D


def slab(c: Case) -> int:
    return linear(c) + 25 * c.N * c.D


def hydra(c: Case) -> int:
    return c.projections


def nothing(c: Case) -> int:
    """Fourier transforms and products of single numbers are no matrix products."""
    return 0


def afno(c: Case, blocks: int) -> int:
    modes = c.h * (c.w // 2 + 1)
    return 2 * 4 * modes * c.D * (c.D // blocks)


def halonet(c: Case, block: int, halo: int, stride: int) -> int:
    window = block + 2 * halo
    queries = math.ceil(c.h / block) * math.ceil(c.w / block) * (block // stride) ** 2
    projections = queries * c.D**2 + 2 * c.patches * c.D**2
    return projections + 2 * queries * window * c.D + attention(queries, window**2, c.D)


@dataclass(frozen=True)
class Mixer:
    """How a mixer is built, and the closed form of its multiply-adds."""

    build: Callable[..., nn.Module]
    formula: Callable[[Case], int]
    class_token: bool = True


MIXERS = {
    "softmax": Mixer(Attention, softmax),
    "linformer": Mixer(partial(LinformerMixer, k=5), partial(linformer, k=5)),
    "nystrom": Mixer(partial(NystromMixer, landmarks=6, residual_kernel=5), partial(nystrom, landmarks=6, taps=5)),
    "nystrom of few tokens": Mixer(partial(NystromMixer, landmarks=64), partial(nystrom, landmarks=64, taps=33)),
    "routing": Mixer(partial(RoutingMixer, clusters=4), partial(routing, clusters=4)),
    "sinkhorn": Mixer(partial(SinkhornMixer, blocks=3), partial(sinkhorn, blocks=3)),
    "sinkhorn_cait": Mixer(
        partial(PooledSinkhornMixer, blocks=4), partial(pooled_sinkhorn, blocks=4), class_token=False
    ),
    "informer": Mixer(partial(InformerMixer, factor=2), partial(informer, factor=2)),
    "informer by its authors": Mixer(partial(AuthorsMixer, factor=2), partial(informer, factor=2)),
    "reformer": Mixer(
        partial(ReformerMixer, chunk=6, buckets=8, rounds=3), partial(reformer, chunk=6, directions=4, rounds=3)
    ),
    "reformer with one chunk": Mixer(
        partial(ReformerMixer, chunk=64, buckets=4, rounds=2), partial(reformer, chunk=64, directions=2, rounds=2)
    ),
    "synthesizer_fd": Mixer(FactorizedDenseMixer, synthesizer_fd),
    "synthesizer_fr": Mixer(partial(FactorizedRandomMixer, k=3), partial(synthesizer_fr, k=3)),
    "performer": Mixer(partial(PerformerMixer, count=7), partial(performer, count=7)),
    "performer with relu": Mixer(partial(PerformerMixer, features="relu", count=7), partial(performer_relu, count=7)),
    "linear": Mixer(LinearMixer, linear),
    "flt": Mixer(partial(FltMixer, count=7, modes=3, waves=2), partial(flt, count=7, modes=3, waves=2)),
    "scatterbrain": Mixer(partial(ScatterbrainMixer, count=7, cluster=4), partial(scatterbrain, count=7, cluster=4)),
    "polysa": Mixer(PolyMixer, polysa),
    "slab": Mixer(SlabMixer, slab, class_token=False),
    "hydra": Mixer(HydraMixer, hydra),
    "fnet": Mixer(FNetMixer, nothing),
    "gfnet": Mixer(GlobalFilter, nothing, class_token=False),
    "afno": Mixer(partial(AfnoMixer, blocks=4), partial(afno, blocks=4), class_token=False),
}

SHAPES = [(48, 3, 4, 5), (64, 4, 7, 6)]


def counted(mixer: nn.Module, *shape: int) -> int:
    return sum(op.work.macs_matmul for op in trace(mixer, torch.empty(shape, device="meta")).ops)


def count_of(mixer: Mixer, c: Case) -> int:
    with torch.device("meta"):
        built = mixer.build(c.D, c.H, Tokens(c.h, c.w, class_token=c.class_token))
    return counted(built, 1, c.N, c.D)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", MIXERS)
def test_a_mixers_multiply_adds_are_its_closed_form_to_the_unit(name, shape):
    case = Case(*shape, class_token=MIXERS[name].class_token)
    assert count_of(MIXERS[name], case) == MIXERS[name].formula(case)


@pytest.mark.parametrize("name", [name for name, mixer in MIXERS.items() if mixer.formula is not nothing])
def test_a_closed_form_of_another_size_is_another_number_so_the_test_can_fail(name):
    mixer = MIXERS[name]
    case = Case(*SHAPES[0], class_token=mixer.class_token)
    others = [Case(case.D, case.H, case.h, case.w + 1, case.class_token), Case(case.D + 12, case.H, case.h, case.w)]
    assert all(mixer.formula(other) != count_of(mixer, case) for other in others)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("sides", [(8, 8), (10, 7)], ids=str)
def test_the_multiply_adds_of_halo_attention_are_its_closed_form_to_the_unit(sides, stride):
    case = Case(24, 3, *sides)
    with torch.device("meta"):
        built = HaloAttention(case.D, case.H, stride, block=4, halo=1)
    found = counted(built, 1, case.D, *sides)
    assert found == halonet(case, block=4, halo=1, stride=stride)
    assert found != halonet(case, block=4, halo=2, stride=stride)


def subclasses(kind: type) -> Iterator[type]:
    for child in kind.__subclasses__():
        yield child
        yield from subclasses(child)


def test_every_mixer_of_queries_keys_and_values_has_a_closed_form_here():
    list_models()  # which has imported all of the zoo
    tested = {getattr(mixer.build, "func", mixer.build) for mixer in MIXERS.values()} | {BlockSortMixer}
    missing = {
        kind.__qualname__ for kind in subclasses(HeadMixer) if kind.__module__.startswith("favor.zoo.mixing.")
    } - {kind.__qualname__ for kind in tested}
    assert not missing
