"""What a server records by itself when it starts: examples, and behind a token the usual runs of the lessons."""

import logging

from app.explorer import Explorer
from app.pages.lessons.contents import CONTENTS
from provenance.errors import ProvenanceError
from provenance.lessons.options import Options

log = logging.getLogger(__name__)


def record_examples(explorer: Explorer) -> None:
    """Record them where they are not stored; what stands in the way of one is logged."""
    try:
        explorer.record_example()
        if _is_guarded(explorer):
            for content in CONTENTS.values():
                content.page(explorer, Options())
    except ProvenanceError as error:
        log.warning("not all examples were recorded: %s", error)


def _is_guarded(explorer: Explorer) -> bool:
    """Whether most readers cannot record: then they find the lessons as they usually are, and no further."""
    settings = explorer.settings
    return settings.example and not settings.read_only and settings.token is not None
