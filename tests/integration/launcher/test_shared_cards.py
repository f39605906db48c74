"""A whole run on a shared GPU: leased before the first process, checked, given back at the end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest
from pydantic import Field

from omni_config.resolution.resolve import Resolution
from omni_config.schema import PipelineConfig, StageConfig
from omni_config.settings import EndpointConfig, MpsMode, MpsQuota
from omni_runtime.launcher.launch import LaunchOptions, launch
from omni_runtime.launcher.local_processes import Programs
from omni_runtime.launcher.roles import Patience
from tests.support import stand_in_process
from tests.support.displays import WatchedDisplay
from tests.support.mps import fake_host
from tests.support.patience import PATIENT_SECONDS
from tests.support.pipelines import engine


class SharedPipelineConfig(PipelineConfig):
    """Two engines that share GPU 0."""

    mps: MpsMode = Field("on", description="Share the card.")
    mps_quota: MpsQuota = Field(
        MpsQuota(active_thread_percentage=60, pinned_memory=8 << 30), description="Of each."
    )

    @classmethod
    def declare(cls) -> tuple[StageConfig, ...]:
        thinker = engine("thinker", gpu=0, gpu_memory_fraction=0.5, next=("talker",))
        return (thinker, engine("talker", gpu=0, gpu_memory_fraction=0.4, terminal=True))


@pytest.mark.parametrize("starts", [True, False])
async def test_a_card_is_leased_for_exactly_as_long_as_the_run(
    starts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(prefix="up-") as name, fake_host(Path(name)) as card:
        folder = Path(name)
        monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
        monkeypatch.setenv("OMNI_MPS_STATE_ROOT", str(card.root))
        monkeypatch.setenv("FAKE_MPS_CALLS", str(folder / "calls"))
        for group in ("thinker", "talker"):
            (folder / group).write_text("attaches")
        if not starts:
            (folder / "talker").write_text("fails")
        program = (sys.executable, "-m", stand_in_process.__name__, name)
        options = LaunchOptions(
            programs=Programs(program, program),
            patience=Patience(drain=PATIENT_SECONDS, terminate=PATIENT_SECONDS),
        )
        display = WatchedDisplay()
        config = SharedPipelineConfig(
            model_path="org/model", endpoints=EndpointConfig(base_path=str(folder / "run"))
        )
        run = asyncio.create_task(launch(Resolution(config, {}), options, display))
        if starts:
            await display.saw("all ready")
            assert (card.root / "gpu0" / "owners").exists()
            os.kill(os.getpid(), signal.SIGINT)
        assert await run == (0 if starts else 1)
        assert card.calls == [
            "start 0",
            "set_default_active_thread_percentage 60",
            "set_default_device_pinned_mem_limit 0 8192M",
            "quit",
        ]
        assert [path.name for path in card.root.iterdir()] == ["gpu0.lock"]
        assert list((folder / "run").iterdir()) == []
