"""Runs edited copies of the package in one fresh process; `test_edits_source.py` starts it.

Standard input has a list of jobs in JSON: a folder that holds a copy of the package, and Python
code that patches something before the model is first used. Standard output gets, for each job, what
the solver computes with the C code allowed and with PyTorch alone.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch


def run(folder: str, code: str) -> dict[str, Any]:
    """The results of one copy, imported anew."""
    for name in [name for name in sys.modules if name.split(".")[0] in ("lengthwise", "edits")]:
        del sys.modules[name]
    sys.path[0] = folder
    import lengthwise

    assert Path(lengthwise.__file__).is_relative_to(folder)
    import edits

    found: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        exec(code, {"patch": patch, "__name__": "__main__"})
        solver = edits.solver_of()
        for setting in ("on", "off"):
            os.environ["LENGTHWISE_FAST"] = setting
            tensors = edits.measure(solver).tensors()
            found[setting] = {name: tensor.tolist() for name, tensor in tensors.items()}
            found[f"{setting} because"] = edits.reason_for(solver)
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.path[:0] = [""]
    print(json.dumps([run(*job) for job in json.load(sys.stdin)]))
