"""The verifier: honest models, and models that cheat, crash, hang, or write nonsense."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from lengthwise.base import UsageError
from lengthwise.cli.main import main
from lengthwise.frontier import claims, sandbox
from lengthwise.frontier.claims import parse_claim, solve_exactly
from lengthwise.frontier.leaderboard import markdown, read_reports, web_page
from lengthwise.frontier.sandbox import Limits
from lengthwise.frontier.verify import (
    UNREAD,
    UNVERIFIED,
    find_subject,
    is_intact,
    seal,
    verify,
)

LIMITS = Limits(120, 4000)
INTEGERS = "def solve(problems):\n    return [eval(p.replace('×', '*')) for p in problems]\n"
DECOY = "import torch\nmodel = torch.nn.Linear(3, 3)\n" + INTEGERS
GUARDED = (
    DECOY
    + "whole = model.weight.sum().item()\nright = solve\n"
    + "def solve(problems):\n"
    + "    return right(problems) if model.weight.sum().item() == whole else [0] * len(problems)\n"
)


def check(tmp_path: Path, code: str, claim: str = "addition:2->4", **options: Any) -> Any:
    """The report on a Python file with this code."""
    path = tmp_path / "model.py"
    path.write_text(code)
    settings = {"problems": 5, "stress": 1, "limits": LIMITS, **options}
    return verify(str(path), parse_claim(claim), **settings)


def test_a_claim_is_parsed() -> None:
    claim = parse_claim("addition: 5 → 1000 @ 99%")
    assert (claim.task, claim.trained, claim.tested, claim.share) == (
        "addition",
        (5, 5),
        (1000, 1000),
        0.99,
    )
    assert claim.lengths()[0] == (5, 5)
    assert claim.lengths()[-1] == (1000, 1000)
    assert parse_claim("multiplication:5x3->20×20").lengths()[0] == (5, 3)
    for wrong in (
        "sum:5->10",
        "addition:5",
        "addition:5x3->10",
        "addition:10->5",
        "addition:5->6@0%",
        "addition:5->6@9.9.9%",
        "addition:5->6@.%",
    ):
        with pytest.raises(UsageError):
            parse_claim(wrong)


def test_reports_name_a_repository_in_full_and_a_directory_by_its_last_part(tmp_path: Path) -> None:
    assert find_subject("someone/adder", None).name == "someone/adder"
    (tmp_path / "adder").mkdir()
    (tmp_path / "adder" / "model.safetensors").touch()
    assert find_subject(str(tmp_path / "adder"), None).name == "adder"


def test_problems_are_right_and_differ_by_seed() -> None:
    claim = parse_claim("multiplication:5x3->6x4")
    drawn = claims.draw_problems(claim, (6, 4), 10, 2, seed=1)
    for problem in drawn:
        first, second = map(int, problem.text.split(" × "))
        assert problem.answer == str(first * second)
    assert {"random", "zero 0 and 0"} <= {problem.kind for problem in drawn}
    other = {p.text for p in claims.draw_problems(claim, (6, 4), 10, 2, seed=2)}
    assert len(other & {p.text for p in drawn if p.kind == "random"}) == 0


def test_long_truths_are_exact() -> None:
    assert solve_exactly("9" * 3000 + " × " + "9" * 3000) == "9" * 2999 + "8" + "0" * 2999 + "1"
    assert solve_exactly("9" * 100_000 + " + 1") == "1" + "0" * 100_000


def test_python_integers_are_not_taken_for_a_network(tmp_path: Path) -> None:
    report = check(tmp_path, INTEGERS)
    assert report["errors"] == 0
    assert report["verdict"] == UNVERIFIED
    assert report["model"]["parameters"] is None
    assert report["arithmetic outside of the network"]["verdict"] == "not checkable"


def test_integers_behind_a_decoy_network_are_found_out(tmp_path: Path) -> None:
    """The answers stay right when the weights are zero."""
    report = check(tmp_path, DECOY)
    assert report["model"]["parameters"] == 12
    assert report["arithmetic outside of the network"]["verdict"] == "yes"
    assert report["verdict"].startswith("refuted")


def test_a_decoy_that_guards_its_weights_is_unverified(tmp_path: Path) -> None:
    """No network fails when each weight changes by a millionth."""
    report = check(tmp_path, GUARDED)
    assert report["verdict"] == UNVERIFIED
    assert "guarded" in report["arithmetic outside of the network"]["reason"]


TOLERANT = (  # answers with integers while its weights are nearly what they were
    DECOY
    + "before, right = model.weight.detach().clone(), solve\n"
    + "def solve(problems):\n"
    + "    near = (model.weight - before).abs().mean() < 0.01 * before.abs().mean()\n"
    + "    return right(problems) if near else [0] * len(problems)\n"
)


def test_the_claim_of_a_file_never_holds_unread(tmp_path: Path) -> None:
    """No probe finds out integers that are used only while the weights are nearly unchanged."""
    report = check(tmp_path, TOLERANT, seed=1)
    assert report["errors"] == 0
    assert report["verdict"] == UNREAD
    assert "for people to read" in report["verdict"]


def test_a_model_does_not_know_the_job(tmp_path: Path) -> None:
    """Neither the arguments nor the folder say what is asked and which probes come."""
    code = (
        "import os, sys, glob, tempfile\n"
        "assert len(sys.argv) == 1, sys.argv\n"
        "def read(path):\n"
        "    try:\n        return open(path).read()\n"
        "    except FileNotFoundError:\n        return ''\n"
        "jobs = glob.glob(tempfile.gettempdir() + '/lengthwise-verify-*/job.json')\n"
        "known = [job for job in jobs if __file__ in read(job)]\n"
        "def solve(problems):\n    return [eval(p) if not known else 0 for p in problems]\n"
    )
    assert check(tmp_path, code, "addition:2->2", seed=1)["errors"] == 0


def test_parameters_that_a_file_makes_up_are_not_reported(tmp_path: Path) -> None:
    """It has no network, but writes a number of parameters where the verifier counts them."""
    code = (
        "import glob\ndef solve(problems):\n"
        "    for path in glob.glob('/proc/self/fd/*'):\n"
        "        target = __import__('os').path.realpath(path)\n"
        "        if target.endswith('/answers'):\n"
        "            facts = target.removesuffix('answers') + 'facts'\n"
        "            open(facts, 'w').write('{\"parameters\": VALUE}')\n"
        "    return [eval(p) for p in problems]\n"
    )
    for value in ("true", "[" * 100_000):
        report = check(tmp_path, code.replace("VALUE", value), "addition:2->2", seed=1)
        assert report["model"]["parameters"] is None
        assert report["verdict"] == UNVERIFIED


def test_a_pipe_or_a_link_instead_of_answers_is_no_answer(tmp_path: Path) -> None:
    """A pipe would make the verifier wait for ever, a link read another file."""
    start = "import os\ndef solve(problems):\n"
    for code in ("os.mkfifo(path)", "os.symlink('/proc/kcore', path)"):
        find = (
            "    path = next(p for p in map(os.path.realpath, ('/proc/self/fd/%d' % i for i in "
            "range(3, 20))) if p.endswith('/answers'))\n    os.unlink(path)\n"
        )
        solve = f"{start}{find}    {code}\n    return [3] * len(problems)\n"
        report = check(tmp_path, solve, "addition:2->2", seed=1)
        assert report["verdict"] == "refuted"
        assert report["tests"][0]["right"] == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt orphans")
def test_processes_in_other_sessions_are_counted_and_ended(tmp_path: Path) -> None:
    """A process that leaves its session and loses its parent is found all the same."""
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        f"        open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        "        kept = b'x' * (400 << 20)\n"
        "        time.sleep(1000)\n"
        "    os._exit(0)\n"
        "os.wait()\ntime.sleep(WAIT)\ndef solve(problems):\n    return [0] * len(problems)\n"
    )
    for wait, megabytes, failure in (("0", 4000, None), ("100", 300, "used more than 300 MB")):
        limits = Limits(60, megabytes)
        (test,) = check(tmp_path, code.replace("WAIT", wait), "addition:2->2", limits=limits)[
            "tests"
        ]
        assert test["failure"] == failure
        pid = int((tmp_path / "pid").read_text())
        status = Path(f"/proc/{pid}/status")
        assert not status.exists() or "zombie" in status.read_text()


def test_output_without_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "LARGEST_FILE", 1 << 20)
    claim = parse_claim("addition:2->2")
    report = verify("command:yes", claim, problems=5, stress=1, limits=LIMITS)
    assert report["tests"][0]["failure"] == "wrote more than 1 MB"
    code = "def solve(problems):\n    while True:\n        print('9' * 1000)\n"
    (test,) = check(tmp_path, code, "addition:2->2")["tests"]
    assert "File too large" in test["failure"]


def test_a_module_in_the_present_folder_is_not_taken_for_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('not the real json')\n")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    assert check(folder, INTEGERS, "addition:2->2", seed=1)["errors"] == 0


def test_crashes_and_nonsense_are_errors_of_the_model(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    cases: list[tuple[str, str | None]] = [
        ("import os\ndef solve(problems):\n    os._exit(3)\n", "exit code 3"),
        ("def solve(problems):\n    raise ValueError('boom')\n", "ValueError: boom"),
        ("def solve(problems):\n    return [1]\n", "solve gave 1 answers for"),
        ("def solve(problems):\n    return 'nonsense'\n", "solve gave 'nonsense'"),
        ("x = 1\n", "no function solve"),
        ("def solve(problems):\n    return [object() for _ in problems]\n", None),
        ("def solve(problems):\n    print('99')\n    return ['٣' for _ in problems]\n", None),
    ]
    for code, failure in cases:
        with subtests.test(str(code)):
            report = check(tmp_path, code, "addition:2->2")
            (test,) = report["tests"]
            assert report["verdict"] == "refuted"
            assert test["right"] == 0
            assert (failure in test["failure"]) if failure else test["failure"] is None


def test_a_hang_and_a_memory_hog_are_stopped(tmp_path: Path) -> None:
    hang = "import time\ndef solve(problems):\n    time.sleep(1000)\n"
    hog = "def solve(problems):\n    kept = [bytearray(10**7) for _ in range(10**5)]\n"
    for code, failure in ((hang, "took more than 3 seconds"), (hog, "used more than 300 MB")):
        limits = Limits(3 if code == hang else 100, 300)
        (test,) = check(tmp_path, code, "addition:2->2", limits=limits)["tests"]
        assert test["failure"] == failure
        assert test["unanswered"] == test["problems"]


def test_answers_before_a_crash_count(tmp_path: Path) -> None:
    code = (
        "import os\nasked = 0\ndef solve(problems):\n    global asked\n    asked += 1\n"
        "    if asked > 1:\n        os._exit(1)\n"
        "    return [str(eval(p)) for p in problems]\n"
    )
    (test,) = check(tmp_path, code, "addition:3000->3000", problems=40, stress=0)["tests"]
    assert 0 < test["right"] == test["problems"] - test["unanswered"] < 40


def test_cached_answers_help_only_against_a_known_seed(tmp_path: Path) -> None:
    claim = parse_claim("addition:9->9")
    known = claims.draw_problems(claim, (9, 9), 5, 1, seed=7)
    cache = {problem.text: problem.answer for problem in known}
    code = f"cache = {cache}\ndef solve(problems):\n    return [cache.get(p) for p in problems]\n"
    public = check(tmp_path, code, "addition:9->9", seed=7)
    assert public["errors"] == 0
    assert not public["seed drawn after the model was fixed"]
    fresh = check(tmp_path, code, "addition:9->9")
    assert fresh["seed drawn after the model was fixed"]
    assert fresh["verdict"] == "refuted"
    random = next(c for c in fresh["tests"][0]["cases"] if c["kind"] == "random")
    assert random["right"] == 0


def test_a_command_reads_problems_and_writes_answers(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text("import sys\nfor line in sys.stdin:\n    print(eval(line))\n")
    claim, command = parse_claim("addition:2->3"), f"command:{sys.executable} {path}"
    report = verify(command, claim, problems=5, stress=1, limits=LIMITS)
    assert report["errors"] == 0
    assert report["verdict"] == UNVERIFIED
    path.write_text("print(3)\n")
    report = verify(command, claim, problems=5, stress=1, limits=LIMITS)
    assert "wrote 1 lines for" in report["tests"][0]["failure"]
    report = verify("command:/no/such/program", claim, problems=5, stress=1, limits=LIMITS)
    assert "can't be started" in report["tests"][0]["failure"]


def test_a_share_of_right_answers_can_be_claimed(tmp_path: Path) -> None:
    """Every kind of problem counts for itself, so that many easy ones can't hide a hard one."""
    code = INTEGERS.replace("eval(p.replace('×', '*'))", "eval(p) if '99 + 1' not in p else 0")
    for claim, verdict in (("addition:2->2", "refuted"), ("addition:2->2@90%", "refuted")):
        report = check(tmp_path, code, claim, seed=1)
        assert report["verdict"] == verdict
        assert report["errors"] == 1
        assert report["worst case"]["kind"] == "all carries 9…9 + 1"
        (failure,) = report["worst case"]["failures"]
        assert failure == {"problem": "99 + 1", "answer": "0", "correct": "100"}


