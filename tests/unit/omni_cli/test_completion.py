"""Shell completion, driven as a shell drives it: by environment variables."""

from __future__ import annotations

import pytest

from tests.support.command_line import omni

pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture(params=["bash", "zsh", "fish"])
def shell(request: pytest.FixtureRequest) -> str:
    """Return each shell's name."""
    name: str = request.param
    return name


def complete(line: str, shell: str = "bash") -> list[str]:
    """Return what a shell offers at the end of a line, one offer a line."""
    words = line.split()
    index = len(words) if line.endswith(" ") else len(words) - 1
    variables = {
        "_OMNI_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(index),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        outcome = omni()
    assert outcome.stderr == ""
    return outcome.stdout.split()


def test_every_shell_completes_a_path_of_the_file_s_pipeline(shell: str) -> None:
    offers = "\n".join(complete("omni config resolve --config tts.yaml --voc", shell))
    assert "--vocoder.gpu" in offers
    assert "--thinker" not in offers


@pytest.mark.parametrize(
    ("line", "some"),
    [
        pytest.param("omni ", ["config", "plan", "pipelines"], id="commands"),
        pytest.param("omni config e", ["explain", "export"], id="commands of a command"),
        pytest.param("omni plan --dev", ["--devices"], id="options"),
        pytest.param("omni plan -f tts.yaml --m", ["--mps", "--model-path"], id="both"),
        pytest.param("omni plan -f tts.yaml --t", ["--text-only", "--tts_engine.gpu"], id="stages"),
        pytest.param(
            "omni plan -f tts.yaml --tts-engine.engine.mem",
            ["--tts_engine.engine.mem_fraction_static"],
            id="dashes",
        ),
        pytest.param(
            "omni plan -f tts.yaml --tts_engine.engine.attention_b",
            ["--tts_engine.engine.attention_backend"],
            id="keys of the engine",
        ),
        pytest.param(
            "omni plan -f tts.yaml --vocoder.factory.stream_str",
            ["--vocoder.factory.stream_stride"],
            id="parameters of the factory",
        ),
        pytest.param(
            "omni plan -f tts.yaml --proc",
            ["--processes.pipeline.num_replicas", "--processes.pipeline.replica_devices"],
            id="a lone group is opened",
        ),
        pytest.param("omni plan -f tts.yaml --mps ", ["off", "on", "auto"], id="choices"),
        pytest.param("omni plan -f tts.yaml --mps a", ["auto"], id="begun choices"),
        pytest.param(
            "omni plan -f tts.yaml --vocoder.enforce_total_reserve ", ["true", "false"], id="yes no"
        ),
        pytest.param(
            "omni config explain -f tts.yaml vocoder.gpu_",
            ["vocoder.gpu_memory_fraction"],
            id="PATH",
        ),
        pytest.param("omni config explain -f tts.yaml --mps o", ["off", "on"], id="no PATH yet"),
        pytest.param("omni plan --variant speech", ["speech", "speech-colocated"], id="variants"),
        pytest.param("omni plan --thinker.ti", [], id="nothing"),
        pytest.param("omni plan -o ", ["text", "json", "yaml"], id="formats"),
    ],
)
def test_what_is_offered(line: str, some: list[str]) -> None:
    offers = complete(line)
    assert set(some) <= set(offers)
    begun = "" if line.endswith(" ") else line.split()[-1].replace("tts-engine", "tts_engine")
    assert all(offer.startswith(begun) for offer in offers)


def test_without_a_pipeline_all_are_offered() -> None:
    offers = complete("omni plan --t")
    assert {"--thinker.", "--talker_ar.", "--tts_engine."} <= set(offers)


def test_a_broken_file_completes_like_none_and_says_nothing() -> None:
    assert "--thinker.gpu" in complete("omni plan --config none.yaml --th")


def test_a_script_can_be_shown_for_every_shell(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_OMNI_COMPLETE", f"source_{shell}")
    assert "_OMNI_COMPLETE=complete_" in omni().stdout
