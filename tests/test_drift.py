"""Cited lines are followed into another content by what they say, never by a number that happens to fit."""

import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import pytest

from app.drift import by_place, citations_of
from provenance.citation import Anchor, Blob, Citation, Package, Pin, cite
from provenance.errors import AnchorMoved, InvalidInput, SourceUnavailable
from provenance.gpt2.catalogue import CATALOGUE
from provenance.gpt2.pins import OPENAI, PINS, TRANSFORMERS
from provenance.gpt2.releases import RELEASES, Release
from provenance.gpt2.repin import repinned, write
from provenance.sources import Change, Drift, Obtained, Shelf, git_blob_id, resolve, resolve_all

OLD = b"""\
class Block:
    def forward(self, x):
        residual = x
        x = self.first(x)
        x = x + residual
        residual = x
        x = self.second(x)
        x = residual + x
        return x


def attend(q, k, mask, scaling=None):
    if scaling is None:
        scaling = 1.0
    w = product(q, k) * scaling
    if mask is not None:
        w = w + mask
    w = softmax(w)
    return w


def apart(x):
    y = x + 1
    return y
"""


def pin_of(data: bytes) -> Pin:
    blob = Blob(git_blob_id(data), (Package("some-pack", "1.0", "some/model.py"),))
    return Pin("some", "owner/some", "a" * 40, "src/model.py", (blob,), None, "MIT")


def change(anchor: str, new: bytes, old: bytes = OLD) -> Change:
    """What became of the one place that the anchor names."""
    (found,) = resolve_all([cite(pin_of(old), (anchor, *resolve(old, Anchor.parse(anchor))))], old, new)
    if found.new_anchor is not None:
        assert resolve(new, found.new_anchor) == (found.new_first, found.new_last)
        assert new.decode().split("\n")[found.new_first - 1 : found.new_last] == found.new_text.split("\n")
    return found


def edited(*edits: tuple[str, str]) -> bytes:
    """OLD with each text, which stands there once, replaced."""
    text = OLD.decode()
    for before, after in edits:
        assert text.count(before) == 1
        text = text.replace(before, after)
    return text.encode()


def state(anchor: str, new: bytes) -> tuple[Drift, int, int, str]:
    found = change(anchor, new)
    return found.state, found.new_first, found.new_last, str(found.new_anchor)


def test_a_content_beside_itself_keeps_every_line() -> None:
    assert state("Block.forward:residual#2..x#3", OLD) == (Drift.SAME, 6, 7, "Block.forward:residual#2..x#3")
    assert state("attend", OLD) == (Drift.SAME, 12, 19, "attend")


def test_lines_behind_an_insertion_moved() -> None:
    new = b"import math\n" + OLD
    assert state("attend:w#3", new) == (Drift.MOVED, 19, 19, "attend:w#3")


def test_a_number_that_hits_another_statement_is_not_believed() -> None:
    """`x#3` still resolves, to the inserted line; the pinned text is `x#4` now."""
    new = edited(("        x = x + residual\n", "        x = x + residual\n        x = self.extra(x)\n"))
    found = change("Block.forward:x#3", new)
    assert resolve(new, Anchor.parse("Block.forward:x#3")) == (6, 6)
    assert (found.state, found.new_first, str(found.new_anchor)) == (Drift.MOVED, 8, "Block.forward:x#4")
    assert "would hit other lines there: 6" in found.note


def test_a_twin_with_the_same_text_is_told_apart_by_its_neighbours() -> None:
    """A third `residual = x` in front of both: the pinned number and text fit the wrong one."""
    first = "        x = self.first(x)\n"
    new = edited((first, f"        x = self.zeroth(x)\n        residual = x\n{first}"))
    assert resolve(new, Anchor.parse("Block.forward:residual#2")) == (5, 5)
    assert state("Block.forward:residual#2", new) == (Drift.MOVED, 8, 8, "Block.forward:residual#3")


def test_a_lost_statement_is_not_replaced_by_its_twin() -> None:
    new = edited(("        residual = x\n        x = self.second(x)\n", "        x = self.second(x)\n"))
    assert change("Block.forward:residual#2", new).state is Drift.VANISHED
    assert state("Block.forward:residual", new) == (Drift.SAME, 3, 3, "Block.forward:residual")


