"""Writes docs/api.md from signatures and docstrings: python tests/api_page.py"""

import inspect
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import lengthwise
from lengthwise.sweep.study import sweep

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
HEAD = """# The Python interface

What is not in `import lengthwise` itself is at the end, under the name of its module. The page is
written from the docstrings by `tests/api_page.py`, and a test keeps it true.
[research.md](research.md) and [inside.md](inside.md) show it at work, and `lengthwise train --keys`
lists the keys of an experiment.
"""
OTHER_MODULES = {
    "lengthwise.solver.inside": ("Trace", "intervene", "zero", "mean", "patch"),
    "lengthwise.evaluation.grid": ("evaluate_grid", "LengthGrid"),
}
# Methods of the package's own classes that are for its inside.
INSIDE = {
    *("forward", "training_batch", "answer_logits", "predict", "batch_size"),
    *("group_by_layout", "read_solutions", "check_layers", "generate_model_card"),
    *("check_code", "locked", "check_held", "write", "read_json", "open_metrics", "clean_up"),
    *("record_session", "finish", "keep_weights", "large_files", "read_weights", "read_kept"),
    *("describe_differences", "curve_length", "curve_points", "groups", "sort_by_keys"),
    *("last_accuracy", "last_record", "answer_symbols", "training_layout", "extra_padding"),
    "identity_fields",
}


def page() -> str:
    names = sorted(lengthwise.__all__, key=lambda name: (name[0].isupper(), name))
    parts = [HEAD]
    for name in names:
        parts += describe(name, sweep if name == "sweep" else getattr(lengthwise, name))
    for module, others in OTHER_MODULES.items():
        parts.append(f"# {module}\n")
        for name in others:
            parts += describe(name, getattr(import_module(module), name))
    return "\n".join(parts)


def describe(name: str, value: Any) -> Iterator[str]:
    """A function's signature and docstring; a class's, with those of its methods."""
    yield f"## {name}\n"
    if not inspect.isclass(value):
        yield f"```\n{signature(name, value)}\n```\n"
    yield f"{documentation(value)}\n"
    if inspect.isclass(value):
        members = list(describe_members(value))
        yield from members
        if members:
            yield ""


def describe_members(cls: type) -> Iterator[str]:
    for name, member in vars(cls).items():
        if name.startswith("_") or name in INSIDE:
            continue
        if isinstance(member, property):
            member, shown = member.fget, name
        elif inspect.isfunction(member):
            shown = re.sub(r"\s+", " ", signature(name, member))
            shown = shown.replace("( ", "(").replace(", )", ")")
            shown = re.sub(r"\(self(, )?", "(", shown)
        else:
            continue
        if member.__doc__ and member.__module__.startswith("lengthwise."):
            text = f"`{shown}`: {first_sentence(member)}"
            yield textwrap.fill(text, 98, initial_indent="- ", subsequent_indent="  ",
                                break_long_words=False, break_on_hyphens=False)  # fmt: skip


def signature(name: str, function: Any) -> str:
    """As it stands in the source, without quotes and the names of modules."""
    text = str(inspect.signature(function))
    text = re.sub(r"(?:[A-Za-z_]\w*\.)+(\w+)", r"\1", text)
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text).replace("'", '"')
    whole = f"{name}{text}"
    if len(whole) <= 96:
        return whole
    inside, _, returned = text[1:].rpartition(")")
    parts = re.split(r", (?=\w+(?::|=|$))", inside)
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returned}"


def documentation(value: Any) -> str:
    return inspect.cleandoc(value.__doc__ or "")


def first_sentence(value: Any) -> str:
    return " ".join(documentation(value).split("\n\n")[0].split())


if __name__ == "__main__":
    PAGE.write_text(page())
