"""Results that are remembered within a weight."""

from collections.abc import Callable

from adapter.model import memo


def remembering(room: int) -> tuple[list[str], Callable[[str], int]]:
    called: list[str] = []

    def weigh(text: str) -> int:
        return len(text)

    @memo.remember(room, weigh)
    def measure(text: str) -> int:
        called.append(text)
        return len(text)

    return called, measure


def test_a_result_is_worked_out_once() -> None:
    called, measure = remembering(6400)

    assert [measure("abc"), measure("abc")] == [3, 3]
    assert called == ["abc"]


def test_a_heavy_result_is_not_kept() -> None:
    called, measure = remembering(6400)
    for _ in range(2):
        measure("a" * 101)

    assert len(called) == 2
    assert measure.kept.currsize == 0  # type: ignore[attr-defined]


def test_entries_stay_within_the_size() -> None:
    _, measure = remembering(6400)
    for number in range(1000):
        measure(f"{number:0100d}")

    assert measure.kept.currsize == 6400  # type: ignore[attr-defined]


def test_a_key_is_admitted_when_it_comes_again() -> None:
    doorkeeper = memo.Doorkeeper(3)

    assert [doorkeeper.admits(key) for key in (1, 2, 3, 1, 2, 3)] == [False] * 3 + [True] * 3
    assert [doorkeeper.admits(key) for key in (4, 5, 6, 7)] == [False] * 4
    assert doorkeeper.admits(4), "the last three are known"
    assert not doorkeeper.admits(1), "so many others came since"


def test_few_new_keys_are_admitted_however_many_came() -> None:
    """The marks of others are at most at one place in eight."""
    doorkeeper = memo.Doorkeeper(1000)

    admitted = sum(doorkeeper.admits(("a", number)) for number in range(10_000))

    assert admitted < 1500
