"""Documents show what the commands in them really print, and link to what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.command_line import omni
from tests.support.documents import DOCUMENTS, ROOT, Shown, printed, shown_commands

LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")
PAGES = ("README.md", *(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")))


@pytest.mark.parametrize("shown", list(shown_commands()), ids=lambda shown: shown.command[:60])
def test_a_command_prints_what_its_document_shows(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert printed(shown.command).strip() == shown.output.strip(), (
        f"{shown.document}: run `make generate`"
    )


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_make_target_that_a_document_names_exists(document: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"\bmake ([a-z0-9-]+)", (ROOT / document).read_text()):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_that_a_document_shows_can_be_planned(document: str, tmp_path: Path) -> None:
    for text in re.findall(r"^```yaml\n(.*?)^```$", (ROOT / document).read_text(), re.M | re.S):
        (tmp_path / "shown.yaml").write_text(text)
        outcome = omni("plan", "-f", str(tmp_path / "shown.yaml"))
        assert outcome.status == 0, outcome.stderr


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    for target, anchor in LINK.findall((ROOT / page).read_text()):
        if target.startswith("http"):
            continue
        found = (ROOT / page).parent / target if target else ROOT / page
        assert found.exists(), target
        if anchor:
            assert anchor in anchors(found.read_text()), anchor


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as they are made on common forges."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {f"#{heading.replace(' ', '-')}" for heading in plain}
