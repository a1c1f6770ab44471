"""The chapters on positions and on the block: each number again, from the API's own arrays."""

import math
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch
from api_client import Api, running
from html_tree import Node, tree, words

from provenance.lessons.gradients import way_back
from provenance.textbook.config import Config
from provenance.textbook.shelf import Textbooks

Array = np.ndarray[Any, np.dtype[np.float64]]
POSITIONS = "/lessons/positions?d=16&heads=2&layers=2&length=7&batch=2&seed=3"
BLOCK = "/lessons/block?d=16&heads=2&layers=3&length=6&batch=2&norm=pre&causal=yes"
GPT2_SMALL_PARAMETERS = 124_439_808


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """The application with the tiny model."""
    with running(tmp_path_factory.mktemp("lessons")) as started:
        yield started


@pytest.fixture(scope="module")
def positions(api: Api) -> Node:
    """The chapter on positions, in a state that is not the usual one."""
    return get(api, POSITIONS)


@pytest.fixture(scope="module")
def block(api: Api) -> Node:
    """The chapter on the block, in a state that is not the usual one."""
    return get(api, BLOCK)


def get(api: Api, address: str, status: int = 200) -> Node:
    answer = api.ask("GET", address)
    assert answer.status_code == status, answer.text
    return tree(answer.text)


def values(api: Api, page_url: str, place: str = "") -> Array:
    """The array behind a link to a tensor, or of another tensor of the same trace."""
    _, _, id, own = urlsplit(page_url).path.split("/")
    return api.values(f"/api/traces/{id}/tensors/{place or own}.npy").astype(np.float64)


def exact(node: Node) -> float:
    return float(node.one("data").attributes["value"])


def href(node: Node) -> str:
    return node.one("a").attributes["href"]


def rows(part: Node, table: int = 0) -> dict[str, list[Node]]:
    """The cells of a table's rows, by their headings."""
    body = part.all("table")[table].one("tbody")
    return {words(row.one("th").text): row.all("td") for row in body.all("tr")}


def live_in(part: Node, sentence: str) -> list[Node]:
    """The live numbers of the paragraph that holds some words."""
    (found,) = (each for each in part.all("p") if sentence in words(each.text))
    return found.all("a", "live-number")


def rms(array: Array) -> float:
    return math.sqrt(sum(float(value) ** 2 for value in array.ravel()) / array.size)


def recorded(api: Api, model: str, **wanted: int) -> str:
    return str(api.record(model=model, **wanted)).removeprefix("/api")


