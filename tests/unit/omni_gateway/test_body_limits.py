"""What clients send stays within a share of the gateway's memory."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from pathlib import Path

import pytest

from omni_gateway.clients import add_client_flags, clients_of
from omni_gateway.http_api.limits import HttpLimits, limits_within
from omni_gateway.memory import clients_share_bytes, usable_memory_bytes
from omni_gateway.uploads import UploadMemory, Uploads
from omni_wire.credentials import Plaintext
from omni_wire.errors import InvalidRequest
from omni_wire.v1 import gateway_pb2 as pb

MIB = 1 << 20
GIB = 1 << 30
MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(
    ("written", "usable"),
    [
        (f"{512 * MIB}\n", 512 * MIB),
        ("max\n", MACHINE),
        (f"{MACHINE * 2}\n", MACHINE),
        (None, MACHINE),
    ],
    ids=["a limit", "no limit", "a limit beyond the machine", "no cgroup"],
)
def test_memory_is_what_cgroup_and_machine_leave(
    tmp_path: Path, written: str | None, usable: int
) -> None:
    limit_file = tmp_path / "memory.max"
    if written is not None:
        limit_file.write_text(written)
    assert usable_memory_bytes(limit_file) == usable


@pytest.mark.parametrize(
    ("memory", "body", "held"),
    [
        (128 * MIB, 16 * MIB, 16 * MIB),
        (512 * MIB, 64 * MIB, 64 * MIB),
        (2 * GIB, 128 * MIB, 256 * MIB),
        (8 * GIB, 128 * MIB, GIB),
        (512 * GIB, 128 * MIB, GIB),
    ],
)
def test_bodies_take_an_eighth_of_the_memory_at_most(memory: int, body: int, held: int) -> None:
    assert limits_within(memory) == HttpLimits(body_bytes=body, held_bytes=held)


@pytest.mark.parametrize(
    ("chosen", "held"), [(MIB, 64 * MIB), (100 * MIB, 100 * MIB)], ids=["small", "large"]
)
def test_a_body_of_the_chosen_size_fits(chosen: int, held: int) -> None:
    limits = limits_within(512 * MIB, chosen)
    assert limits == HttpLimits(body_bytes=chosen, held_bytes=held)


@pytest.mark.parametrize(
    ("flags", "chosen"), [([], None), (["--max-body-bytes=1000"], 1000)], ids=["unset", "set"]
)
def test_the_flag_chooses_the_largest_body(flags: list[str], chosen: int | None) -> None:
    parser = ArgumentParser()
    add_client_flags(parser)
    parser.add_argument("--insecure", action="store_true")
    parser.add_argument("--control", action="append", default=[])
    clients = clients_of(parser.parse_args(["--no-auth", *flags]), Plaintext())
    assert clients.limits == limits_within(usable_memory_bytes(), chosen)


def test_one_stream_cannot_ask_for_more_than_there_is_for_all() -> None:
    memory = UploadMemory(clients_share_bytes(2 * GIB, memory_bytes=80))
    uploads = Uploads(memory)
    uploads.add(pb.UploadPart(upload_id="a", data=b"x" * 10))
    # Not for a full memory, which invites to try again.
    with pytest.raises(InvalidRequest, match="goes over 10 bytes"):
        uploads.add(pb.UploadPart(upload_id="a", data=b"x"))
