"""Shared weights need torch."""

import pytest

pytest.importorskip("torch")
