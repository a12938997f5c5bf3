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
const finish = (solving) => {
  for (;;) {
    const { done, value } = solving.next();
    if (done) return value;
  }
};
const found = problems.map((problem) => {
  try {
    const trace = finish(solve(own, problem));
    const last = trace.steps.at(-1).iteration;
    const attention = trace.tokens.symbol.length > 100 ? null :
      attentionOf(own, problem, last, 0, trace.read.length);
    const steps = trace.steps.map((step) =>
      ({ ...step, symbols: [...step.symbols], confidence: [...step.confidence] }));
    return { ...trace, steps, logits: [...trace.logits], attention };
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
