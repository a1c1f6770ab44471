"""One tensor of a trace, for Python and notebooks."""

from typing import Any

import numpy as np
import torch

from provenance import places
from provenance.errors import ProvenanceError
from provenance.names import Address
from provenance.notebook.cards import Html, card, code, element, facts, heading, link, number, picture, quiet
from provenance.notebook.evidence import Cited, Written, checked_sources, written
from provenance.notebook.picture import picture_of
from provenance.notebook.run import Run
from provenance.notebook.sites import Site
from provenance.pictures.cells import Array, Mask, array_of, mask_of
from provenance.summary import Summary


class Tensor:
    """One tensor of a trace: its values, what it is, where it comes from, and who says so.

    NumPy takes it as an array: `np.asarray(tensor)`. Values are computed when they are first asked for.
    """

    def __init__(self, run: Run, at: Address) -> None:
        self._run = run
        self.at = at
        self.row = run.catalogue.row(at.site)

    # --- what it is ---

    @property
    def address(self) -> str:
        """Where it stands in its trace: `h.3.attn.scores@2`."""
        return str(self.at)

    @property
    def name(self) -> str:
        """The cited code's own expression for it."""
        return self.row.name

    @property
    def title(self) -> str:
        """What people call it."""
        return self.row.title

    @property
    def description(self) -> str:
        """One or two sentences on what it is."""
        return self.row.description

    @property
    def site(self) -> Site:
        """What it is in every layer and step."""
        return Site(self.row, self._run.catalogue, checked_sources())

    @property
    def evidence(self) -> tuple[Cited, ...]:
        """The claims that stand behind it, each with its pinned lines: its producer's first."""
        return self.site.evidence

    @property
    def upstream(self) -> tuple["Tensor", ...]:
        """The tensors of this trace that it is computed from."""
        found = self._run.catalogue.inputs_of(self.at, self._run.stored.layers)
        return tuple(Tensor(self._run, address) for address in found)

    @property
    def downstream(self) -> tuple["Tensor", ...]:
        """The tensors of this trace that are computed from it."""
        stored = self._run.stored
        found = self._run.catalogue.readers_of(self.at, stored.layers, stored.last_step)
        return tuple(Tensor(self._run, address) for address in found)

    # --- its values ---

    def torch(self) -> torch.Tensor:
        """Its values, a copy. Raises UnknownModel where they must be computed and the model is gone."""
        return self._run.tensor(self.at).detach().clone()

    def numpy(self) -> Array:
        """Its values, a copy; bfloat16 comes as float32, which holds each value exactly."""
        return array_of(self.torch())

    @property
    def masked(self) -> Mask | None:
        """True where a cell is masked, in the tensor's shape; None where a site has no mask."""
        return mask_of(self._run.masked(self.at), self.shape)

    @property
    def summary(self) -> Summary:
        """Counts, mean, spread, quantiles and histogram over the finite cells that are not masked."""
        return self._run.summary(self.at)

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of every axis."""
        return tuple(self._run.tensor(self.at).shape)

    @property
    def axes(self) -> tuple[str, ...]:
        """The name of every axis: `batch`, `head`, `T`, `S`."""
        axes = self._run.catalogue.axes
        return tuple(axes[symbol].name or symbol for symbol in self.row.shape)

    @property
    def dtype(self) -> str:
        """The type of its cells: `float32`."""
        return str(self._run.tensor(self.at).dtype).removeprefix("torch.")

    def __array__(self, dtype: np.dtype[Any] | None = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("The values belong to the trace, so they are always copied.")
        found = self.numpy()
        return found if dtype is None else found.astype(dtype)

    def __getitem__(self, index: Any) -> Any:
        return self.numpy()[index]

    def __len__(self) -> int:
        return len(self.numpy())

    # --- how it is cited and shown ---

    @property
    def url(self) -> str:
        """Its page in the explorer, when that runs on this machine."""
        step = f"?step={self.at.step}" if self.at.step else ""
        return f"{places.explorer_address()}/traces/{self._run.stored.id}/{self.at.place}{step}"

    def cite(self, format: str = "markdown") -> Written:
        """Write all its evidence as references: url, markdown, bibtex, cff, swhid or json."""
        return written(self.evidence, format)

    def __eq__(self, other: object) -> bool:
        """Whether it is the same tensor of the same trace; compare values with NumPy."""
        return isinstance(other, Tensor) and (self._run.stored.id, self.at) == (other._run.stored.id, other.at)

    def __hash__(self) -> int:
        return hash((self._run.stored.id, self.at))

    def __repr__(self) -> str:
        try:
            return f"<Tensor {self.address} {self._shape} {self.dtype}: {self.title}>\n  {_values(self.summary)}"
        except ProvenanceError as error:
            return f"<Tensor {self.address}: {self.title}>\n  {error}"

    def _repr_html_(self) -> str:
        where = f"step {self.at.step}" if self.at.step else "prefill"
        run = f" {where}, trace {self._run.stored.id[:12]} of {self._run.stored.recipe.model.name}"
        return card(
            heading(self.row.kind.value, self.name, self.title),
            element("p", code(self.address), element("span", run, class_="tp-quiet")),
            element("p", self.description),
            *self._shown(),
            *(cited.html() for cited in self.evidence if cited.context.produces),
            quiet(link(self.url, "Open in the explorer, when it runs")),
        )

    def _shown(self) -> tuple[Html, ...]:
        """Shape, statistics and picture, or why they cannot be had."""
        try:
            summary = self.summary
            drawn = picture_of(self.numpy(), self.masked, self.axes, summary)
        except ProvenanceError as error:
            return (quiet(str(error)),)
        rows = (("Shape", f"{self._shape} {self.dtype}"), ("Values", _values(summary)))
        return (facts(rows), *((picture(drawn.png, f"Heatmap: {drawn.says}", drawn.says),) if drawn else ()))

    @property
    def _shape(self) -> str:
        return "[" + ", ".join(f"{size} {name}" for size, name in zip(self.shape, self.axes, strict=True)) + "]"


def _values(summary: Summary) -> str:
    """The statistics on one line; what is not finite or masked is counted where there is any."""
    measured = (
        ("min", summary.minimum),
        ("max", summary.maximum),
        ("mean", summary.mean),
        ("std", summary.std),
        ("norm", summary.l2),
    )
    counted = (
        ("masked", summary.count_masked),
        ("NaN", summary.count_nan),
        ("+Inf", summary.count_posinf),
        ("−Inf", summary.count_neginf),
    )
    words = [f"{name} {number(value)}" for name, value in measured]
    return ", ".join(words + [f"{count} {name}" for name, count in counted if count])
