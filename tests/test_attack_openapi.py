"""Schemathesis over the whole OpenAPI document, with all its checks, against a server process."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from attack_server import Server, serving

pytestmark = pytest.mark.slow

EXAMPLES = os.environ.get("ATTACK_EXAMPLES", "8")
"""Cases per operation and phase."""

# What a schema cannot say, such as a prompt over the model's context, is refused with 422 at these only.
REFUSES = "/(slice|effect|attribution|next|lens|tensors/.*|export.*|compare|traces)$"

CONFIGURATION = """
[[operations]]
include-path-regex = {refuses}
checks.positive_data_acceptance.expected-statuses = ["2xx", "404", "410", "422", "429", "503"]

# Nor can it say how a form is written, or what a file of tensors is.
[[operations]]
include-path = "/api/uploads"
checks.positive_data_acceptance.expected-statuses = ["201", "400", "413", "422", "429"]

[dictionaries]
traces = {{ values = {traces} }}
tensors = {{ values = ["h.0.attn.pattern", "logits", "h.1.ln_1.out@1", "norm(x, 'ln_1')", "h.9.mlp.h2"] }}
sites = {{ values = ["h.attn.scores", "logits", "norm(x, 'ln_1')"] }}
indices = {{ values = ["0,0,:", "0,:,0:2,0", ":", "0,0,0,0"] }}

[parameters]
"path.id" = {{ dictionary = "traces", probability = 0.7 }}
"path.address" = {{ dictionary = "tensors", probability = 0.7 }}
"path.site" = {{ dictionary = "sites", probability = 0.7 }}
"query.index" = {{ dictionary = "indices", probability = 0.7 }}
"query.a" = {{ dictionary = "traces", probability = 0.7 }}
"query.b" = {{ dictionary = "traces", probability = 0.7 }}
"""


@pytest.mark.timeout(1800)
def test_no_operation_breaks_its_documented_contract(tmp_path: Path) -> None:
    with serving(tmp_path, steps_limit=4) as server:
        configuration = tmp_path / "schemathesis.toml"
        configuration.write_text(
            CONFIGURATION.format(refuses=json.dumps(REFUSES), traces=json.dumps(stored(server, tmp_path)))
        )
        address = f"{server.client.base_url}/api/openapi.json"
        command = (
            sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()",
            "--config-file", str(configuration), "run", address,
            "--checks", "all", "--seed", "1", "--max-examples", EXAMPLES, "--no-color", "--continue-on-failure",
            "--no-shrink",
        )  # fmt: skip
        attacked = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        said = attacked.stdout[attacked.stdout.find("=== ") :]
        print(said[-600:])
        assert attacked.returncode == 0, said + attacked.stderr
        code, complaints = server.stop()
        failures = [line for line in complaints.splitlines() if " error " in line or "Traceback" in line]
        assert (code, failures) == (-signal.SIGTERM, [])


def stored(server: Server, directory: Path) -> list[str]:
    """Things to find: two traces, an edited one, and a file that was handed in."""
    ids = [server.record(prompt="Hello world", steps=2), server.record(ids=[1, 2, 3])]
    ids.append(server.record(prompt="Hello world", steps=2, edits=["h.0.attn.pattern[head=0]=0"]))
    np.savez(directory / "own.npz", **{"h.0.ln_1.out": np.zeros((1, 2, 32), dtype=np.float32)})
    files = {"file": ("own.npz", (directory / "own.npz").read_bytes())}
    ids.append(server.client.post("/api/uploads", files=files).raise_for_status().json()["id"])
    return ids