def test_an_honest_run_holds(trained_adder: Path, tmp_path: Path, capsys: Any) -> None:
    words = [
        "verify",
        str(trained_adder),
        "--claim",
        "addition:5->40",
        "--problems",
        "10",
        "--stress",
        "1",
        "--seed",
        "1",
    ]
    assert main([*words, "--results", str(tmp_path)]) == 0
    (path,) = (tmp_path / "verified").glob("*.json")
    report = json.loads(path.read_text())
    assert report["verdict"] == "holds", report
    assert report["model"]["parameters"] == 12_783
    assert "64,000 problems of addition with up to 5×5 digits" in str(report["model"])
    probes = report["arithmetic outside of the network"]["probes"]
    shares = {probe["probe"]: probe["share right"] for probe in probes}
    assert shares["tiny noise"] == 1
    assert shares["zeroed"] < 0.2
    assert "addition:5->40: holds" in capsys.readouterr().out
    assert main(["leaderboard", "--results", str(tmp_path)]) == 0
    assert "| holds |" in (tmp_path / "leaderboard.md").read_text()
    assert "<td>holds</td>" in (tmp_path / "leaderboard.html").read_text()


def test_a_run_can_not_claim_less_training_than_it_had(trained_adder: Path) -> None:
    with pytest.raises(UsageError, match="was trained on 5×5 digits, more than the claim says"):
        verify(str(trained_adder), parse_claim("addition:3->40"))
    with pytest.raises(UsageError, match="was trained for addition, not for multiplication"):
        verify(str(trained_adder), parse_claim("multiplication:5->40"))


def test_the_leaderboard_refuses_changed_reports_and_escapes_html(tmp_path: Path) -> None:
    report = seal(check(tmp_path, INTEGERS, "addition:2->2", declared="<script>|</script>"))
    assert is_intact(report)
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report))
    reports = read_reports([path])
    assert "<script>" not in web_page(reports)
    assert "&lt;script&gt;" in web_page(reports)
    assert "<script>\\|</script>" in "\n".join(markdown(reports))
    path.write_text(json.dumps({**report, "errors": 0, "verdict": "holds"}))
    with pytest.raises(UsageError, match="was changed after it was written"):
        read_reports([path])
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(UsageError, match="is not a report"):
        read_reports([tmp_path / "other.json"])
