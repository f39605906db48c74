"""A follower's module has the leader's very memory, and nothing of it can be written to."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from omni_runtime.weight_share.connection import connect
from omni_runtime.weight_share.errors import (
    CannotShare,
    LeaderAbsent,
    LeaderLost,
    UnsafeStore,
    WeightsDiffer,
)
from omni_runtime.weight_share.modules import filled_module
from omni_runtime.weight_share.offer import offered_weights
from omni_runtime.weight_share.role import WeightShareRole
from omni_runtime.weight_share.share import WeightShare
from tests.support.patience import PATIENT_SECONDS
from tests.support.shared_stages import tensor_digests

CPU = torch.device("cpu")
WIDTH = 64


class Model(nn.Module):
    """Tied weights, a view, a table that is not saved, a counter, and a tensor without a home."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.embedding = nn.Embedding(width, width)
        self.head = nn.Linear(width, width, bias=False)
        self.head.weight = self.embedding.weight
        self.first_rows = self.embedding.weight.detach()[:4]
        self.norm = nn.LayerNorm(width)
        self.register_buffer("table", torch.arange(width).float().cos(), persistent=False)
        self.register_buffer("steps", torch.zeros(1, dtype=torch.int64))
        self.scale = torch.full((1,), 0.5)
        self.packed = False

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.embedding(ids)) * self.table * self.scale + self.first_rows.sum()
        rows: torch.Tensor = self.head(hidden)
        return rows


class Copies:
    """Leader and followers of one model, in one process: they speak over their sockets.

    Args:
        seconds: how long a follower waits for its leader.
    """

    def __init__(self, store: Path, seconds: float = PATIENT_SECONDS) -> None:
        self.store = store
        self.seconds = seconds
        self.lost = threading.Event()
        self.shares: list[WeightShare] = []

    def copy(
        self,
        kind: str,
        build: Callable[[], nn.Module] = Model,
        fill: Callable[[nn.Module], nn.Module] | None = None,
        run_id: str = "r",
        **facts: str,
    ) -> nn.Module:
        role = WeightShareRole(kind, self.store, run_id, self.seconds)  # type: ignore[arg-type]
        share = WeightShare(role, {"configuration": "c"}, lambda stage: self.lost.set())
        self.shares.append(share)
        with offered_weights("llm@r0" if kind == "leader" else "llm@r1", share):
            with torch.device("meta"):
                module = build()
            return filled_module(module, fill or filled, facts, CPU)

    def close(self) -> None:
        for share in reversed(self.shares):
            share.close()


def filled(module: nn.Module) -> nn.Module:
    """Stand in for a checkpoint: the same values every time."""
    generator = torch.Generator().manual_seed(3)
    module.to_empty(device=CPU)
    if isinstance(module, Model):
        module.head.weight = module.embedding.weight
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.rand(parameter.shape, generator=generator))
    for name, buffer in module.named_buffers():
        buffer.fill_(len(name))
    if isinstance(module, Model):
        module.first_rows = module.embedding.weight.detach()[:4]
        module.scale = torch.full((1,), 0.5)
    return module.eval().requires_grad_(False)


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[Copies]:
    made = Copies(tmp_path / "store")
    yield made
    made.close()


def test_a_follower_has_every_tensor_of_the_leader_bit_for_bit(copies: Copies) -> None:
    leader, follower = copies.copy("leader"), copies.copy("follower")
    alone = tensor_digests(filled(Model()))
    assert tensor_digests(leader) == alone
    assert tensor_digests(follower) == alone
    ids = torch.arange(WIDTH)
    assert torch.equal(leader(ids), follower(ids))
    assert torch.equal(filled(Model())(ids), follower(ids))


def test_what_may_be_written_to_is_each_copy_s_own(copies: Copies) -> None:
    leader, follower = copies.copy("leader"), copies.copy("follower")
    for name in ("steps", "table"):
        follower.get_buffer(name).add_(1)
        leader.get_buffer(name).sub_(1)
        assert torch.equal(follower.get_buffer(name), leader.get_buffer(name) + 2)


def test_tied_weights_stay_tied_and_views_stay_views(copies: Copies) -> None:
    for copy in (copies.copy("leader"), copies.copy("follower")):
        assert isinstance(copy, Model)
        assert copy.head.weight is copy.embedding.weight
        assert copy.first_rows.data_ptr() == copy.embedding.weight.data_ptr()


def test_followers_may_come_late_leave_and_come_again(copies: Copies) -> None:
    copies.copy("leader")
    leader = copies.shares[0]
    assert leader.wait_unused(0)
    for _ in range(3):
        copies.copy("follower")
        assert not leader.wait_unused(0)
        copies.shares.pop().close()
        assert leader.wait_unused(PATIENT_SECONDS)
    assert not copies.lost.is_set()


def test_a_follower_is_told_when_its_leader_ends(copies: Copies) -> None:
    copies.copy("leader")
    copies.copy("follower")
    copies.shares[0].close()
    assert copies.lost.wait(PATIENT_SECONDS)


def test_a_follower_that_leaves_by_itself_has_lost_nothing(copies: Copies) -> None:
    copies.copy("leader")
    copies.copy("follower")
    copies.shares[1].close()
    assert copies.shares[0].wait_unused(PATIENT_SECONDS)
    assert not copies.lost.wait(0.2)


class Method:
    """Computes with the weights of a layer, and knows how they are packed."""

    def __init__(self) -> None:
        self.interleaved = False
        self.order: tuple[int, ...] = ()


