"""Bytes of cited files are accepted by their blob id alone, and excerpts say what is known."""

import subprocess
import threading
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provenance.citation import Blob, Citation, Package, Pin, cite
from provenance.errors import AnchorMoved, BlobMismatch, CarrierFailed, SourceUnavailable
from provenance.gpt2.pins import OPENAI, PINS, TRANSFORMERS
from provenance.sources import (
    CacheCarrier,
    Carrier,
    Content,
    Delivery,
    Excerpt,
    Gap,
    PackageCarrier,
    Proof,
    Run,
    Sources,
    State,
    default_sources,
    git_blob_id,
)

# Two contents of one file: the same up to line 3, one line more in the second from there on.
FIRST = b"def shared():\n    value = 1\n    return value\n\n\ndef moved():\n    return 2\n"
SECOND = b"def shared():\n    value = 1\n    return value\n\n\n# longer\ndef moved():\n    return 2\n"
TWO = Pin(
    label="two",
    repository="owner/two",
    revision="a" * 40,
    path="src/two.py",
    blobs=(
        Blob(git_blob_id(FIRST), (Package("two-pack", "1.1", "two/two.py"),)),
        Blob(git_blob_id(SECOND), (Package("two-pack", "1.0", "two/two.py"),)),
    ),
    shared_lines=3,
    license="MIT",
)
SHARED_LINES = cite(TWO, ("shared:value..return", 2, 3))
MOVED_LINES = cite(TWO, ("moved", 6, 7))


@dataclass
class Fake:
    """A carrier that hands over what the test says, and counts how often it was asked."""

    data: bytes | None = None
    at_revision: bool = False
    remote: bool = False
    failure: str = ""
    name: str = "fake"
    delay_seconds: float = 0
    asked: int = 0

    def read(self, pin: Pin) -> Delivery | None:
        self.asked += 1
        time.sleep(self.delay_seconds)
        if self.failure:
            raise CarrierFailed(self.failure)
        return None if self.data is None else Delivery(self.data, self.name, self.at_revision)


def installed(pin: Pin) -> bytes:
    package = pin.blobs[0].packages[0]
    return Path(str(metadata.distribution(package.distribution).locate_file(package.file))).read_bytes()


@settings(max_examples=12, deadline=None)
@given(st.binary(max_size=300))
def test_the_blob_id_is_the_one_that_git_gives(content: bytes) -> None:
    done = subprocess.run(["git", "hash-object", "--stdin"], input=content, capture_output=True, check=True)
    assert git_blob_id(content) == done.stdout.decode().strip()


def test_the_installed_packages_carry_both_cited_files(tmp_path: Path) -> None:
    sources = Sources([PackageCarrier()], tmp_path)
    openai, transformers = (sources.content(pin) for pin in PINS)
    assert openai.data == installed(OPENAI) and len(openai.data) == 6503
    assert openai.carrier == "installed package gpt-2-simple 0.3" and openai.settled
    assert transformers.blob == TRANSFORMERS.blobs[0] and not transformers.settled


@pytest.mark.parametrize(
    ("citation", "numbers", "gaps"),
    [
        (cite(OPENAI, ("norm", 28, 38)), [*range(28, 39)], []),
        (cite(OPENAI, ("attn:with..present", 101, 104)), [101, 102, 103, 104], []),
        (
            cite(
                TRANSFORMERS,
                ("GPT2Block.__init__:self.ln_1", 252),
                ("GPT2Block.forward:residual..hidden_states", 272, 273),
            ),
            [252, 272, 273],
            ["lines 253–271 omitted"],
        ),
    ],
)
def test_an_excerpt_is_the_blob_s_bytes_at_the_cited_lines(
    citation: Citation, numbers: list[int], gaps: list[str], tmp_path: Path
) -> None:
    excerpt = Sources([PackageCarrier()], tmp_path).excerpt(citation)
    lines = [line for run in excerpt.runs for line in run.lines]
    expected = [installed(citation.pin).split(b"\n")[number - 1] for number in numbers]
    assert [line.number for line in lines] == numbers
    assert [line.text.encode() for line in lines] == expected
    assert [str(part) for part in excerpt.parts if isinstance(part, Gap)] == gaps
    assert excerpt.spans == citation.spans


def test_a_gap_of_one_line_says_line() -> None:
    assert str(Gap(4, 4)) == "line 4 omitted"


