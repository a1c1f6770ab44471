"""How a recorded run is written in a reference: Markdown, BibTeX, CFF, JSON. Plain data, no tensors."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from provenance.citing import Format
from provenance.errors import InvalidInput
from provenance.markup import bibtex_entry, cff_document, json_text, markdown_code, markdown_text, tex, visible

_RECORDER = "Tensor Provenance"
_PROMPT_SHOWN = 200
"""Characters of a prompt that a reference shows; of a longer one it also gives the SHA-256."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFacts:
    """What a trace is, in plain values. `prompt` is None where the tokens are no UTF-8 text.

    `edits` are the changes that were made to its tensors while it ran, in their order. `batch` and `input_seed`
    are None where it read tokens; else `token_ids` are the numbers of vectors, drawn from that seed for each batch
    entry.
    `torch` is the version of the library that computed it; `created_at` a time in ISO 8601.
    """

    id: str
    model: str
    family: str
    trained: bool
    weights_sha256: str
    dtype: str
    device: str
    threads: int
    torch: str
    prompt: str | None
    token_ids: tuple[int, ...]
    steps: int
    temperature: float
    seed: int
    created_at: str
    tensors_sha256: str
    edits: tuple[str, ...] = ()
    batch: int | None = None
    input_seed: int | None = None


@dataclass(frozen=True, slots=True)
class TraceCitation:
    """A recorded run. It has an id but no public address, and no SWHID: it is no archived source."""

    facts: TraceFacts

    @property
    def title(self) -> str:
        """Id and model."""
        edited = ", changed on purpose" if self.facts.edits else ""
        return visible(f"Trace {self.facts.id[:12]} of {self.facts.model}{edited}")

    @property
    def description(self) -> str:
        """Everything that determines the run, in a few sentences; the prompt as a JSON string."""
        facts = self.facts
        return visible(
            f"Trace {facts.id}. {self._model}. {self._read}: {self._prompt(json_text)}. {self._run}. "
            f"{self._changed}"
            f"SHA-256 of the tensors: {facts.tensors_sha256}. Recorded at {facts.created_at}."
        )

    @property
    def _model(self) -> str:
        facts = self.facts
        untrained = "" if facts.trained else ", untrained"
        return f"Model {facts.model} ({facts.family}{untrained}), SHA-256 of the weights: {facts.weights_sha256}"

    @property
    def _run(self) -> str:
        facts = self.facts
        choice = f"temperature {facts.temperature!r}, seed {facts.seed}" if facts.temperature else "greedy"
        run = f"{len(facts.token_ids)} tokens and {facts.steps} decode steps, {choice}"
        if facts.batch is not None:
            run = f"{len(facts.token_ids)} vectors, batch {facts.batch}, drawn from seed {facts.input_seed}"
        return f"{run}; torch {facts.torch}, {facts.dtype} on {facts.device}, threads: {facts.threads}"

    @property
    def _read(self) -> str:
        return "Prompt" if self.facts.batch is None else "Input"

    @property
    def _changed(self) -> str:
        edits = self.facts.edits
        return f"Changed while it ran, in this order: {'; '.join(edits)}. " if edits else ""

    def _prompt(self, write: Callable[[str], str]) -> str:
        text = self.facts.prompt
        if text is None:
            ids = ", ".join(map(str, self.facts.token_ids[:_PROMPT_SHOWN]))
            more = len(self.facts.token_ids) - _PROMPT_SHOWN
            what = "token ids" if self.facts.batch is None else "vectors"
            return f"{what} {ids}" + (f" and {more} more" if more > 0 else "")
        if len(text) <= _PROMPT_SHOWN:
            return write(text)
        sha256 = hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()
        more = len(text) - _PROMPT_SHOWN
        return f"{write(text[:_PROMPT_SHOWN])} and {more} more characters (SHA-256 of the text: {sha256})"

    @property
    def markdown(self) -> str:
        """One paragraph; prompt and hashes stand in code spans, where no markup works."""
        prompt = self._prompt(lambda text: markdown_code(json_text(text)))
        head = f"Trace {self.facts.id}; {self._model}"
        edits = ", ".join(markdown_code(visible(edit)) for edit in self.facts.edits)
        changed = f"; changed while it ran, in this order: {edits}" if edits else ""
        return f"{markdown_text(head)}; {self._read.lower()}: {prompt}; {markdown_text(self._run)}{changed}"

    @property
    def bibtex(self) -> str:
        """A `@misc` entry in ASCII."""
        return bibtex_entry(
            f"trace-{self.facts.id[:12]}",
            author=f"{{{tex(_RECORDER)}}}",
            title=f"{{{tex(self.title)}}}",
            year=self.facts.created_at[:4],
            note=tex(self.description),
        )

    @property
    def cff(self) -> str:
        """A Citation File Format 1.2.0 document."""
        identifiers = {
            "Id of the trace": self.facts.id,
            "SHA-256 of the weights": self.facts.weights_sha256,
            "SHA-256 of the tensors": self.facts.tensors_sha256,
        }
        return cff_document(
            {
                "message": "To cite this recorded run, use this.",
                "type": "dataset",
                "title": self.title,
                "authors": [{"name": _RECORDER}],
                "abstract": self.description,
                "identifiers": [
                    {"type": "other", "value": value, "description": description}
                    for description, value in identifiers.items()
                ],
            }
        )

    def fields(self) -> Mapping[str, object]:
        """Everything, as JSON can hold it."""
        written = {"markdown": self.markdown, "bibtex": self.bibtex, "cff": self.cff}
        return {**asdict(self.facts), **written}

    def render(self, format: Format) -> str:
        """The citation in one format. Raises InvalidInput for an address or a SWHID: it has none."""
        if format is Format.JSON:
            return json.dumps(self.fields(), indent=2)
        if format in (Format.URL, Format.SWHID):
            what = "address of its own" if format is Format.URL else "SWHID: it is no archived source"
            raise InvalidInput(f"A trace has no {what}.", hint="Choose markdown, bibtex, cff or json.")
        text: str = getattr(self, format.value)
        return text


def cite_trace(facts: TraceFacts) -> TraceCitation:
    """Cite a recorded run."""
    return TraceCitation(facts)
