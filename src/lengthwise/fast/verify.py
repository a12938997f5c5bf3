"""Whether an encoder is exactly what the C code was verified against.

The C code computes what the source of `lengthwise.model` said when tests compared the two. It may
stand in for PyTorch only while all of this holds:

1. The syntax trees of the model's files have the digests below, which a test pins.
2. The loaded classes and functions are what these files define, and PyTorch's are its own.
3. No class or module has been patched since.
4. The encoder consists of these classes. But for the values of its weights, it equals a fresh one
   of the same configuration: types, attributes, shapes, training flags, and no hooks.
"""

import ast
import hashlib
import importlib
import inspect
import math
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lengthwise.base import Config
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
# new source, and tests/test_fast_stack.py and tests/test_edits.py have shown it (CONTRIBUTING.md).
DIGESTS: dict[str, str] = {
    "model.encoder": "78f1fa79cc5aaf1d",
    "model.attention": "a6c7f6c24064700e",
    "model.depth": "21eaa92d32e50454",
    "model.pairs": "467153e992fa6211",
    "model.positions.position": "bdacd73f3b70869d",
    "model.positions.absolute": "f8df493775ca272b",
    "model.positions.relative": "c1ad4bfee62230a1",
}
LAYERS = ("Module", "Linear", "LayerNorm", "Embedding", "Dropout", "Identity", "ReLU", "GELU")
TORCH_CLASSES: tuple[type, ...] = (
    *(getattr(nn, name) for name in (*LAYERS, "Softmax", "ModuleList")),
    nn.Dropout.__base__ or nn.Module,
    Tensor,
)
# What the model and these classes call. PyTorch's other functions are methods of tensors.
MODULES_WITH_F = ("linear", "normalization", "activation", "sparse", "dropout")
FUNCTIONS: tuple[tuple[ModuleType, str], ...] = (
    *((F, name) for name in ("linear", "layer_norm", "embedding", "dropout", "softmax")),
    *((F, name) for name in ("relu", "gelu", "torch", "_VF")),
    *((getattr(nn.modules, module), "F") for module in MODULES_WITH_F),
    *((torch, name) for name in ("einsum", "layer_norm", "relu")),
    (torch._VF, "dropout"),
    (math, "sqrt"),
)
# Methods of PyTorch that stand under another name than their own.
ALIASES = {
    *("forward", "__call__", "__rtruediv__", "__itruediv__", "__pow__", "__ipow__", "__pos__"),
    *("__neg__", "__abs__", "__torch_dispatch__"),
}
TORCH_FOLDER = str(Path(torch.__file__).parent)


def difference(model: Encoder) -> str | None:
    """The first way in which an encoder is not what was verified; None if it is."""
    if (found := difference_in_source()) is not None:
        return found
    if was_patched():
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
    for name in LAYERS:
        if getattr(nn, name).__name__ != name:
            return f"torch.nn.{name} of PyTorch was patched"
    methods: list[tuple[Any, str]] = [(cls, name) for cls in TORCH_CLASSES for name in vars(cls)]
    for owner, name in (*methods, *FUNCTIONS):
        if not is_original(owner, name):
            return f"{owner.__name__}.{name} of PyTorch was patched"
    return None


def is_original(owner: Any, name: str) -> bool:
    """Whether what a class or a module holds under a name is PyTorch's own, and of that name."""
    value = getattr(owner, name) if isinstance(owner, ModuleType) else vars(owner)[name]
    if isinstance(value, ModuleType):
        return True
    if type(value).__module__ not in ("builtins", "typing"):
        return False
    if isinstance(value, FunctionType) and not value.__code__.co_filename.startswith(TORCH_FOLDER):
        return False
    if name == "forward" and owner is not nn.Module:  # which has none
        return getattr(value, "__qualname__", "") == f"{owner.__name__}.forward"
    return not callable(value) or name in ALIASES or getattr(value, "__name__", "") == name


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
    """Names of a module or a class that are not those of its source."""
    defined = [node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    for node in defined:
        value, name = vars(owner).get(node.name), f"{prefix}{node.name}"
        if isinstance(node, ast.ClassDef):
            yield from patched_names(node.body, value, codes, f"{name}.")
        elif function_code(value, bool(node.decorator_list)) != codes[name]:
            yield name
    if isinstance(owner, ModuleType):
        imported = imported_names(body).items()
        yield from (name for name, value in imported if vars(owner).get(name) is not value)
    if isinstance(owner, type):
        names = {"Options", *(node.name for node in defined)}
        added = (n for n, v in vars(owner).items() if n not in names and callable(v))
        yield from (f"{prefix}{name}" for name in added if not is_generated(owner, name))


def is_generated(owner: type, name: str) -> bool:
    """Whether pydantic or `dataclass` has added a method to a class that is not a module."""
    source = str(getattr(vars(owner)[name], "__module__", None)).partition(".")[0]
    return not issubclass(owner, nn.Module) and source in ("pydantic", "lengthwise", "abc")


def imported_names(body: list[ast.stmt]) -> dict[str, Any]:
    """What the imports of a module give."""
    found: dict[str, Any] = {}
    for node in body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name] = importlib.import_module(alias.name)
        if isinstance(node, ast.ImportFrom):
            source = importlib.import_module(node.module or "")
            for alias in node.names:
                found[alias.asname or alias.name] = getattr(source, alias.name)
    return found


