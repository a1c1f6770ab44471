"""The demo model: its file, its card's figures, its heads, and how it was trained."""

import json
import re
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard

from provenance.gpt2.config import Config
from provenance.gpt2.model import GPT2
from provenance.gpt2.training.corpus import document
from provenance.gpt2.training.data import HELD_OUT_ONE_IN, Mix, Text, batch, probes, repeated, tokenize
from provenance.gpt2.training.evaluate import DEMO, Bigram, Unigram, load, measure, repeat_losses
from provenance.gpt2.training.measures import head_scores, tapped
from provenance.gpt2.training.network import initial, logits, loss
from provenance.gpt2.training.train import Plan, Training, export
from provenance.gpt2.weights import read_directory, shapes
from provenance.prompt import Tokenizer

pytestmark = pytest.mark.slow

MICRO = Config(n_layer=2, n_head=2, n_embd=16, n_ctx=24, n_vocab=50, n_inner=32)
MICRO_WIDE = Config(n_layer=2, n_head=2, n_embd=128, n_ctx=80, n_vocab=90, n_inner=32)
MICRO_PLAN = Plan(
    config=MICRO,
    steps=8,
    tokens_per_step=96,
    copying=3,
    first_lengths=(12, 24),
    lengths=(24, 12),
    warmup=2,
    sampled=6,
    documents=0,
)


@cache
def _demo() -> GPT2:
    return load()


@cache
def _texts() -> tuple[Text, Text]:
    tokenizer = Tokenizer.load()
    return tokenize(0, 8000, tokenizer), tokenize(0, 200, tokenizer, held_out=True)


@cache
def _card() -> dict[str, float]:
    """The metrics of the model card, by name."""
    results = ModelCard.load(DEMO / "README.md").data.eval_results
    assert results is not None
    return {result.metric_type: float(result.metric_value) for result in results}


def _micro_text() -> Text:
    """Forty documents of nine tokens and an end mark, out of the first thirty of fifty tokens."""
    ids = np.random.default_rng(5).integers(0, 30, 400).astype(np.uint16)
    return Text(ids, np.arange(0, 400, 10))


# --- what is shipped ---


def test_the_checkpoint_is_a_gpt2_with_the_stated_sizes_and_under_16_megabytes() -> None:
    config, weights, _ = read_directory(DEMO)
    assert (config.n_layer, config.n_head, config.n_embd, config.n_ctx, config.n_vocab) == (
        4,
        4,
        128,
        256,
        50257,
    )
    assert {place: tuple(tensor.shape) for place, tensor in weights.items()} == shapes(config)
    assert {tensor.dtype for tensor in weights.values()} == {torch.float16}
    assert (DEMO / "model.safetensors").stat().st_size < 16_000_000


def test_every_weight_is_finite_and_no_row_of_the_vocabulary_is_empty() -> None:
    _, weights, _ = read_directory(DEMO)
    assert all(torch.isfinite(tensor).all() for tensor in weights.values())
    assert (weights["wte"].float().norm(dim=1) > 0.05).all()


def test_the_card_says_what_a_hugging_face_card_must() -> None:
    data = ModelCard.load(DEMO / "README.md").data
    assert (data.license, data.library_name, data.pipeline_tag) == ("mit", "transformers", "text-generation")
    assert data.language == "en"
    text = (DEMO / "README.md").read_text()
    for section in ("Intended use", "Out of scope", "Training data", "Training procedure", "Evaluation"):
        assert f"## {section}" in text


def test_the_card_keeps_the_promised_distance_from_both_baselines() -> None:
    card = _card()
    assert card["held_out_loss"] <= card["unigram_loss"] - 1.5
    assert card["held_out_loss"] < card["bigram_loss"]


def test_a_subset_of_the_held_out_text_gives_the_figures_of_the_card() -> None:
    figures, card = measure(_demo(), *_texts(), windows=24, rows=4), _card()
    assert figures.held_out == pytest.approx(card["held_out_loss"], abs=0.1)
    assert figures.unigram == pytest.approx(card["unigram_loss"], abs=0.15)
    assert figures.bigram == pytest.approx(card["bigram_loss"], abs=0.25)
    assert figures.accuracy == pytest.approx(card["accuracy"], abs=0.03)
    assert figures.absent < 0.01
    assert figures.held_out < figures.unigram - 1.5
    assert figures.held_out < figures.bigram


