"""The base of all sections of the YAML: types of values, and marks that say more about a key."""

import re
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from transformer_mt.errors import Setting

MOST = 2**53
"""The largest whole number: floating-point numbers and JSON hold all up to it exactly."""

Positive = Annotated[int, Field(gt=0)]
NonNegative = Annotated[int, Field(ge=0)]
Probability = Annotated[float, Field(ge=0.0, lt=1.0)]


class Mark(Enum):
    """The facts about a key that other modules need. A key without marks is fixed when a run is resumed."""

    CHANGEABLE = "may differ when a run is resumed"
    LOCATION = "where data lies; its content is compared by a fingerprint, so the location may change"
    AFFECTS_SCORES = "validation scores before and after a change of it are not comparable"


@dataclass(frozen=True)
class Searched:
    """Mark of a number that `transformer-mt tune` may search: the range of the values that it tries."""

    low: float
    high: float
    log: bool = False
    """True if the values are tried on a logarithmic scale."""
    step: int = 1
    """The step between the values, if both limits are whole numbers."""


T = TypeVar("T")
Changeable = Annotated[T, Mark.CHANGEABLE]
Location = Annotated[T, Mark.LOCATION]


def one_of(kind: Any, must: str) -> Any:
    """The type of a key that takes several kinds of values. The error for a wrong value is one `must be ...`,
    not a line for each kind.
    """

    def validate(value: Any, validated: Callable[[Any], Any]) -> Any:
        try:
            return validated(value)
        except ValidationError as error:
            if any(len(each["loc"]) > 1 or each["type"] == "value_error" for each in error.errors()):
                raise  # a mistake inside the section that the value is
            raise PydanticCustomError("must_be", "must be {must}", {"must": must}) from None

    return Annotated[kind, WrapValidator(validate)]


PATTERNS: dict[str, str] = {}
"""Maps the regular expression of a key's values to what a value must be, in words."""


def pattern(regex: str, must: str) -> str:
    """The regular expression of a key's values; a wrong one is answered by `must be ...`."""
    PATTERNS[regex] = must
    return regex


if typing.TYPE_CHECKING:
    AutoOrBool = Literal["auto"] | bool
    AutoOrPositive = Literal["auto"] | int
else:
    AutoOrBool = one_of(Literal["auto"] | bool, "true, false or auto")
    AutoOrPositive = one_of(Literal["auto"] | Positive, "auto or a whole number above 0")


@dataclass(frozen=True)
class OnlyForSearches:
    """Mark of a search setting that has no effect with other searches; a flag for it is then refused."""

    searches: tuple[str, ...]


OF_RUN = {"config of a run": True}
"""The context in which the config of a run is validated: the config was checked when the run was trained, and
parts that only training uses may be missing now.
"""

THOUSANDS = r"^\d+(\.\d+)?[kKM]$"
"""Whole numbers in thousands and millions."""


Conflict = str | tuple[str | Setting, ...]
"""A combination of values that is not possible, as a sentence."""


class Conflicts(ValueError):
    """A section has combinations of values that are not possible."""

    def __init__(self, conflicts: list[Conflict]) -> None:
        self.lines = [[line] if isinstance(line, str) else list(line) for line in conflicts]
        super().__init__("\n".join("".join(map(str, line)) for line in self.lines))


class Section(BaseModel):
    """Strict: no unknown keys, no silent conversions. Frozen: a config never changes under a run."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _number(cls, value: Any, info: ValidationInfo) -> Any:
        """Convert `10k` to 10,000 and `2M` to 2,000,000 in integer keys."""
        match = re.fullmatch(THOUSANDS, value) if isinstance(value, str) else None
        if match is None or int not in members(cls.model_fields[str(info.field_name)].annotation):
            return value
        number = Decimal(value[:-1]) * (1_000_000 if value[-1] == "M" else 1_000)
        return int(number) if number == int(number) else value

    @field_validator("*", mode="after")
    @classmethod
    def _bounded(cls, value: Any) -> Any:
        if isinstance(value, int) and abs(value) > MOST:
            raise PydanticCustomError("must_be", "must be at most {most}", {"most": f"{MOST:,}"})
        return value

    def conflicts(self) -> Iterator[Conflict]:
        """A sentence for each combination of values that is not possible."""
        yield from ()

    def conflicts_with(self, config: Any) -> Iterator[Conflict]:
        """Like `conflicts`, for combinations with the other sections of the config."""
        yield from ()

    def part_conflicts(self) -> Iterator[Conflict]:
        """Like `conflicts`, for parts that do not go together. This imports the parts, so it is skipped for
        the config of a run, which was checked when the run was trained.
        """
        yield from ()

    @model_validator(mode="after")
    def _has_no_conflicts(self, info: ValidationInfo) -> "typing.Self":
        conflicts = [*self.conflicts(), *(self.part_conflicts() if info.context is not OF_RUN else ())]
        if conflicts:
            raise Conflicts(conflicts)
        return self


def members(annotation: Any) -> list[Any]:
    """The members of a union, also of one inside another, without their Annotated."""
    if typing.get_origin(annotation) is Annotated:
        return members(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (None, Literal, list):
        return [annotation]
    return [below for member in typing.get_args(annotation) for below in members(member)]
