"""What is measured at which sizes: the full plan, and a quick one that only shows that everything runs."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from provenance.gpt2.config import Config

SMALL = Config()
MEDIUM = Config(n_layer=24, n_head=16, n_embd=1024, n_inner=4096)
LARGE = Config(n_layer=36, n_head=20, n_embd=1280, n_inner=5120)
XL = Config(n_layer=48, n_head=25, n_embd=1600, n_inner=6400)
_TINY = Config(n_layer=2, n_head=2, n_embd=32, n_ctx=64, n_vocab=101, n_inner=128)
_TINY_DEEP = Config(n_layer=4, n_head=2, n_embd=48, n_ctx=64, n_vocab=101, n_inner=192)


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes and rounds of a run.

    `rounds` are pairs of a number of tokens and how often it is timed. Everything is tapped up to
    `tapped_up_to` tokens: above it what is kept would be many times the weights. `seconds` is how long
    a page is read by everybody at once.
    """

    config: Config
    rounds: tuple[tuple[int, int], ...]
    longest: int
    tapped_up_to: int
    matrix: int
    stream_bytes: int
    scaled: tuple[tuple[str, Config], ...]
    scaled_tokens: int
    scaled_lengths: tuple[int, ...]
    largest: Config
    repeats: int
    seconds: float
    verified: tuple[str, ...]
    threads: int = 2

    @property
    def tapped_rounds(self) -> tuple[tuple[int, int], ...]:
        """Numbers of tokens at which everything is tapped, with their rounds."""
        return tuple((length, rounds) for length, rounds in self.rounds if length <= self.tapped_up_to)

    def to_json(self) -> str:
        """The plan as a measuring process is given it."""
        return json.dumps(asdict(self))


FULL = Plan(
    config=SMALL,
    rounds=((16, 60), (64, 40), (256, 20), (1024, 9)),
    longest=1024,
    tapped_up_to=256,
    matrix=2048,
    stream_bytes=512 << 20,
    scaled=(("small", SMALL), ("medium", MEDIUM), ("large", LARGE), ("XL", XL)),
    scaled_tokens=256,
    scaled_lengths=(64, 128, 256, 512, 1024),
    largest=XL,
    repeats=5,
    seconds=10.0,
    verified=("gpt2-untrained", "demo"),
)

QUICK = Plan(
    config=_TINY,
    rounds=((4, 3), (8, 3)),
    longest=16,
    tapped_up_to=8,
    matrix=64,
    stream_bytes=1 << 20,
    scaled=(("tiny", _TINY), ("tiny, deeper", _TINY_DEEP)),
    scaled_tokens=8,
    scaled_lengths=(4, 8, 16),
    largest=_TINY_DEEP,
    repeats=2,
    seconds=0.5,
    verified=("tiny-untrained",),
    threads=1,
)


def from_json(text: str) -> Plan:
    """The plan that `Plan.to_json` wrote."""
    values: dict[str, Any] = json.loads(text)
    values["config"] = _config(values["config"])
    values["largest"] = _config(values["largest"])
    values["rounds"] = tuple((length, rounds) for length, rounds in values["rounds"])
    values["scaled"] = tuple((name, _config(config)) for name, config in values["scaled"])
    values["scaled_lengths"] = tuple(values["scaled_lengths"])
    values["verified"] = tuple(values["verified"])
    return Plan(**values)


def _config(values: Mapping[str, Any]) -> Config:
    return Config(**values)
