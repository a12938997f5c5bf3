"""What the system says of the processor."""

import platform
from pathlib import Path


def processor_lines(*names: str) -> list[str]:
    """The lines of /proc/cpuinfo that begin with these names, each once."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        return [platform.processor()]
    return sorted({line for line in lines if line.startswith(names)})