def test_statements_in_another_order_moved() -> None:
    lines = OLD.decode().split("\n")
    lines[14], lines[15:17] = lines[15], [lines[16], lines[14]]
    new = "\n".join(lines).encode()
    assert state("attend:w", new) == (Drift.MOVED, 17, 17, "attend:w#2")
    assert state("attend:if#2..w#2", new) == (Drift.MOVED, 15, 16, "attend:if#2..w")


def test_another_text_in_the_same_place_changed() -> None:
    new = edited(("product(q, k) * scaling", "product(q, k)"))
    found = change("attend:w", new)
    assert (found.state, found.new_first, found.new_last) == (Drift.CHANGED, 15, 15)
    assert found.old_text == "    w = product(q, k) * scaling"
    assert found.new_text == "    w = product(q, k)"


def test_a_place_whose_inside_grew_changed_with_all_its_lines() -> None:
    new = edited(("        w = w + mask\n", "        mask = widened(mask)\n        w = w + mask\n"))
    assert state("attend:if#2..w#2", new) == (Drift.CHANGED, 16, 18, "attend:if#2..w#2")


def test_a_renamed_variable_changed_and_has_an_anchor_of_its_own_name() -> None:
    new = edited(("    y = x + 1\n    return y", "    z = x + 1\n    return z"))
    assert state("apart:y", new) == (Drift.CHANGED, 23, 23, "apart:z")


def test_indentation_alone_is_a_change_and_said_to_be_only_that() -> None:
    new = edited(("    y = x + 1\n", "    with here:\n        y = x + 1\n"))
    found = change("apart:y", new)
    assert (found.state, found.new_first, found.note) == (Drift.CHANGED, 24, "Only blanks differ.")


@pytest.mark.parametrize(
    "new",
    [
        edited(("    w = softmax(w)\n", "")),
        edited(("    w = softmax(w)\n", "    log(q, k)\n")),
        edited(("def attend(", "def attends(")),
        OLD + b"\n\ndef attend(q):\n    return q\n",
        b"",
    ],
    ids=["deleted", "replaced by something else", "function renamed", "function defined twice", "empty file"],
)
def test_what_has_no_counterpart_vanished(new: bytes) -> None:
    found = change("attend:w#3", new)
    assert (found.state, found.new_anchor, found.new_span) == (Drift.VANISHED, None, None)
    assert found.note


def test_a_vanished_text_that_stands_elsewhere_is_pointed_at() -> None:
    found = change("attend:w#3", edited(("def attend(", "def attends(")))
    assert "is not defined in this source" in found.note
    assert found.note.endswith(" The same text stands at line 18.")


def test_a_content_that_is_no_python_is_refused() -> None:
    with pytest.raises(AnchorMoved, match="cannot be read as Python"):
        change("attend:w", b"def attend(:\n")


def test_lines_that_do_not_stand_in_the_pinned_content_are_refused() -> None:
    with pytest.raises(AnchorMoved):
        resolve_all([cite(pin_of(OLD), ("attend:w", 14))], OLD, OLD)


# --- the real files ---


def installed(pin: Pin) -> bytes:
    package = pin.blobs[0].packages[0]
    return Path(str(metadata.distribution(package.distribution).locate_file(package.file))).read_bytes()


@pytest.mark.parametrize("pin", PINS, ids=lambda pin: pin.label)
def test_the_installed_files_keep_every_citation(pin: Pin) -> None:
    data = installed(pin)
    changes = resolve_all(citations_of(CATALOGUE, pin), data, data)
    assert len(changes) > 20
    assert {c.state for c in changes} == {Drift.SAME}
    assert all(c.new_anchor == c.span.anchor for c in changes)


def test_one_line_more_before_a_class_moves_what_stands_behind_and_nothing_else() -> None:
    """As release 5.14.1 differs: one line more inside a function that nothing cites."""
    data = installed(TRANSFORMERS)
    lines = data.split(b"\n")
    new = b"\n".join([*lines[:446], b"        # one more line", *lines[446:]])
    for found in resolve_all(citations_of(CATALOGUE, TRANSFORMERS), data, new):
        behind = found.span.first > 446
        assert found.state is (Drift.MOVED if behind else Drift.SAME)
        assert (found.new_first, found.new_last) == (found.span.first + behind, found.span.last + behind)


