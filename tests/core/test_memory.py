from __future__ import annotations

import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import numpy as np
from mixveil.core.memory import keep_freed
if sys.argv[1] == "kept" and not keep_freed():
    sys.exit(3)
for _ in range(2):
    np.ones(8_000_000)  # 64 MB
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    np.ones(8_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=False)
    if done.returncode == 3:
        pytest.skip("this C library has no mallopt")
    return int(done.stdout)


def test_kept_memory_is_used_again_without_page_faults() -> None:
    assert faults("kept") < 50  # 64 MB five times over are 160 of the largest pages
