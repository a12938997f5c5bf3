"""The page in a real browser, as a person would use it; run by `make test-page`.

PAGE_SCREENSHOTS=DIR keeps screenshots of every view at three sizes, to be looked at.
"""

import os
import random
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from fuzz import fuzz_requests

import lengthwise
from lengthwise.frontier.records import SUM
from lengthwise.training import keys
from lengthwise.training.api import create_run

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
OPTIONS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"),
    *("--disable-component-update", "--disable-sync"),
]
SHOWCASE = Path(__file__).parents[2] / "docs" / "showcase" / "sum.html"
SIZES = {"phone": (360, 740), "laptop": (1280, 800), "projector": (1920, 1080)}
QUICK = {
    "model.preset": "tiny",
    "training.steps": 4,
    "evaluation.every": 2,
    "evaluation.examples": 5,
    "evaluation.final_examples": 5,
}
PATIENCE = 60_000  # milliseconds; the machine may be busy


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("browser")
    kinds = {
        "sum": {"model.position": "relative-key"},
        "other": {"model.position": "absolute"},
        "rewriting": SUM,
    }
    for name, chosen in kinds.items():
        lengthwise.train({**chosen, **QUICK}, root, name, progress=False)
    return root


@contextmanager
def serve(root: Path, log: Path) -> Iterator[tuple[str, subprocess.Popen[str], Path]]:
    """The address of a server, its process, and what it prints."""
    words = [sys.executable, "-m", "lengthwise", "page", "--no-browser", "--port", "0"]
    words += ["--runs", str(root), "--results", str(root / "results")]
    with open(log, "w") as output:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=output, text=True)
        assert process.stdout is not None
        address = re.search(r"http://\S+", process.stdout.readline())
        assert address is not None
        yield address[0], process, log
        process.terminate()
        assert process.wait(60) == 0 or process.returncode < 0
    assert "Traceback" not in log.read_text(), log.read_text()


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[tuple[str, subprocess.Popen[str], Path]]:
    with serve(root, root.parent / "server.log") as served:
        yield served


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as tool:
        started = tool.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield started
        started.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that fails on errors, and on every request that leaves the machine."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    errors: list[str] = []
    foreign: list[str] = []

    def see(request: Any) -> None:
        if not re.match(r"http://127\.0\.0\.1:|file:|data:|blob:|about:", request.url):
            foreign.append(request.url)

    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
    page.on("request", see)
    yield page
    context.close()
    assert foreign == []
    unexpected = [error for error in errors if "status of 400" not in error]
    assert unexpected == []


def wait_for(page: Any, expression: str) -> None:
    """Wait until JavaScript is true; the page's policy forbids what playwright has for this."""
    for _ in range(PATIENCE // 100):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"never true: {expression}")


def test_the_first_minute(page: Any, tmp_path: Path) -> None:
    """Without any run, one button trains a model, which can be asked while it learns."""
    with serve(tmp_path / "runs", tmp_path / "server.log") as (address, *_):
        page.goto(f"{address}/#cliff")
        page.wait_for_selector(".empty button")
        page.goto(address)
        page.locator(".empty button").click()
        page.locator(".watched a", has_text="ask it").click(timeout=5 * PATIENCE)
        page.wait_for_selector(".verdict")


def test_ask_a_model(page: Any, server: Any) -> None:
    page.goto(f"{server[0]}/#ask?run=sum&problem=99+%2B+1")
    page.wait_for_selector(".verdict")
    assert page.locator(".column .truth").all_inner_texts()[:3] == ["1", "0", "0"]
    assert page.locator(".column .carry").all_inner_texts()[1:3] == ["1", "1"]
    slider = page.locator('.timeline input[type="range"]')
    assert slider.get_attribute("max") == "2"
    slider.fill("0")
    assert "embeddings alone" in page.locator(".timeline output").inner_text()
    slider.fill("1")
    page.locator(".chip").nth(2).hover()
    page.wait_for_selector(".arc", state="attached")
    assert "attends to" in page.locator(".tokens .note").inner_text()
    page.locator(".heads button").nth(1).focus()
    page.keyboard.press("Enter")  # draws anew, and the focus stays
    assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
    page.locator(".strip").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".chip.chosen").count() == 1
    page.locator(".copy button").first.click()
    wait_for(page, "navigator.clipboard.readText().then((t) => t.includes('solve'))")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert re.fullmatch(r'lengthwise solve \S+/sum "99 \+ 1"', copied)


