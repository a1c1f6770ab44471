"""Where a comparison is looked at: the parameters that every link of its page carries."""

from dataclasses import dataclass

from app.pages.links import with_query


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a page of a comparison was asked for, as the address holds it.

    `at` is the address of the tensor to look at, empty for the first divergence; `show` is
    `differing` or empty; `step` says whose rows are listed.
    """

    a: str
    b: str
    tolerance: str = ""
    how: str = ""
    at: str = ""
    show: str = ""
    step: int | None = None

    def url(self, ending: str = "", **changes: str | int | None) -> str:
        """The page, with some parameters changed; None leaves one out."""
        given: dict[str, str | int | None] = {
            "a": self.a,
            "b": self.b,
            "tolerance": self.tolerance or None,
            "how": self.how or None,
            "show": self.show or None,
            "step": self.step,
            "at": self.at or None,
        }
        return with_query(f"/compare{ending}", **{**given, **changes})