@pytest.mark.parametrize("chapter", ["positions", "block"])
class TestEachOfBoth:
    def page(self, chapter: str, request: pytest.FixtureRequest) -> Node:
        found = request.getfixturevalue(chapter)
        assert isinstance(found, Node)
        return found

    @pytest.mark.slow
    def test_every_check_holds_and_says_by_how_much(self, chapter: str, request: pytest.FixtureRequest) -> None:
        checks = self.page(chapter, request).all("div", "check")
        assert len(checks) >= 5
        for each in checks:
            difference, tolerance = (float(data.attributes["value"]) for data in each.all("data"))
            assert 0 <= difference <= tolerance < 1e-2
            assert "holds" in each.one("span", "badge").text
            assert each.one("math")

    @pytest.mark.slow
    def test_every_link_into_the_application_leads_somewhere(
        self, chapter: str, request: pytest.FixtureRequest, api: Api
    ) -> None:
        main = self.page(chapter, request).one("main")
        found = {link.attributes["href"].partition("#")[0] for link in main.all("a")}
        for address in sorted(found):
            assert api.ask("GET", address).status_code == 200, address

    def test_every_picture_is_served(self, chapter: str, request: pytest.FixtureRequest, api: Api) -> None:
        for image in self.page(chapter, request).one("main").all("img"):
            answer = api.ask("GET", image.attributes["src"])
            assert answer.headers["content-type"] == "image/png"
            assert image.attributes["alt"]

    def test_every_question_has_an_answer_with_numbers(self, chapter: str, request: pytest.FixtureRequest) -> None:
        asked = self.page(chapter, request).one("section", id="questions").all("li")
        assert len(asked) >= 4
        for each in asked:
            assert each.one("p", "answer").all("data")

    def test_an_option_that_cannot_be_taken_is_named_at_its_field(
        self, chapter: str, request: pytest.FixtureRequest, api: Api
    ) -> None:
        page = get(api, f"/lessons/{chapter}?d=63", 422)
        assert "d must be even, not 63." in words(page.one("p", id="wrong-d").text)
        assert page.one("input", id="option-d").attributes["value"] == "63"
        get(api, f"/lessons/{chapter}?heads=3", 422)
        get(api, f"/lessons/{chapter}?layers=1&heads=4&d=8&length=2&batch=1")

    def test_a_state_has_one_address(self, chapter: str, request: pytest.FixtureRequest, api: Api) -> None:
        page = get(api, f"/lessons/{chapter}?causal=no&length=9&norm=post&layers=6")
        (link,) = (each for each in page.one("main").all("a") if each.text == "A link to this state")
        assert link.attributes["href"] == f"/lessons/{chapter}?length=9"

    def test_without_the_default_model_the_chapter_still_stands(
        self, chapter: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        with running(tmp_path_factory.mktemp("without"), model="gpt2-xl") as started:
            page = get(started, f"/lessons/{chapter}?layers=1&length=4&batch=1")
        assert "cannot be shown here: The weights of 'gpt2-xl' are not on this machine." in words(page.text)


class TestPositions:
    def test_shuffling_is_measured_on_two_runs_of_each_model(self, api: Api, positions: Node) -> None:
        part = positions.one("section", id="without")
        models = ("textbook-nopos-d16-h2-l2", "textbook-d16-h2-l2", "textbook-causal-nopos-d16-h2-l2")
        for model, cells in zip(models, rows(part).values(), strict=True):
            given = values(api, recorded(api, model, length=7, batch=2, input_seed=3) + "/h.1.post.norm2.out")
            other = values(api, href(cells[0]))
            order = values(api, href(cells[0]), "x")
            plain = values(api, recorded(api, model, length=7, batch=2, input_seed=3) + "/x")
            moved = [next(n for n in range(7) if (plain[0, n] == row).all()) for row in order[0]]
            assert words(part.one("code", "long").text) == " ".join(map(str, moved)) != "0 1 2 3 4 5 6"
            assert exact(cells[0]) == max(abs(given - other).ravel())
            by_vector = max(float(abs(given[:, n] - other[:, t]).max()) for t, n in enumerate(moved))
            assert exact(cells[1]) == by_vector
            assert exact(cells[2]) == pytest.approx(abs(given.mean(1) - other.mean(1)).max(), abs=1e-12)

    def test_only_without_positions_and_mask_does_the_output_go_with_its_vector(self, positions: Node) -> None:
        found = [(exact(cells[1]), cells[3].text) for cells in rows(positions.one("section", id="without")).values()]
        (free, goes), (with_positions, stays), (masked, stays_too) = found
        assert (goes, stays, stays_too) == ("yes", "no", "no")
        assert free < 1e-5 < 1e-2 < min(with_positions, masked)

    def test_where_a_sharp_softmax_magnifies_rounding_the_page_says_so(self, api: Api) -> None:
        page = get(api, "/lessons/positions?temperature=0.01&scaled=no&d=64&length=20")
        (check,) = page.one("section", id="without").all("div", "check")
        assert "differs" in check.one("span", "badge").text
        said = words(page.text)
        assert "beyond what is tolerated" in said and "rounding that this state magnifies" in said
        assert "which is rounding" not in said

    def test_the_first_place_sees_itself_alone_under_a_mask(self, api: Api, positions: Node) -> None:
        _, first, second = live_in(positions.one("section", id="without"), "A causal mask without positions")
        weights = values(api, href(Node("p", {}, [first])))
        assert exact(first) == weights[:, :, 0, 0].min() == 1
        assert exact(second) == pytest.approx(weights[:, :, 1, 0].mean())

    def test_the_sines_are_those_of_the_formula(self, api: Api, positions: Node) -> None:
        shortest, longest, count, low, high = live_in(positions.one("section", id="sines"), "The first pair repeats")
        table = values(api, href(Node("p", {}, [count])))
        assert table.shape == (512, 16)
        for place in (0, 1, 100, 511):
            for pair in range(8):
                angle = place / 10000 ** (2 * pair / 16)
                sine, cosine = table[place, 2 * pair : 2 * pair + 2]
                assert (sine, cosine) == pytest.approx((math.sin(angle), math.cos(angle)), abs=1e-4)
        assert exact(count) == 512
        assert exact(shortest) == pytest.approx(2 * math.pi)
        assert exact(longest) == pytest.approx(2 * math.pi * 10000 ** (14 / 16))
        assert (exact(low), exact(high)) == pytest.approx((math.sqrt(8), math.sqrt(8)))

    def test_similarities_are_means_over_all_pairs(self, api: Api, positions: Node) -> None:
        part = positions.one("section", id="distance")
        found = rows(part)
        assert list(found) == ["1", "2", "4", "8", "16", "32"]
        for heading, cells in found.items():
            distance = int(heading)
            assert len(cells) == 6
            for mean, spread in zip(cells[::2], cells[1::2], strict=True):
                table = values(api, href(mean))
                cosines = [
                    float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))
                    for a, b in zip(table[:-distance], table[distance:], strict=True)
                ]
                assert exact(mean) == pytest.approx(sum(cosines) / len(cosines), abs=1e-12)
                assert exact(spread) == pytest.approx((max(cosines) - min(cosines)) / 2, abs=1e-12)

    def test_in_the_sinusoidal_table_the_distance_says_all(self, positions: Node) -> None:
        for cells in rows(positions.one("section", id="distance")).values():
            assert exact(cells[1]) < 1e-5 < 1e-2 < exact(cells[3])

    def test_the_curves_are_drawn_and_said(self, positions: Node) -> None:
        picture = positions.one("section", id="distance").one("figure", "curves")
        assert len(picture.one("svg", role="img").all("path", "curve")) == 3
        assert "sines and cosines: from 1 at distance 0" in picture.one("svg", role="img").attributes["aria-label"]

    def test_the_tables_are_counted(self, api: Api, positions: Node) -> None:
        found = rows(positions.one("section", id="tables"))
        sizes = {name: [exact(cell) for cell in cells[:3]] for name, cells in found.items()}
        assert sizes == {
            "sines and cosines": [512, 16, 0],
            "learned, untrained": [512, 16, 8192],
            "wpe of tiny-untrained, untrained": [64, 32, 2048],
        }
        for cells in found.values():
            lengths = np.linalg.norm(values(api, href(cells[3])), axis=1)
            assert (exact(cells[3]), exact(cells[4])) == pytest.approx((lengths.min(), lengths.max()))

    def test_every_kind_of_position_has_its_state(self, api: Api) -> None:
        for kind, model in (("learned", "textbook-learned-d8-h2-l1"), ("none", "textbook-nopos-d8-h2-l1")):
            page = get(api, f"/lessons/positions?positions={kind}&d=8&heads=2&layers=1&length=4&batch=1")
            assert model in words(page.one("p", "whereabouts").text)
            assert page.one("select", id="option-positions").one("option", selected="").attributes["value"] == kind


