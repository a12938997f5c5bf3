"""Runs the code of a notebook as Jupyter would, without it.

`python tests/notebooks.py NOTEBOOK` keeps the output in the notebook.
"""

import ast
import base64
import io
import json
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any


def run_cell(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell's code; what it printed, and what its last expression shows."""
    tree = ast.parse(source)
    end = tree.body[-1] if tree.body else None
    last = ast.Expression(end.value) if isinstance(end, ast.Expr) else None
    if last is not None:
        tree.body.pop()
    outputs: list[dict[str, Any]] = []
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, "cell", "exec"), names)
        value = eval(compile(last, "cell", "eval"), names) if last else None
    if text := printed.getvalue():
        lines = text.splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": lines})
    if value is not None:
        data: dict[str, Any] = {"text/plain": [repr(value)]}
        if hasattr(value, "_repr_png_"):
            data["image/png"] = base64.b64encode(value._repr_png_()).decode()
        outputs.append({"output_type": "display_data", "data": data, "metadata": {}})
    return outputs


def run(path: Path) -> dict[str, Any]:
    """The notebook with its output; it runs in its own directory."""
    notebook: dict[str, Any] = json.loads(path.read_text())
    names: dict[str, Any] = {"__name__": "__main__"}
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        for number, cell in enumerate(notebook["cells"], start=1):
            if cell["cell_type"] == "code":
                cell["outputs"] = run_cell("".join(cell["source"]), names)
                cell["execution_count"] = number
    finally:
        os.chdir(before)
    return notebook


if __name__ == "__main__":
    for name in sys.argv[1:]:
        found = run(Path(name))
        Path(name).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
