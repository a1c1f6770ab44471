"""Pages that are kept: sent again while nothing has changed, and never when something has."""

import gzip
from collections.abc import Iterator
from dataclasses import replace

import pytest
from api_client import FOX, Api, running
from httpx import Response

from app.jobs import State
from app.page_cache import Page, PageCache, Request, state_of
from app.pages import groups, tensor
from app.verifications import Verification
from provenance.names import Address
from provenance.trace import Trace

PLAIN = {"Accept-Encoding": "identity"}
PART = {"HX-Request": "true"}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("app")) as started:
        yield started


@pytest.fixture(scope="module")
def trace(api: Api) -> Trace:
    return recorded(api, FOX)


def recorded(api: Api, prompt: str) -> Trace:
    address = api.record(prompt=prompt, steps=1)
    return api.explorer.store.open(address.removeprefix("/api/traces/"))


def pages_of(trace: Trace) -> tuple[str, ...]:
    own = f"/traces/{trace.id}"
    return (
        "/", "/traces", "/sites", "/sites/logits", "/groups/model", "/map", f"/map?trace={trace.id}", "/sources",
        own, f"{own}/lens", f"{own}/verdict", f"{own}/h.0.resid_post", f"{own}/h.1.attn.pattern?head=1",
        f"{own}/norms/h.resid_post", f"/groups/model?trace={trace.id}",
        f"/cite/sites/logits?trace={trace.id}",
    )  # fmt: skip


def cache(api: Api) -> PageCache:
    pages: PageCache = api.app.state.pages
    return pages


def get(api: Api, url: str, **headers: str) -> Response:
    return api.ask("GET", url, headers=headers)


def assert_as_rendered_anew(api: Api, *urls: str) -> None:
    """What readers get now is what is rendered where nothing is kept."""
    now = [get(api, url).text for url in urls]
    cache(api).clear()
    for url, text in zip(urls, now, strict=True):
        assert get(api, url).text == text, url


# --- the cache alone ---


def page(size: int) -> Page:
    return Page(b"x" * size, "f", ())


def test_a_page_is_found_while_its_state_is_the_same() -> None:
    pages, asked, kept = PageCache(1 << 20), Request("/sites", ""), page(10)
    pages.put(asked, (1,), kept)
    assert pages.get(asked, (1,)) is kept
    assert pages.get(asked, (2,)) is None
    assert pages.get(replace(asked, query="a=1"), (1,)) is None
    assert pages.get(replace(asked, parts=("true",)), (1,)) is None


def test_the_pages_asked_for_last_stay_within_the_bytes() -> None:
    pages = PageCache(10_000)
    one, two, three = (Request(f"/{name}", "") for name in "abc")
    pages.put(one, (), page(3000))
    pages.put(two, (), page(3000))
    assert pages.get(one, ()) is not None
    pages.put(three, (), page(3000))
    assert [pages.get(asked, ()) is not None for asked in (one, two, three)] == [True, False, True]
    assert pages.bytes == 2 * (3000 + 1024 + 2 * len("/a"))
    pages.put(one, (), page(100))
    assert pages.bytes == 3000 + 100 + 2 * (1024 + 2 * len("/a"))
    pages.put(two, (), page(20_000))
    assert (len(pages), pages.bytes) == (0, 0)


# --- sent again ---