@pytest.mark.parametrize("kind", ["induction", "previous"])
def test_the_cards_heads_look_where_it_says_on_new_repeated_sequences(kind: str) -> None:
    text = (DEMO / "README.md").read_text()
    title = {"induction": "Induction head", "previous": "Previous-token head"}[kind]
    named = re.findall(rf"\| {title} \| `(\d)\.(\d)` \| ([\d.]+) \|", text)
    assert named
    scores = getattr(head_scores(_demo(), probes(77, _texts()[0].occurring, 8, 48)), kind)
    for layer, head, stated in named:
        score = float(scores[int(layer), int(head)])
        assert score > 0.5
        assert score == pytest.approx(float(stated), abs=0.1)


def test_a_repeat_is_predicted_far_better_than_its_first_time() -> None:
    losses = list(repeat_losses(_demo(), probes(3, _texts()[0].occurring, 4, 64)).values())
    assert losses[-1] < losses[0] - 3


def test_a_surname_is_given_back_when_its_first_name_returns() -> None:
    tokenizer = Tokenizer.load()
    told = "Clara Hanford found the old lamp. On Monday Clara"
    ids = torch.tensor([tokenizer.encode(told).ids])
    (surname, *_) = tokenizer.encode(" Hanford").ids
    logits_, _ = _demo().forward(ids)
    assert int(logits_[0, -1].argmax()) == surname
    assert float(logits_[0, -1].softmax(dim=-1)[surname]) > 0.5


# --- how it was made ---


def test_a_document_depends_on_its_seed_and_number_alone() -> None:
    assert document(0, 3) == document(0, 3)
    assert len({document(0, 3), document(1, 3), document(0, 4)}) == 3


def test_the_text_is_the_same_each_time_and_no_held_out_document_is_in_training() -> None:
    text, held_out = (tokenize(0, 300, Tokenizer.load(), held_out=flag) for flag in (False, True))
    again = tokenize(0, 300, Tokenizer.load())
    assert text.sha256 == again.sha256
    assert (text.starts == again.starts).all()
    assert not set(_documents(text)) & set(_documents(held_out))
    assert HELD_OUT_ONE_IN > 1


def _documents(text: Text) -> list[bytes]:
    return [part.tobytes() for part in np.split(text.ids, text.starts[1:])]


def test_windows_start_with_documents_and_do_not_overlap() -> None:
    text = Text(np.arange(20, dtype=np.uint16), np.array([0, 3, 6, 9, 12]))
    assert text.windows(3, 4).tolist() == [[0, 1, 2, 3], [6, 7, 8, 9], [12, 13, 14, 15]]


@pytest.mark.parametrize("length", [13, 33, 257])
def test_what_is_marked_as_repeated_can_be_found_earlier(length: int) -> None:
    pool = np.arange(1000, 9000)
    for seed in range(30):
        sequence, copied = repeated(np.random.default_rng(seed), pool, length)
        assert copied.any()
        for position in copied.nonzero()[0]:
            assert (sequence[position - 1], sequence[position]) in pairwise(sequence[:position])


def test_an_even_repeat_goes_on_to_the_end() -> None:
    for seed in range(30):
        sequence, copied = repeated(np.random.default_rng(seed), np.arange(1000, 9000), 65, evenly=True)
        period = int(copied.argmax())
        assert 4 <= period <= 32
        assert copied[period:].all()
        assert (sequence[period:] == sequence[:-period]).all()


def test_a_batch_depends_on_its_step_and_shifts_targets_by_one() -> None:
    text = _micro_text()
    one, again, other = (batch(text, 50, 0, step, 8, 12, Mix(0.3, 0.1, 20)) for step in (3, 3, 4))
    assert (one.tokens == again.tokens).all()
    assert (one.tokens != other.tokens).any()
    assert (one.tokens[:, 1:] == one.targets[:, :-1]).all()


def test_the_pass_that_is_trained_gives_the_tapped_models_logits() -> None:
    tokens = torch.randint(0, 50, (3, 20), generator=torch.Generator().manual_seed(1))
    parameters = initial(MICRO, 4)
    with torch.no_grad():
        for tensor in parameters.values():
            tensor.add_(torch.randn(tensor.shape, generator=torch.Generator().manual_seed(2)), alpha=0.2)
        trained = logits(parameters, MICRO, tokens)
    expected, _ = tapped(parameters, MICRO).forward(tokens)
    torch.testing.assert_close(trained, expected, rtol=1e-4, atol=1e-5)


