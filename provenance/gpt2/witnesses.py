"""The two cited files as witnesses of GPT-2: how each is run, and which site each of its lines holds."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy
import torch
from torch import Tensor

from provenance.catalogue import Alias, Kind, Point
from provenance.errors import Unavailable
from provenance.gpt2.catalogue import CATALOGUE
from provenance.gpt2.config import Config
from provenance.gpt2.model import GPT2
from provenance.gpt2.pins import OPENAI, TRANSFORMERS
from provenance.gpt2.points_transformers import HOLDS, Held
from provenance.gpt2.stored import read_stored
from provenance.model import Model
from provenance.names import Address, is_layered
from provenance.naming import KEY, SCOPE
from provenance.witness.execute import load
from provenance.witness.tensorflow_standin import CODE_FILENAME, HParams, TensorFlow, wrap
from provenance.witness.testimony import Claim, Observe, Place, place_of
from provenance.witness.tracer import Observation, watch

_EPSILON = 1e-5
_OWN_HEAD = "OpenAI's code ties the output to wte; this checkpoint has its own lm_head"


class OpenAIWitness:
    """openai/gpt-2's model.py, unmodified, on torch through a stand-in for TensorFlow."""

    pin = OPENAI
    label = pin.label
    packages: tuple[str, ...] = ("torch",)
    complete = True
    exceptions: Mapping[Place, str] = {
        ("expand_tile", 137, "value"): "the positions before the batch axis is added; the site is the result",
    }

    def __init__(self) -> None:
        self._sites: dict[tuple[str, int, str, str, int | None], str] = {}
        for row in CATALOGUE:
            for point in row.points:
                self._sites[_key(point)] = row.site

    def departures(self, model: Model) -> tuple[str, ...]:
        """OpenAI's code fixes ε = 1e-5 and an MLP of four times the width."""
        config = as_gpt2(model).config
        found = []
        if config.epsilon != _EPSILON:
            found.append(f"OpenAI's code fixes ε = {_EPSILON:g}; this config has {config.epsilon:g}")
        if config.n_inner != 4 * config.n_embd:
            found.append(f"OpenAI's code fixes an MLP of 4 × d; this config has {config.n_inner}")
        return tuple(found)

    def excepted(self, model: Model) -> Mapping[str, str]:
        """OpenAI's code multiplies by `wte` at the end, whatever the checkpoint holds."""
        return {} if as_gpt2(model).config.tied else dict.fromkeys(("lm_head.w", "logits_flat", "logits"), _OWN_HEAD)

    def testify(
        self, model: Model, steps: Sequence[Tensor], source: bytes, observe: Observe, lines: set[int]
    ) -> None:
        """Run `model(hparams, X, past)` once for each step."""
        gpt2 = as_gpt2(model)
        weights = weights_by_scope(gpt2)
        past: Tensor | None = None
        filename = f"{self.pin.key}@{self.pin.revision[:12]}"
        for step, tokens in enumerate(steps):
            namespace = load(source, filename, {"numpy": numpy, "tensorflow": TensorFlow(weights)})
            run = cast("Callable[..., dict[str, Tensor]]", namespace["model"])
            given = None if past is None else wrap(past)

            def ask(run: Any = run, tokens: Tensor = tokens, given: Any = given) -> dict[str, Tensor]:
                return cast("dict[str, Tensor]", run(hyperparameters(gpt2.config), wrap(tokens), past=given))

            def see(observation: Observation, step: int = step) -> None:
                observe(step, observation)

            with torch.inference_mode():
                results = watch(ask, filename, source, see, calls={CODE_FILENAME}, lines=lines)
                present = results["present"].as_subclass(torch.Tensor)
                past = present if past is None else torch.cat((past, present), dim=-2)

    def claim(self, step: int, observation: Observation, layers: int) -> Claim | None:
        """The site of a point of the catalogue; the layer is how often the point came before."""
        function, line, expression = place_of(observation)
        caller = observation.stack[-1][1] if observation.stack else None
        site = self._sites.get((function, line, expression, observation.kind, caller)) or self._sites.get(
            (function, line, expression, observation.kind, None)
        )
        if site is None:
            return None
        return Claim(Address(site, observation.occurrence if is_layered(site) else None, step))


