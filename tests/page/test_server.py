"""The server: answers, refusals in a sentence, and nothing for anyone but its own pages."""

import asyncio
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fuzz import fuzz_requests
from starlette.testclient import TestClient

import lengthwise
from lengthwise.base import UsageError
from lengthwise.cli.main import main
from lengthwise.frontier.records import SUM
from lengthwise.page import views
from lengthwise.page.form import MOST_STEPS, TrainingForm
from lengthwise.page.security import HEADERS, MOST_BYTES, Guard
from lengthwise.page.server import create_app
from lengthwise.page.training import MOST_RUNS, Queue
from lengthwise.paper import ARTEFACTS
from lengthwise.training import keys
from lengthwise.training.runs import Run

ADDRESS = "http://127.0.0.1:8765"
QUICK = {
    "model.preset": "tiny",
    "training.steps": 4,
    "training.log_every": 1,
    "evaluation.every": 2,
    "evaluation.examples": 5,
    "evaluation.final_examples": 5,
}
FORM = {"size": "tiny", "steps": 4000, "test_digits": 6}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("page")
    for name in ("sum", "other"):
        lengthwise.train({**QUICK, "seed": len(name)}, root, name, progress=False)
    lengthwise.train({**SUM, **QUICK}, root, "rewriting", progress=False)
    (root / "secret.txt").write_text("secret")
    return root


@pytest.fixture(scope="module")
def client(root: Path) -> Iterator[TestClient]:
    app = create_app(root, root / "results", 8765)
    with TestClient(app, base_url=ADDRESS, raise_server_exceptions=False) as client:
        yield client


def post(client: TestClient, path: str, **fields: Any) -> Any:
    response = client.post(path, json=fields)
    assert response.status_code == 200, response.text
    return response.json()


def refusal(client: TestClient, path: str, fields: Any, status: int = 400) -> str:
    response = client.post(path, json=fields)
    assert response.status_code == status, response.text
    sentence = response.json()["error"]
    assert isinstance(sentence, str)
    assert "Traceback" not in sentence
    return sentence


def test_the_page_and_its_files(client: TestClient) -> None:
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    for name in ("main.js", "style.css"):
        assert name in page.text
        assert client.get(f"/{name}").status_code == 200
    for path in ("/secret.txt", "/../secret.txt", "/%2e%2e/server.py", "/..%2fserver.py", "/x.js"):
        assert client.get(path).status_code == 404


def test_runs_and_their_curves(client: TestClient, root: Path) -> None:
    found = client.get("/api/runs").json()
    assert {run["name"] for run in found["runs"]} == {"sum", "other", "rewriting"}
    shown = client.get("/api/run", params={"run": "sum"}).json()
    result = Run(root / "sum").result
    assert result is not None
    assert [a["exact_match"] for a in shown["accuracy"]] == [
        a["exact_match"] for a in result["evaluation"]
    ]
    assert [seen for seen, _ in shown["loss"]] == [32, 64, 96, 128]
    assert shown["final"]
    missing = client.get("/api/run", params={"run": "../page"})
    assert missing.status_code == 400
    assert "there is no run" in missing.json()["error"]


@pytest.mark.parametrize("name", ["sum", "rewriting"])
def test_a_model_answers(client: TestClient, root: Path, name: str) -> None:
    (solution,) = Run(root / name).load().explain("99 + 1")
    found = post(client, "/api/ask", run=name, problem="99+1")
    symbols = [found["vocabulary"][symbol] for symbol in found["steps"][-1]["symbols"]]
    assert symbols == list(solution.symbols)
    assert found["correct"] == "100"
    assert found["carries"] == [1, 1]
    shares = found["steps"][-1]["confidence"]
    assert shares == pytest.approx([1000 * share for share in solution.confidences], abs=1)
    heads = post(client, "/api/attention", run=name, problem="99 + 1", iteration=2, first=0, last=4)
    total = sum(weight for _, weight in heads[0][0])
    assert total == pytest.approx(1000, abs=60) if name == "sum" else 0 < total < 1000  # a null key


def test_stress_cases_and_measurements(client: TestClient) -> None:
    broken = post(client, "/api/break", run="sum", case="all carries", length=5)
    assert set(broken["problem"]) == set("91+ ")
    again = post(client, "/api/break", run="sum", case="random", length=5, seed=7)
    assert again == post(client, "/api/break", run="sum", case="random", length=5, seed=7)
    measured = post(client, "/api/measure", run="sum", length=3, examples=10)
    assert (measured["length"], measured["examples"]) == (3, 10)
    grid = post(client, "/api/grid", run="sum", longest=4, row=1, examples=5)
    assert grid["rows"] == [1, 2, 3, 4]
    assert len(grid["shares"]) == 4


