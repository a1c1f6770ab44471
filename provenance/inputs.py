"""What a run read, in a few words: for titles, lists and references."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from provenance.trace import Recipe

_SHOWN_NUMBERS = 4
_SHOWN_IDS = 12


def short(text: str, length: int = 90) -> str:
    """The beginning of a text on one line, with an ellipsis where it is cut."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def said(recipe: "Recipe", most: int = 60) -> str:
    """What a run read: `“The quick fox”`, `token ids 15496 995`, or `20 vectors #0 … #19 from seed 0, batch 8`."""
    return f"“{short(recipe.text, most)}”" if recipe.text else unquoted(recipe, most)


def unquoted(recipe: "Recipe", most: int = 60) -> str:
    """The same, a text without its quotation marks."""
    if recipe.text:
        return short(recipe.text, most)
    ids = [token.id for token in recipe.tokens]
    if recipe.drawn is None:
        more = " …" if len(ids) > _SHOWN_IDS else ""
        return short(f"token ids {' '.join(map(str, ids[:_SHOWN_IDS]))}{more}", most)
    return f"{numbers(ids)} from seed {recipe.drawn.seed}, batch {recipe.drawn.batch}"


def numbers(ids: list[int]) -> str:
    """How many vectors stand where: `20 vectors #0 … #19`, `3 vectors #2 #0 #1`."""
    count = f"{len(ids)} vector{'' if len(ids) == 1 else 's'}"
    if len(ids) <= _SHOWN_NUMBERS:
        return f"{count} {' '.join(f'#{id}' for id in ids)}"
    if ids == list(range(ids[0], ids[0] + len(ids))):
        return f"{count} #{ids[0]} … #{ids[-1]}"
    return f"{count} {' '.join(f'#{id}' for id in ids[:_SHOWN_NUMBERS])} …"
