"""What `omni pipelines` lists, and how other packages add to it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from omni_models import catalog
from tests.support.command_line import omni

TOPOLOGY = """\
from omni_config.schema import PipelineConfig, StageConfig

class EchoPipelineConfig(PipelineConfig):
    @classmethod
    def declare(cls):
        return (StageConfig(name="echo", factory_path="os.getcwd", process="p", terminal=True),)

PIPELINES = (EchoPipelineConfig,)
"""


@pytest.fixture
def echo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the name of a topology module in the current directory."""
    (tmp_path / "echo_topology.py").write_text(TOPOLOGY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    catalog.registry.cache_clear()
    yield "echo_topology"
    sys.modules.pop("echo_topology", None)
    catalog.registry.cache_clear()


def test_every_pipeline_is_listed_with_its_stages() -> None:
    shown = omni("pipelines").stdout
    assert "Qwen3OmniMoeForConditionalGeneration\n├── Qwen3OmniSpeechPipelineConfig" in shown
    assert "--variant speech, the default" in shown
    assert "plan-only: its stages are not built yet" in shown
    assert "├── thinker*        GPU 0  to decode, streams to talker_ar, decode\n" in shown


def test_the_list_is_data_for_programs() -> None:
    models = json.loads(omni("pipelines", "-o", "json").stdout)
    stages = models[1]["pipelines"][0]["stages"]
    assert [stage["name"] for stage in stages] == ["preprocessing", "vocoder", "tts_engine"]
    assert [stage["engine"] for stage in stages] == [False, False, True]


def test_a_module_of_the_current_directory_adds_pipelines(echo: str) -> None:
    assert "EchoPipelineConfig" in omni("pipelines", "--pipelines", echo).stdout
    assert "EchoPipelineConfig" not in omni("pipelines").stdout
    Path("echo.yaml").write_text("config_cls: EchoPipelineConfig\nmodel_path: m\n")
    assert omni("plan", "-f", "echo.yaml", "--pipelines", echo).status == 0
    assert omni("plan", "-f", "echo.yaml").status == 2


def test_an_installed_package_adds_pipelines(echo: str, tmp_path: Path) -> None:
    sys.path.append(str(tmp_path))
    metadata = tmp_path / "echo-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: echo\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[omnipipe.pipelines]\necho = {echo}\n")
    assert "EchoPipelineConfig" in omni("pipelines").stdout


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("raise RuntimeError('no luck')", "RuntimeError: no luck", id="it fails"),
        pytest.param("", "has no attribute 'PIPELINES'", id="it lists nothing"),
        pytest.param(
            TOPOLOGY.replace("EchoPipelineConfig", "Qwen3TTSPipelineConfig"),
            "two pipeline classes are called Qwen3TTSPipelineConfig",
            id="it takes a name",
        ),
    ],
)
def test_a_named_module_that_is_no_use_is_an_error(echo: str, text: str, says: str) -> None:
    Path(f"{echo}.py").write_text(text)
    refused = omni("pipelines", "--pipelines", echo)
    assert refused.status == 2
    assert says in refused.stderr
