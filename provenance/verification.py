"""Proving a trace: bytes, coverage, execution, parity and equations.

The cited files are run as they stand, on the trace's own tokens and weights, and testify for what
each of their lines holds. The family says which line holds which site; this module compares.
"""

import importlib.metadata
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
import torch
from numpy.typing import NDArray

from provenance.catalogue import Catalogue, Kind
from provenance.citation import Citation
from provenance.cited_bytes import check_bytes
from provenance.departures import is_changed, unlike_the_equations, unlike_the_files
from provenance.errors import Unavailable, UnsupportedCheckpoint
from provenance.families import Family
from provenance.model import Model
from provenance.names import Address, is_layered
from provenance.parity import Origin, parity
from provenance.recorder import Replayer
from provenance.sources import Sources
from provenance.trace import Trace
from provenance.variants import catalogue_of
from provenance.verdict import Bytes, Coverage, Execution, Parity, Ran, Report
from provenance.witness.testimony import Claim, Place, Witness, place_of
from provenance.witness.tracer import Observation

Array = NDArray[np.float64]

Progress = Callable[[str], None]
"""Called with what is being proven next."""

EQUATION = "equation"
"""The source of a parity with our own recomputation in NumPy."""


def verify(
    family: Family,
    model: Model,
    trace: Trace,
    sources: Sources,
    progress: Progress | None = None,
    extra: Sequence[Witness] = (),
) -> Report:
    """Prove all that can be proven about a trace; a source that cannot testify is said, not skipped.

    `extra` are witnesses besides the family's own, which are always heard.
    """
    started = time.monotonic()
    tell = progress or (lambda what: None)
    work = _Work(family, model, trace)
    tell("the cited files' bytes")
    work.bytes, contents = check_bytes(work.catalogue, sources)
    packages = {"torch", "transformers", "numpy", "tensor-provenance"}
    for witness in (*family.witnesses, *extra):
        tell(f"{witness.pin.repository}, run line by line ({witness.label})")
        if _hear(work, witness, contents.get(witness.pin.key)):
            packages.update(witness.packages)
    tell("every equation, recomputed in NumPy")
    _recompute(work)
    return Report(
        trace=trace.id,
        model=model.info.name,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={"python": platform.python_version()} | {p: importlib.metadata.version(p) for p in sorted(packages)},
        seconds=round(time.monotonic() - started, 2),
        bytes=tuple(work.bytes),
        coverage=tuple(work.coverage),
        executions=tuple(work.executions),
        parities=tuple(work.worst.values()),
        departures=work.departures,
        held_at=work.held_at,
    )


