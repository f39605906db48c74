"""The start-up check of SGLang's seams: whole on the pinned release, loud about any change."""

from __future__ import annotations

import subprocess
import sys

import pytest

from omni_runtime.sglang_bridge.contract import SEAMS, Seam, SeamBroken, check_seams

HERE = __name__


class Kept:
    size: int

    def method(self, first: int) -> int:
        return first

    def any_words(self, **words: int) -> int:
        return len(words)


def test_the_pinned_release_has_every_seam() -> None:
    # In a process of its own: importing SGLang takes seconds and leaves traces everywhere.
    code = "from omni_runtime.sglang_bridge.contract import check_seams; check_seams()"
    environment = {"SGLANG_PLATFORM": "omnipipe_cpu", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], env=environment, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]


def test_what_is_as_expected_passes() -> None:
    check_seams(
        [
            Seam(HERE, "Kept.method", ("first",)),
            Seam(HERE, "Kept.any_words", ("whatever",)),
            Seam(HERE, "Kept", fields=("size",)),
        ]
    )


@pytest.mark.parametrize(
    ("seam", "change"),
    [
        pytest.param(Seam(HERE, "Kept.renamed"), "Kept.renamed is gone", id="a method is gone"),
        pytest.param(
            Seam("no_such_module_here", "x"), "no_such_module_here cannot", id="a module is gone"
        ),
        pytest.param(
            Seam(HERE, "Kept.method", ("second",)),
            "takes no 'second' any more (it takes self, first)",
            id="a parameter is gone",
        ),
        pytest.param(
            Seam(HERE, "Kept", fields=("length",)), "has no field 'length'", id="a field is gone"
        ),
        pytest.param(
            Seam(HERE, "HERE", ("first",)), "no longer callable", id="a function became a value"
        ),
    ],
)
def test_a_change_is_named(seam: Seam, change: str) -> None:
    with pytest.raises(SeamBroken, match="does not fit the bridge") as broken:
        check_seams([Seam(HERE, "Kept.method"), seam])
    assert len(broken.value.changes) == 1
    assert change in broken.value.changes[0]


def test_all_changes_are_named_together() -> None:
    with pytest.raises(SeamBroken) as broken:
        check_seams([Seam(HERE, "Kept.a"), Seam(HERE, "Kept.b")])
    assert len(broken.value.changes) == 2


def test_every_seam_is_listed_once() -> None:
    names = [(str(seam), seam.fields) for seam in SEAMS]
    assert len(set(names)) == len(names)
