"""Configurations, and named choices (tasks, layouts, …) registered where they are defined."""

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, ClassVar, Generic, TypeVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_serializer,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from lengthwise.base.errors import UsageError, explain, nearest, show
from lengthwise.base.trees import TOO_LARGE


class Config(BaseModel):
    """Immutable options.

    These are errors: unknown keys, infinities, booleans given as numbers, integers of more than 100
    digits, and text that can't be written to a file.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _check_given(cls, value: Any, info: ValidationInfo) -> Any:
        expected = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, bool) and bool not in (expected, *get_args(expected)):
            raise PydanticCustomError("boolean", "it can't be true or false")
        if isinstance(value, int) and abs(value) >= TOO_LARGE:
            raise PydanticCustomError("integer", "integers have at most 100 digits")
        if isinstance(value, str) and ("\0" in value or not is_encodable(value)):
            raise PydanticCustomError("text", "it has characters that can't be written to a file")
        return value


def is_encodable(text: str) -> bool:
    """Whether UTF-8 has all characters; the halves of a surrogate pair are not among them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Choice(Config):
    """A choice with its options, written as a mapping whose `kind` is the registered name."""

    kind: ClassVar[str]

    @model_serializer(mode="wrap")
    def _serialize_with_kind(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {"kind": self.kind, **serialize(self)}

    def __repr__(self) -> str:
        """The name, with the options that are not at their defaults: relative-key(clip=3)."""
        fields = type(self).model_fields.items()
        values = {name: getattr(self, name) for name, field in fields if differs(self, name, field)}
        options = ", ".join(f"{name}={value!r}" for name, value in values.items())
        name = getattr(self, "kind", type(self).__qualname__)
        return f"{name}({options})" if options else name

    def __str__(self) -> str:
        return repr(self)


def differs(config: Config, name: str, field: FieldInfo) -> bool:
    """Whether an option is not at its default, which may be the name of a choice."""
    value = getattr(config, name)
    is_default_choice = isinstance(value, Choice) and repr(value) == field.default
    return value != field.default and not is_default_choice


T = TypeVar("T")


class Registry(Generic[T], Mapping[str, type[T]]):
    """Classes by name. A class is configured by a `Choice`: itself, or its attribute `Options`.

    `key` is where the choice stands in an experiment, such as "model.position".
    """

    all: ClassVar[dict[str, "Registry[Any]"]] = {}  # by key

    def __init__(self, noun: str, key: str):
        self.noun, self.key = noun, key
        self._classes: dict[str, type[T]] = {}
        Registry.all[key] = self

    def register(self, kind: str) -> Callable[[type[T]], type[T]]:
        """A class decorator that registers the class under a name."""

        def add(cls: type[T]) -> type[T]:
            before = self._classes.get(kind, cls)  # a notebook cell may define a class again
            if (before.__module__, before.__qualname__) != (cls.__module__, cls.__qualname__):
                where = f"{before.__module__}.{before.__qualname__}"
                raise UsageError(f"the {self.noun} '{kind}' exists already: {where}")
            options = self.options_of(cls)
            if "kind" in vars(options):  # inherited from another registered class
                # Under its own name, so that it can be pickled.
                names = {
                    "__module__": cls.__module__,
                    "__qualname__": f"{cls.__qualname__}.Options",
                }
                options = type("Options", (options,), names)
                cls.Options = options  # type: ignore[attr-defined]
            options.kind = kind
            self._classes[kind] = cls
            return cls

        return add

    @staticmethod
    def options_of(cls: type[T]) -> type[Choice]:
        return getattr(cls, "Options", cls)  # type: ignore[arg-type]

    def parse(self, value: object) -> Choice:
        """A choice from a name or a mapping with `kind`; a parsed choice is returned unchanged."""
        kind = getattr(value, "kind", "")  # which options of no registered class lack
        if isinstance(value, Choice) and isinstance(value, self.known_options(kind)):
            return value
        fields = {"kind": value} if isinstance(value, str) else value
        if not isinstance(fields, Mapping) or not isinstance(fields.get("kind"), str):
            raise UsageError(f"{self.key} is a name or a mapping with 'kind', not {show(value)}")
        kind = fields["kind"]
        if kind not in self._classes:
            raise UsageError(f"there is no {self.noun} '{kind}': {nearest(kind, self)}")
        options = self.options_of(self[kind])
        given = {option: value for option, value in fields.items() if option != "kind"}
        for option in given:
            if option not in options.model_fields:
                known = options.model_fields
                names = [*known, *get_close_matches(str(option), ["kind"])]
                hint = nearest(str(option), names) if names else "it has none."
                raise UsageError(f"the {self.noun} '{kind}' has no option '{option}': {hint}")
        try:
            return options.model_validate(given)
        except ValidationError as error:
            raise UsageError(explain(error, f" of the {self.noun} '{kind}'")) from None

    def known_options(self, kind: str) -> tuple[type[Choice], ...]:
        return (self.options_of(self[kind]),) if kind in self else ()

    def build(self, options: Choice, *arguments: Any) -> T:
        """An instance of the class that these options configure."""
        make: Callable[..., T] = self[options.kind]
        return make(options, *arguments)

    def __getitem__(self, kind: str) -> type[T]:
        return self._classes[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)
