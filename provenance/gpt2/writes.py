"""What GPT-2 adds to its residual stream, and how a logit reads it."""

import torch

from provenance.gpt2.config import Config
from provenance.model import Get, Readout, Split, Write


def writes_of(config: Config) -> tuple[Write, ...]:
    """The two embeddings, then each block's attention and MLP: their sum enters the last LayerNorm."""
    found = [Write("embed.tokens", "token embedding"), Write("embed.positions", "position embedding")]
    for layer in range(config.n_layer):
        at = f"h.{layer}.attn"
        heads = Split(config.n_head, f"{at}.context", f"{at}.merged", f"{at}.c_proj.w", f"{at}.c_proj.b")
        found += [Write(f"{at}.out", "attention", heads), Write(f"h.{layer}.mlp.h2", "MLP")]
    return tuple(found)


@torch.inference_mode()
def read_by(config: Config, token: int, index: int, get: Get) -> Readout:
    """How the logit of a token reads the stream at an index of a step.

    With s and the row W of the output, the logit is ((x − mean x) · rsqrt(s + ε) · g + b) · W. With s
    given that is linear in x; subtracting the mean from x is subtracting it from what x is multiplied with.
    """
    row = get("wte" if config.tied else "lm_head.w")[token].double()  # (d)
    scale = torch.rsqrt(get("ln_f.s")[0, index, 0].double() + config.epsilon)
    weighted = row * get("ln_f.g").double() * scale
    offset = float(get("ln_f.b").double() @ row)
    return Readout(weighted - weighted.mean(), offset, "ln_f.s", "ln_f.b")
