"""The chapters' tensors, and the options of a lesson as they stand in a URL."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provenance.catalogues import CATALOGUES
from provenance.edits import Action, Edit
from provenance.errors import InvalidOption, NotFound
from provenance.lessons.chapters import CHAPTERS, chapter, chapter_of
from provenance.lessons.options import TEXT, Options
from provenance.model import ModelInfo
from provenance.prompt import Drawn
from provenance.textbook.config import Config, named
from provenance.trace import Recipe, TokenRecord

SLUGS = ("scaled-dot-product", "multi-head", "positions", "block", "decoder")


def test_the_five_chapters_are_numbered_in_order() -> None:
    assert tuple(each.slug for each in CHAPTERS) == SLUGS
    assert [each.number for each in CHAPTERS] == [1, 2, 3, 4, 5]
    assert all(chapter(each.slug) is each for each in CHAPTERS)


def test_an_unknown_chapter_names_the_known_ones() -> None:
    with pytest.raises(NotFound, match=r"no lesson named 'rnn'.*scaled-dot-product"):
        chapter("rnn")


@pytest.mark.parametrize("family", CATALOGUES)
def test_every_tensor_of_a_family_has_its_place_in_one_chapter(family: str) -> None:
    placed = [site for each in CHAPTERS for site in each.sites[family]]
    assert sorted(placed) == sorted(CATALOGUES[family].rows)


def test_the_chapter_of_a_site() -> None:
    found = {
        site: chapter_of("gpt2", site) for site in ("h.attn.scores", "h.attn.merged", "wpe", "h.ln_2.s", "logits")
    }
    assert [each.slug for each in found.values() if each] == list(SLUGS)
    assert chapter_of("gpt2", "h.attn.score") is None
    assert chapter_of("another", "logits") is None


# --- options ---


@st.composite
def options(draw: st.DrawFn) -> Options:
    heads = draw(st.integers(1, 16))
    width = draw(st.integers(-(-8 // heads), 256 // heads).filter(lambda width: heads * width % 2 == 0))
    return Options(
        d=heads * width,
        heads=heads,
        length=draw(st.integers(2, 64)),
        batch=draw(st.integers(1, 8)),
        layers=draw(st.integers(1, 12)),
        norm=draw(st.sampled_from(("post", "pre"))),
        causal=draw(st.booleans()),
        positions=draw(st.sampled_from(("sinusoidal", "learned", "none"))),
        temperature=draw(st.integers(100, 1_000_000)) / 10_000,
        scaled=draw(st.booleans()),
        seed=draw(st.integers(0, 999_999_999)),
    )


@given(options())
def test_options_come_back_from_their_own_query(given: Options) -> None:
    assert Options.read(dict(parse_qsl(given.query))) == given
    assert named(given.config.name) == given.config


USUAL, INPUT = Config(), Drawn()


def run(
    config: Config | None = USUAL, ids: Iterable[int] = range(20), drawn: Drawn | None = INPUT, **changes: Any
) -> Recipe:
    """What a recording says of a textbook model, or without a config of another one."""
    read, family, name = (config.as_json(), "textbook", config.name) if config else ({}, "gpt2", "gpt2")
    return Recipe(
        model=ModelInfo(name, family, read, "0" * 64, "a test", False, changes.pop("dtype", "float32")),
        text=changes.pop("text", None),
        tokens=tuple(TokenRecord(id=id, hex="") for id in ids),
        steps=changes.pop("steps", 0),
        threads=1,
        torch="2",
        drawn=drawn,
        **changes,
    )


@given(options())
def test_the_options_of_a_run_are_those_it_was_recorded_with(given: Options) -> None:
    recorded = run(given.config, range(given.length), Drawn(given.batch, given.seed))
    assert Options.of(recorded) == given


@given(st.text(max_size=310), st.integers(0, 9))
def test_a_text_and_its_steps_are_options_where_a_url_says_them(text: str, steps: int) -> None:
    found = Options.of(run(None, range(5), None, text=text, steps=steps))
    said = urlencode({"text": text, "steps": steps})
    try:
        read = Options.read(dict(parse_qsl(said)))
    except InvalidOption:
        assert found is None
    else:
        assert found == (read if (read.text, read.steps) == (text, steps) else None)


@pytest.mark.parametrize(
    "of",
    [
        run(ids=(1, 0, 2)),
        run(ids=(1, 2, 3)),
        run(ids=range(65)),
        run(ids=range(1)),
        run(drawn=Drawn(9, 0)),
        run(drawn=Drawn(8, 10**9)),
        run(Config(temperature=0.001)),
        run(Config(temperature=0.33333)),
        run(dtype="bfloat16"),
        run(edits=(Edit(place="h.0.attn.weight", action=Action.SET),)),
        run(None, drawn=None),
        run(None, drawn=None, text=TEXT),
        run(None, drawn=None, text=TEXT, steps=9),
        run(None, drawn=None, text=f" {TEXT}", steps=3),
        run(None, drawn=None, text=TEXT, steps=3, temperature=0.5),
        run(None, drawn=Drawn()),
    ],
    ids=str,
)
def test_a_run_that_no_url_of_a_lesson_says_has_no_options(of: Recipe) -> None:
    assert Options.of(of) is None


def test_the_defaults_have_no_query_and_only_what_differs_stands_in_one() -> None:
    assert Options.read({}) == Options()
    assert Options().query == ""
    assert Options().but(causal=True, heads=4, temperature=0.5).query == "heads=4&causal=yes&temperature=0.5"


def test_the_defaults_are_the_lessons_own_sizes() -> None:
    usual = Options()
    assert (usual.batch, usual.length, usual.d, usual.heads, usual.head_width) == (8, 20, 64, 8, 8)
    assert usual.config.name == "textbook"


def test_what_is_empty_or_no_option_is_left_alone() -> None:
    assert Options.read({"d": " ", "heads": "", "page": "3"}) == Options()


@pytest.mark.parametrize(
    ("query", "field", "says"),
    [
        ({"d": "7"}, "d", "8 to 256"),
        ({"d": "9"}, "d", "even"),
        ({"d": "1e2"}, "d", "whole number"),
        ({"heads": "0"}, "heads", "1 to 16"),
        ({"heads": "5"}, "heads", "5 heads cannot share 64 channels equally. 64 can be split into 1, 2, 4, 8 or 16."),
        ({"length": "65"}, "length", "2 to 64"),
        ({"length": "٣"}, "length", "whole number"),
        ({"batch": "9"}, "batch", "1 to 8"),
        ({"layers": "13"}, "layers", "1 to 12"),
        ({"norm": "both"}, "norm", "post or pre"),
        ({"causal": "1"}, "causal", "yes or no"),
        ({"positions": "rotary"}, "positions", "sinusoidal, learned or none"),
        ({"temperature": "0"}, "temperature", "0.01 to 100"),
        ({"temperature": "nan"}, "temperature", "0.01 to 100"),
        ({"temperature": "-1"}, "temperature", "0.01 to 100"),
        ({"scaled": "true"}, "scaled", "yes or no"),
        ({"seed": "1000000000"}, "seed", "0 to 999999999"),
    ],
)
def test_a_value_that_cannot_be_taken_names_its_field(query: dict[str, str], field: str, says: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        Options.read(query)
    assert caught.value.field == field
    assert says in str(caught.value)
