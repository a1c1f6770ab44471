"""Reading a trace's record, of this stored form or an older one.

The rule: `FORMAT` (provenance/trace.py) goes up by one when a record of the old form would be misread
or refused by the new code, or a file is named or laid out otherwise. With it comes one step here that
turns a record of the old form into one of the new. Steps are never removed. A file is not rewritten:
older traces are migrated each time they are read. A newer form is refused: this version cannot know
what it means. A trace's id does not depend on the form.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from provenance.errors import CorruptTrace, NewerTrace
from provenance.trace import FORMAT, Record, chosen_by

Json = dict[str, Any]

MIGRATIONS: Mapping[int, Callable[[Json], Json]] = {1: lambda record: record}
"""By the form n that it reads: the step from form n to form n + 1, on the record as JSON.

From 1 to 2: a recipe got `drawn`, which a run on tokens leaves empty, as a record without it does.
"""

_AGAIN = "Delete it and record again."


def read_record(id: str, content: bytes) -> Record:
    """A record as stored. Raises NewerTrace, or CorruptTrace with what is wrong."""
    try:
        tree = json.loads(content)
        form = tree["format"]
        if type(form) is not int:
            raise ValueError("format")
        if form > FORMAT:
            raise NewerTrace(
                f"Trace {id} was written by a newer version: it has format {form}, this one reads up to {FORMAT}.",
                hint="Update tensor-provenance; the trace stays as it is.",
            )
        if form == FORMAT:
            record = Record.model_validate_json(content)
        else:
            record = Record.model_validate_json(json.dumps(_migrated(id, tree, form)))
    except (ValueError, ValidationError, LookupError, TypeError, RecursionError):
        raise CorruptTrace(f"The record of trace {id} cannot be read.", hint=_AGAIN) from None
    if record.recipe.id != id or len(record.generated) != chosen_by(record.recipe):
        raise CorruptTrace(f"The record of trace {id} does not belong to it, or is not whole.", hint=_AGAIN)
    return record


def _migrated(id: str, tree: Json, form: int) -> Json:
    for step in range(form, FORMAT):
        if step not in MIGRATIONS:
            raise CorruptTrace(f"The record of trace {id} has format {form}, which was never in use.", hint=_AGAIN)
        tree = MIGRATIONS[step](tree)
    return tree | {"format": FORMAT}
