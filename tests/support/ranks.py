"""The thinker split over two processes of one machine, joined as the runtime joins ranks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from omni_models.qwen3_omni.factories import create_thinker
from omni_runtime.tensor_parallel import FollowerInbox, LeaderInbox, RankChannel, RankSettings
from tests.support.ports import free_ports
from tests.support.speech_stages import ENGINE
from tests.support.stage_process import StageProcess

RANKS = 2


def create_rank(model_path: str, *, tp_rank: int, address: str, port: int, **more: Any) -> Any:
    """Return one rank's scheduler with the inbox that keeps the ranks in step."""
    settings = RankSettings(port)
    leads = tp_rank == 0
    link: Any = RankChannel([address], settings) if leads else FollowerInbox(address)
    link.join()
    scheduler: Any = create_thinker(
        model_path, tp_rank=tp_rank, tp_size=RANKS, nccl_port=port, **more
    )
    if leads:
        link.wait_all("build")
        scheduler.inbox = LeaderInbox(link)
    else:
        scheduler.inbox = link
        link.on_stop(scheduler.stop)
        link.report("built")
    return scheduler


def start_ranks(checkpoint: Path, folder: Path) -> list[StageProcess]:
    """Start both ranks; requests are put into the first one only, and both say what they make."""
    kwargs = {
        "model_path": str(checkpoint),
        "speech_enabled": True,
        "server_args_overrides": ENGINE,
        "address": f"unix:{folder}/rank1.sock",
        "port": free_ports(1),
    }

    def start(rank: int) -> StageProcess:
        return StageProcess("tests.support.ranks.create_rank", {**kwargs, "tp_rank": rank})

    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(start, range(RANKS)))


def stop_ranks(ranks: list[StageProcess]) -> None:
    """Stop all together: the second takes its last step with the first."""
    with ThreadPoolExecutor(RANKS) as pool:
        list(pool.map(StageProcess.close, ranks))