def shelf_here() -> Shelf:
    from app.drift import shelf_of
    from app.settings import load_settings

    return shelf_of(load_settings())


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
def test_the_saved_report_is_what_the_contents_say(release: Release) -> None:
    other = shelf_here().at_hand(release.pin, release.blob)
    if other is None:
        pytest.skip(f"{release.blob.release} is not at hand: tensor-provenance repin transformers {release.version}")
    changes = by_place(resolve_all(citations_of(CATALOGUE, release.pin), installed(release.pin), other))
    found = [(str(c.span.anchor), c.state, c.new_first, c.new_last) for c in changes if c.state is not Drift.SAME]
    assert tuple(found) == release.findings


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
def test_the_saved_report_is_about_the_present_citations(release: Release) -> None:
    cited = Counter(str(s.anchor) for c in citations_of(CATALOGUE, release.pin) for s in set(c.spans))
    assert release.valid
    assert {anchor for anchor, *_ in release.findings} <= set(cited)


# --- other contents ---


def wheel(directory: Path, version: str, data: bytes) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(directory / f"some_pack-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr("some/model.py", data)


@pytest.mark.parametrize("target", ["2.0", "some-pack==2.0", "Some_Pack==2.0"])
def test_a_release_is_read_from_the_archive_of_exactly_its_version(tmp_path: Path, target: str) -> None:
    wheel(tmp_path / "archives", "2.0.1", b"later = 1\n")
    wheel(tmp_path / "archives", "2.0", b"wanted = 1\n")
    found = Shelf(tmp_path).obtain(pin_of(OLD), target)
    assert (found.data, found.label, found.revision) == (b"wanted = 1\n", "some-pack 2.0", None)
    assert found.package == Package("some-pack", "2.0", "some/model.py")


def test_the_installed_release_needs_no_archive(tmp_path: Path) -> None:
    version = metadata.version("transformers")
    found = Shelf(tmp_path).obtain(TRANSFORMERS, f"transformers=={version}")
    assert (found.data, found.origin) == (installed(TRANSFORMERS), f"installed package transformers {version}")


@pytest.mark.parametrize("target", ["", "main", "9b63575", "other==1.0", "some-pack>=1", "A" * 40])
def test_other_targets_are_refused(tmp_path: Path, target: str) -> None:
    with pytest.raises(InvalidInput if target != "9b63575" else SourceUnavailable):
        Shelf(tmp_path).obtain(pin_of(OLD), target)


def test_a_release_or_revision_that_is_not_here_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailable, match=r"some-pack 9\.9 is neither installed nor among the archives"):
        Shelf(tmp_path).obtain(pin_of(OLD), "9.9")
    with pytest.raises(SourceUnavailable, match="No clone here holds revision bbb"):
        Shelf(tmp_path).obtain(pin_of(OLD), "b" * 40)


def test_a_content_is_at_hand_only_with_its_blob_id(tmp_path: Path) -> None:
    wheel(tmp_path / "archives", "1.0", OLD + b"\n")
    assert Shelf(tmp_path).at_hand(pin_of(OLD), pin_of(OLD).blobs[0]) is None
    wheel(tmp_path / "archives", "1.0", OLD)
    assert Shelf(tmp_path).at_hand(pin_of(OLD), pin_of(OLD).blobs[0]) == OLD


# --- writing ---

REVISION = "c" * 40


@dataclass(frozen=True)
class Checkout:
    """A copy of the files that state GPT-2's pins and citations."""

    family: Path

    def cited(self) -> list[list[str]]:
        """Repository, revision, blob ids, anchor, first and last line of all that the copy's own code cites."""
        code = (
            "from provenance.gpt2.operations import OPERATIONS\n"
            "for o in OPERATIONS:\n for e in o.evidence:\n  for s in e.citation.spans:\n"
            "   p = e.citation.pin\n"
            "   print(p.repository, p.revision, *(b.id for b in p.blobs), s.anchor, s.first, s.last, sep='\\t')\n"
        )
        root = self.family.parent.parent
        run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
        return [line.split("\t") for line in run.stdout.splitlines()]

    def texts(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.family.glob("*.py"))}


@pytest.fixture
def checkout(tmp_path: Path, repository: Path) -> Checkout:
    left_out = shutil.ignore_patterns("__pycache__", "demo")
    shutil.copytree(repository / "provenance", tmp_path / "provenance", ignore=left_out)
    shutil.copy(repository / "pyproject.toml", tmp_path)
    return Checkout(tmp_path / "provenance" / "gpt2")


def compared(pin: Pin, new: bytes) -> tuple[Change, ...]:
    return resolve_all(citations_of(CATALOGUE, pin), installed(pin), new)


