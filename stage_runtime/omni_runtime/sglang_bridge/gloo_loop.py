"""One thread for all of a process's gloo groups.

SGLang makes nine groups, also for a single rank, and gloo gives each a thread of its own that looks
a hundred times a second whether something came. Two engines that wait would take two percent of a
core that way. Groups may share the device that owns the thread; torch only does not let them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.distributed import Backend, ProcessGroup
from torch.distributed.distributed_c10d import ProcessGroupGloo

if TYPE_CHECKING:
    from torch._C._distributed_c10d import _DistributedBackendOptions


def share_gloo_loop() -> None:
    """Make every gloo group that is created from now on in this process use one thread."""
    device = ProcessGroupGloo.create_default_device()

    def create(settings: _DistributedBackendOptions, _: object) -> ProcessGroupGloo:
        options = ProcessGroupGloo._Options()
        options._devices = [device]
        options._timeout = settings.timeout
        options.enable_reconfigure = settings.enable_reconfigure
        options.global_ranks_in_group = settings.global_ranks_in_group
        options.group_name = settings.group_id
        return ProcessGroupGloo(settings.store, settings.group_rank, settings.group_size, options)

    Backend.register_backend(
        Backend.GLOO,
        create,
        extended_api=True,
        devices=Backend.backend_capability[Backend.GLOO],
        _backend_type=ProcessGroup.BackendType.GLOO,
    )
