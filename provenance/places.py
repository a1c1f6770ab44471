"""Where things are kept on this machine, unless the environment says otherwise.

The server, the command line and `import provenance` all ask here, so that each finds the others' traces.
"""

import os
from pathlib import Path

from platformdirs import user_cache_path, user_data_path

NAME = "tensor-provenance"
PREFIX = "TENSOR_PROVENANCE_"
"""What the names of all our environment variables start with."""
HOST, PORT = "127.0.0.1", 8000


def data_directory() -> Path:
    """Where traces are stored."""
    return _path("DATA_DIRECTORY") or user_data_path(NAME)


def cache_directory() -> Path:
    """Where verified sources are kept."""
    return _path("CACHE_DIRECTORY") or user_cache_path(NAME)


def traces_below(data: Path) -> Path:
    """The directory of the trace store."""
    return data / "traces"


def sources_below(cache: Path) -> Path:
    """The directory of the checked sources."""
    return cache / "sources"


def model_directories() -> tuple[Path, ...]:
    """Checkpoints to offer besides the usual ones, by their folders' names."""
    return split_paths(os.environ.get(f"{PREFIX}MODEL_DIRECTORIES", ""))


def source_directories() -> tuple[Path, ...]:
    """Directories or clones that hold the cited sources."""
    return split_paths(os.environ.get(f"{PREFIX}SOURCE_DIRECTORIES", ""))


def split_paths(text: str) -> tuple[Path, ...]:
    """A list of paths, written with the system's path separator."""
    return tuple(Path(part) for part in text.split(os.pathsep) if part)


def explorer_address() -> str:
    """Where the explorer's pages are when it runs on this machine: `http://127.0.0.1:8000`."""
    host, port = (os.environ.get(f"{PREFIX}{name}") for name in ("HOST", "PORT"))
    return f"http://{HOST if host in (None, '', '0.0.0.0', '::') else host}:{port or PORT}"


def _path(name: str) -> Path | None:
    value = os.environ.get(f"{PREFIX}{name}")
    return None if value is None else Path(value)
