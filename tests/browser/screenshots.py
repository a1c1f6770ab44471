"""The pictures of the README: taken of the running application, with whatever model is at hand.

`python -m tests.browser.screenshots` writes them to docs/screenshots.
"""

import runpy
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors.numpy import save

from app.comparing import FILE
from app.explorer import EXAMPLE, EXAMPLE_STEPS
from app.settings import Settings

from .serving import Served, serving, started_chromium

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "docs" / "screenshots"
LARGEST = 200 * 1024
_DEMO = "demo"
_DEMO_DIRECTORY = ROOT / "provenance" / "gpt2" / _DEMO


@dataclass(frozen=True)
class Shot:
    """One picture: a page, and what to bring to the top of the window.

    `hover` is a place in the heatmap, in shares of its width and height.
    """

    path: str
    top: str = ""
    hover: tuple[float, float] | None = None
    scheme: str = "light"
    width: int = 1280
    height: int = 800


_SCORES = "{trace}/h.{layer}.attn.scores?head={head}"
SHOTS: Mapping[str, Shot] = {
    "home": Shot("/"),
    "map": Shot("/map/transformer-block/attention?trace={id}&layer={layer}&site=h.attn.scores"),
    "tensor-light": Shot(_SCORES),
    "tensor-dark": Shot(_SCORES, top="#values", hover=(0.35, 0.2), scheme="dark"),
    "tensor-phone": Shot(_SCORES, width=390, height=844),
    "patterns": Shot("{trace}/h.{layer}.attn.pattern?head={head}", top=".heads"),
    "drift": Shot("/sources/drift"),
    "lesson": Shot("/lessons/scaled-dot-product", top="#scores"),
    "lesson-heads": Shot("/lessons/multi-head", top="#heads", scheme="dark"),
    "compare-port": Shot("/compare?a={id}&b={port}"),
}
"""Every picture, by the name of its file. None shows lines of the cited files: those stay out of the repository."""


def model_at_hand() -> str:
    """The trained demonstration model where it is there; else GPT-2's shapes without training."""
    return _DEMO if (_DEMO_DIRECTORY / "config.json").is_file() else "gpt2-untrained"


def handed_in(served: Served, ids: list[int]) -> str:
    """The worked example of a port with the exact GELU, as a side of a comparison with the demo's trace."""
    port = runpy.run_path(str(ROOT / "docs" / "porting" / "gpt2_numpy.py"))["load"](_DEMO_DIRECTORY, "gelu")
    port.prefill(ids)
    return FILE + served.explorer.uploads.add(save(port.kept), "faulty.safetensors").id


def take(served: Served, trace: str, target: Path) -> dict[str, int]:
    """Write every picture; the bytes of each. Raises ValueError for one that is too large."""
    target.mkdir(parents=True, exist_ok=True)
    sizes = {}
    id = trace.removeprefix("/traces/")
    recipe = served.explorer.store.open(id).recipe
    config = recipe.model.config
    shots = dict(SHOTS)
    places = {
        "trace": trace,
        "id": id,
        "layer": min(5, int(config["n_layer"]) - 1),
        "head": min(3, int(config["n_head"]) - 1),
    }
    if recipe.model.name == _DEMO:
        places["port"] = handed_in(served, list(recipe.prompt.ids))
    else:
        del shots["compare-port"]
    with started_chromium() as browser:
        for name, shot in shots.items():
            context = browser.new_context(
                base_url=served.base,
                viewport={"width": shot.width, "height": shot.height},
                color_scheme="dark" if shot.scheme == "dark" else "light",
            )
            page = context.new_page()
            page.goto(shot.path.format(**places), wait_until="networkidle")
            if shot.top:
                page.locator(shot.top).first.evaluate("element => element.scrollIntoView({block: 'start'})")
            if shot.hover is not None:
                image = page.locator("#heatmap-image")
                box = image.bounding_box()
                assert box is not None
                page.mouse.move(box["x"] + box["width"] * shot.hover[0], box["y"] + box["height"] * shot.hover[1])
                page.locator("#readout").filter(has_text="key").wait_for()
            file = target / f"{name}.png"
            page.screenshot(path=file)
            sizes[name] = file.stat().st_size
            context.close()
    if too_large := [name for name, size in sizes.items() if size > LARGEST]:
        raise ValueError(f"larger than {LARGEST} bytes: {', '.join(too_large)}")
    return sizes


def main() -> None:
    """Start the application, record, verify, and take the pictures."""
    model = model_at_hand()
    with tempfile.TemporaryDirectory() as directory:
        settings = Settings(
            data_directory=Path(directory) / "data", cache_directory=Path(directory) / "cache", model=model,
            example=False, network=False,
        )  # fmt: skip
        with serving(settings) as served:
            trace = served.record(EXAMPLE, steps=EXAMPLE_STEPS)
            served.verify(trace)
            for name, size in take(served, trace, TARGET).items():
                print(f"{name}.png  {size // 1024} KiB")
    print(f"with the model {model}, in {TARGET.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
