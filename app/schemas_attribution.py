"""An attribution as the API gives it."""

from collections.abc import Sequence

from pydantic import BaseModel, Field

from app.schemas import TokenOut
from provenance.attribution import Attribution
from provenance.names import Address
from provenance.prompt import Token


class TermOut(BaseModel):
    """One summand of the logit."""

    kind: str = Field(description="such as `attention heads`, `attention bias`, `MLP`, `token embedding`")
    layer: int | None
    head: int | None
    address: str = Field(description="the tensor to look at; of a head, that of all heads")
    value: float


class LayerSumOut(BaseModel):
    """The sum of one layer's terms; null are the terms outside the layers."""

    layer: int | None
    value: float


class AttributionStageOut(BaseModel):
    """The sum up to a residual stream, offset included."""

    stage: str
    layer: int | None
    value: float = Field(description="with the final scale; the logit lens rescales each stream by its own")
    unexplained: float = Field(
        description="what the stream gained beyond the terms written to it: rounding of its sums, or an edit"
    )


class AttributionOut(BaseModel):
    """What made a logit, or with `against` its lead over another one. All sums are in float64."""

    trace: str
    position: int
    step: int
    token: TokenOut
    against: TokenOut | None
    terms: list[TermOut] = Field(description="in order of computation")
    offset: float = Field(description="what the output adds whatever the stream is")
    offset_address: str
    scale_address: str = Field(description="the recorded variance that is taken as given")
    by_kind: dict[str, float]
    by_layer: list[LayerSumOut]
    stages: list[AttributionStageOut]
    total: float = Field(description="all terms and the offset")
    recorded: float
    remainder: float = Field(description="recorded − total")
    tolerance: float
    holds: bool = Field(description="whether the sum is the recorded logit, within the tolerance")


def attribution_out(trace: str, found: Attribution, tokens: Sequence[Token]) -> AttributionOut:
    """An attribution of a trace; `tokens` are those of its ids."""
    step = found.position.step
    return AttributionOut(
        trace=trace,
        position=found.position.number,
        step=step,
        token=_token(tokens[0]),
        against=_token(tokens[1]) if len(tokens) > 1 else None,
        terms=[
            TermOut(kind=term.kind, layer=term.layer, head=term.head, address=_at(term.place, step), value=term.value)
            for term in found.terms
        ],
        offset=found.offset,
        offset_address=_at(found.offset_place, step),
        scale_address=_at(found.scale, step),
        by_kind=found.by_kind,
        by_layer=[LayerSumOut(layer=layer, value=value) for layer, value in found.by_layer.items()],
        stages=[
            AttributionStageOut(
                stage=_at(stage.place, step), layer=stage.layer, value=stage.value, unexplained=stage.unexplained
            )
            for stage in found.stages
        ],
        total=found.total,
        recorded=found.recorded,
        remainder=found.remainder,
        tolerance=found.tolerance,
        holds=found.holds,
    )


def _at(place: str, step: int) -> str:
    address = Address.parse(place)
    return str(Address(address.site, address.layer, step))


def _token(token: Token) -> TokenOut:
    return TokenOut(id=token.id, hex=token.bytes.hex(), text=token.text)
