"""A pipeline is served after one object is created, and gone after it is deleted."""

from __future__ import annotations

from tests.support.operator_site import Site, pipeline



async def test_one_object_becomes_a_served_model(site: Site) -> None:
    site.start_operator()
    await site.create(pipeline(site))
    await site.until_ready("tts")