class TestTheBlock:
    def test_the_stream_is_measured_block_by_block(self, api: Api, block: Node) -> None:
        found = rows(block.one("section", id="placement"))
        assert list(found) == ["0", "1", "2", "3"]
        after = ("embed.h", *(f"h.{layer}.post.norm2.out" for layer in range(3)))
        before = ("embed.h", *(f"h.{layer}.resid_post" for layer in range(3)))
        for at, cells in enumerate(found.values()):
            post, pre = href(cells[0]), href(cells[3])
            assert exact(cells[0]) == pytest.approx(rms(values(api, post, after[at])))
            assert exact(cells[3]) == pytest.approx(rms(values(api, pre, before[at])))
            if at < 3:
                for cell, url, added, to in (
                    (cells[1], post, "attn.out", after[at]),
                    (cells[2], post, "mlp.out", f"h.{at}.post.norm1.out"),
                    (cells[4], pre, "attn.out", before[at]),
                    (cells[5], pre, "mlp.out", f"h.{at}.resid_mid"),
                ):
                    share = rms(values(api, url, f"h.{at}.{added}")) / rms(values(api, url, to))
                    assert exact(cell) == pytest.approx(share)

    def test_a_pre_norm_stream_grows_and_a_post_norm_stream_does_not(self, block: Node) -> None:
        found = list(rows(block.one("section", id="placement")).values())
        post, pre = ([exact(cells[column]) for cells in found] for column in (0, 3))
        assert pre == sorted(pre)
        assert post[1:] == pytest.approx([1, 1, 1], abs=1e-4)

    def test_the_gradient_is_followed_back_from_the_recorded_stream(self, api: Api, block: Node) -> None:
        part = block.one("section", id="placement")
        found = list(rows(part, 1).values())
        numbers = live_in(part, "On its way back")
        for column, norm in enumerate(("post", "pre")):
            config = Config(3, 2, 16, norm, causal=True)
            url = href(found[0][column])
            model = Textbooks().load(config.name)
            weights = {place: values(api, url, place) for place in model.weights}
            way = way_back(config, values(api, url, "embed.h")[:1], weights)
            assert [exact(cells[column]) for cells in found] == pytest.approx(way.sizes)
            assert exact(numbers[column]) == pytest.approx(way.sizes[0] / way.sizes[-1])
            assert exact(numbers[2 + column]) == pytest.approx(way.length)

    def test_both_runs_have_the_same_matrices(self, block: Node) -> None:
        (apart,) = live_in(block.one("section", id="placement"), "A post-norm block normalises")
        assert exact(apart) == 0

    def test_the_norm_is_that_of_its_input(self, api: Api, block: Node) -> None:
        before, after, mean, from_one, expected = live_in(block.one("section", id="norm"), "What goes in has an RMS")
        assert exact(before) == pytest.approx(rms(values(api, href(Node("p", {}, [before])))))
        normal = values(api, href(Node("p", {}, [from_one])))
        assert exact(after) == pytest.approx(rms(normal), rel=1e-6)
        assert exact(mean) == pytest.approx(abs(normal.mean(-1)).max(), rel=1e-6)
        assert exact(from_one) == pytest.approx(abs(1 - normal.var(-1)).max())
        smallest = values(api, href(Node("p", {}, [expected]))).var(-1).min()
        assert exact(expected) == pytest.approx(1e-5 / (smallest + 1e-5))
        assert exact(from_one) == pytest.approx(exact(expected), abs=1e-6)
        assert href(Node("p", {}, [before])).endswith("/embed.h")

    def test_the_listing_and_the_prose_are_two_runs(self, api: Api, block: Node) -> None:
        found = rows(block.one("section", id="placement"), 2)
        listing, prose = found.values()
        for cells, out in ((listing, "h.2.post.norm2.out"), (prose, "h.2.resid_post")):
            weights = values(api, href(cells[0]), "h.0.attn.weight")
            ahead = [weights[..., t, s] for t in range(6) for s in range(t + 1, 6)]
            assert exact(cells[0]) == pytest.approx(sum(float(each.sum()) for each in ahead) / (2 * 2 * 6))
            assert exact(cells[1]) == pytest.approx(rms(values(api, href(cells[1]), out)))
        assert exact(prose[0]) == 0 < exact(listing[0])
        assert [row.attributes.get("aria-current") for row in block.all("tr") if "prose:" in row.text] == ["true"]

    def test_the_forms_of_gelu_are_compared_on_what_was_recorded(self, api: Api, block: Node) -> None:
        from_relu, difference = live_in(block.one("section", id="mlp"), "GELU is a smooth ReLU")
        x = torch.from_numpy(values(api, href(Node("p", {}, [difference]))))
        gelu = torch.nn.functional.gelu
        assert exact(from_relu) == pytest.approx(float((gelu(x) - x.relu()).abs().max()))
        assert exact(difference) == pytest.approx(float((gelu(x) - gelu(x, approximate="tanh")).abs().max()))

    def test_gpt2s_stream_and_gelu_are_its_own(self, api: Api, block: Node) -> None:
        part = block.one("section", id="in-gpt2")
        for at, cells in enumerate(rows(part).values()):
            place = f"h.{at - 1}.resid_post" if at else "embed.h"
            assert exact(cells[0]) == pytest.approx(rms(values(api, href(cells[0]), place)))
        (difference,) = live_in(part, "The exact GELU would change")
        gelu = torch.nn.functional.gelu
        inputs = [
            torch.from_numpy(values(api, href(Node("p", {}, [difference])), f"h.{layer}.mlp.c_fc.c"))
            for layer in range(2)
        ]
        apart = (float((gelu(x) - gelu(x, approximate="tanh")).abs().max()) for x in inputs)
        assert exact(difference) == pytest.approx(max(apart))

    def test_a_blocks_parameters_are_counted_from_its_weights(self, block: Node) -> None:
        found = rows(block.one("section", id="size"))
        attention, mlp, norms = found["attention"], found["MLP"], found["norms"]
        assert (attention[0].text, mlp[0].text) == ("48 × 16 and 16 × 16", "64 × 16 and 16 × 64")
        assert [exact(attention[1]), exact(mlp[1]), norms[1].text] == [4, 8, "–"]
        assert [exact(cells[3]) for cells in found.values()] == [4 * 256 + 64, 8 * 256 + 80, 64]

    def test_gpt2_small_is_another_number_of_times_larger_in_each_size(self, api: Api) -> None:
        part = get(api, "/lessons/block?length=4&batch=1").one("section", id="size")
        found = {name: [exact(cell) for cell in cells[:3]] for name, cells in rows(part, 1).items()}
        inspected = api.explorer.models.inspect("textbook").parameters
        assert inspected is not None
        assert found["parameters"] == [inspected, GPT2_SMALL_PARAMETERS, GPT2_SMALL_PARAMETERS / inspected]
        assert found["blocks"] == [6, 12, 2]
        assert found["channels d"] == [64, 768, 12]
        assert found["heads"] == [8, 12, 1.5]
        assert found["channels of a head"] == [8, 64, 8]
        assert found["positions C"] == [512, 1024, 2]
        assert found["parameters of a block"][1] == 12 * 768**2 + 13 * 768
        assert "Nearest to ten: channels d, 12 times and channels of a head, 8 times." in words(part.text)
