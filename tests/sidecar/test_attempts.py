"""What earlier processes died of: counted by item, across deaths, ends and damaged files."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agenteval_otel.sidecar.attempts import RequestAttempts

ONE = b"1" * 24
TWO = b"2" * 24


def test_a_clean_end_is_no_death(tmp_path: Path) -> None:
    """What was under way is given back, and earlier deaths still count."""
    path = tmp_path / "attempts"
    RequestAttempts(path).begin([ONE])
    attempts = RequestAttempts(path)
    attempts.begin([ONE, TWO])
    attempts.close()
    again = RequestAttempts(path)
    assert (again.count(ONE), again.count(TWO), again.died) == (1, 0, False)


def test_the_file_stays_small(tmp_path: Path) -> None:
    """A hundred thousand items that begin and end take at most two megabytes, and at rest nothing."""
    path = tmp_path / "attempts"
    attempts = RequestAttempts(path)
    attempts.begin([ONE])
    for start in range(0, 100_000, 1_000):
        items = [number.to_bytes(24) for number in range(start, start + 1_000)]
        attempts.begin(items)
        attempts.end(items)
        assert path.stat().st_size < 2 * 1024 * 1024
    attempts.end([ONE])
    assert path.stat().st_size == 0


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(noise=st.binary(max_size=300), cut=st.integers(0, 120))
def test_damage_costs_counts_alone(tmp_path: Path, noise: bytes, cut: int) -> None:
    """Whatever the file holds, the process starts, and no other item counts."""
    path = tmp_path / "attempts"
    path.unlink(missing_ok=True)
    RequestAttempts(path).begin([ONE, TWO])
    path.write_bytes(path.read_bytes()[:cut] + noise)
    attempts = RequestAttempts(path)
    assert attempts.count(ONE) in (0, 1)
    assert attempts.count(b"3" * 24) == 0
