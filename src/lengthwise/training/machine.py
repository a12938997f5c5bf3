"""The machine of a run: threads, memory, device, and their description."""

import ctypes
import gc
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from lengthwise.base import UsageError
from lengthwise.base.extensions import VARIABLE
from lengthwise.base.processor import processor_lines


def check(device: str, threads: int) -> torch.device:
    """The device, if the machine has it and the threads."""
    cores = os.cpu_count() or 1
    if not 1 <= threads <= cores:
        raise UsageError(f"threads is {threads}, but this machine takes 1 to {cores}")
    return find_device(device)


def prepare(device: str, threads: int) -> torch.device:
    """Set the process up for a run, and return the device."""
    found = check(device, threads)
    torch.set_num_threads(threads)
    keep_memory()
    gc.freeze()  # imported modules stay; Python need not search them for garbage
    return found


def find_device(name: str) -> torch.device:
    """A device by its name, if the machine has it."""
    available = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        device = None
    if device is None or not available.get(device.type, False):
        have = ", ".join(backend for backend, there in available.items() if there)
        raise UsageError(f"device '{name}' isn't available here; available: {have}")
    return device


def keep_memory() -> None:
    """Have glibc keep freed memory instead of returning it to the system.

    Every training step frees the large blocks that the next one needs; fresh pages cost time.
    """
    if sys.platform != "linux" or not hasattr(libc := ctypes.CDLL(None), "mallopt"):
        return
    m_trim_threshold, m_mmap_threshold = -1, -3
    for option in (m_trim_threshold, m_mmap_threshold):
        libc.mallopt(option, 1 << 30)


def describe(device: str, declined: str | None = None, processes: int = 1) -> dict[str, Any]:
    """Versions, commit and machine, to keep with a run; `declined` is why PyTorch computes it."""
    return {
        "lengthwise": version("lengthwise"),
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": version("numpy"),
        "platform": platform.platform(),
        "processor": "".join(processor_lines("model name")[:1]).rpartition(": ")[2] or "unknown",
        "cores": os.cpu_count(),
        "imports": [name for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name],
        "computed by": "C" if declined is None else f"PyTorch: {declined}",
        **({"processes": processes} if processes > 1 else {}),
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
    }


def commit() -> str | None:
    """The commit of the running source, with a + if it was changed; None outside a repository."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent.parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return None
