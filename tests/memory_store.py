"""A second store of traces, in memory: what reads and writes traces needs nothing of files."""

import hashlib
from collections.abc import Hashable, Iterator, Mapping
from datetime import UTC, datetime

import torch
from safetensors.torch import load, save

from provenance.errors import UnknownTrace
from provenance.prompt import Token
from provenance.storage import Listed
from provenance.trace import Recipe, Record, TokenRecord, Trace


class MemoryStore:
    """Traces in a dictionary. It keeps the bytes of the tensors, as another place would."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Record, bytes, bytes]] = {}
        self._texts: dict[tuple[str, str], str] = {}
        self._changes = 0

    def save(
        self,
        recipe: Recipe,
        generated: tuple[Token, ...],
        tensors: Mapping[str, torch.Tensor],
        patches: Mapping[str, torch.Tensor] | None = None,
    ) -> Trace:
        if recipe.id not in self._kept:
            content = save({name: tensor.contiguous() for name, tensor in tensors.items()})
            record = Record(
                recipe=recipe,
                generated=tuple(map(TokenRecord.of, generated)),
                created_at=datetime.now(UTC).isoformat(timespec="microseconds"),
                tensors_sha256=hashlib.sha256(content).hexdigest(),
                tensors_bytes=len(content),
            )
            self._kept[recipe.id] = record, content, save(dict(patches or {}))
            self._changes += 1
        return self.open(recipe.id)

    def open(self, id: str) -> Trace:
        record, content, patches = self._kept[self.full_id(id)]
        return Trace(record, load(content), load(patches))

    def __contains__(self, id: str) -> bool:
        return id in self._kept

    def full_id(self, id: str) -> str:
        found = [known for known in self._kept if known == id or (len(id) >= 6 and known.startswith(id))]
        if len(found) != 1:
            raise UnknownTrace(f"There is no trace {id!r} in memory.")
        return found[0]

    def ids(self) -> Iterator[str]:
        return iter(tuple(self._kept))

    def list(self) -> tuple[Listed, ...]:
        by_age = sorted(self._kept.items(), key=lambda kept: kept[1][0].created_at, reverse=True)
        return tuple(Listed(id, record) for id, (record, _, _) in by_age)

    def delete(self, id: str) -> None:
        whole = self.full_id(id)
        del self._kept[whole]
        self._texts = {key: text for key, text in self._texts.items() if key[0] != whole}
        self._changes += 1

    def attach(self, id: str, name: str, content: str) -> None:
        self._texts[self.full_id(id), name] = content
        self._changes += 1

    def attached(self, id: str, name: str) -> str | None:
        return self._texts.get((self.full_id(id), name))

    def state(self) -> Hashable:
        return self._changes

    def state_of(self, id: str) -> Hashable:
        return self._changes if id in self._kept else None

    def clean(self) -> int:
        return 0
