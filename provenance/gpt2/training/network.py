"""GPT-2 as it is trained: the parameters of a checkpoint, and a forward pass with a gradient.

The pass uses PyTorch's fused functions and is checked against the tapped model, which has none.
Axes as in `provenance.gpt2.model`; K candidate tokens of a softmax.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from provenance.gpt2.config import Config
from provenance.gpt2.weights import checkpoint_keys, untrained

Parameters = Mapping[str, Tensor]
"""By Hugging Face's key (`h.0.ln_1.weight`); projections are (in, out)."""


WIDER, EMBEDDING, SHARPNESS = 3, 0.1, 1.6
WAVELENGTHS = (3, 100)


def keys(config: Config) -> dict[str, str]:
    """Hugging Face's key of every place, without the prefix `transformer.`."""
    return {place: key for key, place in checkpoint_keys(config).items() if not key.startswith("transformer.")}


def initial(config: Config, seed: int) -> dict[str, Tensor]:
    """Parameters from which training starts: GPT-2's, but for what suits a narrow model and little time.

    The embeddings are larger, and so is what the blocks write, but not so large that it drowns them.
    Positions start in channels of their own, and head 0.0 starts by looking at the token before:
    trials from a random start, on text and repeats together, had no induction head after 1,900
    steps. All of it is free to change.
    """
    key_of = keys(config)
    parameters = {}
    for place, tensor in untrained(config, seed).items():
        if place.endswith(".w"):
            tensor = tensor[0]
        if place.endswith(("c_attn.w", "c_proj.w")):
            tensor = tensor * WIDER
        if place.endswith("c_proj.w"):
            tensor = tensor * (2 * config.n_layer) ** -0.5
        parameters[key_of[place]] = tensor.clone()
    _start_positions(parameters, config)
    return {key: tensor.requires_grad_() for key, tensor in parameters.items()}


def _start_positions(parameters: dict[str, Tensor], config: Config) -> None:
    """Waves in the first channels of `wpe`; head 0.0's query is that of its key one position earlier."""
    width, half = config.head_dim, config.head_dim // 2
    shortest, longest = (math.log10(length) for length in WAVELENGTHS)
    turn = 2 * torch.pi / torch.logspace(shortest, longest, half)
    angles = torch.arange(config.n_ctx)[:, None] * turn
    wte, wpe = parameters["wte.weight"], parameters["wpe.weight"]
    wte *= EMBEDDING / wte.std()
    wte[:, :width] = 0
    wpe.zero_()
    wpe[:, :width] = EMBEDDING * 2**0.5 * torch.cat((angles.sin(), angles.cos()), dim=1)
    query, key, _ = parameters["h.0.attn.c_attn.weight"].chunk(3, dim=1)
    query[:, :width] = key[:, :width] = 0
    sines, cosines = torch.arange(half), torch.arange(half, width)
    query[sines, sines] = query[cosines, cosines] = SHARPNESS * turn.cos()
    query[cosines, sines], query[sines, cosines] = -SHARPNESS * turn.sin(), SHARPNESS * turn.sin()
    key[sines, sines] = key[cosines, cosines] = SHARPNESS


def hidden(parameters: Parameters, config: Config, tokens: Tensor) -> Tensor:
    """What the output projection is given (B, T, d) for tokens (B, T)."""
    x = F.embedding(tokens, parameters["wte.weight"]) + parameters["wpe.weight"][: tokens.shape[1]]
    for layer in range(config.n_layer):
        at = f"h.{layer}"
        x = x + _attention(parameters, config, f"{at}.attn", _norm(parameters, config, f"{at}.ln_1", x))
        x = x + _mlp(parameters, f"{at}.mlp", _norm(parameters, config, f"{at}.ln_2", x))
    return _norm(parameters, config, "ln_f", x)


def logits(parameters: Parameters, config: Config, tokens: Tensor) -> Tensor:
    """Logits over the whole vocabulary (B, T, V)."""
    return hidden(parameters, config, tokens) @ parameters["wte.weight"].T


def loss(states: Tensor, targets: Tensor, wte: Tensor, candidates: Tensor, sampled: int, others: int) -> Tensor:
    """Mean cross-entropy of targets (N) from states (N, d), over some tokens instead of all.

    `candidates` (K) are distinct ids that include every target. The last `sampled` of them stand
    for the `others` tokens that do not occur in the text: each counts as often as it takes, except
    where it is itself the target. So the sum in the softmax is estimated without bias.
    """
    place = torch.full((wte.shape[0],), -1)
    place[candidates] = torch.arange(len(candidates))
    at = place[targets]
    weight = torch.zeros(len(candidates))
    if sampled:
        weight[-sampled:] = torch.tensor(others / sampled).log()
    scores = (states @ wte[candidates].T).float() + weight  # (N, K)
    rows = (at >= len(candidates) - sampled).nonzero()[:, 0]
    scores.index_put_((rows, at[rows]), -weight[at[rows]], accumulate=True)
    return F.cross_entropy(scores, at)


def _norm(parameters: Parameters, config: Config, at: str, x: Tensor) -> Tensor:
    size = (config.n_embd,)
    return F.layer_norm(x, size, parameters[f"{at}.weight"], parameters[f"{at}.bias"], config.epsilon)


def _linear(parameters: Parameters, at: str, x: Tensor) -> Tensor:
    return F.linear(x, parameters[f"{at}.weight"].T, parameters[f"{at}.bias"])


def _attention(parameters: Parameters, config: Config, at: str, x: Tensor) -> Tensor:
    q, k, v = (
        part.view(*x.shape[:-1], config.n_head, config.head_dim).transpose(1, 2)
        for part in _linear(parameters, f"{at}.c_attn", x).chunk(3, dim=-1)
    )
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, H, T, h)
    return _linear(parameters, f"{at}.c_proj", mixed.transpose(1, 2).flatten(2))


def _mlp(parameters: Parameters, at: str, x: Tensor) -> Tensor:
    h = F.gelu(_linear(parameters, f"{at}.c_fc", x), approximate="tanh")
    return _linear(parameters, f"{at}.c_proj", h)
