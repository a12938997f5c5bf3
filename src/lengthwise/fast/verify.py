"""Whether an encoder is exactly what the C code was verified against.

The C code computes what the source of `lengthwise.model` said when tests compared the two. It may
stand in for PyTorch only while all of this holds:

1. The syntax trees of the model's files have the digests below, which a test pins.
2. The loaded classes and functions are what these files define, and PyTorch's are its own.
3. No class or module has been patched since.
4. But for the values of its weights, the encoder equals a fresh one of the same configuration:
   types, attributes, shapes, training flags, and no hooks.
"""

import ast
import hashlib
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lengthwise.model import attention, depth, encoder, pairs
from lengthwise.model.encoder import Encoder
from lengthwise.model.positions import absolute, position, relative

MODULES: tuple[ModuleType, ...] = (
    encoder,
    attention,
    depth,
    pairs,
    position,
    absolute,
    relative,
)
# `print_digests` prints those of the present source. Update them only when the C code computes the
# new source and tests/test_fast.py has shown it.
DIGESTS: dict[str, str] = {
    "model.encoder": "78f1fa79cc5aaf1d",
    "model.attention": "a6c7f6c24064700e",
    "model.depth": "84fbbf0e09725e7c",
    "model.pairs": "467153e992fa6211",
    "model.positions.position": "bdacd73f3b70869d",
    "model.positions.absolute": "f8df493775ca272b",
    "model.positions.relative": "c1ad4bfee62230a1",
}
TORCH_CLASSES: tuple[type, ...] = (
    nn.Module,
    nn.Linear,
    nn.LayerNorm,
    nn.Embedding,
    nn.Dropout,
    nn.Dropout.__base__ or nn.Module,
    nn.Identity,
    nn.ReLU,
    nn.GELU,
    nn.Softmax,
    nn.ModuleList,
    Tensor,
)
TORCH_FUNCTIONS: tuple[tuple[ModuleType, str], ...] = (
    *((F, name) for name in ("linear", "layer_norm", "embedding", "dropout", "softmax")),
    *((F, name) for name in ("relu", "gelu")),
    (torch, "einsum"),
)
TORCH_FOLDER = str(Path(torch.__file__).parent)


def difference(model: Encoder) -> str | None:
    """The first way in which an encoder is not what was verified; None if it is."""
    if (found := difference_in_source()) is not None:
        return found
    if namespaces() != verified_namespaces():
        return "a class or function of the model or of torch.nn was patched"
    return difference_from_fresh(model)


@cache
def difference_in_source() -> str | None:
    """Checks 1 and 2, once in a process."""
    for module in MODULES:
        name = short_name(module)
        try:
            source = inspect.getsource(module)
        except OSError:
            return f"the source of {name} can't be read"
        if digest(source) != DIGESTS.get(name):
            return f"{name} was edited"
        tree = ast.parse(source)
        compiled = compile(tree, module.__file__ or "", "exec", dont_inherit=True)
        codes = {code.co_qualname: code for code in code_objects(compiled)}
        if (patched := next(patched_names(tree.body, module, codes), None)) is not None:
            return f"{name}.{patched} was patched"
    methods: list[tuple[Any, str]] = [(cls, name) for cls in TORCH_CLASSES for name in vars(cls)]
    for owner, name in (*methods, *TORCH_FUNCTIONS):
        if not is_torchs(owner, name):
            return f"{owner.__name__}.{name} of PyTorch was patched"
    return None


def is_torchs(owner: Any, name: str) -> bool:
    """Whether what a class or a module holds under a name is PyTorch's own, and of that name."""
    value = vars(owner)[name]
    if isinstance(value, FunctionType) and not value.__code__.co_filename.startswith(TORCH_FOLDER):
        return False
    if (owner, name) in TORCH_FUNCTIONS:
        return getattr(value, "__name__", "") == name and value.__module__.startswith("torch")
    if name == "forward" and owner is not nn.Module:  # which has none
        return getattr(value, "__qualname__", "") == f"{owner.__name__}.forward"
    return True


def digest(source: str) -> str:
    """A digest of the syntax tree, in which comments, docstrings and formatting don't count."""
    tree = ast.parse(source)
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node):
            node.body = node.body[1:]
    return hashlib.sha256(repr(nested(tree)).encode()).hexdigest()[:16]


def nested(node: object) -> object:
    """A syntax tree as lists without empty fields, of which new versions of Python have more."""
    if isinstance(node, list):
        return [nested(item) for item in node]
    if not isinstance(node, ast.AST):
        return node
    fields = [(name, nested(value)) for name, value in ast.iter_fields(node)]
    return [type(node).__name__, *(field for field in fields if field[1] not in (None, []))]


def short_name(module: ModuleType) -> str:
    return module.__name__.removeprefix("lengthwise.")