def test_a_page_is_rendered_once_while_nothing_changes(
    api: Api, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"/traces/{trace.id}/h.1.mlp.h2?zoom=1"
    first = [get(api, url) for _ in range(2)][-1]  # the first one sums up tensors, which others show
    monkeypatch.setattr(tensor, "tensor_page", lambda *_: pytest.fail("it was rendered again"))
    again = get(api, url)
    assert (again.status_code, again.text) == (200, first.text)
    assert {name: again.headers[name] for name in again.headers if name != "x-request-id"} == {
        name: first.headers[name] for name in first.headers if name != "x-request-id"
    }
    assert {"content-security-policy", "x-content-type-options", "referrer-policy"} <= set(again.headers)


def test_a_reader_who_has_the_page_gets_304(api: Api, trace: Trace) -> None:
    url = f"/traces/{trace.id}/logits"
    get(api, url)
    first = get(api, url)
    assert first.headers["cache-control"] == "no-cache"
    again = get(api, url, **{"If-None-Match": f'"other", {first.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert again.headers["vary"] == first.headers["vary"]
    assert "content-length" not in again.headers
    assert get(api, url, **{"If-None-Match": '"other"'}).status_code == 200


def test_compressed_and_plain_pages_are_the_same_and_have_etags_of_their_own(api: Api) -> None:
    short, plain = get(api, "/sites"), get(api, "/sites", **PLAIN)
    assert short.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert short.text == plain.text
    assert int(plain.headers["content-length"]) == len(plain.content)
    expected = len(gzip.compress(plain.content, 6, mtime=0))
    assert int(short.headers["content-length"]) == expected < len(plain.content) / 5
    assert short.headers["etag"] != plain.headers["etag"]
    assert get(api, "/sites", **PLAIN, **{"If-None-Match": short.headers["etag"]}).status_code == 200


def test_a_part_for_htmx_is_kept_apart_from_the_page(api: Api) -> None:
    whole, part = get(api, "/groups/model"), get(api, "/groups/model", **PART)
    back = get(api, "/groups/model", **PART, **{"HX-History-Restore-Request": "true"})
    assert "<html" in whole.text and "<html" not in part.text
    assert back.text == whole.text
    assert part.headers["etag"] != whole.headers["etag"]
    assert part.headers["vary"] == "HX-Request, HX-History-Restore-Request, HX-Target, Accept-Encoding"
    assert get(api, "/groups/model").text == whole.text
    assert get(api, "/groups/model", **PART).text == part.text


@pytest.mark.parametrize("url", ["/sites", "/models"])
def test_head_has_the_headers_of_get_and_no_body(api: Api, url: str) -> None:
    page = get(api, url)
    head = api.ask("HEAD", url)
    assert (head.status_code, head.content) == (200, b"")
    kept = ("etag", "content-length", "content-type", "content-encoding", "vary", "cache-control")
    assert {name: head.headers.get(name) for name in kept} == {name: page.headers.get(name) for name in kept}


def test_other_answers_are_compressed_where_that_helps(api: Api, trace: Trace) -> None:
    json, plain = get(api, "/api/sites"), get(api, "/api/sites", **PLAIN)
    assert json.headers["content-encoding"] == "gzip"
    assert json.headers["vary"] == "Accept-Encoding"
    assert json.json() == plain.json()
    assert "content-encoding" not in get(api, "/healthz").headers
    for url in (f"/api/traces/{trace.id}/tensors/logits.npy", f"/traces/{trace.id}/h.0.resid_post/heatmap.png"):
        assert "content-encoding" not in get(api, url).headers
    wrong = get(api, f"/traces/{trace.id}/nonsense")
    assert (wrong.status_code, wrong.headers["content-encoding"]) == (404, "gzip")
    assert "etag" not in wrong.headers


# --- never stale ---


@pytest.mark.slow
def test_a_new_trace_and_a_deleted_one_are_seen_at_once(api: Api, trace: Trace) -> None:
    urls = pages_of(trace)
    assert_as_rendered_anew(api, *urls)
    other = recorded(api, "Another prompt")
    for url in ("/", "/traces", "/sites/logits", "/map"):
        assert other.id in get(api, url).text, url
    assert_as_rendered_anew(api, *urls)
    own = f"/traces/{other.id}/logits"
    assert [get(api, own).status_code for _ in range(3)] == [200] * 3
    api.ask("POST", f"/traces/{other.id}/delete")
    assert get(api, own).status_code == 404
    for url in ("/", "/traces", "/sites/logits", "/map"):
        assert other.id not in get(api, url).text, url
    assert_as_rendered_anew(api, *urls)


def test_a_trace_that_is_recorded_anew_shows_its_own_record(api: Api) -> None:
    first = recorded(api, "Once more")
    url = f"/traces/{first.id}"
    before = state_of(api.explorer, Request(url, ""))
    assert get(api, url).status_code == get(api, url).status_code == 200
    api.ask("POST", f"{url}/delete")
    assert get(api, url).status_code != 200 or "progress" in get(api, url).text
    assert recorded(api, "Once more").id == first.id
    assert state_of(api.explorer, Request(url, "")) != before
    assert_as_rendered_anew(api, url, "/", "/traces")
    api.ask("POST", f"{url}/delete")


def test_a_trace_that_was_damaged_is_not_shown_any_more(api: Api) -> None:
    damaged = recorded(api, "Damage me")
    url = f"/traces/{damaged.id}/logits"
    assert get(api, url).status_code == get(api, url).status_code == 200
    file = api.explorer.store.directory / damaged.id / "tensors.safetensors"
    file.write_bytes(file.read_bytes()[:-4])
    assert get(api, url).status_code == 410
    assert_as_rendered_anew(api, "/", "/traces")
    api.explorer.store.delete(damaged.id)


def test_every_state_of_a_verification_is_seen(api: Api, trace: Trace) -> None:
    verifications, urls = api.explorer.verifications, (f"/traces/{trace.id}/logits", f"/traces/{trace.id}/verdict")
    before = [get(api, url).text for url in urls for _ in range(2)][1::2]
    for known in (Verification(State.QUEUED), Verification(State.RUNNING, "the equations"),
                  Verification(State.FAILED, error="no reason")):  # fmt: skip
        verifications._update(trace.id, known)
        shown = [get(api, url).text for url in urls]
        assert not set(shown) & set(before)
        assert all(word in text for word in (known.proving, known.error) for text in shown)
        assert_as_rendered_anew(api, *urls)
    verifications._under_way.clear()
    assert [get(api, url).text for url in urls] == before


@pytest.mark.slow
def test_a_finished_verification_is_seen(api: Api) -> None:
    proven = recorded(api, "Prove it")
    url = f"/traces/{proven.id}/logits"
    before = [get(api, url).text for _ in range(2)][-1]
    api.explorer.verifications.verify(proven, lambda what: None)
    assert get(api, url).text != before
    assert_as_rendered_anew(api, *pages_of(proven))
    api.explorer.store.delete(proven.id)


@pytest.mark.slow
def test_a_changed_run_is_listed_by_the_run_that_it_changes(api: Api, trace: Trace) -> None:
    url = f"/traces/{trace.id}"
    before = [get(api, url).text for _ in range(2)][-1]
    changed = api.explorer.record(api.explorer.plan_edited(trace, "h.0.mlp.h2 *= 0.5"))
    assert changed.id not in before
    assert changed.id in get(api, url).text
    assert_as_rendered_anew(api, *pages_of(trace))
    api.explorer.store.delete(changed.id)
    assert changed.id not in get(api, url).text
    assert_as_rendered_anew(api, *pages_of(trace))


def test_a_measure_that_is_at_hand_since_is_shown(api: Api) -> None:
    fresh = recorded(api, "Nobody has looked at this")
    url = f"/traces/{fresh.id}/h.0.attn.scores"
    before = [get(api, url).text for _ in range(2)][-1]
    api.explorer.summary(fresh, Address.parse("h.0.attn.scores_raw@0"))
    assert get(api, url).text != before
    assert_as_rendered_anew(api, *pages_of(fresh))
    api.explorer.store.delete(fresh.id)


def test_a_page_without_a_source_is_not_kept(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    sources, url = api.explorer.sources, "/sites/h.ln_1.out"
    get(api, url)
    cache(api).clear()
    with monkeypatch.context() as patch:
        patch.setattr(sources, "carriers", ())
        sources._contents.clear()
        assert "not available here" in get(api, url).text
    assert "not available here" not in get(api, url).text
    assert_as_rendered_anew(api, url)


def test_a_page_without_its_model_is_not_kept(api: Api, trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"/traces/{trace.id}/h.0.attn.scores?zoom=3"
    with monkeypatch.context() as patch:
        info = replace(api.explorer.models.of(trace.recipe).info, weights_sha256="0" * 64)
        patch.setattr(api.explorer.models.of(trace.recipe), "info", info)
        assert "other weights" in get(api, url).text
    assert "other weights" not in get(api, url).text


@pytest.mark.parametrize("ask", ["/groups/model?trace={}", "/map?trace={}", "/cite/sites/logits?trace={}"])
def test_what_a_part_of_an_id_means_is_asked_each_time(
    api: Api, trace: Trace, ask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for id, is_kept in ((trace.id, True), (trace.id[:10], False)):
        path, _, query = ask.format(id).partition("?")
        assert (state_of(api.explorer, Request(path, query)) is not None) is is_kept
        cache(api).clear()
        assert get(api, f"{path}?{query}").status_code == 200
        assert len(cache(api)) == is_kept


def test_a_recording_under_way_is_asked_each_time(api: Api, trace: Trace) -> None:
    job = api.explorer.submit(api.explorer.plan("Not yet stored"))
    cache(api).clear()
    get(api, f"/traces/{job.id}")
    api.wait(f"/api/traces/{job.id}")
    page = get(api, f"/traces/{job.id}")
    assert "progress" not in page.text.partition("<main")[2]
    assert_as_rendered_anew(api, "/", "/traces", f"/traces/{job.id}")


def test_without_memory_for_it_nothing_is_kept(tmp_path_factory: pytest.TempPathFactory) -> None:
    with running(tmp_path_factory.mktemp("none"), page_cache_mib=0) as api:
        first = get(api, "/sites")
        assert len(cache(api)) == 0
        assert get(api, "/sites", **{"If-None-Match": first.headers["etag"]}).status_code == 304


def test_a_catalogue_page_is_not_rendered_again_for_a_tensor_that_was_looked_at(
    api: Api, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    get(api, "/sites")
    get(api, f"/traces/{trace.id}/h.1.ln_2.normalized")
    monkeypatch.setattr(groups, "sites_page", lambda *_: pytest.fail("it was rendered again"))
    assert get(api, "/sites").status_code == 200
