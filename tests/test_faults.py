"""Samples of the harnesses that `make test-faults` runs at full counts."""

from pathlib import Path

from faults import disk_full, kills, races


def test_a_run_that_is_killed_at_a_write_resumes(tmp_path: Path) -> None:
    outcome = kills.kill_everywhere(tmp_path, every=6)
    assert outcome.tried > 5
    assert not outcome.failed, outcome.examples


def test_a_full_disk_is_one_sentence_and_loses_nothing(tmp_path: Path) -> None:
    outcome = disk_full.fill_everywhere(tmp_path, every=10)
    assert outcome.tried > 3
    assert not outcome.failed, outcome.examples


def test_processes_that_create_one_run_at_once(tmp_path: Path) -> None:
    outcome = races.create_at_once(tmp_path, rounds=4)
    assert outcome.tried == 32
    assert not outcome.failed, outcome.examples


def test_two_experiments_under_one_name_are_never_mixed(tmp_path: Path) -> None:
    outcome = races.create_two_under_one_name(tmp_path, rounds=10)
    assert not outcome.failed, outcome.examples


def test_sweeps_of_the_same_runs_at_once(tmp_path: Path) -> None:
    outcome = races.sweep_twice(tmp_path, rounds=1)
    assert not outcome.failed, outcome.examples


def test_the_page_says_that_nothing_failed() -> None:
    """The table is what the last `make test-faults` wrote."""
    page = Path(__file__).parent.parent / "docs" / "faults.md"
    rows = [line.split("|") for line in page.read_text().splitlines() if line.startswith("| ")]
    figures = {row[1].strip(): (row[2].strip(), row[3].strip()) for row in rows[2:]}
    assert len(figures) >= 10
    assert {failed for _, failed in figures.values()} == {"0"}
