"""Executes verified source bytes as a module that exists nowhere else."""

import builtins
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from provenance.errors import InvalidInput


class CodeFile(NamedTuple):
    """A file as its code objects name it, and its bytes."""

    filename: str
    source: bytes


def load(source: bytes, filename: str, imports: Mapping[str, object]) -> dict[str, object]:
    """The namespace that the source makes. Its functions' code carries `filename`.

    Imports are answered from `imports` alone: `import tensorflow` from its entry of that name,
    `from tensorflow.contrib.training import HParams` from an entry `tensorflow.contrib.training` or
    from the attributes of `tensorflow`. Nothing enters `sys.modules`. Raises InvalidInput for an
    import that is not provided and for bytes that are no Python source.
    """
    namespace: dict[str, object] = {
        "__name__": filename,
        "__file__": filename,
        "__builtins__": {**vars(builtins), "__import__": _Imports(imports)},
    }
    try:
        exec(compile(source, filename, "exec", dont_inherit=True), namespace)
    except (ImportError, SyntaxError, ValueError) as error:
        raise InvalidInput(
            f"{filename} cannot be executed: {error}.",
            hint=f"It may import: {', '.join(sorted(imports)) or 'nothing'}.",
        ) from error
    return namespace


def installed(module: ModuleType) -> CodeFile:
    """The file that an imported module was read from. Raises InvalidInput if it has none."""
    filename = getattr(module, "__file__", None)
    if filename is None or not filename.endswith(".py"):
        raise InvalidInput(f"The module {module.__name__} was not loaded from a source file.")
    return CodeFile(filename, Path(filename).read_bytes())


class _Imports:
    """Stands in for `__import__`, with a fixed set of answers."""

    def __init__(self, provided: Mapping[str, object]) -> None:
        self._provided = provided

    def __call__(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> object:
        if level:
            raise ImportError(f"it imports {name!r} relative to a package that it does not have")
        found = self._find(name)
        return found if fromlist else self._find(name.partition(".")[0])

    def _find(self, name: str) -> object:
        if name in self._provided:
            return self._provided[name]
        parent, _, last = name.rpartition(".")
        if not parent:
            raise ModuleNotFoundError(f"it imports {name!r}, which is not provided", name=name)
        holder = self._find(parent)
        try:
            return getattr(holder, last)
        except AttributeError:
            raise ModuleNotFoundError(f"it imports {name!r}, which is not provided", name=name) from None