def test_type_compare_and_break(page: Any, server: Any) -> None:
    page.goto(f"{server[0]}/#ask?run=sum")
    page.wait_for_selector(".verdict")
    page.locator(".problem").fill("12 + 34")
    wait_for(page, "location.hash.includes('12+%2B+34')")
    page.locator(".models select").nth(1).select_option("other")
    wait_for(page, "document.querySelectorAll('.verdict').length === 2")
    shared = page.url
    page.locator(".breaks button", has_text="all carries").click()
    wait_for(page, "/^(9+ \\+ 1|1 \\+ 9+)$/.test(document.querySelector('.problem').value)")
    page.goto("about:blank")
    page.goto(shared)  # the address holds the view
    wait_for(page, "document.querySelectorAll('.verdict').length === 2")
    assert page.locator(".problem").input_value() == "12 + 34"
    page.locator(".problem").fill("12 × 34")
    page.wait_for_selector(".error")
    assert "trained for addition" in page.locator(".error").first.inner_text()
    page.locator(".problem").fill("<img src=x onerror=alert(1)>")
    wait_for(page, "document.querySelector('.error')?.textContent.includes('<img')")
    assert page.locator(".error img").count() == 0


def test_a_model_that_rewrites_its_answer(page: Any, server: Any) -> None:
    page.goto(f"{server[0]}/#ask?run=rewriting&problem=99+%2B+1")
    page.wait_for_selector(".verdict")
    assert page.locator(".timeline output").inner_text().startswith("round ")
    page.locator(".chip").nth(2).hover()
    page.wait_for_selector(".arc", state="attached")
    assert "the first layer of round" in page.locator(".tokens .note").inner_text()


def test_the_cliff(page: Any, server: Any) -> None:
    page.goto(f"{server[0]}/#cliff?runs=sum,other")
    page.wait_for_selector(".charts .plot .line", state="attached")
    assert page.locator(".plot .trained").count() >= 1
    assert page.locator(".plot .band").count() >= 2
    page.locator("form.inline input").fill("3")
    page.locator("form.inline button").click()
    page.wait_for_selector(".plot title:has-text('3 → ')", state="attached")
    page.locator(".grid-panel button").first.click()
    wait_for(page, "document.querySelectorAll('.cell:not(.none)').length === 100")
    page.locator(".picker input[value=sum]").uncheck()
    wait_for(page, "document.querySelectorAll('.run').length === 1")


def test_the_cliff_of_a_run_without_metrics(page: Any, server: Any, root: Path) -> None:
    run = create_run(keys.load(None, QUICK), root, "waiting", again=False)
    page.goto(f"{server[0]}/#cliff?runs=sum,{run.path.name}")
    page.wait_for_selector(".charts .plot .line", state="attached")
    assert page.locator(".charts .error").count() == 0
    shutil.rmtree(run.path)


def test_train_watch_stop_resume(page: Any, server: Any, root: Path) -> None:
    page.goto(f"{server[0]}/#train?size=tiny&steps=5000&test_digits=6&primed=20")
    page.locator("button.primary").click()
    page.wait_for_selector(".watched h2")
    name = page.locator(".watched h2").inner_text()
    page.wait_for_selector(".live .plot .line", state="attached")
    assert (root / name / "config.yaml").read_text().count("20") >= 1
    page.locator(".queue button", has_text="stop").click()
    page.locator(".watched button", has_text="resume").wait_for()
    page.locator(".watched button", has_text="resume").click()
    page.locator(".queue progress").wait_for()
    page.locator(".queue button", has_text="stop").click()
    page.locator(".watched button", has_text="resume").wait_for()
    page.locator(".recipe .copy button").first.click()
    wait_for(page, "navigator.clipboard.readText().then((t) => t.includes('train'))")
    assert "--data.priming 6=20" in page.evaluate("navigator.clipboard.readText()")


def test_the_paper(page: Any, server: Any) -> None:
    page.goto(f"{server[0]}/#paper")
    page.locator("#table-addition summary").click()
    assert "98.3" in page.locator("#table-addition table").first.inner_text()
    assert page.locator(".badge").count() > 5


def test_the_keyboard_reaches_everything(page: Any, server: Any) -> None:
    page.goto(f"{server[0]}/#ask?run=sum&problem=1+%2B+2")
    page.wait_for_selector(".verdict")
    seen = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        active = "document.activeElement"
        seen.add(page.evaluate(f"`${{{active}.className || {active}.tagName}}`"))
    for part in ("problem", "SELECT", "strip", "SUMMARY", "quiet theme"):
        assert any(part in name for name in seen), (part, seen)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_view_fits_its_screen(browser: Any, server: Any, size: str, theme: str) -> None:
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    views = {
        "ask": ("ask?run=sum&with=other&problem=99999+%2B+1", ".verdict"),
        "cliff": ("cliff?runs=sum,other", ".charts .line"),
        "train": ("train", ".queue"),
        "paper": ("paper", ".badge"),
    }
    for name, (hash_, ready) in views.items():
        page.goto("about:blank")
        page.goto(f"{server[0]}/#{hash_}")
        page.wait_for_selector(ready, state="attached")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        if folder := os.environ.get("PAGE_SCREENSHOTS"):
            page.wait_for_timeout(1500)
            page.screenshot(path=f"{folder}/{name}-{size}-{theme}.png", full_page=True)
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(20, 23, 28)") == (theme == "dark")
    context.close()


