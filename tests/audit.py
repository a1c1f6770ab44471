"""Known faults of pinned packages, by pip-audit: `python -m tests.audit TOOL requirements.lock`.

Ends with 1 where a package has one. Where the list of faults cannot be reached it says so and ends with 0.
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

PROBE_SECONDS = 20
WHOLE_SECONDS = 120
NOT_HERE = "The list of known faults cannot be reached from here: the packages were not checked."


@dataclass(frozen=True)
class Audit:
    """How many packages were looked up, and a line for each fault."""

    checked: int
    faults: tuple[str, ...]


def read_report(report: str) -> Audit:
    """What pip-audit's JSON says. Packages that it could not look up are not counted."""
    packages = json.loads(report)["dependencies"]
    checked = [package for package in packages if "vulns" in package]
    faults = (
        f"{package['name']} {package['version']}: {fault['id']}, mended by: {', '.join(fault['fix_versions'])}"
        for package in checked
        for fault in package["vulns"]
    )
    return Audit(len(checked), tuple(faults))


def ask(tool: str, requirements: Path, seconds: float) -> Audit:
    """Look packages up; none is checked where the tool, the network or the time is missing."""
    command = [tool, "-r", str(requirements), "--no-deps", "--disable-pip", "-f", "json", "--progress-spinner", "off"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
        return read_report(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError):
        return Audit(0, ())


def main(tool: str, lock: str) -> int:
    """Ask about one package, then about all."""
    pinned = [line for line in Path(lock).read_text().splitlines() if "==" in line]
    with tempfile.TemporaryDirectory() as folder:
        one = Path(folder) / "one.txt"
        one.write_text(pinned[0] + "\n")
        if not ask(tool, one, PROBE_SECONDS).checked:
            print(NOT_HERE)
            return 0
    audit = ask(tool, Path(lock), WHOLE_SECONDS)
    summary = f"{audit.checked} of {len(pinned)} packages checked, {len(audit.faults)} faults"
    print("\n".join([*audit.faults, summary]))
    return 1 if audit.faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
