"""The two models that are compared: ours, and transformers' with the same weights in the same memory."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from provenance.gpt2.config import Config
from provenance.gpt2.keys import checkpoint_keys
from provenance.gpt2.model import GPT2
from provenance.gpt2.weights import untrained
from provenance.model import ModelInfo

UNHASHED = "0" * 64


def ours(config: Config, name: str = "benchmark") -> GPT2:
    """Our model with seeded random weights; their hash is left out, since it takes seconds for large ones."""
    info = ModelInfo(name, "gpt2", config.as_json(), UNHASHED, "untrained", False, "float32")
    return GPT2(config, untrained(config), info)


def theirs(model: GPT2) -> GPT2LMHeadModel:
    """transformers' GPT-2 with eager attention, for inference; it shares our weights."""
    config = model.config
    settings = GPT2Config(
        vocab_size=config.n_vocab,
        n_positions=config.n_ctx,
        n_embd=config.n_embd,
        n_layer=config.n_layer,
        n_head=config.n_head,
        n_inner=config.n_inner,
        layer_norm_epsilon=config.epsilon,
        bos_token_id=0,
        eos_token_id=0,
    )
    settings._attn_implementation = "eager"
    with torch.device("meta"):
        twin = GPT2LMHeadModel(settings)  # type: ignore[no-untyped-call]
    keys = {key: place for key, place in checkpoint_keys(config).items() if key.startswith("transformer.")}
    weights = {key: model.weights[place] for key, place in keys.items()}
    expected = twin.state_dict()
    weights = {key: tensor.view(expected[key].shape) for key, tensor in weights.items()}
    twin.load_state_dict(weights, strict=False, assign=True)
    twin.tie_weights()
    left = [name for name, tensor in twin.named_parameters() if tensor.is_meta]
    if left:
        raise ValueError(f"transformers' model has weights that ours lacks: {left[:3]}")
    twin.train(False)
    return twin


def tokens(config: Config, length: int) -> torch.Tensor:
    """Seeded random ids (1, T)."""
    generator = torch.Generator().manual_seed(length)
    return torch.randint(config.n_vocab, (1, length), generator=generator)