def code_objects(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from code_objects(constant)


def patched_names(
    body: list[ast.stmt], owner: Any, codes: dict[str, CodeType], prefix: str = ""
) -> Iterator[str]:
    """Functions of a module or a class that are not those of its source."""
    defined = [node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    for node in defined:
        value, name = vars(owner).get(node.name), f"{prefix}{node.name}"
        if isinstance(node, ast.ClassDef):
            yield from patched_names(node.body, value, codes, f"{name}.")
        elif function_code(value, bool(node.decorator_list)) != codes[name]:
            yield name
    if isinstance(owner, type) and issubclass(owner, nn.Module):
        names = {node.name for node in defined}
        values = vars(owner).items()
        added = (n for n, v in values if callable(v) and n not in names and n != "Options")
        yield from (f"{prefix}{name}" for name in added)


def function_code(value: Any, decorated: bool) -> CodeType | None:
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, classmethod | staticmethod):
        value = value.__func__
    if decorated and isinstance(value, FunctionType):
        value = inspect.unwrap(value)
    return value.__code__ if isinstance(value, FunctionType) else None


def namespaces() -> list[tuple[str, Any, CodeType | None]]:
    """All that the model's modules and classes, and PyTorch's, hold at the moment."""
    owners: list[Any] = [*MODULES, *model_classes(), *TORCH_CLASSES]
    names = [(o, name) for o in owners for name in vars(o)]
    found = [(name, vars(o)[name]) for o, name in (*names, *TORCH_FUNCTIONS)]
    # Of names with underscores, only functions count; Python and pydantic keep the others.
    return [
        (name, value, getattr(value, "__code__", None))
        for name, value in found
        if name[:2] != "__" or isinstance(value, FunctionType)
    ]


@cache
def verified_namespaces() -> list[tuple[str, Any, CodeType | None]]:
    return namespaces()


@cache
def model_classes() -> tuple[type, ...]:
    """The classes that the model's files define."""
    return tuple(
        value
        for module in MODULES
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    )


fresh_encoders: "WeakKeyDictionary[Encoder, Encoder]" = WeakKeyDictionary()


def difference_from_fresh(model: Encoder) -> str | None:
    """Check 4, at every call."""
    if model not in fresh_encoders:
        try:
            shape = model.position(0).shape
            with torch.random.fork_rng(devices=[]):  # leaves PyTorch's generator alone
                fresh = Encoder(
                    model.config, shape.max_length, model.symbols.num_embeddings, shape.operands
                )
            fresh_encoders[model] = fresh.to("meta")  # without memory for weights
        except Exception as error:
            return f"no encoder can be made of its configuration ({error})"
    if torch.nn.modules.module._has_any_global_hook():
        return "there is a global module hook"
    return compare_modules(model, fresh_encoders[model], "encoder", model.training)


def compare_modules(own: nn.Module, fresh: nn.Module, name: str, training: bool) -> str | None:
    """The first difference between two modules but for the values of weights."""
    if type(own) is not type(fresh):
        return f"{name} is a {type(own).__name__}"
    mine, theirs = vars(own), vars(fresh)
    if mine.keys() != theirs.keys():
        extra = sorted(mine.keys() ^ theirs.keys())
        return f"{name} has {'its own' if extra[0] in mine else 'no'} {extra[0]}"
    for key, value in mine.items():
        # The last one tells which kind of backward hooks there are, and stays when they are gone.
        if key in ("_parameters", "_modules", "training", "_is_full_backward_hook"):
            continue
        if key.endswith("_hooks") and value:
            return f"{name} has hooks"
        if value is not theirs[key] and value != theirs[key]:
            return f"{name}.{key} was changed"
    if own.training is not training:
        return f"{name} is {'in training' if own.training else 'in testing'} mode on its own"
    for key, parameter in own._parameters.items():
        expected = fresh._parameters.get(key)
        if type(parameter) is not nn.Parameter or expected is None:
            return f"{name}.{key} is a {type(parameter).__name__}"
        if parameter.shape != expected.shape or own._parameters.keys() != fresh._parameters.keys():
            return f"{name}.{key} has another shape"
    if own._modules.keys() != fresh._modules.keys():
        return f"{name} has other parts"
    for key, part in own._modules.items():
        other = fresh._modules[key]
        assert part is not None
        assert other is not None
        found = compare_modules(part, other, f"{name}.{key}", training)
        if found is not None:
            return found
    return None


def plain_tensors(*tensors: Tensor) -> bool:
    """Whether these are ordinary tensors in the CPU's memory, of float32 or integers."""
    kinds = torch.float32, torch.int64
    return all(
        type(x) in (Tensor, nn.Parameter) and x.is_cpu and x.dtype in kinds and not x.is_neg()
        for x in tensors
    )


def print_digests() -> None:
    for module in MODULES:
        print(f'    "{short_name(module)}": "{digest(inspect.getsource(module))}",')
