"""What can be configured, and named choices (tasks, position embeddings): registered where they are defined."""

from collections.abc import Callable, Iterator, Mapping
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
from pydantic_core import PydanticCustomError

from lengthwise.errors import UsageError, explain, nearest


class Config(BaseModel):
    """Options that never change, without unknown ones, numbers that aren't finite, and truth taken for a number."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        wanted = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, bool) and bool not in (wanted, *get_args(wanted)):
            raise PydanticCustomError("truth", "it can't be true or false")
        return value


class Choice(Config):
    """A choice with its options. Written as a mapping whose `kind` is the registered name."""

    kind: ClassVar[str]

    @model_serializer(mode="wrap")
    def _with_kind(self, fields: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {"kind": self.kind, **fields(self)}


T = TypeVar("T")


class Registry(Generic[T], Mapping[str, type[T]]):
    """Classes by name. What configures one is a `Choice`: the class itself, or its attribute `Options`."""

    def __init__(self, noun: str):
        self.noun = noun
        self._choices: dict[str, type[T]] = {}

    def register(self, kind: str) -> Callable[[type[T]], type[T]]:
        def add(choice: type[T]) -> type[T]:
            before = self._choices.get(kind, choice)  # a notebook's cell may define a class again
            if (before.__module__, before.__qualname__) != (choice.__module__, choice.__qualname__):
                raise UsageError(f"there is a {self.noun} '{kind}' already: {before.__module__}.{before.__qualname__}")
            options = self.options_of(choice)
            if "kind" in vars(options):  # inherited from another registered class
                options = type("Options", (options,), {"__module__": choice.__module__})
                choice.Options = options  # type: ignore[attr-defined]
            options.kind = kind
            self._choices[kind] = choice
            return choice

        return add

    @staticmethod
    def options_of(choice: type[T]) -> type[Choice]:
        return getattr(choice, "Options", choice)  # type: ignore[arg-type]

    def parse(self, value: object) -> Choice:
        """A choice from a name, from a mapping with `kind`, or unchanged if it is one already."""
        if isinstance(value, Choice) and value.kind in self and isinstance(value, self.options_of(self[value.kind])):
            return value
        fields = {"kind": value} if isinstance(value, str) else value
        if not isinstance(fields, Mapping) or not isinstance(fields.get("kind"), str):
            raise UsageError(f"a {self.noun} is a name or a mapping with 'kind', not {value!r}")
        kind = fields["kind"]
        if kind not in self._choices:
            raise UsageError(f"there is no {self.noun} '{kind}': {nearest(kind, self)}")
        options = self.options_of(self[kind])
        given = {option: value for option, value in fields.items() if option != "kind"}
        for option in given:
            if option not in options.model_fields:
                hint = nearest(str(option), options.model_fields) if options.model_fields else "it has none."
                raise UsageError(f"the {self.noun} '{kind}' has no option '{option}': {hint}")
        try:
            return options.model_validate(given)
        except ValidationError as error:
            raise UsageError(explain(error, f" of the {self.noun} '{kind}'")) from None

    def __getitem__(self, kind: str) -> type[T]:
        return self._choices[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._choices)

    def __len__(self) -> int:
        return len(self._choices)
