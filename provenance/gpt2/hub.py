"""OpenAI's published weights on the Hugging Face hub: what its cache holds, and fetching them when asked.

The hub's client takes a while to import, so it is imported only where something of it is needed.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from huggingface_hub import constants

from provenance.errors import BlobMismatch, Unavailable, UnknownModel, UnsupportedCheckpoint
from provenance.gpt2.stored import INDEX, SINGLE, file_sha256, find_files
from provenance.sources import git_blob_id

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling

_CLIENTS = ("httpx", "huggingface_hub")
_TEXTS = ("config.json", "vocab.json", "merges.txt")


@dataclass(frozen=True, slots=True)
class Published:
    """A repository of the hub, its weights' size, and the commit to take; without one, the newest."""

    repository: str
    megabytes: int
    commit: str | None = None


HUB = {
    "gpt2": Published("openai-community/gpt2", 548, "607a30d783dfa663caf39e06633721c8d4cfcd7e"),
    "gpt2-medium": Published("openai-community/gpt2-medium", 1520, "6dcaa7a952f72f9298047fd5137cd6e4f05f41da"),
    "gpt2-large": Published("openai-community/gpt2-large", 3247, "32b71b12589c2f8d625668d2335a01cac3249519"),
    "gpt2-xl": Published("openai-community/gpt2-xl", 6432, "15ea56dee5df4983c59b2538573817e1667135e2"),
}


@dataclass(frozen=True, slots=True)
class Fetched:
    """What was fetched: the folder in the cache, the commit, and the sizes of its files."""

    directory: Path
    commit: str
    sizes: dict[str, int]


def cached(name: str) -> Path | None:
    """The folder in the hub's cache that holds a model's config and all its weights, if there is one."""
    published = HUB[name]
    if not (Path(constants.HF_HUB_CACHE) / f"models--{published.repository.replace('/', '--')}").is_dir():
        return None
    from huggingface_hub import try_to_load_from_cache

    for revision in dict.fromkeys((published.commit, "main")):
        found = try_to_load_from_cache(published.repository, "config.json", revision=revision) if revision else None
        if isinstance(found, str) and _is_whole(Path(found).parent):
            return Path(found).parent
    return None


def fetch(name: str, tell: Callable[[str], None], *, endpoint: str | None = None) -> Fetched:
    """Download a model into the hub's cache, going on where an earlier try stopped, and check every hash.

    `tell` is called once before the download, with what will be downloaded. Raises UnknownModel for a
    name that the hub does not have, Unavailable, and BlobMismatch for bytes other than the published ones.
    """
    if name not in HUB:
        raise UnknownModel(f"There is nothing to fetch for {name[:80]!r}.", hint=f"The hub has {', '.join(HUB)}.")
    from huggingface_hub import HfApi, hf_hub_download

    published = HUB[name]
    with _said(published.repository):
        info = HfApi(endpoint=endpoint).model_info(
            published.repository, revision=published.commit, files_metadata=True
        )
    listed = {sibling.rfilename: sibling for sibling in info.siblings or ()}
    wanted = _wanted(listed)
    commit = info.sha or published.commit or ""
    sizes = {file: listed[file].size or 0 for file in wanted}
    tell(f"{name}: {len(wanted)} files, {sum(sizes.values()) / 1e6:,.0f} MB, from {published.repository} at {commit}")
    directory = Path()
    for file in wanted:
        with _said(published.repository):
            # Without a pin the cache has to learn what `main` is: a later look-up asks for that name.
            path = Path(
                hf_hub_download(published.repository, file, revision=published.commit or "main", endpoint=endpoint)
            )
        _check(path, listed[file])
        directory = path.parent
    if directory.name != commit:
        raise Unavailable(f"{published.repository} changed during the download.", hint="Fetch it again.")
    return Fetched(directory, commit, sizes)


def _wanted(listed: "dict[str, RepoSibling]") -> list[str]:
    if SINGLE in listed:
        weights = [SINGLE]
    else:
        weights = [INDEX, *sorted(file for file in listed if re.fullmatch(r"model-\d+-of-\d+\.safetensors", file))]
    lacking = [file for file in ("config.json", weights[0]) if file not in listed]
    if lacking:
        raise Unavailable(f"The published repository has no {lacking[0]}.")
    return [file for file in (*_TEXTS, *weights) if file in listed]


def _check(path: Path, published: "RepoSibling") -> None:
    """Compare a file with what the hub says of it: SHA-256 of large files, git blob id of small ones."""
    if published.lfs is not None:
        promised: str | None = published.lfs.sha256
        found = file_sha256(path.resolve())
    else:
        promised, found = published.blob_id, git_blob_id(path.read_bytes())
    if found != promised:
        path.resolve().unlink()
        path.unlink(missing_ok=True)
        raise BlobMismatch(
            f"{path.name} is not what was published: its hash is {found}, not {promised}.",
            hint="It was deleted. Fetch it again.",
        )


def _is_whole(directory: Path) -> bool:
    try:
        return bool(find_files(directory))
    except UnsupportedCheckpoint:
        return False


@contextmanager
def _said(repository: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # The client passes on errors of its HTTP library, which have no base in common with its own.
        if not isinstance(error, OSError) and type(error).__module__.partition(".")[0] not in _CLIENTS:
            raise
        reason = str(error).strip().partition("\n")[0][:200] or type(error).__name__
        raise Unavailable(
            f"{repository} could not be fetched: {reason}",
            hint="Try again: a download goes on where it stopped. Or name a folder that holds the weights.",
        ) from error