class Repacked(nn.Module):
    """Its weights are transposed once they are loaded, as kernels like them."""

    def __init__(self) -> None:
        super().__init__()
        self.method = Method()
        self.weight = nn.Parameter(torch.empty(3, 5))
        self.draft = nn.Parameter(torch.empty(2))
        self.packed = False


def repacked(module: nn.Module) -> nn.Module:
    module = filled(module)
    module.weight = nn.Parameter(module.weight.t(), requires_grad=False)
    module.weight_scale = nn.Parameter(torch.tensor([2.0]), requires_grad=False)
    del module.draft
    module.packed = True
    module.method.interleaved = True
    module.method.order = (1, 0)
    return module


def test_post_processing_reaches_a_follower_that_does_none(copies: Copies) -> None:
    leader = copies.copy("leader", Repacked, repacked)
    follower = copies.copy("follower", Repacked)
    assert tensor_digests(follower) == tensor_digests(leader)
    assert follower.get_parameter("weight").stride() == (1, 5)
    assert follower.packed is True
    assert isinstance(follower.method, Method)
    assert (follower.method.interleaved, follower.method.order) == (True, (1, 0))
    assert "draft" not in dict(follower.named_parameters())


def test_post_processing_that_leaves_an_object_is_refused(copies: Copies) -> None:
    def marked(module: nn.Module) -> nn.Module:
        module.kernel = object()
        return filled(module)

    with pytest.raises(CannotShare, match="an attribute 'kernel' of type object"):
        copies.copy("leader", fill=marked)


def test_a_helper_that_is_given_an_object_is_refused(copies: Copies) -> None:
    def marked(module: nn.Module) -> nn.Module:
        module.method.kernel = object()
        return filled(module)

    with pytest.raises(CannotShare, match="loading gave ':method' an attribute 'kernel'"):
        copies.copy("leader", Repacked, marked)


def test_tensors_in_a_list_are_refused(copies: Copies) -> None:
    def hiding(module: nn.Module) -> nn.Module:
        module.rows = [torch.zeros(1)]
        return filled(module)

    class Hiding(Model):
        def __init__(self) -> None:
            super().__init__()
            self.rows: list[torch.Tensor] = []

    with pytest.raises(CannotShare, match="rows"):
        copies.copy("leader", Hiding, hiding)


def test_a_module_of_another_shape_is_refused_by_its_tensor(copies: Copies) -> None:
    copies.copy("leader")
    with pytest.raises(WeightsDiffer, match=r"buffer table is float32 \[64\] .* float32 \[32\]"):
        copies.copy("follower", lambda: Model(32))


def test_another_checkpoint_is_refused(copies: Copies) -> None:
    copies.copy("leader", checkpoint="/a")
    with pytest.raises(WeightsDiffer, match="its checkpoint is '/a', this one's '/b'"):
        copies.copy("follower", checkpoint="/b")


def test_a_leader_of_another_run_refuses(copies: Copies) -> None:
    copies.copy("leader")
    with pytest.raises(LeaderLost, match="it belongs to run 'r', this process to 'other'"):
        copies.copy("follower", run_id="other")


def test_a_leader_that_never_comes_is_an_error(tmp_path: Path) -> None:
    copies = Copies(tmp_path / "store", seconds=0.2)
    with pytest.raises(LeaderAbsent, match=r"no leader offers weights at .*llm\.sock after 0\.2 s"):
        copies.copy("follower")


def test_a_leader_that_is_gone_leaves_room_for_the_next(copies: Copies) -> None:
    copies.copy("leader")
    copies.shares.pop().close()
    copies.copy("leader")
    copies.copy("follower")
    assert stat.S_IMODE(copies.store.stat().st_mode) == 0o700


def test_a_store_that_others_can_enter_is_refused(copies: Copies) -> None:
    copies.store.mkdir(mode=0o755)
    with pytest.raises(UnsafeStore, match="mode 0755"):
        copies.copy("leader")


def test_a_store_deep_in_the_file_system_is_no_problem(tmp_path: Path) -> None:
    copies = Copies(tmp_path / ("deep" * 20) / ("deeper" * 20))
    try:
        copies.copy("leader")
        copies.copy("follower")
    finally:
        copies.close()


def test_nonsense_at_the_socket_does_not_stop_the_leader(copies: Copies) -> None:
    copies.copy("leader")
    for data in (b"", b"\0" * 8, b"\xff" * 64, b"\0\0\0\0\0\0\0\2[]"):
        stranger = connect(copies.store / "llm.sock", PATIENT_SECONDS)
        os.write(stranger.fileno(), data) if data else None
        stranger.close()
    assert tensor_digests(copies.copy("follower")) == tensor_digests(filled(Model()))


WRITING = """
import sys, torch
from pathlib import Path
from tests.unit.omni_runtime.weight_share.test_modules import Copies
copies = Copies(Path(sys.argv[1]))
leader = copies.copy("leader")
module = leader if sys.argv[2] == "leader" else copies.copy("follower")
print("loaded", flush=True)
with torch.no_grad():
    module.norm.weight.add_(1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("who", ["leader", "follower"])
def test_who_writes_to_a_shared_parameter_is_stopped_at_once(who: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITING, str(tmp_path / "store"), who]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.stdout == "loaded\n", ended.stderr
    assert ended.returncode == -signal.SIGSEGV
