"""Whether the bytes of every cited file are at hand, and every cited statement stands at its lines."""

from provenance.catalogue import Catalogue
from provenance.errors import Corrupt, InvalidInput, Unavailable
from provenance.sources import Sources
from provenance.verdict import Bytes


def check_bytes(catalogue: Catalogue, sources: Sources) -> tuple[list[Bytes], dict[str, bytes]]:
    """A verdict about each cited file, and the contents that were had, by the pins' keys."""
    verdicts: list[Bytes] = []
    found: dict[str, bytes] = {}
    citations = [evidence.citation for operation in catalogue.operations.values() for evidence in operation.evidence]
    for pin in {citation.pin.key: citation.pin for citation in citations}.values():
        try:
            content = sources.content(pin)
            for citation in citations:
                if citation.pin == pin:
                    sources.excerpt(citation)
        except (Unavailable, Corrupt, InvalidInput) as error:
            verdicts.append(Bytes(key=pin.key, problem=str(error)))
        else:
            found[pin.key] = content.data
            verdicts.append(
                Bytes(key=pin.key, blob=content.blob.id, carrier=content.carrier, settled=content.settled)
            )
    return verdicts, found
