"""What `omni config` tells a user, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.support.command_line import omni

pytestmark = pytest.mark.usefixtures("folder")
SPEECH = "Qwen3OmniSpeechPipelineConfig"


def write(name: str, text: str) -> str:
    Path(name).write_text(text)
    return name


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param(
            ["--confg", "tts.yaml"],
            ["No such option: --confg\n  did you mean: --config", "--model-path is required"],
            id="a misspelt option",
        ),
        pytest.param(
            ["-f", "tts.yaml", "--shw", "diff"],
            ["No such option: --shw", "did you mean: --show"],
            id="a misspelt option beside a file",
        ),
        pytest.param(
            ["-f", "tts.yaml", "--wieght-share", "on"],
            ["No such option: --wieght-share", "did you mean: --weight_share"],
            id="a misspelt top-level setting",
        ),
        pytest.param(
            ["-f", "tts.yaml", "--vocoder.gpuu", "1"],
            ["did you mean: vocoder.gpu\n"],
            id="a misspelt field, suggested as a flag takes it",
        ),
        pytest.param(
            ["-f", "tts.yaml", "--vocoder.zzz", "1"], ["no field 'zzz'"], id="nothing is close"
        ),
        pytest.param(
            ["-f", "tts.yaml", "--stages", "x"],
            ["as a flag write --<stage>.<field>"],
            id="all stages at once",
        ),
        pytest.param(
            ["-f", "tts.yaml", "--vocoder.factory.x", "--vocoder.gpu", "1"],
            ["Missing value for argument: --vocoder.factory.x"],
            id="a forgotten value",
        ),
        pytest.param(
            ["--config", "--show", "diff"],
            ["Missing value for argument: --config"],
            id="a forgotten value of an option",
        ),
        pytest.param(
            ["-f", "tts.yaml", "--port", "80"], ["No such option: --port"], id="no option here"
        ),
        pytest.param(
            ["-f", "tts.yaml", "--mem-fraction-static", "much"],
            ["'--mem-fraction-static'", "number"],
            id="an option of a wrong type",
        ),
        pytest.param(["-f", "none.yaml"], ["Config file 'none.yaml' does not exist"], id="no file"),
        pytest.param(["-f", "."], ["Config file '.' cannot be read"], id="a folder"),
        pytest.param(
            ["-f", "tts.yaml", "--profile", "none.yaml"],
            ["Config file 'none.yaml' does not exist"],
            id="no profile",
        ),
        pytest.param(
            ["--model-path", "a" * 5000], ["neither a directory nor a hub id"], id="a long path"
        ),
        pytest.param(
            ["-f", "tts.yaml", "--pipelines", "no.such"],
            ["--pipelines no.such: no pipelines can be loaded from it"],
            id="a module that is not there",
        ),
    ],
)
def test_a_refusal_names_what_is_wrong_on_standard_error(words: list[str], says: list[str]) -> None:
    outcome = omni("config", "resolve", *words)
    assert outcome.status == 2
    assert outcome.stdout == ""
    assert outcome.stderr.startswith("Error: ")
    for text in says:
        assert text in outcome.stderr


def test_every_problem_is_told_at_once() -> None:
    text = (
        "config_cls: Qwen3TTSPipelineConfig\nmodel_path: m\nstages: {vocodr: {gpu: 0}}\nmpss: on\n"
    )
    outcome = omni(
        "config", "resolve", "-f", write("bad.yaml", text), "--vocoder.gpu", "x", "--nope", "1"
    )
    told = outcome.stderr.splitlines()
    assert [line.partition(":")[0] for line in told if not line.startswith(" ")] == ["Error"] * 4
    assert "bad.yaml:3" in outcome.stderr
    assert "bad.yaml:4" in outcome.stderr


def test_a_flag_that_is_refused_is_not_blamed_on_the_file() -> None:
    outcome = omni("config", "resolve", "-f", "tts.yaml", "--vocoder.tp_size", "2.0")
    assert outcome.stderr == (
        "Error: stages.vocoder.tp_size expects an integer, got a float (2.0)\n"
    )


def test_a_key_unknown_to_its_consumer_is_a_warning_here_and_an_error_in_the_plan() -> None:
    words = ["-f", "tts.yaml", "--vocoder.factory.max_batchsize", "32"]
    resolved = omni("config", "resolve", *words, "--show", "diff")
    assert resolved.status == 0
    assert resolved.stderr.startswith("Warning: ")
    assert "did you mean: vocoder.factory.max_batch_size" in resolved.stderr
    planned = omni("plan", *words)
    assert planned.status == 2
    assert "did you mean: vocoder.factory.max_batch_size" in planned.stderr


def test_dashes_in_an_engine_key_are_a_spelling() -> None:
    words = ["-f", "tts.yaml", "--tts-engine.engine.mem-fraction-static", "0.5"]
    shown = omni("config", "explain", "tts_engine.engine.mem_fraction_static", *words)
    assert shown.stdout.startswith("stages.tts_engine.engine.mem_fraction_static = 0.5\n")


def test_a_profile_is_weaker_than_the_file() -> None:
    profile = "stages: {vocoder: {factory: {max_batch_size: 4, dtype: float16}}}\n"
    words = ["-f", "tts.yaml", "--profile", write("team.yaml", profile)]
    shown = omni("config", "explain", "vocoder.factory.max_batch_size", *words)
    assert "  4  <- profile (team.yaml)  [superseded]\n  16  <- yaml file" in shown.stdout
    shown = omni("config", "explain", "vocoder.factory.dtype", *words)
    assert "'float16'  <- profile (team.yaml)  [winner]" in shown.stdout


class TestExport:
    """What is exported loads, and resolves to itself."""

    @pytest.mark.parametrize(
        "words",
        [
            pytest.param(["-f", "tts.yaml"], id="a file"),
            pytest.param(
                ["-f", "tts.yaml", "--vocoder.factory.dtype", "none", "--mps", "auto"],
                id="a cleared default and flags",
            ),
            pytest.param(
                [
                    "--model-path",
                    "org/m",
                    "--variant",
                    "speech-colocated",
                    "--thinker.env.A.B",
                    "8",
                    "--processes.decode.num_replicas",
                    "2",
                ],
                id="a variant",
            ),
        ],
    )
    def test_it_resolves_to_itself(self, words: list[str]) -> None:
        first = omni("config", "export", *words)
        assert first.status == 0, first.stderr
        again = omni("config", "export", "-f", write("out.yaml", first.stdout))
        assert again == first
        assert omni("config", "resolve", "-f", "out.yaml").stdout == first.stdout

    def test_it_is_written_where_it_is_told(self) -> None:
        outcome = omni("config", "export", "-f", "tts.yaml", "-O", "out.yaml")
        assert outcome.stdout == "Pipeline config exported to out.yaml\n"
        assert Path("out.yaml").read_text() == omni("config", "export", "-f", "tts.yaml").stdout

    def test_a_place_that_cannot_be_written_is_an_error(self) -> None:
        outcome = omni("config", "export", "-f", "tts.yaml", "-O", "no/such/out.yaml")
        assert outcome.status == 2
        assert "no/such/out.yaml cannot be written: No such file" in outcome.stderr


class TestExplain:
    """Who set a value; nothing that bears on it is left out."""

    def test_a_stage_that_placement_moves_says_where(self) -> None:
        words = ["-f", "tts.yaml", "--processes.pipeline.replica_devices", "1"]
        shown = omni("config", "explain", "vocoder.gpu", *words)
        assert "note: processes.pipeline.replica_devices overrides gpu=0" in shown.stdout
        assert "replica GPU assignments: [1]" in shown.stdout

    def test_a_variable_that_the_shell_sets_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OMP_NUM_THREADS", "3")
        words = ["-f", "tts.yaml", "--vocoder.env.OMP_NUM_THREADS", "8"]
        for path in ("vocoder.env.OMP_NUM_THREADS", "vocoder.env"):
            shown = omni("config", "explain", path, *words)
            assert "the environment already sets OMP_NUM_THREADS='3', which wins" in shown.stdout

    def test_the_choice_of_the_pipeline_has_a_source_too(self) -> None:
        shown = omni("config", "explain", "config_cls", "--model-path", "org/m", "--text-only")
        assert shown.stdout == (
            "config_cls = 'Qwen3OmniPipelineConfig'\n"
            "  'Qwen3OmniPipelineConfig'  <- cli flag (--text-only)  [winner]\n"
        )
        listed = omni("config", "explain", "--model-path", "org/m", "--variant", "speech")
        assert listed.stdout == (
            f"config_cls = '{SPEECH}'  <- cli flag (--variant speech)\n"
            "model_path = 'org/m'  <- cli flag (--model-path)\n"
        )

    def test_a_group_shows_what_was_written_below_it(self) -> None:
        shown = omni("config", "explain", "stages.tts_engine.engine", "-f", "tts.yaml")
        assert shown.stdout == (
            "stages.tts_engine.engine = {'mem_fraction_static': 0.6}\n"
            "  stages.tts_engine.engine.mem_fraction_static = 0.6  <- yaml file (tts.yaml)\n"
        )

    def test_an_untouched_path_says_whose_default_it_is_and_what_it_means(self) -> None:
        shown = omni("config", "explain", "vocoder.tp_size", "-f", "tts.yaml")
        assert shown.stdout.startswith("stages.vocoder.tp_size = 1\n  no source touched this path")
        assert "Qwen3TTSPipelineConfig" in shown.stdout
        assert "Tensor-parallel ranks" in shown.stdout

    @pytest.mark.parametrize("path", ["vocodr.gpu", "vocoder", "vocoder.gpuu", "a..b", '"'])
    def test_a_path_that_means_nothing_is_refused(self, path: str) -> None:
        outcome = omni("config", "explain", path, "-f", "tts.yaml")
        assert outcome.status == 2
        assert outcome.stdout == ""


class TestFormats:
    """The same result for programs."""

    def test_values_are_the_exported_configuration(self) -> None:
        as_json = omni("config", "resolve", "-f", "tts.yaml", "-o", "json")
        as_yaml = omni("config", "resolve", "-f", "tts.yaml", "-o", "yaml")
        exported = yaml.safe_load(omni("config", "export", "-f", "tts.yaml").stdout)
        assert json.loads(as_json.stdout) == yaml.safe_load(as_yaml.stdout) == exported

    def test_a_diff_gives_both_values(self) -> None:
        shown = omni("config", "resolve", "-f", "tts.yaml", "--show", "diff", "-o", "json")
        assert json.loads(shown.stdout)[1] == {
            "path": "stages.vocoder.factory.max_batch_size",
            "from": None,
            "to": 16,
        }

    def test_provenance_names_file_and_line(self) -> None:
        shown = omni("config", "resolve", "-f", "tts.yaml", "--show", "provenance", "-o", "json")
        [write] = json.loads(shown.stdout)[1]["writes"]
        assert (write["origin"], write["line"], write["state"]) == ("tts.yaml", 6, "winner")

    def test_an_explanation_carries_its_notes(self) -> None:
        words = ["-f", "tts.yaml", "--processes.pipeline.replica_devices", "1", "-o", "json"]
        [row] = json.loads(omni("config", "explain", "vocoder.gpu", *words).stdout)
        assert row["value"] == 0
        assert len(row["notes"]) == 1

    def test_what_json_lacks_becomes_text(self) -> None:
        Path("odd.yaml").write_text(
            "config_cls: Qwen3TTSPipelineConfig\nmodel_path: m\n"
            "stages: {vocoder: {factory: {x: [2026-01-02, .inf]}}}\n"
        )
        shown = omni("config", "resolve", "-f", "odd.yaml", "-o", "json")
        factory = json.loads(shown.stdout)["stages"]["vocoder"]["factory"]
        assert factory["x"] == ["2026-01-02", "inf"]