@dataclass
class _Work:
    """What is being proven, and the verdicts so far. Of one tensor and source the worst parity stays."""

    family: Family
    model: Model
    trace: Trace
    replayer: Replayer = field(default_factory=Replayer)
    tables: dict[tuple[str, int | None], Array] = field(default_factory=dict)
    bytes: list[Bytes] = field(default_factory=list)
    coverage: list[Coverage] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)
    worst: dict[tuple[str, str], Parity] = field(default_factory=dict)
    departures: dict[str, tuple[str, ...]] = field(default_factory=dict)
    held_at: dict[str, dict[str, tuple[int, ...]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.catalogue: Catalogue = catalogue_of(self.family.catalogue, self.model.variants)

    def tensor(self, address: Address) -> torch.Tensor:
        return self.replayer.tensor(self.model, self.trace, address)

    def wide(self, address: Address) -> Array:
        """A tensor in float64; the tables outside the blocks, which every step reads, are widened once.

        A table that is changed may be another one in each step.
        """
        row = self.catalogue.row(address.site)
        if row.kind is not Kind.PARAMETER or address.layer is not None:
            return self.tensor(address).double().numpy()
        key = address.site, address.step if is_changed(self.catalogue, self.trace.recipe, address) else None
        if key not in self.tables:
            self.tables[key] = self.tensor(address).double().numpy()
        return self.tables[key]

    def visible(self, address: Address) -> torch.Tensor | None:
        """The cells that are compared: of score-like tensors the visible ones only."""
        site = self.family.compared_where_visible.get(address.site)
        return None if site is None else self.tensor(Address(site, address.layer, address.step))

    def keep(self, parity: Parity) -> None:
        key = (parity.address, parity.source)
        if key not in self.worst or parity.severity > self.worst[key].severity:
            self.worst[key] = parity

    def addresses(self) -> Iterable[Address]:
        """Every tensor of the trace, in order of segments, so that each is replayed once."""
        for step in range(self.trace.last_step + 1):
            rows = [row for row in self.catalogue if row.steps.cover(step)]
            for layer in range(self.model.layers):
                yield from (Address(row.site, layer, step) for row in rows if is_layered(row.site))
            yield from (Address(row.site, None, step) for row in rows if not is_layered(row.site))


# --- witnesses ---


def _hear(work: _Work, witness: Witness, source: bytes | None) -> bool:
    """Run one witness; add its coverage, executions and parities, or why it does not testify."""
    label = witness.label
    reasons = [*unlike_the_files(work.trace.recipe), *witness.departures(work.model)]
    if work.model.info.dtype != "float32":
        reasons.append(f"this trace was computed in {work.model.info.dtype}; parity is measured in float32")
    if source is None:
        reasons.append("its file is not at hand")
    if reasons or source is None:
        work.departures[label] = tuple(reasons)
        return False
    heard = _Heard(work, witness)
    steps = [work.trace.kept(step)["tokens"] for step in range(work.trace.last_step + 1)]
    torch.set_num_threads(work.trace.recipe.threads)
    try:
        witness.testify(work.model, steps, source, heard.observe, heard.lines)
    except (Unavailable, UnsupportedCheckpoint) as error:
        work.departures[label] = (str(error),)
        return False
    for reason in dict.fromkeys(heard.excepted.values()):
        sites = [site for site, why in heard.excepted.items() if why == reason]
        work.departures[label] = (*work.departures.get(label, ()), f"{', '.join(sites)}: {reason}")
    work.held_at[label] = {site: tuple(sorted(lines)) for site, lines in heard.held_at.items()}
    work.coverage.append(heard.coverage())
    work.executions.extend(heard.executions())
    return True


class _Heard:
    """What one witness said."""

    def __init__(self, work: _Work, witness: Witness) -> None:
        self.work = work
        self.witness = witness
        self.excepted = witness.excepted(work.model)
        self.lines: set[int] = set()
        self.assigned: dict[Place, str] = {}
        self.held_at: dict[str, set[int]] = {}

    def observe(self, step: int, observation: Observation) -> None:
        claim = self.witness.claim(step, observation, self.work.model.layers)
        if observation.kind == "assign":
            self._assign(observation, claim)
        if claim is None or claim.address.site in self.excepted:
            return
        self.held_at.setdefault(claim.address.site, set()).add(observation.line)
        self.work.keep(
            parity(
                claim.address,
                claim.layout.apply(self.work.tensor(claim.address)),
                observation.value,
                self.work.visible(claim.address),
                Origin(self.witness.label, observation.line, observation.expression, claim.layout.sentence),
            )
        )

    def _assign(self, observation: Observation, claim: Claim | None) -> None:
        place = place_of(observation)
        site = claim.address.site if claim else ""
        self.assigned[place] = self.assigned.get(place) or site

    def coverage(self) -> Coverage:
        named = {place: site for place, site in self.assigned.items() if site}
        rest = [place for place in self.assigned if place not in named]
        reasons = self.witness.exceptions
        return Coverage(
            source=self.witness.label,
            assignments=len(self.assigned),
            mapped=len(named),
            exceptions=tuple(f"{_where(place)}: {reasons[place]}" for place in rest if place in reasons),
            unmapped=tuple(_where(place) for place in rest if place not in reasons),
            unseen=tuple(
                row.site
                for row in self.work.catalogue
                if row.site not in self.held_at.keys() | self.excepted.keys() and self._exists(row.steps.cover)
            ),
            complete=self.witness.complete,
        )

    def _exists(self, cover: Callable[[int], bool]) -> bool:
        return any(cover(step) for step in range(self.work.trace.last_step + 1))

    def executions(self) -> list[Execution]:
        """For each piece of this source's evidence what its lines did."""
        catalogue = self.work.catalogue
        found = []
        for operation in catalogue.operations.values():
            rows = [row for row in catalogue if row.operation == operation.id]
            if not any(self._exists(row.steps.cover) for row in rows):
                continue
            produced_at = {line for row in rows for line in self.held_at.get(row.site, ())}
            for evidence in operation.evidence:
                citation = evidence.citation
                if citation.pin != self.witness.pin:
                    continue
                produced = tuple(sorted(line for line in produced_at if line in citation))
                found.append(
                    Execution(
                        operation=operation.id,
                        source=self.witness.label,
                        label=evidence.label,
                        lines=citation.lines,
                        ran=self._ran(citation, bool(produced), bool(produced_at)),
                        produced=produced,
                    )
                )
        return found

    def _ran(self, citation: Citation, produced: bool, named: bool) -> Ran:
        # Every span has to have run; a span that did not is cited for nothing.
        if not all(any(line in span for line in self.lines) for span in citation.spans):
            return Ran.NOT
        if produced:
            return Ran.PRODUCED
        return Ran.ELSEWHERE if named else Ran.EXECUTED


def _where(place: Place) -> str:
    function, line, expression = place
    return f"{expression} ({function}, line {line})"


# --- equations ---


def _recompute(work: _Work) -> None:
    if work.model.info.dtype != "float32":
        work.departures[EQUATION] = ("equations are recomputed for float32 traces",)
        return
    recipe = work.trace.recipe
    if changed := tuple(unlike_the_equations(work.catalogue, recipe)):
        work.departures[EQUATION] = changed
    for address in work.addresses():
        if work.catalogue.row(address.site).kind is not Kind.TENSOR or is_changed(work.catalogue, recipe, address):
            continue
        inputs: dict[str, tuple[Array, ...]] = {}
        for source in work.catalogue.inputs_of(address, work.model.layers):
            inputs[source.site] = (*inputs.get(source.site, ()), work.wide(source))
        expected = work.family.equation(work.model, address.site, inputs)
        if expected is not None:
            reference = torch.from_numpy(np.array(expected))
            work.keep(parity(address, work.tensor(address), reference, work.visible(address), Origin(EQUATION)))
