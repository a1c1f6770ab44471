"""A recorded run, for Python and notebooks. The stored form of it is `provenance.trace.Trace`."""

from collections.abc import Iterator, Mapping

from provenance import places, verification
from provenance.catalogues import check_predicts
from provenance.cited import trace_citation
from provenance.compare import compare_traces
from provenance.comparison import Recorded
from provenance.families import FAMILIES
from provenance.inputs import unquoted
from provenance.lens import Distribution, Position, distribution, logit_lens, position_of, sequence
from provenance.names import Address
from provenance.notebook.cards import Html, card, code, element, facts, heading, link, plural, quiet
from provenance.notebook.evidence import Written, checked_sources, format_of
from provenance.notebook.results import Compared, LensTable, Prediction, Predictions, Stage, Verification
from provenance.notebook.run import Run, own_threads
from provenance.notebook.tensor import Tensor
from provenance.order import computation_order
from provenance.prompt import Token
from provenance.trace import Recipe
from provenance.trace import Trace as Stored
from provenance.verdict import FILE

_PROMPT_SHOWN = 60


class Trace:
    """A recorded run: every tensor of it by any of its names, `trace["h.3.attn.pattern"]`.

    It gives what a person asks for; `stored` is the run as it lies in the trace store
    (`provenance.trace.Trace`), and `recipe` is everything that determines it.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    # --- what was run ---

    @property
    def stored(self) -> Stored:
        """The run as it is stored: its record, and the tensors that were kept."""
        return self._run.stored

    @property
    def recipe(self) -> Recipe:
        """Everything that determines the run."""
        return self.stored.recipe

    @property
    def id(self) -> str:
        """32 hexadecimal digits: the hash of the recipe."""
        return self.stored.id

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.recipe.model.name

    @property
    def text(self) -> str | None:
        """The prompt's text; None where its tokens are no UTF-8 text."""
        return self.recipe.text

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The prompt's tokens."""
        return self.recipe.prompt.tokens

    @property
    def generated(self) -> tuple[Token, ...]:
        """The tokens that the model chose, one at the end of each step; none where it predicts nothing."""
        return self.stored.generated

    @property
    def steps(self) -> int:
        """How many decode steps there are after the prefill."""
        return self.stored.last_step

    @property
    def layers(self) -> int:
        """How many blocks the model has."""
        return self.stored.layers

    @property
    def axes(self) -> Mapping[str, int]:
        """The sizes of the model's axes by symbol: `d`, `H`, `hd`, `V`."""
        return self._run.constants

    # --- its tensors ---

    def __getitem__(self, name: str) -> Tensor:
        return self.tensor(name)

    def tensor(self, name: str, *, layer: int | None = None, step: int | None = None) -> Tensor:
        """A tensor by its address, site, OpenAI's expression or any alias, with the layer where it has one.

        A name may end in `@` and the step; without, the first step is meant in which it exists. Raises
        UnknownSite with near matches, AmbiguousName with the candidates, InvalidAddress, or OutOfRange.
        """
        return Tensor(self._run, self._run.locate(name, layer, step))

    def tensors(self, step: int = 0) -> Iterator[Tensor]:
        """All tensors of one step, in the order in which they are computed. Raises OutOfRange."""
        self.stored.check(step=step)
        order = computation_order(self._run.catalogue, self.layers, step)
        return (Tensor(self._run, address) for address in order)

    # --- what it predicts ---

    def next_tokens(self, position: int | None = None, top: int = 10) -> Predictions:
        """What the model predicts after a position; after the prompt where none is named.

        Raises OutOfRange, and InvalidInput for a model that predicts nothing.
        """
        check_predicts(self.recipe.model)
        found = position_of(self.stored, number=position)
        logits = self._run.tensor(Address("logits", None, found.step))[0, found.index]
        return self._predictions(found, distribution(logits, top))

    def lens(self, position: int | None = None, top: int = 3) -> LensTable:
        """What the residual stream predicts after every block, at one position.

        Raises OutOfRange, and InvalidInput for a model that predicts nothing.
        """
        check_predicts(self.recipe.model)
        found = position_of(self.stored, number=position)
        recorded = self._run.tensor(Address("logits", None, found.step))[0, found.index][None]
        with own_threads():
            lens = logit_lens(self._run.model, self.stored, (found,), recorded, top)
        stages = (
            Stage(str(Address.parse(f"{stage.place}@{found.step}")), self._predictions(found, stage.cells[0]))
            for stage in lens.stages
        )
        return LensTable(self._after(found), stages)

    def _predictions(self, position: Position, likely: Distribution) -> Predictions:
        tokens = self._run.models.tokens(self.model, (candidate.id for candidate in likely.top))
        found = (
            Prediction(token.id, token.text, candidate.probability, candidate.logit, candidate.rank)
            for token, candidate in zip(tokens, likely.top, strict=True)
        )
        return Predictions(self._after(position), found, likely.bits, likely.problem)

    def _after(self, position: Position) -> str:
        return sequence(self.stored)[position.number].text

    # --- what is known about it ---

    def verify(self) -> Verification:
        """Prove all that can be proven about it, and keep the report beside the trace."""
        family = FAMILIES[self.recipe.model.family]
        with own_threads():
            report = verification.verify(family, self._run.model, self.stored, checked_sources())
        self._run.store.attach(self.id, FILE, report.model_dump_json())
        return Verification(report)

    def compare(self, other: "Trace", *, relative: float | None = None) -> Compared:
        """Compare it with another trace, tensor by tensor; `relative` is the tolerance, None that of the dtypes."""
        result = compare_traces(self._side("A"), other._side("B"), relative=relative)
        first = result.first_divergence
        return Compared(result, None if first is None else Tensor(self._run, first.address))

    def _side(self, label: str) -> Recorded:
        return Recorded(self.stored, self._run.catalogue, self.layers, self._run.tensor, label)

    def cite(self, format: str = "markdown") -> Written:
        """Write a reference of the run: markdown, bibtex, cff or json. Raises InvalidInput for another format."""
        return Written(trace_citation(self.stored.record).render(format_of(format)))

    @property
    def url(self) -> str:
        """Its page in the explorer, when that runs on this machine."""
        return f"{places.explorer_address()}/traces/{self.id}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trace) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<Trace {self.id[:12]} of {self.model}: {self._prompt!r}, {self._counts}>"

    def _repr_html_(self) -> str:
        recipe = self.recipe
        rows = (
            *self._rows_html(),
            ("Run", f"{self._counts}, {recipe.model.dtype} on {recipe.device}, torch {recipe.torch}"),
            ("Edits", "; ".join(map(str, recipe.edits))),
            ("Weights", f"SHA-256 {recipe.model.weights_sha256}" if recipe.model.trained else "seeded, untrained"),
        )
        return card(
            heading("trace", self.id[:12], f"A run of {self.model}"),
            facts(rows),
            quiet(link(self.url, "Open in the explorer, when it runs")),
        )

    def _rows_html(self) -> Iterator[tuple[str, Html]]:
        """What was read, and what was chosen where anything was."""
        name = "Prompt" if self.recipe.drawn is None else "Vectors"
        yield name, element("span", *(code(token.text) for token in self.tokens[:_PROMPT_SHOWN]))
        if self.generated:
            yield "Chosen", element("span", *(code(token.text) for token in self.generated))

    @property
    def _counts(self) -> str:
        edits = f", {plural(len(self.recipe.edits), 'edit')}" if self.recipe.edits else ""
        if (drawn := self.recipe.drawn) is not None:
            return f"{plural(len(self.tokens), 'vector')}, batch {drawn.batch}, seed {drawn.seed}{edits}"
        return f"{plural(len(self.tokens), 'token')} and {plural(self.steps, 'decode step')}{edits}"

    @property
    def _prompt(self) -> str:
        if self.recipe.drawn is not None:
            return unquoted(self.recipe)
        text = self.text if self.text is not None else " ".join(token.text for token in self.tokens)
        return text if len(text) <= _PROMPT_SHOWN else text[: _PROMPT_SHOWN - 1] + "…"
