"""The pages of models: which weights are here, from where, what they are, and how to get others."""

from dataclasses import dataclass
from urllib.parse import quote

from app.explorer import Explorer
from app.pages.badge import Badge
from app.pages.frame import Frame, frame
from app.pages.links import sites_url
from app.pages.scope import Scope
from app.schemas_models import KeysOut, ModelDetail, ModelOut, RenamedKey
from provenance.catalogues import OUTLINES

_MOST_KEYS = 40


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model in the list; `advice` says what to do where its weights are not here."""

    name: str
    url: str
    description: str
    kind: str
    badge: Badge
    advice: str


@dataclass(frozen=True, slots=True)
class FamilyRows:
    """The models of a family: what they are run on, and where all their tensors are listed."""

    id: str
    title: str
    url: str
    reads: str
    models: tuple[ModelRow, ...]


@dataclass(frozen=True, slots=True)
class ModelsPage:
    """Every model that can be named, by family; `default` is the one that is used where none is."""

    frame: Frame
    default: str
    families: tuple[FamilyRows, ...]


@dataclass(frozen=True, slots=True)
class KeyList:
    """What became of some keys of a checkpoint: how many, what that means, and the first of them."""

    title: str
    meaning: str
    count: int
    keys: tuple[str, ...]
    wrong: bool


@dataclass(frozen=True, slots=True)
class ModelPage:
    """One model. `keys` is empty where no checkpoint was read; `problem` says why it cannot be loaded.

    `family` is the title of its family, `reads` what it is run on.
    """

    frame: Frame
    family: str
    family_url: str
    reads: str
    model: ModelDetail
    badge: Badge
    keys: tuple[KeyList, ...]
    warnings: tuple[str, ...]
    api: str


def models_url() -> str:
    """The list of models."""
    return "/models"


def model_url(name: str) -> str:
    """The page of a model."""
    return f"{models_url()}/{quote(name, safe='')}"


def models_page(explorer: Explorer) -> ModelsPage:
    """The list of models."""
    loaded = explorer.engine.loaded()
    rows: dict[str, list[ModelRow]] = {family: [] for family in OUTLINES}
    for source in explorer.models.sources():
        out = ModelOut.of(source, loaded)
        row = ModelRow(out.name, model_url(out.name), out.description, out.kind, _badge(out), out.advice)
        rows[source.family].append(row)
    families = tuple(
        FamilyRows(f"family-{family}", outline.title, sites_url(family), outline.reads.value, tuple(rows[family]))
        for family, outline in OUTLINES.items()
    )
    return ModelsPage(frame(Scope.of(explorer), "Models"), explorer.settings.model, families)


def model_page(explorer: Explorer, name: str) -> ModelPage:
    """One model, with what became of its checkpoint's keys. Raises UnknownModel."""
    found = explorer.models.inspect(name)
    model = ModelDetail.inspected(found, explorer.engine.loaded())
    scope = Scope.of(explorer, family=found.source.family)
    return ModelPage(
        frame=frame(scope, f"Model {model.name}"),
        family=scope.outline.title,
        family_url=sites_url(scope.family),
        reads=scope.outline.reads.value,
        model=model,
        badge=_badge(model, model.problem if model.available else ""),
        keys=_lists(model.keys) if model.keys else (),
        warnings=tuple(model.keys.warnings) if model.keys else (),
        api=f"/api{model_url(model.name)}",
    )


def _badge(model: ModelOut, problem: str = "") -> Badge:
    if problem:
        return Badge("differs", "✕", "cannot be loaded", problem)
    if not model.available:
        return Badge("missing", "✕", "not here", model.advice)
    if model.loaded:
        return Badge("proven", "✓", "loaded", f"In memory, computing in {' and '.join(model.loaded)}.")
    return Badge("proven", "✓", "here", "Loaded when a recording asks for it.")


def _lists(keys: KeysOut) -> tuple[KeyList, ...]:
    return (
        _list("Matched", "Spelt as transformers saves them.", keys.matched),
        _list("Renamed", "The same parameters under another spelling.", list(map(_renamed, keys.renamed))),
        _list("Ignored", "Mask buffers, and an output that is tied to the token table: no parameters.", keys.ignored),
        _list("Missing", "Parameters that the checkpoint lacks.", keys.missing, wrong=True),
        _list("Unexpected", "Keys that this model does not have.", keys.unexpected, wrong=True),
        _list("Misshapen", "Another shape or kind than the config asks for.", keys.misshapen, wrong=True),
    )


def _renamed(key: RenamedKey) -> str:
    return f"{key.key} → {key.saved_as}"


def _list(title: str, meaning: str, keys: list[str], *, wrong: bool = False) -> KeyList:
    return KeyList(title, meaning, len(keys), tuple(keys[:_MOST_KEYS]), wrong and bool(keys))
