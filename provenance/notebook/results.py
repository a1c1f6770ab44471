"""What comes out of a question about a trace: predictions, the logit lens, a verification, a comparison."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from provenance.comparison import Comparison
from provenance.difference import Difference, Status
from provenance.notebook.cards import card, code, element, facts, heading, join, number, percent, plural, quiet, table
from provenance.notebook.tensor import Tensor
from provenance.verdict import Report

_SHOWN = 10
_WORDS = {
    Status.SAME: "equal bit for bit",
    Status.WITHIN: "within the tolerance",
    Status.DIFFERS: "different",
    Status.UNFIT: "of another shape",
}


@dataclass(frozen=True, slots=True)
class Prediction:
    """One token that may come next. `rank` is 1 for the most likely; equal logits share it."""

    id: int
    text: str
    probability: float
    logit: float
    rank: int


class Predictions(Sequence[Prediction]):
    """The most likely next tokens at one position, the likeliest first. `entropy` is in bits.

    Where the logits are no distribution it is empty, and `problem` says why.
    """

    def __init__(self, after: str, found: Iterable[Prediction], entropy: float | None, problem: str = "") -> None:
        self.after = after
        self.entropy = entropy
        self.problem = problem
        self._found = tuple(found)

    @overload
    def __getitem__(self, index: int) -> Prediction: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Prediction, ...]: ...

    def __getitem__(self, index: int | slice) -> Prediction | tuple[Prediction, ...]:
        return self._found[index]

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        likely = ", ".join(f"{found.text!r} {percent(found.probability)}" for found in self[:3])
        return f"<Predictions after {self.after!r}: {self.problem or likely}>"

    def _repr_html_(self) -> str:
        rows = [
            (str(found.rank), code(found.text), percent(found.probability), number(found.logit)) for found in self
        ]
        said = self.problem or f"The distribution's entropy is {number(self.entropy)} bits."
        shown = (table(("Rank", "Token", "Probability", "Logit"), rows),) if rows else ()
        return card(heading("next token", self.after, "What the model predicts after it"), *shown, quiet(said))


@dataclass(frozen=True, slots=True)
class Stage:
    """What the residual stream at one place predicts."""

    address: str
    predictions: Predictions


class LensTable(Sequence[Stage]):
    """The logit lens at one position: what the stream predicts after the embedding and after every block."""

    def __init__(self, after: str, found: Iterable[Stage]) -> None:
        self.after = after
        self._found = tuple(found)

    @overload
    def __getitem__(self, index: int) -> Stage: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Stage, ...]: ...

    def __getitem__(self, index: int | slice) -> Stage | tuple[Stage, ...]:
        return self._found[index]

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        best = [next((found.text for found in stage.predictions[:1]), "–") for stage in self]
        return f"<LensTable after {self.after!r}: {' → '.join(map(repr, best))}>"

    def _repr_html_(self) -> str:
        rows = [
            (
                code(stage.address),
                *(join((code(found.text), f" {percent(found.probability)}")) for found in stage.predictions),
            )
            for stage in self
        ]
        most = max((len(stage.predictions) for stage in self), default=0)
        head = ("After", *(str(n) for n in range(1, most + 1)))
        return card(heading("logit lens", self.after, "What each block would predict"), table(head, rows))


class Verification:
    """What was proven about a trace; `report` holds every single verdict."""

    def __init__(self, report: Report) -> None:
        self.report = report

    @property
    def holds(self) -> bool:
        """Whether everything that applies was proven."""
        return self.report.holds

    def __bool__(self) -> bool:
        return self.holds

    def _counts(self) -> Iterator[tuple[str, str]]:
        report = self.report
        for name, verdicts in (
            ("Cited files read, their git blob ids checked", report.bytes),
            ("Sources whose assignments are all accounted for", report.coverage),
            ("Citations whose lines ran", report.executions),
            ("Values equal to those of another computation", report.parities),
        ):
            yield name, f"{sum(verdict.holds for verdict in verdicts)} of {len(verdicts)}"

    def __repr__(self) -> str:
        counts = "; ".join(f"{name}: {count}" for name, count in self._counts())
        return f"<Verification of trace {self.report.trace[:12]}: {self._word}>\n  {counts}"

    def _repr_html_(self) -> str:
        worst = max(self.report.parities, key=lambda parity: parity.severity, default=None)
        closest = () if worst is None else ((
            "Furthest from its reference",
            f"{worst.address} against {worst.source}: {number(worst.largest_difference)}, "
            f"tolerated {number(worst.tolerance)}",
        ),)  # fmt: skip
        rows = (*self._counts(), *closest, *((name, "; ".join(why)) for name, why in self.report.departures.items()))
        return card(heading("verification", self.report.trace[:12], self._word), facts(rows))

    @property
    def _word(self) -> str:
        return "everything that applies was proven" if self.holds else "something was not proven"


class Compared:
    """Two traces, tensor by tensor in computation order; `result` holds every single difference.

    `first` is the first tensor of the first trace that the second does not share, None where all agree.
    """

    def __init__(self, result: Comparison, first: Tensor | None) -> None:
        self.result = result
        self.first = first

    @property
    def agrees(self) -> bool:
        """Whether something was compared, and all of it agrees within the tolerance."""
        return self.result.agrees

    def __bool__(self) -> bool:
        return self.agrees

    def __repr__(self) -> str:
        return f"<Compared {self._counts}>\n  {self._word}"

    def _repr_html_(self) -> str:
        rows = [row for row in self.result.rows if row.status in (Status.DIFFERS, Status.UNFIT)][:_SHOWN]
        shown = (table(("Tensor", "", "max |Δ|", "relative", "cosine"), map(_row, rows)),) if rows else ()
        notes = (quiet(note) for note in self.result.notes)
        cited = () if self.first is None else self.first.evidence
        lines = (found.html() for found in cited if found.context.produces)
        return card(element("p", element("strong", self._word)), quiet(self._counts), *notes, *shown, *lines)

    @property
    def _counts(self) -> str:
        counts = ", ".join(f"{self.result.count(status)} {word}" for status, word in _WORDS.items())
        return f"{plural(len(self.result.rows), 'tensor')}: {counts}"

    @property
    def _word(self) -> str:
        if self.first is not None:
            return f"The first divergence is {self.first.address}: {self.first.title}"
        return "All of them agree" if self.agrees else "Not everything could be compared"


def _row(row: Difference) -> tuple[str, ...]:
    if row.status is Status.UNFIT:
        return (code(str(row.address)), row.note, "–", "–", "–")
    return (
        code(str(row.address)),
        row.status.value,
        number(row.largest),
        number(row.relative),
        "–" if row.cosine is None else f"{row.cosine:.6f}",
    )
