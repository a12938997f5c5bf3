"""How fast the page is, in chromium: first paint, and answers of the length record's model.

`make bench-page`. Times are those that a person waits: from Enter until the answer stands in the
page. The model is trained first where --runs has none, in half a minute.
"""

import argparse
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

import lengthwise
from lengthwise.frontier.records import SUM
from lengthwise.page.export import export
from lengthwise.training.runs import Run

REPEATS = 15
LENGTHS = {20: REPEATS, 1000: REPEATS, 10_000: 3, 100_000: 3}  # digits: repeats
MOST_DIGITS = 10_000  # that the server takes
PATIENCE = 120_000  # milliseconds
# From Enter in the box of the problem until there is a verdict.
ASK = """(problem) => new Promise((resolve) => {
  const box = document.querySelector(".problem");
  const answers = document.querySelector(".answers");
  box.value = problem;
  const started = performance.now();
  box.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", cancelable: true }));
  new MutationObserver((_, observer) => {
    const verdict = answers.querySelector(".verdict");
    if (!verdict) return;
    observer.disconnect();
    resolve([performance.now() - started, verdict.classList.contains("is-right")]);
  }).observe(answers, { childList: true, subtree: true });
})"""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"


@contextmanager
def serving(root: Path) -> Iterator[str]:
    """The address of a server."""
    words = [sys.executable, "-m", "lengthwise", "page", "--no-browser", "--port", "0"]
    words += ["--runs", str(root)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = re.search(r"http://\S+", process.stdout.readline())
        assert address is not None
        try:
            yield address[0]
        finally:
            process.terminate()


def open_page(browser: Browser, address: str) -> Page:
    """A page in a context of its own, so that nothing is cached."""
    page = browser.new_context().new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    page.wait_for_selector(".verdict")
    return page


def measure_paint(browser: Browser, address: str) -> list[float]:
    found = []
    for _ in range(REPEATS):
        page = open_page(browser, address)
        found.append(float(page.evaluate(PAINT)))
        page.context.close()
    return found


def measure_answers(page: Page, digits: int, repeats: int) -> list[float]:
    rng, found = random.Random(digits), []
    for _ in range(repeats):
        first, second = ("".join(rng.choices("123456789", k=digits)) for _ in range(2))
        milliseconds, right = page.evaluate(ASK, f"{first} + {second}")
        assert right, f"{first} + {second}"
        found.append(milliseconds)
    return found


def show(what: str, where: str, times: list[float]) -> None:
    print(f"| {what} | {where} | {median(times):.0f} ms | {max(times):.0f} ms |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="default: runs")
    root: Path = parser.parse_args().runs
    run: Run = lengthwise.train({**SUM, "seed": 0}, root)
    print("| | where | median | slowest |\n| --- | --- | --- | --- |")
    options: Any = {"executable_path": shutil.which("chromium"), "args": ["--no-sandbox"]}
    with (
        sync_playwright() as tool,
        tool.chromium.launch(**options) as browser,
        tempfile.TemporaryDirectory() as folder,
        serving(root) as server,
    ):
        file = Path(folder) / "sum.html"
        export([run], file)
        view = f"#ask?run={run.path.name}&problem=1+%2B+2"
        for where, address in {"server": f"{server}/{view}", "file": file.as_uri() + view}.items():
            open_page(browser, address).context.close()  # the worker processes start
            show("first paint", where, measure_paint(browser, address))
            page = open_page(browser, address)
            for digits, repeats in LENGTHS.items():
                if where == "file" or digits <= MOST_DIGITS:
                    times = measure_answers(page, digits, repeats)
                    show(f"a sum of {digits:,} digits", where, times)


if __name__ == "__main__":
    main()
