"""The test cluster itself."""

from cluster.slurm_cluster import NODES, SlurmCluster


def test_the_test_cluster_runs_a_job_on_every_node(slurm: SlurmCluster) -> None:
    said = slurm.call("srun", f"--nodes={len(NODES)}", "--label", "printenv", "SLURMD_NODENAME")
    assert {line.split(": ")[1] for line in said.splitlines()} == set(NODES)
