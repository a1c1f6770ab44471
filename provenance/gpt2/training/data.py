"""The demo model's batches: windows of its text, and random sequences that repeat."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from provenance.gpt2.training.corpus import END, document
from provenance.prompt import Tokenizer

Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]

HELD_OUT_ONE_IN = 20


@dataclass(frozen=True, slots=True)
class Mix:
    """What a batch has besides text: shares of repeated random tokens, of the text's and of all tokens.

    The text's are drawn from `kinds` of them, always the same ones, and repeated `evenly` or not.
    """

    occurring: float
    every: float
    kinds: int
    evenly: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """Tokens (B, T), the token after each (B, T), and where that one is learned (B, T)."""

    tokens: Ids
    targets: Ids
    learned: Flags


@dataclass(frozen=True)
class Text:
    """Documents as token ids, each followed by the end mark, and where each one starts."""

    ids: NDArray[np.uint16]
    starts: Ids

    @cached_property
    def occurring(self) -> Ids:
        """The tokens that occur, in order of id."""
        return np.unique(self.ids).astype(np.int64)

    @property
    def sha256(self) -> str:
        """Hash of the ids (little-endian, two bytes each): the same text has the same."""
        return hashlib.sha256(self.ids.astype("<u2").tobytes()).hexdigest()

    def windows(self, number: int, length: int) -> Ids:
        """The first `number` windows (number, length), each from the start of a document; none overlap."""
        found: list[Ids] = []
        free = 0
        for start in self.starts:
            if len(found) < number and start >= free and start + length <= len(self.ids):
                found.append(self.ids[start : start + length].astype(np.int64))
                free = start + length
        return np.stack(found)


def tokenize(seed: int, documents: int, tokenizer: Tokenizer, *, held_out: bool = False) -> Text:
    """The first documents of a seed that belong to training, or that are held out, in GPT-2's tokens.

    What is held out is decided by a document's wording, so that no document can be in both.
    """
    (end,) = tokenizer.encode(END, special=True).ids
    parts = [(*tokenizer.encode(text).ids, end) for text in islice(_split(seed, held_out), documents)]
    lengths = np.array([len(part) for part in parts], dtype=np.int64)
    ids = np.fromiter((id for part in parts for id in part), dtype=np.uint16, count=int(lengths.sum()))
    return Text(ids, np.concatenate(([0], lengths.cumsum()[:-1])))


def _split(seed: int, held_out: bool) -> Iterator[str]:
    for text in (document(seed, number) for number in count()):
        if (crc32(text.encode()) % HELD_OUT_ONE_IN == 0) is held_out:
            yield text


def repeated(random: np.random.Generator, pool: Ids, length: int, *, evenly: bool = False) -> tuple[Ids, Flags]:
    """Random tokens of `pool` (length), some of which come a second time, and which those are.

    Either a stretch is repeated to the end (`evenly`: always, and every size as often), or it comes
    back once after something else. Unless `evenly`, the first token of a copy is not marked: nothing
    says that a copy begins there.
    """
    sequence = random.choice(pool, length)
    copied = np.zeros(length, dtype=np.bool_)
    if evenly:
        period = int(random.integers(4, length // 2 + 1))
        sequence = np.resize(sequence[:period], length)
        copied[period:] = True
    elif random.random() < 0.6:
        period = _size(random, length // 2)
        sequence = np.resize(sequence[:period], length)
        copied[period + 1 :] = True
    else:
        size = _size(random, length // 3)
        first = int(random.integers(0, length - 2 * size + 1))
        second = int(random.integers(first + size, length - size + 1))
        sequence[second : second + size] = sequence[first : first + size]
        copied[second + 1 : second + size] = True
    return sequence, copied


def _size(random: np.random.Generator, largest: int) -> int:
    """From 3 up, short ones as often as long ones: what repeats soon is where copying is first learned."""
    return int(np.exp(random.uniform(np.log(3), np.log(largest + 1))))


def batch(text: Text, vocabulary: int, seed: int, step: int, rows: int, length: int, mix: Mix) -> Batch:
    """The batch of a step: it depends on nothing but the arguments."""
    random = np.random.default_rng((seed, step))
    some = np.random.default_rng(seed).permutation(text.occurring)[: mix.kinds]
    every = np.arange(vocabulary)
    last = np.searchsorted(text.starts, len(text.ids) - length - 1, side="right")
    kept = [repeated(random, some, length + 1, evenly=mix.evenly) for _ in range(round(rows * mix.occurring))]
    kept += [repeated(random, every, length + 1) for _ in range(round(rows * mix.every))]
    for start in random.choice(text.starts[:last], rows - len(kept)):
        kept.append((text.ids[start : start + length + 1].astype(np.int64), np.ones(length + 1, dtype=np.bool_)))
    sequences, flags = (np.stack(part) for part in zip(*kept, strict=True))
    return Batch(sequences[:, :-1], sequences[:, 1:], flags[:, 1:])


def probes(seed: int, pool: Ids, rows: int, half: int) -> Ids:
    """Sequences (rows, 2·half) of random tokens, all different, whose second half is the first again."""
    random = np.random.default_rng((seed, half))
    first = np.stack([random.choice(pool, half, replace=False) for _ in range(rows)])
    return np.concatenate((first, first), axis=1)
