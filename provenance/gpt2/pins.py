"""The two cited files: where they are, at which revision, and what their content is known to be.

Facts only (names, hashes, line counts); the files themselves are never part of this project.
"""

from provenance.citation import Blob, Package, Pin

OPENAI = Pin(
    label="openai",
    repository="openai/gpt-2",
    revision="9b63575ef42771a015060c964af2c3da4cf7c8ab",
    path="src/model.py",
    blobs=(
        Blob(
            "230b83cc2ac7582b4a22e9db3c2d8916dfe2ea9a",
            (Package("gpt-2-simple", "0.3", "gpt_2_simple/src/model.py"),),
        ),
    ),
    shared_lines=None,
    license="Modified MIT",
    author="OpenAI",
    year=2024,
)

# The pinned revision lies between two releases. Which of the two contents it has is settled by
# the git host alone; they differ only behind line 446 (one line, inside `_init_weights`).
TRANSFORMERS = Pin(
    label="transformers",
    repository="huggingface/transformers",
    revision="71c6f699ac9b3f8fc42a6a3e9dc59034c349a678",
    path="src/transformers/models/gpt2/modeling_gpt2.py",
    blobs=(
        Blob(
            "da1e9a64c8e0c829bd3f4abe26cdc89d0c3414f4",
            (Package("transformers", "5.15.0", "transformers/models/gpt2/modeling_gpt2.py"),),
        ),
        Blob(
            "cde95dc7bc003abaef647044aefcccf11bd28f72",
            (Package("transformers", "5.14.1", "transformers/models/gpt2/modeling_gpt2.py"),),
        ),
    ),
    shared_lines=446,
    license="Apache-2.0",
    author="The Hugging Face team",
)

PINS = (OPENAI, TRANSFORMERS)
