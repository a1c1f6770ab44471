"""A checkpoint's keys: which parameter each one names, and what becomes of those that name none."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from provenance.catalogue import Intermediate, Kind
from provenance.gpt2.catalogue import CATALOGUE
from provenance.gpt2.config import Config
from provenance.model_sources import KeyReport
from provenance.names import Address, is_layered
from provenance.naming import KEY, SCOPE
from provenance.variants import catalogue_of

HEAD = "lm_head.weight"
_PREFIX = "transformer."
_BUFFERS = (".attn.bias", ".attn.masked_bias")


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter, by place; projections are (1, in, out) as in OpenAI's code."""
    return {place: tuple(config.constants[axis] for axis in row.shape) for row, _, place in _parameters(config)}


def checkpoint_keys(config: Config) -> dict[str, str]:
    """The place of every Hugging Face checkpoint key, with and without `transformer.`."""
    return _spelt(config, KEY)


def openai_keys(config: Config) -> dict[str, str]:
    """The place of every key as OpenAI's TensorFlow checkpoint spells it: `model/h0/attn/c_attn/w`."""
    return _spelt(config, SCOPE)


def match(
    config: Config, stored: Mapping[str, Tensor], warnings: Iterable[str] = ()
) -> tuple[Config, dict[str, Tensor], KeyReport]:
    """Stored tensors by place, in our shapes, with what became of each key.

    The config comes back untied where the checkpoint has an output matrix of its own.
    """
    said = list(warnings)
    if config.tied and _has_own_head(stored):
        config = replace(config, tied=False)
        said.append(f"The config ties the output to wte, but {HEAD} has other values: it is used.")
    keys, openai, expected = checkpoint_keys(config), openai_keys(config), shapes(config)
    short = {place: key for key, place in keys.items()}
    long = {place: key for key, place in reversed(keys.items())}
    weights: dict[str, Tensor] = {}
    matched: list[str] = []
    renamed: list[tuple[str, str]] = []
    ignored: list[str] = []
    unexpected: list[str] = []
    misshapen: list[str] = []
    for name, tensor in stored.items():
        place = keys.get(name) or openai.get(name)
        if place is None:
            (ignored if name.endswith(_BUFFERS) or name == HEAD else unexpected).append(name)
        elif place in weights:
            unexpected.append(f"{name} (a second {place})")
        else:
            # OpenAI's projections have a leading axis of one; transformers stores them without.
            fitted = tensor.unsqueeze(0) if name in keys and len(expected[place]) == 3 else tensor
            if tuple(fitted.shape) != expected[place] or not tensor.is_floating_point():
                misshapen.append(f"{name} {list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}")
            weights[place] = fitted
            if name == long[place]:
                matched.append(name)
            else:
                renamed.append((name, long[place]))
    missing = [short[place] for place in expected if place not in weights]
    report = KeyReport(
        _sorted(matched), tuple(sorted(renamed)), _sorted(ignored), _sorted(missing), _sorted(unexpected),
        _sorted(misshapen), tuple(said),
    )  # fmt: skip
    return config, {place: weights[place] for place in expected if place in weights}, report


def _parameters(config: Config) -> Iterable[tuple[Intermediate, int | None, str]]:
    for row in catalogue_of(CATALOGUE, config.variants):
        if row.kind is Kind.PARAMETER:
            for layer in range(config.n_layer) if is_layered(row.site) else (None,):
                yield row, layer, Address(row.site, layer).place


def _spelt(config: Config, scheme: str) -> dict[str, str]:
    return {
        alias.pattern.replace("{layer}", str(layer)): place
        for row, layer, place in _parameters(config)
        for alias in row.aliases
        if alias.scheme == scheme
    }


def _has_own_head(stored: Mapping[str, Tensor]) -> bool:
    head = stored.get(HEAD)
    table = stored.get(f"{_PREFIX}wte.weight", stored.get("wte.weight"))
    if head is None or table is None:
        return False
    return head.dtype != table.dtype or not torch.equal(head, table)


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names))
