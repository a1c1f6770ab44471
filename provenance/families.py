"""The model families: what each one's catalogue, witnesses and equations are.

Everything that is not a family's own asks here, and knows no family by name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from provenance.catalogue import Catalogue, Point
from provenance.citation import Pin
from provenance.gpt2 import witnesses as gpt2
from provenance.gpt2.catalogue import CATALOGUE as GPT2_CATALOGUE
from provenance.gpt2.equations import EQUATIONS, Inputs
from provenance.gpt2.pins import TRANSFORMERS
from provenance.gpt2.points_transformers import holders
from provenance.gpt2.witness_tensorflow import OpenAITensorFlowWitness
from provenance.model import Model
from provenance.textbook.catalogue import CATALOGUE as TEXTBOOK_CATALOGUE
from provenance.textbook.equations import equation as textbook_equation
from provenance.witness.testimony import Witness

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Holders:
    """Where a further cited file holds the sites: as it is in `release`, each with a word on how or when."""

    pin: Pin
    release: str
    points: Mapping[str, tuple[tuple[Point, str], ...]]


@dataclass(frozen=True, slots=True)
class Family:
    """A model family as `verify` needs it.

    `compared_where_visible` names for score-like sites the boolean site whose True cells are
    compared: implementations fill masked cells differently. `equation` recomputes a site from its
    recorded inputs in float64, or returns None where it is no computation. `elsewhere` says where other
    cited files than the catalogue's hold the sites. `on_tensorflow` are further witnesses, heard on
    request alone: they need TensorFlow. `differ_by_split` are sites whose value at one position depends on
    which step ran it. `cancelling` are sums of terms of both signs, which may come out far smaller than their
    terms: their rounding is that of what they are computed from.
    """

    catalogue: Catalogue
    witnesses: tuple[Witness, ...]
    compared_where_visible: Mapping[str, str]
    equation: Callable[[Model, str, Mapping[str, tuple[Array, ...]]], Array | None]
    elsewhere: tuple[Holders, ...] = ()
    on_tensorflow: tuple[Witness, ...] = ()
    differ_by_split: frozenset[str] = frozenset()
    cancelling: frozenset[str] = frozenset()


def _gpt2_equation(model: Model, site: str, arrays: Mapping[str, tuple[Array, ...]]) -> Array | None:
    equation = EQUATIONS.get(site)
    if equation is None:
        return None
    return equation(Inputs(arrays, model.constants, float(model.info.config["epsilon"])))


_VISIBLE = "h.attn.mask.m"

FAMILIES: Mapping[str, Family] = {
    "gpt2": Family(
        GPT2_CATALOGUE,
        gpt2.WITNESSES,
        {"h.attn.scores_masked": _VISIBLE, "h.attn.softmax.x": _VISIBLE},
        _gpt2_equation,
        (Holders(TRANSFORMERS, TRANSFORMERS.blobs[0].release, holders()),),
        (OpenAITensorFlowWitness(),),
        differ_by_split=frozenset({"h.attn.mask.i"}),
        cancelling=frozenset({"h.ln_1.u", "h.ln_2.u", "ln_f.u"}),
    ),
    "textbook": Family(
        TEXTBOOK_CATALOGUE,
        (),
        {"h.attn.score_masked": "h.attn.mask"},
        textbook_equation,
        cancelling=frozenset(row.site for row in TEXTBOOK_CATALOGUE if row.site.endswith(".mean")),
    ),
}
