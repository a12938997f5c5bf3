"""Figures for notebooks and files. Importing this imports matplotlib, so it is done on demand."""

from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from lengthwise.base.errors import UsageError


class Picture(Figure):
    """A figure that a notebook shows by itself, without pyplot."""

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.savefig(buffer, format="png", dpi=100)
        return buffer.getvalue()

    def write(self, path: str | Path) -> None:
        """Write the figure to a file, in the format of its suffix."""
        known = self.canvas.get_supported_filetypes()
        suffix = Path(path).suffix.lower().lstrip(".")
        if suffix not in known:
            raise UsageError(f"can't draw {path}; figures end in .png, .pdf or .svg")
        settings: dict[str, Any] = {"dpi": 150, "format": suffix}
        self.savefig(path, **settings)