def test_touching_spans_make_one_run(tmp_path: Path) -> None:
    citation = cite(TWO, ("shared:value", 2), ("shared:return", 3))
    excerpt = Sources([Fake(FIRST)], tmp_path).excerpt(citation)
    (part,) = excerpt.parts
    assert isinstance(part, Run) and [line.number for line in part.lines] == [2, 3]


def test_an_excerpt_cannot_be_made_by_hand() -> None:
    with pytest.raises(TypeError, match=r"Sources\.excerpt"):
        Excerpt(MOVED_LINES, (), (), "0" * 40, "me", "me", Proof.VERIFIED, seal=object())


def test_content_cannot_hold_other_bytes_than_its_blob() -> None:
    with pytest.raises(BlobMismatch):
        Content(TWO, TWO.blobs[0], FIRST + b" ", "me", settled=True)
    with pytest.raises(BlobMismatch):
        Content(TWO, TWO.blobs[1], FIRST, "me", settled=True)


def test_one_changed_byte_is_refused_and_the_next_carrier_asked(tmp_path: Path) -> None:
    data = installed(OPENAI)
    changed = data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]
    liar = Fake(changed, name="liar")
    assert Sources([liar, PackageCarrier()], tmp_path / "a").content(OPENAI).data == data
    with pytest.raises(SourceUnavailable) as caught:
        Sources([liar], tmp_path / "b").content(OPENAI)
    assert f"liar has other bytes of src/model.py: blob {git_blob_id(changed)[:12]}" in caught.value.message
    assert "tensor-provenance sources fetch" in caught.value.hint
    assert "gpt-2-simple==0.3" in caught.value.hint


def test_every_carrier_s_answer_is_in_the_message(tmp_path: Path) -> None:
    carriers = [Fake(name="one"), Fake(failure="The disk is on fire.", name="two")]
    with pytest.raises(SourceUnavailable, match="one: does not carry it; two: The disk is on fire"):
        Sources(carriers, tmp_path).content(OPENAI)


def test_an_anchor_beside_its_pinned_lines_is_refused(tmp_path: Path) -> None:
    sources = Sources([PackageCarrier()], tmp_path)
    with pytest.raises(AnchorMoved, match="28–38, not at 28–37"):
        sources.excerpt(cite(OPENAI, ("norm", 28, 37)))


def test_accepted_bytes_are_cached_for_the_next_time(tmp_path: Path) -> None:
    Sources([PackageCarrier()], tmp_path).content(OPENAI)
    later = Sources([], tmp_path).content(OPENAI)
    assert later.data == installed(OPENAI) and later.carrier == "local cache"


def test_a_corrupt_cache_file_is_removed_and_never_served(tmp_path: Path) -> None:
    Sources([PackageCarrier()], tmp_path).content(OPENAI)
    cached = tmp_path / "blobs" / OPENAI.blobs[0].id
    cached.write_bytes(cached.read_bytes()[:-1])
    assert CacheCarrier(tmp_path / "blobs").read(OPENAI) is None
    assert not cached.exists()
    assert Sources([PackageCarrier()], tmp_path).content(OPENAI).data == installed(OPENAI)


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert Sources([Fake(FIRST, at_revision=True)], tmp_path / "file").content(TWO).settled