class TransformersWitness:
    """huggingface/transformers' modeling_gpt2.py as installed, with eager attention."""

    pin = TRANSFORMERS
    label = pin.label
    packages: tuple[str, ...] = ("torch", "transformers")
    complete = False
    exceptions: Mapping[Place, str] = {}

    def departures(self, model: Model) -> tuple[str, ...]:
        """transformers follows the config in everything that our model accepts."""
        return ()

    def excepted(self, model: Model) -> Mapping[str, str]:
        """Nothing: transformers uses the head that the checkpoint has."""
        return {}

    def testify(
        self, model: Model, steps: Sequence[Tensor], source: bytes, observe: Observe, lines: set[int]
    ) -> None:
        """Build GPT2LMHeadModel from the same checkpoint and run it with its cache."""
        filename = _installed_file(source)
        theirs = watch(lambda: _hugging_face(as_gpt2(model)), filename, source, lambda _: None, lines=lines)
        cache: Any = None
        for step, tokens in enumerate(steps):

            def ask(tokens: Tensor = tokens, cache: Any = cache) -> Any:
                return theirs(tokens, past_key_values=cache, use_cache=True)

            def see(observation: Observation, step: int = step) -> None:
                observe(step, observation)

            with torch.inference_mode():
                cache = watch(ask, filename, source, see, lines=lines).past_key_values

    def claim(self, step: int, observation: Observation, layers: int) -> Claim | None:
        """What the table of transformers' assignments says."""
        held: Held | None = HOLDS.get(place_of(observation)) if observation.kind == "assign" else None
        if held is None:
            return None
        return Claim(held.address(step, observation.occurrence), held.layout)


def as_gpt2(model: Model) -> GPT2:
    """The model as a GPT-2; any other is a mistake of ours."""
    if not isinstance(model, GPT2):
        raise TypeError("the cited files testify for GPT-2 only")
    return model


def _key(point: Point) -> tuple[str, int, str, str, int | None]:
    return point.function, point.line, point.expression, point.kind, point.caller


def hyperparameters(config: Config) -> HParams:
    """A config as OpenAI's code takes it."""
    return HParams(
        n_vocab=config.n_vocab,
        n_ctx=config.n_ctx,
        n_embd=config.n_embd,
        n_head=config.n_head,
        n_layer=config.n_layer,
    )


# --- the weights, named as each code names them; read from the checkpoint, not from our model ---


def _parameters(model: GPT2, scheme: str) -> dict[str, str]:
    """Every parameter's other name, to its place. Of several names the last, shortest one counts."""
    found = {}
    for row in CATALOGUE:
        aliases = [alias for alias in row.aliases if alias.scheme == scheme]
        if row.kind is Kind.PARAMETER and aliases and row.variant in ("", *model.variants):
            alias: Alias = aliases[-1]
            for layer in range(model.layers) if is_layered(row.site) else (None,):
                name = alias.pattern.replace("{layer}", str(layer))
                found[name] = Address(row.site, layer).place
    return found


def _stored(model: GPT2) -> dict[str, Tensor]:
    """The checkpoint's tensors by key without `transformer.`, in fp32."""
    names = _parameters(model, KEY)
    if model.checkpoint is None:
        return {key: _flat(model.weights[place]) for key, place in names.items()}
    stored = read_stored(model.checkpoint, pickles=True).tensors
    openai = _parameters(model, SCOPE)
    keys = {place: key for key, place in names.items()}
    return {
        keys[openai[key]] if key in openai else key.removeprefix("transformer."): _flat(tensor)
        for key, tensor in stored.items()
    }


def _flat(weight: Tensor) -> Tensor:
    return (weight[0] if weight.ndim == 3 else weight).float()


def weights_by_scope(model: GPT2) -> dict[str, Tensor]:
    """The checkpoint's tensors by OpenAI's variable scope, in the shapes that its code asks for."""
    stored = _stored(model)
    keys = {place: key for key, place in _parameters(model, KEY).items()}
    found = {}
    for name, place in _parameters(model, SCOPE).items():
        tensor = stored[keys[place]]
        found[name] = tensor.unsqueeze(0) if name.endswith("/w") else tensor
    return found


def _hugging_face(model: GPT2) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = model.config
    theirs = GPT2Config(
        vocab_size=config.n_vocab,
        n_positions=config.n_ctx,
        n_embd=config.n_embd,
        n_layer=config.n_layer,
        n_head=config.n_head,
        n_inner=config.n_inner,
        layer_norm_epsilon=config.epsilon,
        tie_word_embeddings=config.tied,
        bos_token_id=None,
        eos_token_id=None,
    )
    theirs._attn_implementation = "eager"
    with torch.device("meta"):
        built = GPT2LMHeadModel(theirs)  # type: ignore[no-untyped-call]
    stored = _stored(model)
    weights = {f"transformer.{key}": tensor for key, tensor in stored.items()}
    weights["lm_head.weight"] = stored["wte.weight" if config.tied else "lm_head.weight"]
    own = {name for name, _ in built.named_parameters(remove_duplicate=False)}
    built.load_state_dict({name: tensor for name, tensor in weights.items() if name in own}, assign=True)
    built.train(False)
    return built


def _installed_file(source: bytes) -> str:
    from transformers.models.gpt2 import modeling_gpt2

    path = Path(modeling_gpt2.__file__)
    if path.read_bytes() != source:
        raise Unavailable(
            "The installed transformers is not the release whose file is cited.",
            hint="Install the release that the pin names, to let it testify.",
        )
    return str(path)


WITNESSES = (OpenAIWitness(), TransformersWitness())
