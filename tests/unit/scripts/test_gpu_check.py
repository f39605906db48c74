"""The check for a GPU, as far as it can be tried without one."""

from __future__ import annotations

import re

import numpy as np
import pytest

from scripts.gpu_check.__main__ import HERE, PARTS, main
from scripts.gpu_check.findings import Said, compared, graphs_captured, weights_shared
from tests.support.command_line import omni

CODES = np.arange(8).reshape(2, 4)
WAV = np.linspace(-0.5, 0.5, 100)
SAID = Said([1, 2, 3], CODES, WAV)

LOG = """\
thinker   | 2026-01-01T00:00:00.000Z INFO thinker Capture decode CUDA graph begin. bs=[1, 2]
thinker   | 2026-01-01T00:00:01.000Z INFO thinker Capture decode CUDA graph end. elapsed=1.0
talker_ar | something else
pipeline@r1 | 2026-01-01T00:00:01.000Z INFO pipeline@r1 attached to the leader's weights \
request=- stage=thinker tensors=90 shared_bytes=4096
"""


@pytest.mark.parametrize(
    ("ours", "bad"),
    [
        pytest.param(SAID, [], id="equal"),
        pytest.param(Said([1, 5, 3], CODES, WAV), ["differ from place 1 of 3 on"], id="a token"),
        pytest.param(Said([1, 2], CODES, WAV), ["shape (2,), not (3,)"], id="a token too few"),
        pytest.param(
            Said([1, 2, 3], CODES + (np.arange(4) == 2), WAV),
            ["differ from place 2 of 4 on"],
            id="a frame",
        ),
        pytest.param(Said([1, 2, 3], CODES, WAV[1:]), ["99 samples, not 100"], id="a sample less"),
        pytest.param(
            Said([1, 2, 3], CODES, WAV + 2e-3), ["differs by 2.0e-03 at most"], id="louder"
        ),
    ],
)
def test_what_differs_is_named_with_its_place(ours: Said, bad: list[str]) -> None:
    findings = list(compared("text", ours, SAID))
    assert [finding.detail for finding in findings if not finding.ok] == bad


def test_a_text_pipeline_is_compared_by_its_tokens_alone() -> None:
    silent = Said([1, 2, 3], np.zeros((0, 0)), np.zeros(0))
    assert [finding.ok for finding in compared("text", silent, SAID, speech=False)] == [True]


def test_the_log_tells_of_graphs_and_of_shared_weights() -> None:
    found = list(graphs_captured(LOG, ("thinker", "talker_ar")))
    assert [finding.ok for finding in found] == [True, False]
    assert weights_shared(LOG).ok
    assert weights_shared(LOG).detail == "1 modules of followers attached, 4096 bytes"
    assert not weights_shared("").ok


@pytest.mark.parametrize("part", PARTS)
def test_both_pipelines_fit_one_gpu(part: str) -> None:
    file = str(HERE / f"{part}.yaml")
    planned = omni("plan", "-f", file, "--devices", "1", "--gpu-memory", "139GiB")
    assert planned.status == 0, planned.stderr
    assert re.search(r"^MPS +on: GPU 0", planned.stdout, re.MULTILINE)
    shares = "on: GPU 0: pipeline@r0 loads for pipeline@r1" if part == "shared" else "off"
    assert re.search(rf"^weight share +{shares}$", planned.stdout, re.MULTILINE)


def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU: run the check itself")
    assert main([]) == 2
    assert "no CUDA device" in capsys.readouterr().err


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "video"])
    assert "choose from" in capsys.readouterr().err