def function_code(value: Any, decorated: bool) -> CodeType | None:
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, classmethod | staticmethod):
        value = value.__func__
    if decorated and isinstance(value, FunctionType):
        value = inspect.unwrap(value)
    return value.__code__ if isinstance(value, FunctionType) else None


def was_patched() -> bool:
    """Check 3, at every call: whether a name or the code of a function has changed since."""
    namespaces, functions, codes = verified()
    return (
        any(vars(o) != known and own_names(vars(o)) != own_names(known) for o, known in namespaces)
        or any(getattr(module, name) is not value for (module, name), value in functions)
        or any(function.__code__ is not code for function, code in codes)
    )


@cache
def verified() -> tuple[
    list[tuple[Any, dict[str, Any]]],
    list[tuple[tuple[ModuleType, str], Any]],
    list[tuple[FunctionType, CodeType]],
]:
    """What the model's modules and classes, and PyTorch's, held when they were verified."""
    namespaces = [(o, dict(vars(o))) for o in (*MODULES, *model_classes(), *TORCH_CLASSES)]
    functions = [((module, name), getattr(module, name)) for module, name in FUNCTIONS]
    values = [value for _, known in namespaces for value in known.values()]
    values += [value for _, value in functions]
    return namespaces, functions, [(v, v.__code__) for v in values if isinstance(v, FunctionType)]


def own_names(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Of names with underscores, only methods count; Python and pydantic add others as they go."""
    return {n: v for n, v in namespace.items() if n[:2] != "__" or hasattr(v, "__get__")}


@cache
def model_classes() -> tuple[type, ...]:
    """The classes that the model's files define."""
    return tuple(
        value
        for module in MODULES
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    )


@cache
def known_classes() -> frozenset[type]:
    return frozenset((*model_classes(), *TORCH_CLASSES))


fresh_encoders: "WeakKeyDictionary[Encoder, Encoder]" = WeakKeyDictionary()


def difference_from_fresh(model: Encoder) -> str | None:
    """Check 4, at every call."""
    if model not in fresh_encoders:
        try:
            shape, config = model.position(0).shape, model.config.model_copy(deep=True)
            with torch.random.fork_rng(devices=[]):  # leaves PyTorch's generator alone
                fresh = Encoder(
                    config, shape.max_length, model.symbols.num_embeddings, shape.operands
                )
            fresh_encoders[model] = fresh.to("meta")  # without memory for weights
        except Exception as error:
            return f"no encoder can be made of its configuration ({error})"
    if torch.nn.modules.module._has_any_global_hook():
        return "there is a global module hook"
    return compare_modules(model, fresh_encoders[model], "encoder", model.training)


def compare_modules(own: nn.Module, fresh: nn.Module, name: str, training: bool) -> str | None:
    """The first difference between two modules but for the values of weights."""
    if type(own) is not type(fresh) or type(own) not in known_classes():
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
        if is_changed(value, theirs[key]):
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


def is_changed(value: object, other: object) -> bool:
    """Whether an attribute differs; configurations that are equal may have methods of their own."""
    if isinstance(value, Config) and isinstance(other, Config) and vars(value) != vars(other):
        return True
    return value is not other and value != other


def plain_tensors(*tensors: Tensor) -> bool:
    """Whether these are ordinary dense tensors in the CPU's memory, of float32 or integers."""
    return all(
        type(x) in (Tensor, nn.Parameter)
        and x.is_cpu
        and x.dtype in (torch.float32, torch.int64)
        and x.layout is torch.strided
        and not x.is_neg()
        and not x._is_zerotensor()
        for x in tensors
    )


def print_digests() -> None:
    for module in MODULES:
        print(f'    "{short_name(module)}": "{digest(inspect.getsource(module))}",')
