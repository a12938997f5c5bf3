"""A training process that `test_resume.py` kills and starts again."""

import os
from pathlib import Path
from typing import Any

import torch

from lengthwise.training import api


def work(fields: dict[str, Any], root: Path) -> None:
    """Train; stopped by a signal, the process ends as the command line's does."""
    torch.set_num_threads(1)
    try:
        api.train(fields, root, "run", progress=False)
    except KeyboardInterrupt:
        os._exit(130)
