"""The table of launches that are compared with transformers leaves no pair of conditions out."""

from tests.support.parity_table import LAUNCHES, uncovered

# Besides the table, two stages live with hardly any memory, and one pipeline hears ten minutes.
MOST_LAUNCHES = 24 - 3


def test_every_pair_of_conditions_that_can_meet_does() -> None:
    assert uncovered(LAUNCHES) == set()
    assert len(LAUNCHES) <= MOST_LAUNCHES


def test_a_missing_launch_is_noticed() -> None:
    assert uncovered(LAUNCHES[:-1])
