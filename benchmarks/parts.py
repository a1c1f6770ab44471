"""The parts of a run: each is one function in a process of its own, and leaves one JSON file.

python -m benchmarks.parts NAME FILE       with the plan as JSON on standard input
"""

import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.plan import Plan, from_json


@dataclass(frozen=True, slots=True)
class Part:
    """`group` is what `--only` names; `function` is called with the plan, and with `argument` if there is one.

    `peer` names the environment that it runs in. `code` are the folders whose change makes it out of date.
    """

    name: str
    group: str
    function: str
    allocator: str
    argument: str = ""
    peer: str = ""
    code: tuple[str, ...] = ("provenance",)

    def run(self, plan: Plan) -> Any:
        """Measure; returns a dataclass."""
        return self.callable(plan, self.argument) if self.argument else self.callable(plan)

    @property
    def callable(self) -> Callable[..., Any]:
        """The function itself. Its module is imported now: others need what may not be installed here."""
        module, _, name = self.function.partition(":")
        found: Callable[..., Any] = getattr(importlib.import_module(f"benchmarks.{module}"), name)
        return found


GROUPS = ("forward", "sizes", "summaries", "commands", "pages", "peers", "scale")
PEERS = ("TransformerLens", "torchlens", "nnsight")
LARGEST = "xl"
_SERVER = ("provenance", "app", "templates", "static")


def parts(plan: Plan, allocators: tuple[str, ...], *, largest: bool = True) -> tuple[Part, ...]:
    """All parts of a plan, the short ones first. Without `largest`, neither the last size nor XL's recording."""
    named: list[Part] = []
    for allocator in allocators:
        named.append(Part(f"forward-{allocator}", "forward", "forward:measure", allocator))
        named.append(Part(f"sizes-{allocator}", "sizes", "sizes:measure", allocator))
        named.append(Part(f"peak-{allocator}", "sizes", "sizes:peak", allocator))
        named.append(Part(f"summaries-{allocator}", "summaries", "summaries:measure", allocator))
    named.append(Part("commands", "commands", "commands:measure", "defaults", code=_SERVER))
    named.append(Part("pages", "pages", "pages:measure", "defaults", code=_SERVER))
    for allocator in allocators:
        named += [
            Part(f"peers-{peer}-{allocator}", "peers", "peers:measure", allocator, argument=peer, peer=peer)
            for peer in PEERS
        ]
    named.append(Part("scale-lengths", "scale", "scale:lengths", allocators[-1]))
    sizes = plan.scaled if largest else plan.scaled[:-1]
    named += [
        Part(f"scale-size-{name}", "scale", "scale:of_size", allocators[-1], argument=name) for name, _ in sizes
    ]
    if largest:
        named.append(Part("scale-largest", "scale", "scale:largest", allocators[-1]))
    return tuple(named)


def of_name(plan: Plan, name: str) -> Part:
    """A part by its name."""
    return next(part for part in parts(plan, ("defaults", "raised")) if part.name == name)


def main(name: str, file: Path) -> None:
    """Measure one part and write its result."""
    plan = from_json(sys.stdin.read())
    result = of_name(plan, name).run(plan)
    file.write_text(json.dumps(asdict(result)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
