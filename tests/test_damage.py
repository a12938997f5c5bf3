"""Any changed byte of a run or a saved model is reported by the file's name."""

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from faults.damage import damage_model, damage_runs, make_run
from faults.kills import in_child

from lengthwise.base import UsageError
from lengthwise.base.manifest import MANIFEST, Content, Contents, Manifest, from_json, to_text
from lengthwise.base.tensors import pack_tensors
from lengthwise.cli.main import main
from lengthwise.solver import Solver, saved
from lengthwise.training import api, keys
from lengthwise.training.experiment import hash_identity
from lengthwise.training.loop import train
from lengthwise.training.overview import overview
from lengthwise.training.runs import CHECKPOINT, METRICS, RESULT, WEIGHTS, ConfigReader, Run
from lengthwise.training.verification import verify
from lengthwise.training.yaml import parse_yaml


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A finished run, an interrupted one, and one that starts from the first."""
    root = tmp_path_factory.mktemp("runs")
    finished = make_run(root, "finished")
    tuned = make_run(root, "tuned", 15, {"start_from": str(finished)})
    changes = {"training.keep_checkpoints": [0, 15], "training.keep_optimizer": True}
    kept = make_run(root, "kept", changes=changes)
    interrupted = make_run(root, "interrupted", 15)
    return {"finished": finished, "interrupted": interrupted, "tuned": tuned, "kept": kept}


@pytest.fixture
def copies(runs: dict[str, Path], tmp_path: Path) -> dict[str, Path]:
    return {name: Path(shutil.copytree(path, tmp_path / name)) for name, path in runs.items()}


def change(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert content.count(old) == 1, (path, old)
    path.write_bytes(content.replace(old, new))


@pytest.mark.parametrize("name", ["finished", "interrupted", "tuned", "kept"])
def test_random_and_targeted_damage_is_reported(
    name: str, runs: dict[str, Path], tmp_path: Path
) -> None:
    """A sample of `make test-faults`."""
    outcome = damage_runs([runs[name]], tmp_path, count=120, seed=0)
    assert outcome.tried == 120
    assert not outcome.failed, outcome.examples


def test_damage_of_a_saved_model_is_reported(runs: dict[str, Path], tmp_path: Path) -> None:
    outcome = damage_model(runs["finished"], tmp_path, count=100, seed=0)
    assert outcome.tried == 100
    assert not outcome.failed, outcome.examples


def test_a_checkpoints_step_can_not_be_changed(copies: dict[str, Path]) -> None:
    change(copies["interrupted"] / CHECKPOINT, b'"step":"15"', b'"step":"40"')
    with pytest.raises(UsageError, match=r"checkpoint\.safetensors is damaged: its checksum"):
        list(train(Run(copies["interrupted"])))


def test_the_configuration_of_a_fine_tuned_run_can_not_be_changed(
    copies: dict[str, Path],
) -> None:
    change(copies["tuned"] / "config.yaml", b"activation: relu", b"activation: gelu")
    with pytest.raises(UsageError, match=r"config\.yaml is damaged: its checksum"):
        Run(copies["tuned"])


@pytest.mark.parametrize("name", [RESULT, METRICS])
def test_values_that_are_shown_can_not_be_changed(name: str, copies: dict[str, Path]) -> None:
    path = copies["finished"] / name
    path.write_bytes(path.read_bytes().replace(b"0.", b"1.", 1))
    (row,) = [row for row in overview(path.parent.parent) if row["run"] == str(path.parent)]
    assert row["status"] == "damaged"
    assert str(path) in row["reason"]


def test_records_behind_the_checkpoint_have_checksums_too(copies: dict[str, Path]) -> None:
    """The manifest doesn't know them yet."""
    run = Run(copies["interrupted"])

    def end_at_step_20() -> None:
        for progress in train(run):
            if progress.step == 20:
                os._exit(0)

    assert in_child(end_at_step_20) == 0
    run.manifest.reload()
    path = run.path / METRICS
    whole = path.read_bytes()
    last = whole.rindex(b'"step"')
    known = run.manifest.contents[METRICS][-1]
    assert known is not None
    assert last > known.size
    for place in (last + 8, len(whole) - 4, len(whole) - 1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(UsageError, match=r"metrics\.jsonl is damaged"):
            Run(run.path).metrics  # noqa: B018
    path.write_bytes(whole[:-1])  # a kill can do that
    assert len(Run(run.path).metrics) == len(whole.splitlines()) - 1


def weights_of_another_run(run: Path, other: Path) -> None:
    shutil.copy(other / WEIGHTS, run / WEIGHTS)


def other_dtype(run: Path, _: Path) -> None:
    path = run / WEIGHTS
    path.write_bytes(path.read_bytes().replace(b'"dtype":"F32"', b'"dtype":"I32"', 1))


@pytest.mark.parametrize("spoil", [weights_of_another_run, other_dtype])
def test_other_weights_of_the_same_shapes_are_refused(
    spoil: Callable[[Path, Path], None], copies: dict[str, Path]
) -> None:
    list(train(Run(copies["tuned"])))
    spoil(copies["finished"], copies["tuned"])
    with pytest.raises(UsageError, match=r"model\.safetensors is damaged: its checksum"):
        api.load(copies["finished"])


def test_weights_that_are_not_numbers_are_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    model = api.load(runs["finished"])
    model.save_pretrained(tmp_path / "good")
    with torch.no_grad():
        model.encoder.symbols.weight[0, 0] = torch.nan
    with pytest.raises(UsageError, match=r"not finite numbers: encoder\.symbols\.weight"):
        model.save_pretrained(tmp_path / "bad")
    (tmp_path / "good" / WEIGHTS).write_bytes(pack_tensors(model.state_dict(), {}))
    saved.write_manifest(tmp_path / "good")
    with pytest.raises(UsageError, match="not finite numbers"):
        Solver.from_pretrained(tmp_path / "good")


def test_a_saved_model_without_one_of_its_weights_is_refused(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    """Whatever its manifest says: a renamed tensor stays at its random start otherwise."""
    api.load(runs["finished"]).save_pretrained(tmp_path)
    change(tmp_path / WEIGHTS, b"encoder.symbols.weight", b"encoder.symbolz.weight")
    saved.write_manifest(tmp_path)
    with pytest.raises(UsageError, match=r"the model, which has no encoder\.symbolz\.weight"):
        Solver.from_pretrained(tmp_path)


def test_an_edited_card_of_a_saved_model_is_a_warning(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    api.load(runs["finished"]).save_pretrained(tmp_path)
    (tmp_path / "README.md").write_text("# Mine")
    with pytest.warns(UserWarning, match=r"README\.md is damaged"):
        Solver.from_pretrained(tmp_path)


def test_a_model_is_not_saved_over_a_run(copies: dict[str, Path]) -> None:
    with pytest.raises(UsageError, match="is a run; save the model in a directory of its own"):
        api.load(copies["finished"]).save_pretrained(copies["finished"])


def make_old(run: Path) -> None:
    """As versions before the manifest wrote a run."""
    (run / MANIFEST).unlink()
    lines = [json.loads(line) for line in (run / METRICS).read_text().splitlines()]
    text = "".join(json.dumps({**line, "checksum": None}) + "\n" for line in lines)
    (run / METRICS).write_text(text.replace(', "checksum": null', ""))


@pytest.mark.parametrize("name", ["finished", "interrupted"])
def test_a_run_of_an_older_version_is_adopted_on_request(
    name: str, copies: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = copies[name]
    records = Run(run).metrics
    make_old(run)
    with pytest.raises(UsageError, match=r"has no manifest\.json: it is of an older version"):
        api.resume(run)
    assert main(["check", str(run)]) == 2
    assert main(["check", str(run), "--adopt"]) == 0
    assert "verified" in capsys.readouterr().out
    assert Run(run).metrics == records
    api.resume(run, progress=False)
    assert not verify(run)


def test_a_damaged_run_is_not_adopted(copies: dict[str, Path]) -> None:
    """A manifest that is whole is never replaced, and what can't be read gets none."""
    finished, interrupted = copies["finished"], copies["interrupted"]
    change(finished / "config.yaml", b"activation: relu", b"activation: gelu")
    assert main(["check", str(finished), "--adopt"]) == 2
    make_old(interrupted)
    (interrupted / CHECKPOINT).write_bytes(b"nothing")
    assert main(["check", str(interrupted), "--adopt"]) == 2
    assert not (interrupted / MANIFEST).exists()


def test_verify_names_every_damaged_file(
    copies: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (WEIGHTS, "config.json"):
        (copies["finished"] / name).write_bytes(b"x")
    code = main(["check", "--json", "--runs", str(copies["finished"].parent)])
    captured = capsys.readouterr()
    problems: dict[str, list[str]] = json.loads(captured.out)
    assert code == 2
    assert captured.err.endswith("1 of 4 can't be verified\n")
    assert [len(problems[str(path)]) for path in copies.values()] == [2, 0, 0, 0]


def test_replaced_files_are_right_at_every_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever system call a kill comes before, the directory verifies."""
    manifest = Manifest(tmp_path)
    manifest.replace({"a": b"old", "b": b"old"})
    manifest.settle()
    done = {"calls": 0, "limit": 0}

    def stop_at_limit(call: Any) -> Any:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            done["calls"] += 1
            if done["calls"] > done["limit"]:
                raise KeyboardInterrupt
            return call(*arguments, **options)

        return wrapped

    seen = set()
    for limit in range(30):
        done.update(calls=0, limit=limit)
        with monkeypatch.context() as patch:
            for name in ("fsync", "replace", "unlink"):
                patch.setattr(os, name, stop_at_limit(getattr(os, name)))
            try:
                killed = Manifest.load(tmp_path)
                killed.replace({"a": b"%d" % limit, "b": None if limit % 2 else b"%d" % limit})
                killed.settle()
                finished = True
            except KeyboardInterrupt:
                finished = False
        seen.add(finished)
        fresh = Manifest.load(tmp_path)
        fresh.verify()
        fresh.settle()
        fresh.verify()
    assert seen == {True, False}


def test_without_file_locks_runs_are_read_but_not_trained(
    copies: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(handle: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    root = copies["interrupted"].parent
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    for words in (["resume", str(copies["interrupted"])], ["train", "--name", "new"]):
        assert main([*words, "--runs", str(root)] if words[0] == "train" else words) == 2
        said = capsys.readouterr().err.splitlines()[-1]
        assert "is on a file system without file locks (No locks available), so two" in said
        assert "keep runs on a local disk with --runs" in said
    after = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert after == before | {root / "new" / "lock": b""}
    listed = {Path(row["run"]).name: row["status"] for row in overview(root)}
    assert listed["finished"] == "finished"
    assert listed["interrupted"] == listed["tuned"] == "interrupted"
    assert len(api.load(copies["interrupted"]).solve(["1+1"])) == 1


@pytest.mark.parametrize("name", [MANIFEST, "config.yaml", WEIGHTS, "optimizer.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "endless"])
def test_what_is_no_file_is_refused_at_once(
    kind: str, name: str, copies: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = copies["kept"] / name
    path.unlink()
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    assert main(["resume", str(copies["kept"])]) == 2
    assert capsys.readouterr().err == f"lengthwise: {path} is damaged: it isn't a regular file\n"


def test_a_saved_model_that_lost_a_file_is_no_start(copies: dict[str, Path]) -> None:
    saved_model = copies["finished"].parent / "saved"
    api.load(copies["finished"]).save_pretrained(saved_model)
    (saved_model / saved.CONFIG).unlink()
    with pytest.raises(UsageError, match=r"saved/config\.json is damaged: it is missing"):
        api.train({"start_from": str(saved_model)}, root=saved_model.parent)


def test_records_that_were_added_are_noticed_when_a_model_is_loaded(
    copies: dict[str, Path],
) -> None:
    metrics = copies["interrupted"] / METRICS
    metrics.write_bytes(metrics.read_bytes() * 2)
    with pytest.raises(UsageError, match=r"metrics\.jsonl is damaged: the checksum of line"):
        api.load(copies["interrupted"])


def test_a_changed_seed_is_noticed_among_runs_that_differ_in_their_seeds(tmp_path: Path) -> None:
    """Such configurations are parsed once, but the identity of each run is checked."""
    experiments = [keys.load(None, {"model.preset": "tiny", "seed": n}) for n in range(4)]
    runs = [Run.create(experiment, tmp_path) for experiment in experiments]
    config = runs[2].path / "config.yaml"
    changed = config.read_bytes().replace(b"\nseed: 2\n", b"\nseed: 9\n")
    with runs[2].locked():
        runs[2].write({"config.yaml": changed})  # so the manifest has its digest
    config = runs[3].path / "config.yaml"
    config.write_bytes(config.read_bytes().replace(b"\nseed: 3\n", b"\nseed: 0\n"))
    rows = {Path(row["run"]): row for row in overview(tmp_path)}
    assert [rows[run.path].get("seed") for run in runs] == [0, 1, None, None]
    assert "isn't the experiment of the file identity" in rows[runs[2].path]["reason"]
    assert "its checksum doesn't match" in rows[runs[3].path]["reason"]


def test_configurations_that_are_read_together_are_as_if_read_alone() -> None:
    plain = keys.load(None, {"seed": 12}).to_yaml()
    texts = [
        plain,
        plain.replace("seed: 12", "seed: 0"),
        plain.replace("seed: 12", 'seed: "7"'),
        plain.replace("seed: 12\n", ""),
        plain.replace("seed: 12", "seed: 007"),
        plain.replace("width: 128", "width: 64"),
        plain.replace("seed: 12", "seed: 12  # a comment"),
    ]
    reader = ConfigReader()
    for text in [*texts, *reversed(texts)]:
        experiment, fields = reader.read(text.encode())
        assert experiment == keys.parse(parse_yaml(text.encode(), "it"))
        assert hash_identity(fields) == experiment.identity()
    for wrong in ("seed: -1", "seed: 12\nseed: 12", "seed: x"):
        with pytest.raises(UsageError):
            reader.read(plain.replace("seed: 12", wrong).encode())


def test_a_manifest_is_json_with_an_indent() -> None:
    first, second = Content.of(b"a"), Content.of(b"ab", grows=True)
    cases: list[Contents] = [{}, {"a": [first]}, {"b": [None, first], 'ä"': [first, second, None]}]
    for contents in cases:
        text = to_text(contents).decode()
        assert text == json.dumps(json.loads(text), indent=1) + "\n"
        assert from_json(json.loads(text)["files"]) == contents
