"""The garbage collector rests during the start and works after it."""

import gc
from collections.abc import Iterator

import pytest

from app.collector import starting


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


def test_nothing_is_collected_meanwhile_and_what_is_there_is_left_alone_later() -> None:
    frozen = gc.get_freeze_count()
    with starting():
        assert not gc.isenabled()
        kept = [[n] for n in range(10_000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= frozen + len(kept)


def test_an_error_at_the_start_leaves_it_on() -> None:
    with pytest.raises(ValueError, match="no"), starting():
        raise ValueError("no")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with starting():
        pass
    assert not gc.isenabled()