def shifted(data: bytes) -> bytes:
    """Two lines more at the top, and one statement more before a cited one that is counted."""
    lines = data.split(b"\n")
    return b"\n".join([b"# one", b"# two", *lines[:239], b"        hidden_states = something(1, 2, 3)", *lines[239:]])


def test_writing_pins_the_new_content_and_the_copy_cites_its_lines(checkout: Checkout) -> None:
    new = shifted(installed(TRANSFORMERS))
    changes = compared(TRANSFORMERS, new)
    target = repinned(TRANSFORMERS, Obtained(new, "a revision", "a clone", revision=REVISION), None)
    before = checkout.texts()
    written = write(TRANSFORMERS, target, changes, new, checkout.family)
    after = checkout.texts()

    assert {path.name for path in written.files} == {"pins.py", "operations.py", "operations_attention.py"}
    assert {name for name in after if after[name] != before[name]} == {path.name for path in written.files}
    cited = checkout.cited()
    pinned = [TRANSFORMERS.repository, REVISION, git_blob_id(new)]
    assert [*pinned, "GPT2MLP.forward:hidden_states#3", "243", "243"] in cited  # was hidden_states#2 at line 240
    assert [*pinned, "GPT2MLP.forward:hidden_states", "241", "241"] in cited
    theirs = [row for row in cited if row[0] == TRANSFORMERS.repository]
    assert {tuple(row[:3]) for row in theirs} == {tuple(pinned)}
    assert all(resolve(new, Anchor.parse(row[3])) == (int(row[4]), int(row[5])) for row in theirs)
    untouched = [str(s.anchor) for o in CATALOGUE.operations.values() for e in o.evidence
                 if e.citation.pin == OPENAI for s in e.citation.spans]  # fmt: skip
    assert [row[-3] for row in cited if row[0] == OPENAI.repository] == untouched


def refused(checkout: Checkout, new: bytes, message: str, *, pin: Pin | None = None) -> None:
    before = checkout.texts()
    target = pin or repinned(TRANSFORMERS, Obtained(new, "a revision", "a clone", revision=REVISION), None)
    with pytest.raises(InvalidInput, match=message):
        write(TRANSFORMERS, target, compared(TRANSFORMERS, new), new, checkout.family)
    assert checkout.texts() == before


def test_nothing_is_written_where_a_citation_vanished(checkout: Checkout) -> None:
    without = b"\n".join(line for n, line in enumerate(installed(TRANSFORMERS).split(b"\n"), 1) if n != 235)
    refused(checkout, without, "without a counterpart there: GPT2MLP.__init__:self.act")


def test_nothing_is_written_outside_a_checkout(checkout: Checkout) -> None:
    (checkout.family.parent.parent / "pyproject.toml").unlink()
    refused(checkout, shifted(installed(TRANSFORMERS)), "is no checkout")


def test_nothing_is_written_for_another_blob_than_was_compared(checkout: Checkout) -> None:
    refused(checkout, shifted(installed(TRANSFORMERS)), "another blob", pin=replace(TRANSFORMERS, license="none"))


def test_nothing_is_written_where_the_result_would_not_resolve(checkout: Checkout) -> None:
    """A span that was added by hand and not compared stays where it is, which is wrong there."""
    path = checkout.family / "operations.py"
    text = path.read_text()
    path.write_text(text.replace('("GPT2MLP.forward:hidden_states", 239)', '("GPT2MLP.forward:return", 243)'))
    assert path.read_text() != text
    refused(checkout, shifted(installed(TRANSFORMERS)), "does not resolve")


def test_a_release_is_pinned_only_with_its_revision() -> None:
    package = Package("transformers", "9.0", "transformers/models/gpt2/modeling_gpt2.py")
    content = Obtained(OLD, "transformers 9.0", "an archive", package=package)
    with pytest.raises(InvalidInput, match="which revision it was made from"):
        repinned(TRANSFORMERS, content, None)
    pin = repinned(TRANSFORMERS, content, REVISION)
    assert (pin.revision, pin.blobs, pin.shared_lines) == (REVISION, (Blob(git_blob_id(OLD), (package,)),), None)


def test_a_candidate_keeps_the_packages_that_carry_it() -> None:
    data = installed(TRANSFORMERS)
    pin = repinned(TRANSFORMERS, Obtained(data, "a revision", "a clone", revision=REVISION), None)
    assert pin.blobs == TRANSFORMERS.blobs[:1]


def test_citations_are_compared_once_each() -> None:
    found: tuple[Citation, ...] = citations_of(CATALOGUE, OPENAI)
    assert len(found) == len(set(found))