def test_content_is_read_once_by_many_threads(tmp_path: Path) -> None:
    carrier = Fake(FIRST, delay_seconds=0.05)
    sources = Sources([carrier], tmp_path)
    threads = [threading.Thread(target=sources.excerpt, args=(SHARED_LINES,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert carrier.asked == 1


def test_shared_lines_match_every_candidate_and_say_so(tmp_path: Path) -> None:
    sources = Sources([PackageCarrier()], tmp_path)
    excerpt = sources.excerpt(cite(TRANSFORMERS, ("GPT2MLP.forward", 238, 243)))
    assert excerpt.proof is Proof.SHARED
    assert "read from transformers 5.15.0" in excerpt.explanation


def test_lines_behind_the_shared_ones_are_a_release_s(tmp_path: Path) -> None:
    excerpt = Sources([PackageCarrier()], tmp_path).excerpt(
        cite(TRANSFORMERS, ("GPT2Model.forward:position_embeds..hidden_states", 576, 577))
    )
    assert excerpt.proof is Proof.RELEASE
    assert excerpt.explanation.startswith("Lines as in transformers 5.15.0")


@pytest.mark.parametrize(("data", "lines"), [(FIRST, (6, 7)), (SECOND, (7, 8))])
def test_in_another_candidate_the_anchors_find_the_lines(data: bytes, lines: tuple[int, int], tmp_path: Path) -> None:
    sources = Sources([Fake(data)], tmp_path)
    shared, moved = sources.excerpt(SHARED_LINES), sources.excerpt(MOVED_LINES)
    assert (shared.proof, shared.spans) == (Proof.SHARED, SHARED_LINES.spans)
    assert (moved.proof, moved.as_read.first, moved.as_read.last) == (Proof.RELEASE, *lines)
    assert moved.runs[0].text == "def moved():\n    return 2"


def test_the_revision_s_own_blob_settles_the_pin_for_good(tmp_path: Path) -> None:
    sources = Sources([Fake(FIRST), Fake(SECOND, at_revision=True, remote=True, name="host")], tmp_path)
    assert sources.excerpt(MOVED_LINES).proof is Proof.RELEASE
    assert [report.state for report in sources.fetch([TWO])] == [State.HOLDS, State.HOLDS, State.HOLDS]
    settled = sources.excerpt(MOVED_LINES)
    assert (settled.proof, settled.as_read.lines) == (Proof.VERIFIED, "7–8")
    later = Sources([Fake(FIRST)], tmp_path).excerpt(MOVED_LINES)
    assert (later.proof, later.blob_id, later.carrier) == (Proof.VERIFIED, TWO.blobs[1].id, "local cache")


def test_a_settled_pin_refuses_its_other_candidate(tmp_path: Path) -> None:
    Sources([Fake(SECOND, at_revision=True)], tmp_path).content(TWO)
    (tmp_path / "blobs" / TWO.blobs[1].id).unlink()
    with pytest.raises(SourceUnavailable, match=f"pinned is {TWO.blobs[1].id[:12]}"):
        Sources([Fake(FIRST)], tmp_path).content(TWO)


def test_a_damaged_settlement_settles_nothing(tmp_path: Path) -> None:
    Sources([Fake(SECOND, at_revision=True)], tmp_path).content(TWO)
    (note,) = (tmp_path / "settled").iterdir()
    note.write_bytes(b"\xff\x00")
    assert not Sources([Fake(FIRST)], tmp_path).content(TWO).settled


def test_a_remote_carrier_that_failed_is_asked_again_only_by_fetch(tmp_path: Path) -> None:
    host = Fake(failure="No route.", remote=True, name="host")
    sources = Sources([host], tmp_path)
    for _ in range(3):
        with pytest.raises(SourceUnavailable, match="host: No route"):
            sources.content(TWO)
    assert host.asked == 1
    sources.fetch([TWO])
    assert host.asked == 2


def test_fetch_leaves_the_network_alone_when_all_is_settled(tmp_path: Path) -> None:
    host = Fake(remote=True)
    reports = Sources([PackageCarrier(), host], tmp_path).fetch([OPENAI])
    assert host.asked == 0 and reports[-1].state is State.HOLDS


def test_status_has_a_row_for_each_pin_and_carrier_and_asks_no_host(tmp_path: Path) -> None:
    host = Fake(remote=True, name="host")
    sources = Sources([PackageCarrier(), Fake(b"other", name="other"), host], tmp_path)
    rows = [(row.pin.label, row.carrier, row.state) for row in sources.status(PINS)]
    answers = [
        ("local cache", State.LACKS),
        ("installed packages", State.HOLDS),
        ("other", State.REFUSED),
        ("host", State.NOT_ASKED),
    ]
    assert rows == [(pin.label, *answer) for pin in PINS for answer in answers]
    assert host.asked == 0


def test_the_usual_carriers_come_in_order_and_the_host_only_when_allowed(tmp_path: Path) -> None:
    def names(carriers: tuple[Carrier, ...]) -> list[str]:
        return [carrier.name for carrier in carriers]

    usual = ["local cache", f"directory {tmp_path}", "installed packages", "package archives"]
    assert names(default_sources(tmp_path, [tmp_path]).carriers) == usual
    online = default_sources(tmp_path, [tmp_path], network=True)
    assert names(online.carriers) == [*usual, "git host https://github.com"]
