"""Every error that a person can meet, in one tree.

    ProvenanceError
    ├── NotFound            the thing named does not exist here
    │   ├── UnknownSite         no such site, expression or alias (carries near matches)
    │   ├── UnknownTrace        no trace of that id
    │   ├── UnknownModel        no such model here
    │   ├── UnknownFamily       no model family of that name
    │   ├── UnknownSource       no cited file of that repository and path
    │   ├── UnknownUpload       no file of that id was handed in
    │   └── OutOfRange          a step, layer or head that this trace does not have
    ├── InvalidInput        what was asked cannot be done, and why
    │   ├── InvalidAddress      text that is no address
    │   ├── AmbiguousName       one expression, several sites (carries the candidates)
    │   ├── InvalidPrompt       empty, or ids outside the vocabulary
    │   ├── InvalidOption       a value that a lesson's form cannot take (carries the field)
    │   ├── PromptTooLong       prompt + steps over the model's context
    │   ├── UnreadableFile      a file of tensors that is none, or holds what is not read
    │   │   └── TooLarge            one that holds more than is allowed here
    │   └── UnsupportedCheckpoint   weights or a config that this model cannot reproduce
    ├── Unavailable         it exists, but cannot be had at this place or time
    │   ├── SourceUnavailable   no carrier holds the pinned bytes
    │   ├── StorageFailed       the disk is full, read-only or failing
    │   ├── Busy                it can be had later (carries after how many seconds)
    │   │   └── LimitReached        one client has had its share for now
    │   └── CarrierFailed       one carrier was asked and could not deliver
    ├── Refused             it is not allowed here
    │   ├── SignInNeeded        it takes the server's token
    │   └── WrongHost           a request to a name that is not the server's
    └── Corrupt             stored bytes are not what they should be
        ├── BlobMismatch        bytes whose git blob id is not the pinned one
        ├── AnchorMoved         a citation's anchor is not at its pinned lines
        └── CorruptTrace        a stored trace that cannot be read back
            └── NewerTrace          one whose format only a newer version knows

A message says what was wrong, with which input; `hint` says what to do.
"""


class ProvenanceError(Exception):
    """Base of all our errors: a sentence for a person, and a hint on what to do."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class NotFound(ProvenanceError):
    """The thing named does not exist here."""


class UnknownSite(NotFound):
    """No site, expression or alias of that name; `near` holds close matches."""

    def __init__(self, name: str, near: tuple[str, ...] = ()) -> None:
        hint = f"Did you mean {', '.join(near)}?" if near else "Search for it, or list all sites."
        super().__init__(f"There is no tensor named {name!r}.", hint=hint)
        self.name = name
        self.near = near


class UnknownTrace(NotFound):
    """No trace of that id is stored here."""


class UnknownModel(NotFound):
    """No model of that name can be found here."""


class UnknownFamily(NotFound):
    """No model family has that name."""


class UnknownSource(NotFound):
    """No cited file has that repository and path."""


class UnknownUpload(NotFound):
    """No file of that id was handed in, or it is gone again."""


class OutOfRange(NotFound):
    """A step, layer or head that this trace does not have."""


class InvalidInput(ProvenanceError):
    """What was asked cannot be done, and why."""


class InvalidAddress(InvalidInput):
    """Text that is not an address."""


class AmbiguousName(InvalidInput):
    """One expression that names several sites; `candidates` holds a line for each."""

    def __init__(self, name: str, candidates: tuple[str, ...]) -> None:
        listing = "".join(f"\n  {candidate}" for candidate in candidates)
        super().__init__(f"{name!r} names {len(candidates)} different tensors:{listing}")
        self.name = name
        self.candidates = candidates


class InvalidPrompt(InvalidInput):
    """A prompt that cannot be run: empty, or with ids outside the vocabulary."""


class InvalidOption(InvalidInput):
    """A value that a lesson's form cannot take; `field` is the one it stands in."""

    def __init__(self, field: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.field = field


class PromptTooLong(InvalidInput):
    """Prompt plus decode steps do not fit into the model's context (counts in tokens)."""

    def __init__(self, tokens: int, steps: int, context: int) -> None:
        super().__init__(
            f"The prompt has {tokens} tokens; with {steps} decode steps that makes "
            f"{tokens + steps}, and this model's context holds {context}.",
            hint=f"Shorten the prompt or ask for at most {max(0, context - tokens)} steps.",
        )
        self.tokens = tokens
        self.steps = steps
        self.context = context


class UnreadableFile(InvalidInput):
    """A file of tensors that is none, is damaged, or holds what is not read here."""


class TooLarge(UnreadableFile):
    """A file of tensors that holds more than is allowed here."""


class UnsupportedCheckpoint(InvalidInput):
    """Weights or a config that this model cannot load or reproduce."""


class Unavailable(ProvenanceError):
    """It exists, but cannot be had at this place or time."""


class SourceUnavailable(Unavailable):
    """No carrier at hand holds the pinned bytes."""


class StorageFailed(Unavailable):
    """The system refused to store or read something: a full disk, no permission, a fault of the device."""


class Busy(Unavailable):
    """It cannot be had now; `retry_after_seconds` says when to ask again."""

    def __init__(self, message: str, *, hint: str = "", retry_after_seconds: int = 10) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_seconds = max(1, retry_after_seconds)


class LimitReached(Busy):
    """One client has had its share for now."""


class CarrierFailed(Unavailable):
    """One carrier was asked for a pinned file and could not deliver it."""


class Refused(ProvenanceError):
    """It is not allowed here, whoever asks."""


class SignInNeeded(Refused):
    """It takes the server's token."""


class WrongHost(Refused):
    """The request names a host that this server does not serve."""


class Corrupt(ProvenanceError):
    """Stored bytes are not what they should be."""


class BlobMismatch(Corrupt):
    """Bytes whose git blob id is not the pinned one."""


class AnchorMoved(Corrupt):
    """A citation's anchor does not stand at its pinned lines."""


class CorruptTrace(Corrupt):
    """A stored trace that cannot be read back."""


class NewerTrace(CorruptTrace):
    """A stored trace whose format is newer than this version knows; it is whole, and stays."""
