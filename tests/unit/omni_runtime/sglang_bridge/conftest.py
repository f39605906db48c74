"""These tests need torch, and some SGLang; a light set-up has neither."""

import pytest

pytest.importorskip("torch")
