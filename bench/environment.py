"""Makes an environment with transformers 4.57.6 beside this one, and prints the path of its Python.

torch and lengthwise are those of the environment that runs this. It is kept in .venv-huggingface.
"""

import fcntl
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ENVIRONMENT = Path(__file__).parents[1] / ".venv-huggingface"
REQUIREMENT = "transformers==4.57.6"


def huggingface_python() -> Path:
    """The Python of the environment, which is made if it is not there yet."""
    executable, stamp = ENVIRONMENT / "bin" / "python", ENVIRONMENT / "complete"
    complete = f"{REQUIREMENT} on Python {sys.version}"
    with open(ENVIRONMENT.with_suffix(".lock"), "w") as lock:  # one process makes it, others wait
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != complete:
            venv.create(ENVIRONMENT, clear=True, with_pip=True)
            install: list[str | Path] = [executable, "-m", "pip", "install", "-q", REQUIREMENT]
            subprocess.run(install, check=True, stdout=sys.stderr)
            stamp.write_text(complete)
        # The shared packages come after the environment's own, whose older huggingface_hub is used.
        shared = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
        (own,) = ENVIRONMENT.glob("lib/python*/site-packages")
        link = own / "shared.pth"
        if not link.exists() or link.read_text() != shared:
            link.write_text(shared)
    return executable


if __name__ == "__main__":
    print(huggingface_python())
