"""Prompts: a text, its token ids, and the bytes of each token.

Tokens are bytes first: one token may hold half a character, and only its bytes are exact.
The vocabulary file writes each byte as a printable character (a space becomes a G with a dot);
that spelling is undone when the file is read and reaches nobody.
"""

import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

import tokenizers
from pydantic import Field

from provenance.errors import InvalidInput, InvalidPrompt, UnsupportedCheckpoint
from provenance.vocabulary import Spelling, find_spelling, spell, unspell

_NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Letters and marks that show nothing at all; str.isprintable() lets them pass."""


@dataclass(frozen=True, slots=True)
class Token:
    """One entry of the vocabulary: its id and the bytes that it stands for."""

    id: int
    bytes: bytes

    @property
    def text(self) -> str:
        r"""The token as a person reads it; different bytes never read the same.

        Whole characters are shown as they are, a space as a space. Escaped are bytes that are no
        whole character (`\xf0`), and characters that show nothing, move the text around them or
        look like a plain space (`\n`, `\u200b`, `\u202e`, `\xa0` as `\u00a0`). A backslash is
        doubled only where it could be taken for one of these escapes. A token without bytes, of a
        model without tokenizer, is its number: `#5`.
        """
        if not self.bytes:
            return f"#{self.id}"
        decoded = self.bytes.decode("utf-8", errors="surrogateescape")
        escaped = {c: _escape(c) for c in decoded if not c.isprintable() or _INVISIBLE.match(c)}
        if "\\" in decoded and (escaped or re.search(r"\\[nrtxuU]", decoded)):
            escaped["\\"] = r"\\"
        return "".join(escaped.get(c, c) for c in decoded)


def _escape(character: str) -> str:
    """The escape of one character, or of one byte that surrogateescape has set aside."""
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return _NAMED.get(character, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model is run on: tokens, and their text (None when the bytes are not UTF-8)."""

    text: str | None
    tokens: tuple[Token, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        """The token ids, in order."""
        return tuple(token.id for token in self.tokens)


MOST_BATCH = 64
"""How many tables of vectors one run can read."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Where the vectors of a run without text come from: `batch` tables of them, drawn from a seed.

    The tokens of such a run are the numbers of the vectors that stand at its positions. A table does not
    depend on how many there are. Raises InvalidInput for a batch or seed out of range.
    """

    batch: Annotated[int, Field(ge=1, le=MOST_BATCH)] = 8
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= MOST_BATCH:
            raise InvalidInput(f"The batch must lie between 1 and {MOST_BATCH}, not {self.batch}.")
        if not 0 <= self.seed < 2**63:
            raise InvalidInput(f"The input seed must lie between 0 and 2⁶³ − 1, not {self.seed}.")


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A vocabulary ready for use: bytes by id, special tokens by text, and the merging."""

    bytes_of: dict[int, bytes]
    specials: dict[str, int]
    merging: tokenizers.Tokenizer


class Tokenizer:
    """GPT-2's byte-level BPE. Adds nothing to a text; safe to use from several threads.

    The files are read at first use. Then, besides the errors named below, Unavailable is raised
    when the packaged files have other contents, and UnsupportedCheckpoint when a checkpoint's
    own files are not a byte-level BPE as GPT-2 uses it.
    """

    def __init__(self, spelling: Spelling) -> None:
        self._spelling = spelling
        self._lock = threading.Lock()
        self._loaded: _Loaded | None = None

    @classmethod
    def load(cls, directory: Path | None = None) -> Self:
        """The tokenizer of a checkpoint's directory, or GPT-2's own from an installed package.

        A directory holds `vocab.json` and `merges.txt`, or `encoder.json` and `vocab.bpe`, or
        `tokenizer.json`; the first found is taken. Raises Unavailable when there are none.
        """
        return cls(find_spelling(directory))

    @property
    def vocabulary_size(self) -> int:
        """Number of tokens, special ones included."""
        return len(self._ready().bytes_of)

    def token(self, id: int) -> Token:
        """The token of an id. Raises InvalidPrompt when the vocabulary has no such id."""
        bytes_of = self._ready().bytes_of
        if id not in bytes_of:
            raise InvalidPrompt(
                f"There is no token {id}: the vocabulary has {len(bytes_of)} tokens.",
                hint=f"Ids go from {min(bytes_of)} to {max(bytes_of)}.",
            )
        return Token(int(id), bytes_of[id])

    def encode(self, text: str, *, special: bool = False) -> Prompt:
        """The prompt of a text. The concatenated bytes of its tokens are the text in UTF-8.

        `<|endoftext|>` in the text is plain text, unless `special` asks for the token.
        Raises InvalidPrompt for an empty text, and for lone surrogates, which have no bytes.
        """
        if not text:
            raise InvalidPrompt("The prompt is empty.", hint="Type at least one character.")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidPrompt(
                f"Character {error.start + 1} of the prompt is half of a surrogate pair "
                f"(U+{ord(text[error.start]):04X}), which is not a character.",
                hint="Remove it, or paste the text again.",
            ) from error
        loaded = self._ready()
        ids: list[int] = []
        for part in _split(text, loaded.specials) if special else [text]:
            if special and part in loaded.specials:
                ids.append(loaded.specials[part])
            elif part:
                ids.extend(loaded.merging.encode(part, add_special_tokens=False).ids)
        return Prompt(text, tuple(self.token(id) for id in ids))

    def decode_ids(self, ids: Iterable[int]) -> Prompt:
        """The prompt of given ids. Its text is None when their bytes together are not UTF-8.

        Raises InvalidPrompt when there are no ids, or one is outside the vocabulary.
        """
        tokens = tuple(self.token(id) for id in ids)
        if not tokens:
            raise InvalidPrompt("The prompt is empty.", hint="Give at least one token id.")
        try:
            text = b"".join(token.bytes for token in tokens).decode("utf-8")
        except UnicodeDecodeError:
            return Prompt(None, tokens)
        return Prompt(text, tokens)

    def _ready(self) -> _Loaded:
        if self._loaded is None:
            with self._lock:
                if self._loaded is None:
                    self._loaded = _load(self._spelling)
        return self._loaded


def _split(text: str, specials: dict[str, int]) -> list[str]:
    """The text cut at its special tokens, which stay as parts of their own; longest first."""
    if not specials:
        return [text]
    longest_first = sorted(specials, key=len, reverse=True)
    return re.split(f"({'|'.join(re.escape(special) for special in longest_first)})", text)


def _load(spelling: Spelling) -> _Loaded:
    vocabulary = spelling.read()
    bytes_of = {id: unspell(word) for word, id in vocabulary.words.items()}
    # What is special is spelt as it is, not byte by byte.
    bytes_of |= {id: special.encode("utf-8") for special, id in vocabulary.specials.items()}
    missing = sum(spell(bytes([byte])) not in vocabulary.words for byte in range(256))
    if missing:
        raise UnsupportedCheckpoint(
            f"The vocabulary in {spelling.name} has no token for {missing} of the 256 bytes, "
            "so some texts could not be written with it.",
            hint="Use a checkpoint with GPT-2's byte-level vocabulary.",
        )
    try:
        model = tokenizers.models.BPE(vocab=vocabulary.words, merges=vocabulary.merges)
    except Exception as error:  # the package raises nothing narrower
        raise UnsupportedCheckpoint(
            f"The merges in {spelling.name} do not fit its vocabulary ({error}).",
            hint="Take both files from the same checkpoint.",
        ) from error
    merging = tokenizers.Tokenizer(model)
    merging.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return _Loaded(bytes_of, vocabulary.specials, merging)
