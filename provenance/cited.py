"""Citations of what is at hand: evidence as it stands in checked bytes, and a stored trace."""

from typing import TYPE_CHECKING

from provenance.catalogue import Evidence
from provenance.citing import CodeCitation, cite_code
from provenance.citing_trace import TraceCitation, TraceFacts, cite_trace
from provenance.errors import SourceUnavailable
from provenance.sources import Proof, Sources

if TYPE_CHECKING:
    from provenance.trace import Record


def code_citation(sources: Sources, evidence: Evidence) -> CodeCitation:
    """Cite evidence as it stands in the bytes at hand, or without them as its pin says.

    Raises AnchorMoved where the bytes at hand do not have the anchors.
    """
    citation = evidence.citation
    try:
        excerpt = sources.excerpt(citation)
    except SourceUnavailable:
        blobs = citation.pin.blobs
        return cite_code(citation, blobs[0].id, len(blobs) == 1, evidence.claim)
    return cite_code(excerpt.as_read, excerpt.blob_id, excerpt.proof is Proof.VERIFIED, evidence.claim)


def trace_citation(record: "Record") -> TraceCitation:
    """Cite a stored trace."""
    recipe = record.recipe
    return cite_trace(
        TraceFacts(
            id=recipe.id,
            model=recipe.model.name,
            family=recipe.model.family,
            trained=recipe.model.trained,
            weights_sha256=recipe.model.weights_sha256,
            dtype=recipe.model.dtype,
            device=recipe.device,
            threads=recipe.threads,
            torch=recipe.torch,
            prompt=recipe.text,
            token_ids=recipe.prompt.ids,
            steps=recipe.steps,
            temperature=recipe.temperature,
            seed=recipe.seed,
            created_at=record.created_at,
            tensors_sha256=record.tensors_sha256,
            edits=tuple(map(str, recipe.edits)),
            batch=recipe.drawn.batch if recipe.drawn else None,
            input_seed=recipe.drawn.seed if recipe.drawn else None,
        )
    )
