"""A document of headings, paragraphs, tables and figures, written as Markdown and as HTML alike."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lengthwise.base.files import write_atomically

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse}"
    "td,th{padding:.2rem .7rem;border-bottom:1px solid #ddd;text-align:left}"
    "img{max-width:100%}"
)


@dataclass
class Document:
    """A sequence of blocks."""

    title: str
    markdown: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)

    def heading(self, text: str) -> None:
        self.markdown.append(f"## {text}")
        self.body.append(f"<h2>{html.escape(text)}</h2>")

    def paragraph(self, text: str) -> None:
        self.markdown.append(text)
        self.body.append(f"<p>{html.escape(text)}</p>")

    def bullets(self, items: Sequence[str]) -> None:
        self.markdown.append("\n".join(f"- {item}" for item in items))
        listed = "".join(f"<li>{html.escape(item)}</li>" for item in items)
        self.body.append(f"<ul>{listed}</ul>")

    def nested_bullets(self, items: Mapping[str, Sequence[str]]) -> None:
        lines = [line for item, inner in items.items() for line in (f"- {item}", *indent(inner))]
        self.markdown.append("\n".join(lines))
        listed = ""
        for item, inner in items.items():
            inside = "".join(f"<li>{html.escape(line)}</li>" for line in inner)
            listed += f"<li>{html.escape(item)}<ul>{inside}</ul></li>"
        self.body.append(f"<ul>{listed}</ul>")

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        lines = [headings, ["---"] * len(headings), *rows]
        self.markdown.append("\n".join("| " + " | ".join(line) + " |" for line in lines))
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in headings)
        cells = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        self.body.append(f"<table><tr>{head}</tr>{body}</table>")

    def figure(self, file: str, text: str) -> None:
        self.markdown.append(f"![{text}]({file})")
        image = f'<img src="{html.escape(file)}" alt="{html.escape(text)}">'
        self.body.append(f"<figure>{image}</figure>")

    def write(self, folder: Path) -> None:
        """Write report.md and report.html."""
        title = html.escape(self.title)
        page = (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
            f"<style>{STYLE}</style><h1>{title}</h1>{''.join(self.body)}</html>"
        )
        text = "\n\n".join([f"# {self.title}", *self.markdown, ""])
        write_atomically(folder / "report.md", text.encode())
        write_atomically(folder / "report.html", page.encode())


def indent(lines: Sequence[str]) -> list[str]:
    return [f"  - {line}" for line in lines]
