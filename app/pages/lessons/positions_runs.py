"""The runs that the chapter on positions reads, and what shuffling their input does."""

from dataclasses import dataclass

from app.explorer import Explorer
from app.pages.lessons.parts import Row, Table, apart
from app.pages.lessons.reading import Live, Reading, Readings
from provenance.errors import InvalidPrompt, UnknownModel, UnsupportedCheckpoint
from provenance.lessons.options import Options
from provenance.lessons.positions import Shuffle, shuffle, shuffled
from provenance.verdict import TOLERANCE


@dataclass(frozen=True, slots=True)
class Shuffled:
    """One model's runs on an input and on the same vectors in another order."""

    name: str
    options: Options
    given: Reading
    other: Reading
    order: tuple[int, ...]

    @property
    def output_site(self) -> str:
        """The site of what leaves the last block."""
        return self.options.config.stream_out

    @property
    def last(self) -> int:
        """The last layer."""
        return self.options.layers - 1

    @property
    def found(self) -> Shuffle:
        """What the new order did to the output of the last block."""
        given, other = (run.array(self.output_site, self.last) for run in (self.given, self.other))
        return shuffle(given, other, self.order)

    @property
    def follows(self) -> bool:
        """Whether each output went with its vector, within the tolerance of fp32."""
        found = self.found
        return found.in_order <= TOLERANCE * max(1.0, found.largest)

    def live(self, value: float) -> Live:
        """A difference, with the output of the run in the new order."""
        return self.other.live(apart(value), self.output_site, self.last)


@dataclass(frozen=True, slots=True)
class Runs:
    """All runs of the chapter. `gpt2` is in words why there is none where the default model is not here."""

    options: Options
    sines: Reading
    learned: Reading
    gpt2: Reading | str
    without: Shuffled
    with_positions: Shuffled
    causal: Shuffled

    @property
    def main(self) -> Reading:
        """The run of the state that the form shows."""
        return self.without.given if self.options.positions == "none" else self.with_positions.given

    @property
    def order(self) -> tuple[int, ...]:
        """The new order of the input's vectors."""
        return self.without.order


def runs_of(explorer: Explorer, options: Options) -> Runs:
    """The runs of a state, recorded where they are not stored. The mask is what the chapter compares."""
    readings = Readings(explorer)
    order = shuffled(options.length, options.seed)
    kind = "sinusoidal" if options.positions == "none" else options.positions

    def both(name: str, positions: str, *, causal: bool) -> Shuffled:
        state = options.but(positions=positions, causal=causal)
        return Shuffled(name, state, readings.textbook(state), readings.textbook(state, order), order)

    return Runs(
        options=options,
        sines=readings.textbook(options.but(positions="sinusoidal", causal=False)),
        learned=readings.textbook(options.but(positions="learned", causal=False)),
        gpt2=gpt2_or_reason(readings),
        without=both("no positions, no mask", "none", causal=False),
        with_positions=both(f"{kind} positions, no mask", kind, causal=False),
        causal=both("no positions, causal mask", "none", causal=True),
    )


def gpt2_or_reason(readings: Readings) -> Reading | str:
    """The default model's run of the example, or in words why there is none here."""
    try:
        return readings.gpt2()
    except (UnknownModel, UnsupportedCheckpoint, InvalidPrompt) as problem:
        return " ".join(part for part in (problem.message, problem.hint) if part)


def shuffle_table(runs: Runs) -> Table:
    """How far the output moves when the input's vectors stand in another order."""

    def row(of: Shuffled) -> Row:
        found = of.found
        cells = (of.live(found.in_place), of.live(found.in_order), of.live(found.mean))
        return Row(of.name, (*cells, "yes" if of.follows else "no"), of.other.trace_url)

    return Table(
        caption="Largest differences between the outputs for the two orders",
        columns=("Model", "same place", "same vector", "mean over the places", "goes with its vector"),
        rows=tuple(row(of) for of in (runs.without, runs.with_positions, runs.causal)),
    )
