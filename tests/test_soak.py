"""Half a minute of the soak; `make soak` takes five."""

from pathlib import Path

import pytest
from soak import soak

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads a process's memory from /proc"),
]


@pytest.mark.timeout(900)
def test_a_server_in_use_does_not_fail_grow_or_leave_anything_behind(tmp_path: Path) -> None:
    soak(20, 250, tmp_path)
