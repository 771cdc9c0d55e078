"""A process that is told to end (SIGTERM) ends, also where its exception is swallowed or it hangs in its own end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import Run

BEGIN = "import atexit, ctypes, sys, time\nfrom mixveil.cli._ending import end_when_told\nend_when_told({seconds})\n"
READY = "print('ready', flush=True)\n"
SWALLOWS = f"""
class Callback:
    def __del__(self):
        {READY}        time.sleep(3600)
Callback()
time.sleep(3600)
"""
TIDIES = f"try:\n    {READY}    time.sleep(3600)\nfinally:\n    print('tidied', flush=True)\n"
ENDS_SLOWLY = f"def slow():\n    {READY}    time.sleep(3600)\natexit.register(slow)\n"
HANGS_WITHOUT_INTERPRETER = "libc = ctypes.CDLL(None)\nlibc.__cxa_atexit(libc.pause, None, None)\n"
GOES_ON = (
    f"try:\n    {READY}    time.sleep(3600)\nexcept SystemExit:\n    print('told', flush=True)\n    time.sleep(3600)\n"
)
ENOUGH = 120.0


def told(script: str, *, seconds: float = 0.2, again: bool = False) -> tuple[int, str, str]:
    """The exit code of a process that was told to end once it was ready, and what it said. It is waited for as long as
    a busy machine may need."""
    words = [sys.executable, "-c", BEGIN.format(seconds=seconds) + script]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGTERM)
            if again:
                assert process.stdout.readline() == "told\n"
                process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=ENOUGH)
        finally:
            process.kill()
    return process.returncode, out, err


def test_what_is_half_done_is_tidied() -> None:
    assert told(TIDIES, seconds=ENOUGH) == (143, "tidied\n", "")


PATIENCE = (0.3, 3.0, 30.0)
"""A busy machine may not come so far in the first."""


def test_a_process_that_swallows_the_exception_ends() -> None:
    ends = (told(SWALLOWS, seconds=seconds) for seconds in PATIENCE)
    assert any(code == 143 and "Exception ignored" in err and "SystemExit" in err for code, _, err in ends)


def test_no_exception_is_raised_in_a_process_that_is_ending() -> None:
    assert told(ENDS_SLOWLY) == (143, "", "")


def test_a_process_that_hangs_without_its_interpreter_ends() -> None:
    """As the destructors of a library may: no thread of Python runs any more."""
    script = HANGS_WITHOUT_INTERPRETER + READY + "time.sleep(3600)\n"
    ends = (told(script, seconds=seconds) for seconds in PATIENCE)
    assert any(code == -signal.SIGALRM and not err for code, _, err in ends)


def test_told_again_it_ends_at_once() -> None:
    """Long before its time is over."""
    assert told(GOES_ON, seconds=3600, again=True)[0] == -signal.SIGTERM


@pytest.mark.parametrize("verb", [["join", "127.0.0.1:9"], ["serve", "s"]])
def test_every_verb_ends_so(verb: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mixveil.cli import main

    begun: list[float] = []
    monkeypatch.setattr(main, "end_when_told", lambda: begun.append(1))
    monkeypatch.setattr(sys, "argv", ["mixveil", *verb, "--help"])
    with pytest.raises(SystemExit):
        main.main()
    assert begun


def test_a_party_whose_node_flower_ended_ends(run: Run, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mixveil.federated.transport.flower import supernode

    def ended(*_: object) -> None:
        raise SystemExit(0)

    begun: list[float] = []
    monkeypatch.setattr(supernode, "join", ended)
    monkeypatch.setattr("mixveil.cli.join.end_within", lambda: begun.append(1))
    words = ("--party", "a", "--insecure", "--data", small, "--mu", 1, "--budget", 5)
    assert run("join", "127.0.0.1:9", *words).code == 0 and begun
