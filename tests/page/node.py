"""Runs the forward pass of an exported file under node."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lengthwise.page.export import bundle

NODE = shutil.which("node")
DRIVER = """
import { readFileSync } from "node:fs";
const { model, problems } = JSON.parse(readFileSync(0, "utf8"));
const own = makeModel(model);
const found = problems.map((problem) => {
  try {
    const solving = solve(own, problem);
    for (;;) {
      const { done, value } = solving.next();
      if (!done) continue;
      const { logits, steps, ...rest } = value;
      const count = steps.length;
      return { ...rest, logits: Array.from(logits), symbols: steps.at(-1).symbols, count,
        confidence: steps.at(-1).confidence, early: steps.slice(0, 40) };
    }
  } catch (error) {
    return { error: error.message };
  }
});
process.stdout.write(JSON.stringify(found));
"""


def run_node(model: dict[str, Any], problems: Sequence[str], folder: Path) -> list[dict[str, Any]]:
    """What the JavaScript makes of problems."""
    assert NODE is not None
    script = folder / "forward.mjs"
    script.write_text(bundle("worker.js") + DRIVER)
    text = json.dumps({"model": model, "problems": list(problems)})
    done = subprocess.run(
        [NODE, str(script)], input=text, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found
