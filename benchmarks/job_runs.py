"""A job's data and run without its method, for benchmarks that train other things on them."""

from collections.abc import Callable
from typing import Any, TypeVar

from covlearn.data.sources import Source
from covlearn.job import Job, augmented, make_machine, protocol_of, resolve_device, settled
from covlearn.local_run import LocalRun

AnyRun = TypeVar("AnyRun", bound=LocalRun)


def run_of(job: Job, source: Source, kind: Callable[..., AnyRun], **options: Any) -> AnyRun:
    """A run of the job's network, machine and seed on a source that has its noise already."""
    _, others = settled(job)
    protocol = protocol_of(job)
    return kind(
        augmented(source.train, protocol.augmentation, others["augmentation"]),
        net_name=job.net or protocol.net,
        net_options=others["net"],
        machine=make_machine(resolve_device("auto"), others["machine"]),
        seed=job.seed,
        **options,
    )
