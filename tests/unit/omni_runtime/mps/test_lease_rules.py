"""When a card may be leased and how it is given back: a proof acts, a doubt refuses."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omni_runtime.mps.control import ClientRef
from omni_runtime.mps.lease_rules import (
    CardSeen,
    ClientSeen,
    DaemonState,
    DropOwner,
    Join,
    OwnerSeen,
    QuitDaemon,
    Rebuild,
    Refuse,
    Retain,
    decide_acquire,
    decide_release,
)

DAEMON = 4242


def alive(name: str) -> OwnerSeen:
    return OwnerSeen(name, alive=True, status="active")


def dead(name: str) -> OwnerSeen:
    return OwnerSeen(name, alive=False, status="active")


def client(token: str, pid: int = 11) -> ClientSeen:
    return ClientSeen(ClientRef(7, pid), token)


def card(
    *owners: OwnerSeen,
    daemon: DaemonState = DaemonState.PROVEN,
    clients: Sequence[ClientSeen] | None = (),
    users: tuple[int, ...] = (),
) -> CardSeen:
    pid = None if daemon is DaemonState.ABSENT else DAEMON
    return CardSeen(daemon, owners, None if clients is None else tuple(clients), users, pid, "why")


@pytest.mark.parametrize(
    ("seen", "decision"),
    [
        pytest.param(card(alive("a")), Join(()), id="join a living owner"),
        pytest.param(card(alive("a"), dead("b")), Join(("b",)), id="forget a dead one beside it"),
        pytest.param(
            card(alive("a"), clients=[client("a/p0")]), Join(()), id="its clients are its own"
        ),
        pytest.param(card(dead("a")), Rebuild(quit=True), id="only dead owners and no client"),
        pytest.param(card(), Rebuild(quit=True), id="a daemon of nobody"),
        pytest.param(
            card(dead("a"), daemon=DaemonState.ABSENT), Rebuild(quit=False), id="nothing runs"
        ),
        pytest.param(
            card(dead("a"), clients=None, users=(DAEMON,)),
            Rebuild(quit=False, terminate=DAEMON),
            id="a mute daemon that nobody uses",
        ),
    ],
)
def test_what_is_proven_is_used_or_cleaned_up(seen: CardSeen, decision: object) -> None:
    assert decide_acquire(seen, "new") == decision


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        pytest.param(card(daemon=DaemonState.REPLACED), "cannot be proven", id="another daemon"),
        pytest.param(card(daemon=DaemonState.UNKNOWN), "cannot be proven", id="no proof"),
        pytest.param(
            card(alive("a"), daemon=DaemonState.ABSENT), "still use it: a", id="gone under owners"
        ),
        pytest.param(
            card(daemon=DaemonState.ABSENT, users=(31, 32)), "kill 31 32", id="servers left"
        ),
        pytest.param(
            card(dead("a"), clients=[client("a/p0")]), "kill 11", id="clients of a dead owner"
        ),
        pytest.param(
            card(alive("a"), clients=[client("")]), "without a token", id="a client of nobody"
        ),
        pytest.param(card(alive("a"), clients=None), "does not answer", id="mute under an owner"),
        pytest.param(
            card(clients=None, users=(DAEMON, 31)), "does not answer", id="mute with a user"
        ),
        pytest.param(card(alive("new")), "already holds", id="a second lease of one run"),
    ],
)
def test_what_is_not_proven_is_refused_with_the_evidence(seen: CardSeen, why: str) -> None:
    decision = decide_acquire(seen, "new")
    assert isinstance(decision, Refuse)
    assert why in decision.reason


@pytest.mark.parametrize(
    ("seen", "decision"),
    [
        pytest.param(card(alive("own")), QuitDaemon, id="the last one"),
        pytest.param(card(alive("own"), dead("a")), QuitDaemon, id="others are dead"),
        pytest.param(card(alive("own"), alive("a")), DropOwner, id="another one lives"),
        pytest.param(
            card(alive("own"), alive("a"), clients=[client("a/p0")]), DropOwner, id="and works"
        ),
        pytest.param(card(alive("own"), clients=[client("own/p0")]), Retain, id="own client"),
        pytest.param(card(alive("own"), clients=[client("")]), Retain, id="client of nobody"),
        pytest.param(card(alive("own"), clients=None), Retain, id="no answer"),
        pytest.param(card(alive("own"), daemon=DaemonState.REPLACED), Retain, id="replaced"),
    ],
)
def test_a_lease_is_given_back_only_when_nobody_is_left(seen: CardSeen, decision: type) -> None:
    assert isinstance(decide_release(seen, "own"), decision)


OWNERS = st.lists(
    st.builds(OwnerSeen, st.sampled_from("abc"), st.booleans(), st.just("active")),
    unique_by=lambda owner: owner.name,
)
CLIENTS = st.none() | st.lists(
    st.builds(client, st.sampled_from(["", "a/p", "b/p", "c/p", "z/p"]), st.integers(10, 20))
)
CARDS = st.builds(
    # Only a proven daemon is asked for its clients.
    lambda daemon, owners, clients, users: card(
        *owners,
        daemon=daemon,
        clients=clients if daemon is DaemonState.PROVEN else None,
        users=tuple(users),
    ),
    st.sampled_from(DaemonState),
    OWNERS,
    CLIENTS,
    st.lists(st.integers(30, 40)),
)


@settings(deadline=None)
@given(CARDS)
def test_nobody_loses_a_daemon_in_use(seen: CardSeen) -> None:
    decision = decide_acquire(seen, "new")
    if isinstance(decision, Rebuild):
        assert not seen.living
        assert not seen.clients
        assert seen.daemon in (DaemonState.PROVEN, DaemonState.ABSENT)
    if isinstance(decide_release(seen, "own"), QuitDaemon):
        assert not seen.living
        assert not seen.clients
        assert seen.daemon is DaemonState.PROVEN
