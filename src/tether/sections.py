"""What people write in TOML files: read strictly, and every mistake is named with its place."""

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from tether.errors import nearest


class Section(BaseModel):
    """A frozen description that refuses keys it does not know, and names the nearest right one."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        for key in data if isinstance(data, dict) else ():
            if key not in cls.model_fields:
                raise ValueError(f"unknown key {key!r}{nearest(str(key), list(cls.model_fields))}")
        return data


def mistakes(error: ValidationError) -> list[str]:
    """What does not fit a model, each as "at place: what is wrong", without a place if it is the whole."""
    found = []
    for each in error.errors(include_url=False):
        place = ".".join(str(part) for part in each["loc"])
        words = "it is required" if each["type"] == "missing" else each["msg"].removeprefix("Value error, ")
        found.append(f"at {place}: {words}" if place else words)
    return found
