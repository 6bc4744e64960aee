"""What a study survives on a cluster: `python benchmarks/cluster_drill.py` prints the tables of docs/clusters.md.

A real Slurm on this machine (apt-get install slurm-wlm munge; as root) runs 200 jobs: 90 counts, 90 measurements and 20
trainings. Every few seconds a random allocation is stopped: by SIGUSR2, SIGTERM, requeueing, SIGKILL or the failure of
its node. Then 1,000 empty jobs are submitted to measure the overhead.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from cluster.disturb import DISTURBANCES, disturb  # noqa: E402
from cluster.slow_models import NAMES  # noqa: E402
from cluster.slurm_cluster import SlurmCluster, slurm_cluster  # noqa: E402
from cluster.studies import PLUGIN, called, learned, users_environment  # noqa: E402
from favor.records.store import read  # noqa: E402
from favor.study.allocation import allocations_of, key_of  # noqa: E402
from favor.study.cluster_queue import ClusterQueue, Whereabouts  # noqa: E402
from favor.study.folder import saved_requests  # noqa: E402
from favor.study.plan import CountJob, Job  # noqa: E402
from favor.study.progress import records_of, states_of_all  # noqa: E402
from favor.study.schema import ExecutorOptions  # noqa: E402
from favor.study.slurm_executor import Queued, SlurmExecutor, cancel, queue_of  # noqa: E402
from favor.study.submission import Submission, submissions_of  # noqa: E402

SEEDS = range(4)
EPOCHS = 4
STUDY = """\
models: [{names}]
plugins: [{plugin}]
img_sizes: {sizes}
phases: [count, inference, accuracy]
energy: false
batch_size: 1
threads: 1
budget: {{measurement: 0.2 s}}
train: {{recipe: laptop-digits, epochs: {epochs}, set: [warmup_epochs=1], seeds: {seeds}}}
report: {{page: false, dataset: digits}}
"""


def drill(slurm: SlurmCluster, folder: Path, sizes: int, every: float, stops: int, rng: random.Random) -> None:
    """Run a study while allocations are stopped at random; print what was lost, doubled or different."""
    file, study = folder / "drill.yaml", folder / "study"
    text = STUDY.format(
        names=", ".join(NAMES),
        plugin=PLUGIN,
        sizes=list(range(32, 32 + 8 * sizes, 8)),
        epochs=EPOCHS,
        seeds=list(SEEDS),
    )
    file.write_text(text)
    user = users_environment(slurm.environment, folder, pause=0.02)
    began = time.monotonic()
    called(user, "run", file, "--study", study, "--executor", "slurm", "--set", "time_limit=2 h")
    stopped: Counter[str] = Counter()
    looks = false = resumed = 0
    next_stop = time.monotonic() + every
    while True:
        _administer(slurm)
        submissions = submissions_of(study)
        before, queue, after = queue_of(submissions), ClusterQueue.now(study), queue_of(submissions)
        states = states_of_all(saved_requests(study), records_of(study))
        left = [state.job for state in states if state.status == "left"]
        looks += 1
        failed = {str(state.job): state.reason for state in states if state.status == "failed"}
        false += len(failed)
        false += sum(_is_false(queue.find(job), *_seen(job, submissions, before, after)) for job in left)
        print(
            f"{time.monotonic() - began:5.0f} s: {len(states) - len(left)} done, {stopped.total()} stopped"
            + "".join(f"; failed: {job}: {reason}" for job, reason in failed.items()),
            file=sys.stderr,
        )
        if not left:
            break
        if not queue.alive(left):
            called(user, "--plugin", PLUGIN, "resume", study)
            resumed += 1
        if time.monotonic() >= next_stop and stopped.total() < stops:
            how = rng.choice(DISTURBANCES)
            running = [
                (submission, index)
                for submission in submissions_of(study)
                for index, queued in queue_of([submission])[submission.name].items()
                if queued.state == "RUNNING"
            ]
            if running and disturb(slurm, study, *rng.choice(running), how):
                stopped[how] += 1
            next_stop = time.monotonic() + every
        time.sleep(2.0)
    seconds = time.monotonic() - began
    records = read(study)
    doubled = sum(count - 1 for count in Counter(record.request for record in records.records).values())
    references = folder / "undisturbed"
    words = ("--recipe", "laptop-digits", "--epochs", EPOCHS, "--set", "warmup_epochs=1", "--threads", "1")
    different = 0
    for seed in SEEDS:
        out = references / str(seed)
        called(user | {"FAVOR_TEST_PAUSE": "0"}, "--plugin", PLUGIN, "train", "fast", *map(str, words),
               "--set", f"seed={seed}", "--study", out)  # fmt: skip
        expected = learned(out, "fast", seed)
        if len(expected) != EPOCHS:
            raise RuntimeError(f"the undisturbed training has {len(expected)} epochs")
        for name in NAMES:
            different += learned(study, name, seed) != expected
    kinds = ", ".join(f"{count} {phase}" for phase, count in Counter(state.job.phase for state in states).items())
    print(f"| jobs | {len(states)} ({kinds}), {seconds / 60:.0f} min |")
    ways = ", ".join(f"{count} by {how}" for how, count in stopped.items())
    print(f"| allocations stopped | {stopped.total()}: {ways} |")
    print(f"| `favor resume` needed | {resumed} times |")
    print(f"| jobs lost | {len(left)} |")
    print(f"| records doubled | {doubled} |")
    print(f"| unreadable lines | {len(records.problems)} |")
    print(f"| training runs that differ from undisturbed ones in any bit | {different} of 20 |")
    print(f"| false statements of `favor status` | {false} in {looks} looks |")


def _administer(slurm: SlurmCluster) -> None:
    """What an administrator does: return nodes that Slurm has drained, and release the jobs that it holds."""
    for node in set(slurm.call("sinfo", "--noheader", "--Node", "--states=drained", "--format=%N").split()):
        slurm.succeeds("scontrol", "update", f"NodeName={node}", "State=RESUME")
    for line in slurm.call("squeue", "--noheader", "--array", "--format=%i %r").splitlines():
        number, reason = line.split(" ", 1)
        if "held" in reason:
            slurm.succeeds("scontrol", "release", number)
    slurm.start_delayed()


def _seen(
    job: Job, submissions: Sequence[Submission], *looks: Mapping[str, Mapping[int, Queued]]
) -> list[Queued | None]:
    """The newest allocation of a job, as the queue showed it before and after `favor status` looked."""
    holding = [(one, index) for one in submissions for index, keys in enumerate(one.allocations) if key_of(job) in keys]
    submission, index = holding[-1]
    return [look[submission.name].get(index) for look in looks]


def _is_false(place: Whereabouts | None, before: Queued | None, after: Queued | None) -> bool:
    """Whether a statement contradicts what Slurm said just before and just after."""
    alive = [one is not None and one.status != "ended" for one in (before, after)]
    if place is None or (place.status == "lost" and all(alive)) or (place.status != "lost" and not any(alive)):
        return True
    nodes = {one.node for one in (before, after) if one is not None}
    return place.status == "running" and len(nodes) == 1 and nodes != {place.node}


def overhead(slurm: SlurmCluster, folder: Path, count: int) -> None:
    """Submit empty jobs, ask for them and cancel them; print the milliseconds per job."""
    os.environ["SLURM_CONF"] = slurm.environment["SLURM_CONF"]
    (study,) = saved_requests(folder / "study")
    jobs = [CountJob("slow_a", 32, classes) for classes in range(1, count + 1)]
    empty = folder / "empty"
    executor = SlurmExecutor(empty, study, ExecutorOptions(kind="slurm", extra=("--hold",)))
    began = time.monotonic()
    submissions = list(executor.submit(allocations_of(jobs, shared_by=count), repeats=False))
    submitted = time.monotonic()
    queue = ClusterQueue.now(empty)
    alive = len(queue.alive(jobs))
    asked = time.monotonic()
    canceled = cancel(submissions)
    ended = time.monotonic()
    if not alive == canceled == count:
        raise RuntimeError(f"of {count} jobs, {alive} were seen and {canceled} canceled")
    per_job = 1000 / count
    print(f"| {count} empty jobs: submission | {(submitted - began) * per_job:.1f} ms per job |")
    print(f"| {count} empty jobs: where they are | {(asked - submitted) * per_job:.1f} ms per job |")
    print(f"| {count} empty jobs: cancellation | {(ended - asked) * per_job:.1f} ms per job |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two disturbances")
    parser.add_argument("--sizes", type=int, default=18, help="image sizes: each gives 5 counts and 5 measurements")
    parser.add_argument("--stops", type=int, default=80, help="how many disturbances there are")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--empty", type=int, default=1000, help="empty jobs of the second part")
    options = parser.parse_args()
    with slurm_cluster(max_array_size=10_001) as slurm, tempfile.TemporaryDirectory(prefix="favor-drill-") as folder:
        os.environ["SLURM_CONF"] = slurm.environment["SLURM_CONF"]
        drill(slurm, Path(folder), options.sizes, options.every, options.stops, random.Random(options.seed))  # noqa: S311
        overhead(slurm, Path(folder), options.empty)


if __name__ == "__main__":
    main()