def test_a_softmax_over_all_tokens_is_the_plain_cross_entropy() -> None:
    random = torch.Generator().manual_seed(3)
    states, wte = torch.randn(7, 16, generator=random), torch.randn(50, 16, generator=random)
    targets = torch.randint(0, 50, (7,), generator=random)
    plain = torch.nn.functional.cross_entropy(states @ wte.T, targets)
    every = torch.arange(50)
    assert loss(states, targets, wte, every, 20, 20).item() == pytest.approx(plain.item(), rel=1e-5)


def test_at_first_only_few_kinds_of_tokens_repeat_and_later_text_prevails() -> None:
    first, later = MICRO_PLAN.mix(0), MICRO_PLAN.mix(3)
    assert (first.occurring, first.every, first.kinds) == (1.0, 0.0, 64)
    assert later.occurring + later.every < 0.5


def test_the_first_head_starts_by_looking_at_the_token_before() -> None:
    parameters, sequences = initial(MICRO_WIDE, 0), probes(1, np.arange(90), 4, 40)
    scores = head_scores(tapped(parameters, MICRO_WIDE), sequences).previous
    assert scores[0, 0] > 0.5
    assert scores.flatten()[1:].max() < 0.2


def test_sampled_tokens_stand_for_all_that_do_not_occur() -> None:
    states = torch.tensor([[1.0, 0.0]])
    wte = torch.tensor([[2.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, 2.0], [0.0, 3.0]])
    # Scores 2 for the target, 0 for the other four, two of which are drawn for three.
    value = loss(states, torch.tensor([0]), wte, torch.tensor([0, 1, 2, 4]), 2, 3)
    assert value.item() == pytest.approx(np.log(np.exp(2) + 1 + 3) - 2, rel=1e-6)


def test_resuming_gives_the_same_weights_as_not_stopping(tmp_path: Path) -> None:
    whole, first, second = (Training(MICRO_PLAN, _micro_text()) for _ in range(3))
    losses = [whole.advance() for _ in range(8)]
    for _ in range(4):
        first.advance()
    first.save(tmp_path / "state.pt")
    second.restore(tmp_path / "state.pt")
    assert [second.advance() for _ in range(4)] == losses[4:]
    for key, tensor in whole.parameters.items():
        assert torch.equal(tensor, second.parameters[key]), key


def test_a_state_of_another_plan_is_refused(tmp_path: Path) -> None:
    Training(MICRO_PLAN, _micro_text()).save(tmp_path / "state.pt")
    other = Training(replace(MICRO_PLAN, seed=9), _micro_text())
    with pytest.raises(ValueError, match="another plan"):
        other.restore(tmp_path / "state.pt")


def test_what_is_exported_is_read_back_as_it_was_in_float16(tmp_path: Path) -> None:
    parameters = initial(MICRO, 0)
    export(parameters, MICRO, tmp_path)
    config, weights, _ = read_directory(tmp_path)
    assert config == MICRO
    assert torch.equal(weights["wte"], parameters["wte.weight"].detach().half())
    assert torch.equal(weights["h.1.attn.c_attn.w"][0], parameters["h.1.attn.c_attn.weight"].detach().half())
    assert json.loads((tmp_path / "config.json").read_text())["tie_word_embeddings"] is True


# --- the baselines ---


def test_the_unigram_counts() -> None:
    text = Text(np.array([0, 0, 1, 0], dtype=np.uint16), np.array([0]))
    # Counts 3, 1, and 1 for the token that does not occur.
    assert Unigram(text, 3).losses(np.array([[2, 0, 1, 2]]))[0] == pytest.approx(-np.log([0.6, 0.2, 0.2]))


def test_the_bigram_mixes_as_witten_and_bell_do() -> None:
    text = Text(np.array([0, 0, 1, 0], dtype=np.uint16), np.array([0]))
    losses = Bigram(text, Unigram(text, 3)).losses(np.array([[0, 1, 1, 2, 0]]))[0]
    # After 0: seen 2 times with 2 successors, 1 of them token 1. After 1: once, always 0. After 2: never.
    expected = [(1 + 2 * 0.2) / 4, (0 + 1 * 0.2) / 2, (0 + 1 * 0.2) / 2, 0.6]
    assert losses == pytest.approx(-np.log(expected))