@pytest.mark.parametrize(
    ("path", "fields", "part"),
    [
        ("/api/ask", {"run": "sum", "problem": "1 × 2"}, "trained for addition"),
        ("/api/ask", {"run": "sum", "problem": "9" * 20_000}, "is not a problem"),
        ("/api/ask", {"run": "sum", "problem": "9" * 30 + " + 1"}, "room for 10"),
        ("/api/ask", {"run": "none", "problem": "1 + 2"}, "there is no run"),
        ("/api/ask", {"run": "sum"}, "problem"),
        ("/api/ask", {"run": "sum", "problem": "1 + 2", "more": 1}, "more"),
        ("/api/ask", {"run": "sum\ud800", "problem": "\ud800"}, "run is"),
        ("/api/ask", [], "is []"),
        ("/api/break", {"run": "sum", "case": "none", "length": 3}, "stress case"),
        ("/api/break", {"run": "sum", "case": "random", "length": 11}, "10 digits"),
        ("/api/measure", {"run": "sum", "length": 3, "examples": 10**9}, "500"),
        ("/api/train", {"task": "sorting"}, "task"),
        ("/api/train", {"position": "nowhere"}, "nowhere"),
        ("/api/train", {"steps": MOST_STEPS + 1}, "steps"),
        ("/api/train", {"train_digits": 9, "test_digits": 8}, "more than"),
        ("/api/stop", {"run": "sum"}, "not in the queue"),
        ("/api/resume", {"run": "sum"}, "finished already"),
    ],
)
def test_bad_input_gets_a_sentence(client: TestClient, path: str, fields: Any, part: str) -> None:
    text = json.dumps(fields)
    response = client.post(path, content=text, headers={"content-type": "application/json"})
    assert response.status_code == 400, response.text
    assert part in response.json()["error"]
    assert len(response.json()["error"]) <= 320


