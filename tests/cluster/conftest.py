"""A real Slurm cluster and a real local Ray for the tests of this folder."""

import importlib.util
import os
from collections.abc import Iterator

import pytest

from cluster.slurm_cluster import SlurmCluster, missing_programs, slurm_cluster

INSTALL = "apt-get install slurm-wlm munge"


def _cannot(reason: str) -> None:
    """Skip where a newcomer may do without a cluster; fail where CI may not."""
    if os.environ.get("FAVOR_CLUSTER_REQUIRED"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    """A Slurm cluster of four nodes on this machine."""
    if os.name != "posix" or os.geteuid() != 0:
        _cannot("the test cluster needs root, as Slurm's daemons do")
    if missing := missing_programs():
        _cannot(f"{missing} not found; {INSTALL}")
    with slurm_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def ray() -> None:
    """The package ray, which starts a cluster of its own."""
    if importlib.util.find_spec("ray") is None:
        _cannot("ray not found; pip install ray")
