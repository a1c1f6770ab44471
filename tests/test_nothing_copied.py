"""No code and no sentence of the cited sources stands in this repository."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import lru_cache
from importlib import metadata
from pathlib import Path

import pytest

from provenance.gpt2.pins import PINS
from provenance.sources import git_blob_id

SKIPPED = {
    ".git", ".venv", "venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis",
    ".data", "build", "dist", "node_modules", "test-artefacts",
}  # fmt: skip
RUN, WORDS = 3, 6


@lru_cache
def sources() -> tuple[str, ...]:
    """The cited files, from the installed packages, with their blob ids checked."""
    found = []
    for pin in PINS:
        package = pin.blobs[0].packages[0]
        path = Path(str(metadata.distribution(package.distribution).locate_file(package.file)))
        assert git_blob_id(path.read_bytes()) == pin.blobs[0].id
        found.append(path.read_text())
    return tuple(found)


def lines_of(text: str) -> list[str]:
    """The lines with a letter or digit in them, stripped, blanks in them made one."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return [line for line in lines if re.search(r"\w", line)]


def runs_of(text: str) -> Iterator[tuple[str, ...]]:
    lines = lines_of(text)
    return zip(*(lines[start:] for start in range(RUN)), strict=False)


def words_of(text: str) -> str:
    """The words alone, so that quotes, line ends and comment signs do not hide a sentence."""
    return f" {' '.join(re.findall(r'[a-z0-9]+', text.lower()))} "


def sentences_of(source: str) -> Iterator[str]:
    """The words of each sentence of six words or more in a comment or docstring."""
    comments: list[str] = []
    last = -2
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            text = token.string.lstrip("#! ")
            if token.start[0] == last + 1 and comments:
                comments[-1] += " " + text
            else:
                comments.append(text)
            last = token.start[0]
    nodes = (
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
    )
    docstrings = [ast.get_docstring(node) or "" for node in nodes]
    licence = [comment for comment in comments if "Licensed under the Apache License" in comment]
    for text in [*docstrings, *(comment for comment in comments if comment not in licence)]:
        for sentence in re.split(r"[.!?:;](?:\s|$)|\n\s*\n", text):
            if len(words_of(sentence).split()) >= WORDS:
                yield words_of(sentence)


@lru_cache
def cited_runs() -> frozenset[tuple[str, ...]]:
    return frozenset(run for source in sources() for run in runs_of(source))


@lru_cache
def cited_sentences() -> frozenset[str]:
    return frozenset(sentence for source in sources() for sentence in sentences_of(source))


def text_files(root: Path) -> Iterator[tuple[Path, str]]:
    """Every text file below a directory, caches and what git does not see left out."""
    for path in sorted(root.iterdir()):
        if path.is_dir() and not path.is_symlink():
            if path.name not in SKIPPED and not path.name.endswith(".egg-info"):
                yield from text_files(path)
        elif path.is_file():
            try:
                yield path, path.read_bytes().decode("utf-8")
            except UnicodeDecodeError:
                continue


def copied_lines(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}: {' / '.join(run)}"
        for path, text in text_files(root)
        for run in runs_of(text)
        if run in cited_runs()
    ]


def copied_sentences(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}: {sentence.strip()}"
        for path, text in text_files(root)
        for words in [words_of(text)]
        for sentence in cited_sentences()
        if sentence in words
    ]


def test_no_three_lines_of_the_cited_files_stand_in_the_repository(repository: Path) -> None:
    assert len(list(text_files(repository))) > 50
    assert copied_lines(repository) == []


def test_no_sentence_of_the_cited_files_stands_in_the_repository(repository: Path) -> None:
    assert copied_sentences(repository) == []


# --- the checks can fail ---


def test_there_is_something_to_find() -> None:
    assert [len(lines_of(source)) > 120 for source in sources()] == [True, True]
    assert len(cited_runs()) > 900
    assert len(cited_sentences()) > 20
    assert all(len(sentence.split()) >= WORDS for sentence in cited_sentences())


@pytest.mark.parametrize("number", range(len(PINS)))
def test_three_copied_lines_are_found_in_any_indentation(tmp_path: Path, number: int) -> None:
    lines = sources()[number].splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("def ") and len(lines) - n > 20)
    (tmp_path / "docs").mkdir()
    copy = "\n\n".join("    " + line.replace("    ", "\t") for line in lines[start : start + 8])
    (tmp_path / "docs" / "notes.md").write_text(f"Some text.\n{copy}\nMore text.\n")
    assert copied_lines(tmp_path)[0].startswith("docs/notes.md: def ")


def test_two_copied_lines_are_too_few_to_be_found(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("\n".join(lines_of(sources()[0])[40:42]) + "\n")
    assert copied_lines(tmp_path) == []


def test_a_copied_sentence_is_found_across_lines_quotes_and_comment_signs(tmp_path: Path) -> None:
    for number, sentence in enumerate(sorted(cited_sentences())[:5]):
        words = sentence.split()
        (tmp_path / f"{number}.py").write_text(f'"{" ".join(words[:3]).title()} "\n#   "{" ".join(words[3:])}!"\n')
    assert [line.split(":")[0] for line in copied_sentences(tmp_path)] == [f"{number}.py" for number in range(5)]


def test_what_git_does_not_see_is_not_searched(tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "copy.py").write_text(sources()[0])
    (tmp_path / "picture.png").write_bytes(b"\xff\xd8" + sources()[0].encode())
    assert copied_lines(tmp_path) == []
