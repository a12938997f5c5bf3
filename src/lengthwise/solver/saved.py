"""Saved models: directories with weights, configuration and manifest, here or on the Hub."""

import os
import socket
import sys
import threading
import warnings
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from huggingface_hub import constants, snapshot_download
from torch import Tensor

from lengthwise.arithmetic.tasks import TASKS
from lengthwise.base import UsageError
from lengthwise.base.errors import NOT_IMPORTED
from lengthwise.base.files import parse_json, writing
from lengthwise.base.manifest import MANIFEST, Content, Manifest, read_if_there
from lengthwise.base.tensors import check_finite, unpack_tensors
from lengthwise.model import ModelConfig
from lengthwise.problems.layouts import LAYOUTS

WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"
SECONDS_TO_REACH_HUB = 4.0
PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


def write_manifest(directory: Path) -> None:
    """Note the digests of a saved model's files."""
    contents = {name: read_if_there(directory / name) for name in (WEIGHTS, CONFIG, CARD)}
    known = {name: Content.of(content) for name, content in contents.items() if content is not None}
    with writing(directory / MANIFEST):
        Manifest(directory, {name: [content] for name, content in known.items()}).save()


def read_model(directory: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The arguments of a saved model's `Solver`, and its weights, both verified."""
    manifest = Manifest.load(directory)
    for problem in manifest.problems():
        if not str(problem).startswith(str(directory / CARD)):
            raise problem
        warnings.warn(str(problem), stacklevel=2)  # people edit the card; no number depends on it
    config, weights = manifest.read(CONFIG), manifest.read(WEIGHTS)
    if config is None or weights is None:
        raise UsageError(f"{directory} has no {WEIGHTS if config else CONFIG}")
    tensors, _ = unpack_tensors(weights, directory / WEIGHTS)
    check_finite(tensors, directory / WEIGHTS)
    fields = parse_json(config, directory / CONFIG)
    try:
        arguments = {
            "task": TASKS.parse(fields["task"]),
            "digits": int(fields["digits"]),
            "layout": LAYOUTS.parse(fields["layout"]),
            "model": ModelConfig.model_validate(fields["model"]),
        }
    except (ValueError, TypeError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(
            f"{directory / CONFIG} is damaged, of another version, or of {NOT_IMPORTED}: {reason}"
        ) from None
    return arguments, tensors


def find_model(source: str | Path, **options: Any) -> Path:
    """The directory of a saved model, downloaded if `source` is a repository on the Hub."""
    path = Path(source)
    # A Hub id is user/name, and no such directory exists.
    is_local = path.exists() or path.is_absolute() or path.parent.exists()
    if is_local or len(path.parts) != 2:
        if not (path / CONFIG).is_file() and not (path / MANIFEST).is_file():
            raise UsageError(
                f"there is no run and no saved model at {path}; `lengthwise runs` lists the runs"
            )
        return path
    print(f"there is no directory {path}; looking for it on the Hugging Face Hub", file=sys.stderr)
    offline = {} if can_reach_hub() else {"local_files_only": True}
    try:
        with redirect_stdout(sys.stderr):  # the Hub's client prints its progress
            files = [MANIFEST, WEIGHTS, CONFIG, CARD]
            options = {"allow_patterns": files, **options, **offline}
            return Path(snapshot_download(str(source), **options))
    except Exception as error:  # whatever the Hub's client raises
        reason = str(error).strip().partition("\n")[0]
        where = "the Hub is out of reach" if offline else "it isn't on the Hub"
        missing = f"there is no directory '{source}', and {where}"
        raise UsageError(f"{missing}: {reason}") from None


def can_reach_hub() -> bool:
    """Whether the Hub answers; its client would try for half a minute. Proxies aren't tried."""
    if constants.HF_HUB_OFFLINE or any(os.environ.get(name) for name in PROXIES):
        return not constants.HF_HUB_OFFLINE
    address = urlsplit(constants.ENDPOINT)
    where = address.hostname or "", address.port or 443
    reached = threading.Event()

    def connect() -> None:
        with suppress(OSError), socket.create_connection(where, SECONDS_TO_REACH_HUB):
            reached.set()

    thread = threading.Thread(target=connect, daemon=True)  # looking a name up may hang
    thread.start()
    thread.join(SECONDS_TO_REACH_HUB)
    return reached.is_set()
