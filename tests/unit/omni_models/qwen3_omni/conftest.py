"""The tiny checkpoint and its judge, loaded once for all tests of the model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.oracle import Oracle

pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.fixture(scope="session")
def checkpoint() -> Path:
    from tests.support.checkpoints import tiny_checkpoint

    return tiny_checkpoint()


@pytest.fixture(scope="session")
def oracle(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    from tests.support.oracle import Oracle

    return Oracle(checkpoint, tmp_path_factory.mktemp("answers"))