def test_the_showcase_opens_from_a_file(page: Any, tmp_path: Path) -> None:
    """A copy elsewhere, from file://: 1000 digits, a film, attention."""
    copy = Path(shutil.copy(SHOWCASE, tmp_path / "sum.html"))
    page.goto(f"{copy.as_uri()}#ask?problem=999999+%2B+1")
    page.wait_for_selector(".verdict.is-right")
    slider = page.locator('.timeline input[type="range"]')
    assert slider.get_attribute("max") == "7"  # a carry runs one column a round
    slider.fill("2")
    assert page.locator(".timeline output").inner_text() == "round 3 of 8 · 4 wrong"
    assert page.locator(".digit").all_inner_texts() == list("·999000")
    page.locator(".chip").nth(1).hover()
    page.wait_for_selector(".arc", state="attached")
    rng = random.Random(0)
    a, b = (rng.randrange(10**999, 10**1000) for _ in range(2))
    page.locator(".problem").fill(f"{a} + {b}")
    wait_for(page, "document.querySelector('.verdict')?.textContent.includes('1\u202f00')")
    assert page.locator(".verdict.is-right").count() == 1
    page.locator(".breaks button", has_text="all carries").click()
    wait_for(page, "document.querySelector('.problem').value.length < 100")
    page.wait_for_selector(".verdict.is-right")


def test_a_file_multiplies(page: Any, tmp_path: Path) -> None:
    copy = Path(shutil.copy(SHOWCASE.with_name("product.html"), tmp_path / "product.html"))
    page.goto(copy.as_uri())
    page.wait_for_selector(".verdict.is-right")
    page.locator(".problem").fill("123456 × 987654")
    wait_for(page, "document.querySelector('.verdict')?.textContent.includes('12 digits')")
    assert page.locator(".verdict.is-right").count() == 1
    page.locator(".chip").nth(1).hover()
    page.wait_for_selector(".arc", state="attached")
    page.locator(".problem").fill(f"{'9' * 300} × {'9' * 300}")
    page.wait_for_selector(".error")
    assert "300 × 300 digits are too many" in page.locator(".error").inner_text()


class Evil(BaseHTTPRequestHandler):
    """A page of another origin that tries to use the server."""

    target = ""

    def do_GET(self) -> None:
        script = f"""
            const attempt = (path, options) => fetch("{self.target}" + path, options)
                .then((r) => r.type === "opaque" ? "opaque" : r.text(), () => "refused");
            window.found = Promise.all([
                attempt("/api/runs"),
                attempt("/api/ask", {{method: "POST", body: "{{}}",
                    headers: {{"content-type": "application/json"}}}}),
                attempt("/api/stop", {{method: "POST", mode: "no-cors", body: "{{}}"}}),
            ]);
        """
        body = f"<script>{script}</script><iframe src='{self.target}/'></iframe>".encode()
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def test_another_origin_gets_nothing(browser: Any, server: Any) -> None:
    Evil.target = server[0]
    evil = HTTPServer(("127.0.0.1", 0), Evil)
    threading.Thread(target=evil.serve_forever, daemon=True).start()
    page = browser.new_page()
    statuses: list[int] = []
    page.on("response", lambda r: statuses.append(r.status) if server[0] in r.url else None)
    page.goto(f"http://127.0.0.1:{evil.server_port}/")
    found = page.evaluate("window.found")
    assert found[:2] == ["refused", "refused"]
    assert found[2] in ("opaque", "refused")
    assert all(status in (403, 405) for status in statuses if status), statuses
    page.close()
    evil.shutdown()


def resident(process: subprocess.Popen[str]) -> int:
    """Megabytes of the server and its workers."""
    text = subprocess.run(["ps", "-eo", "pid=,ppid=,rss="], capture_output=True, text=True).stdout
    rows = [tuple(map(int, line.split())) for line in text.splitlines()]
    return sum(rss for pid, parent, rss in rows if process.pid in (pid, parent)) // 1024


def test_200_requests_at_once_are_not_mixed_up(server: Any) -> None:
    def ask(number: int) -> None:
        run = ("sum", "other", "rewriting")[number % 3]
        asked = {"run": run, "problem": f"{number} + {7 * number}"}
        found = httpx.post(f"{server[0]}/api/ask", json=asked, timeout=120).json()
        assert found["correct"] == str(8 * number)
        assert found["problem"] == asked["problem"]

    with ThreadPoolExecutor(200) as pool:
        list(pool.map(ask, range(200)))


def test_10000_fuzzed_requests(server: Any) -> None:
    """No traceback (see the fixture), no status 500, and no growth of memory."""
    address, process, _ = server

    def send(requests: list[Any]) -> None:
        with httpx.Client(base_url=address, timeout=120) as client:
            for method, path, content, headers in requests:
                response = client.request(method, path, content=content, headers=headers)
                assert response.status_code < 500, (method, path, content, response.text)

    def send_all(seed: int, count: int) -> None:
        requests = list(fuzz_requests(random.Random(seed), count))
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(send, (requests[i::4] for i in range(4))))

    send_all(1, 2000)
    before = resident(process)
    send_all(2, 8000)
    after = resident(process)
    print(f"{before} MB after 2,000 requests, {after} MB after 10,000")
    assert after < before + 60