def test_only_its_own_pages_may_ask(client: TestClient) -> None:
    asked = {"run": "sum", "problem": "1 + 2"}
    for headers in (
        {"host": "evil.example"},
        {"host": "127.0.0.1:80"},
        {"host": "127.0.0.1.evil.example:8765"},
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "https://127.0.0.1:8765"},
        {"origin": "null"},
        {"origin": "http://[::1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        assert client.post("/api/ask", json=asked, headers=headers).status_code == 403, headers
        assert client.get("/api/runs", headers=headers).status_code == 403, headers
    own = {"origin": ADDRESS, "sec-fetch-site": "same-origin"}
    assert client.post("/api/ask", json=asked, headers=own).status_code == 200
    # A form of another page can send text, but not JSON.
    plain = client.post(
        "/api/ask", content=json.dumps(asked), headers={"content-type": "text/plain"}
    )
    assert plain.status_code == 415
    assert client.options("/api/ask").status_code == 405
    assert client.get("/api/ask").status_code == 405


def test_every_answer_has_the_headers(client: TestClient) -> None:
    answers = [
        client.get("/"),
        client.get("/nothing"),
        client.get("/api/runs"),
        client.get("/", headers={"host": "evil.example"}),
        client.post("/api/ask", json={}),
    ]
    for answer in answers:
        for name, value in HEADERS.items():
            assert answer.headers[name] == value
        assert "access-control-allow-origin" not in answer.headers


def test_large_requests_are_refused(client: TestClient) -> None:
    body = json.dumps({"run": "sum", "problem": "1" * MOST_BYTES})
    kind = {"content-type": "application/json"}
    assert client.post("/api/ask", content=body, headers=kind).status_code == 413
    chunks = (b"1" * 1000 for _ in range(100))  # without a length in the header
    assert client.post("/api/ask", content=chunks, headers=kind).status_code == 413
    deep = "[" * 30_000
    assert client.post("/api/ask", content=deep, headers=kind).status_code == 400


@pytest.mark.parametrize(("chunks", "read"), [(3, 3), (10_000, MOST_BYTES // 1024)])
def test_a_refused_body_is_read_before_the_answer(chunks: int, read: int) -> None:
    """Else closing the connection resets it, and the client may lose the answer; up to a bound."""
    happened: list[str] = []

    async def receive() -> dict[str, Any]:
        happened.append("read")
        more = happened.count("read") < chunks
        return {"type": "http.request", "body": b"x" * 1024, "more_body": more}

    async def send(message: Any) -> None:
        happened.append(message["type"])

    async def app(*_: Any) -> None:
        raise AssertionError("the request is refused")

    scope = {"type": "http", "method": "POST", "headers": [(b"host", b"evil.example")]}
    asyncio.run(Guard(app, 8765)(scope, receive, send))
    assert happened == ["read"] * read + ["http.response.start", "http.response.body"]


def test_fuzzed_requests_get_a_sentence(
    client: TestClient, capfd: pytest.CaptureFixture[str]
) -> None:
    """A sample; `make test-page` sends 10,000."""
    for method, path, content, headers in fuzz_requests(random.Random(1), 250):
        response = client.request(method, path, content=content, headers=headers)
        assert response.status_code < 500, (method, path, content, response.text)
        if response.status_code >= 400 and method != "HEAD":
            assert isinstance(response.json()["error"], str)
    assert "Traceback" not in capfd.readouterr().err


def wait_until(client: TestClient, condition: Any, seconds: float = 120) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        state = client.get("/api/runs").json()
        if condition(state):
            return state
        time.sleep(0.1)
    raise AssertionError(f"never happened: {state}")


def test_train_stop_and_resume(client: TestClient, root: Path) -> None:
    """A run of the page is an ordinary run: the same identity, files and command."""
    name = post(client, "/api/train", **FORM)["run"]
    wait_until(client, lambda state: name in state["training"]["progress"])
    assert client.post("/api/train", json=FORM).status_code == 400  # it is in the queue already
    live = client.get("/api/run", params={"run": name}).json()
    assert live["status"] == "running"
    post(client, "/api/stop", run=name)
    wait_until(client, lambda state: not state["training"]["queue"])
    run = Run(root / name)
    assert run.status == "interrupted"
    assert run.checkpoint.exists()
    assert run.identity == keys.load(None, TrainingForm(**FORM).keys()).identity()
    post(client, "/api/resume", run=name)
    wait_until(client, lambda state: name in state["training"]["progress"])
    post(client, "/api/stop", run=name)
    wait_until(client, lambda state: not state["training"]["queue"])


def test_the_queue_is_bounded(client: TestClient) -> None:
    names = [
        post(client, "/api/train", **FORM, seed=seed)["run"] for seed in range(1, MOST_RUNS + 1)
    ]
    assert "full" in refusal(client, "/api/train", {**FORM, "seed": 99})
    for name in reversed(names):
        post(client, "/api/stop", run=name)
    wait_until(client, lambda state: not state["training"]["queue"])


def test_a_form_is_a_command(root: Path, tmp_path: Path) -> None:
    """Copying the command or the Python gives the same run."""
    form = TrainingForm(task="multiplication", primed=7, size="tiny", steps=3, test_digits=6)
    words = form.command(str(tmp_path)).replace("\\\n", " ").split()
    assert words[:2] == ["lengthwise", "train"]
    overrides = keys.parse_overrides(words[2 : words.index("--runs")])
    assert keys.load(None, overrides) == form.experiment()
    trained: dict[str, Any] = {}
    code = form.python(str(tmp_path)).replace("lengthwise.train(", "trained.update(x=(")
    exec(code.replace(", root=", "), root="), {"trained": trained})
    assert keys.load(None, trained["x"]) == form.experiment()
    for position in views.choices()["positions"]:
        over = (
            "significance" if views.choices()["positions"][position]["over_coordinate"] else "index"
        )
        TrainingForm(position=position, coordinate=over, size="tiny").experiment()


def test_a_damaged_run_is_listed(root: Path) -> None:
    broken = root / "broken"
    broken.mkdir()
    (broken / "config.yaml").write_text("task: [")
    try:
        rows = {row["name"]: row for row in views.RunList(root).read()}
        assert rows["broken"]["status"] == "damaged"
        assert not rows["broken"]["usable"]
    finally:
        (broken / "config.yaml").unlink()
        broken.rmdir()


def test_the_paper_without_records(client: TestClient) -> None:
    report = client.get("/api/paper", params={"scale": "cpu"}).json()
    assert report["records"] == 0
    tables = {a["name"]: a["tables"] for a in report["artefacts"]}
    cells = [c for table in tables["table-addition"] for row in table["rows"] for c in row["cells"]]
    assert any(cell["published"] is not None for cell in cells)
    assert {h["verdict"] for h in report["headlines"]} == {"not run"}
    claims = {a["name"]: [c["text"] for c in a["claims"]] for a in report["artefacts"]}
    primed = ARTEFACTS["figure-priming-lengths"]
    assert claims[primed.name] == [primed.qualify(c.text, "cpu") for c in primed.claims]
    assert all(text.endswith("here by one digit, not three") for text in claims[primed.name])
    assert client.get("/api/paper", params={"scale": "moon"}).status_code == 400
    assert client.get("/api/figure", params={"artefact": "none"}).status_code == 400


def test_a_port_in_use_gets_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["page", "--no-browser", "--port", port, "--runs", str(tmp_path)]) == 2
    assert "choose another --port" in capsys.readouterr().err
    assert main(["page", "--no-browser", "--port", "70000", "--runs", str(tmp_path)]) == 2
    assert "a port is a number up to 65535, not 70000" in capsys.readouterr().err


def test_a_finished_run_is_not_trained_again(client: TestClient, root: Path) -> None:
    queue = Queue()
    try:
        with pytest.raises(UsageError, match="finished"):
            queue.add(Run(root / "sum"))
    finally:
        queue.close()


def test_a_run_that_cannot_start_does_not_end_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError("no memory for a process")

    monkeypatch.setattr("lengthwise.page.training.Local.submit", fail)
    runs = [Run.create(keys.load(None, {**QUICK, "seed": seed}), tmp_path) for seed in (0, 1)]
    queue = Queue()
    try:
        for run in runs:
            queue.add(run)
        queue.thread.join(1)  # it goes on, waiting for more
        assert queue.thread.is_alive()
        assert queue.failures == {run.path.name: "no memory for a process" for run in runs}
    finally:
        queue.close()
