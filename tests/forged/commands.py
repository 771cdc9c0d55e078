"""Run commands one after the other in one process, as `mixveil` does, and say what became of each: a process each would
cost seconds. Commands come as JSON on standard input; one line of JSON is written for each."""

from __future__ import annotations

import contextlib
import io
import json
import resource
import signal
import sys
import traceback

from mixveil.cli.main import main

HANGS = 300  # seconds of one command


def run(words: list[str]) -> dict[str, object]:
    said, code = io.StringIO(), -1
    sys.argv = ["mixveil", *words]
    signal.alarm(HANGS)
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        except BaseException:  # what a user would see
            said.write(traceback.format_exc())
    signal.alarm(0)
    return {"code": code, "said": said.getvalue(), "kb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}


if __name__ == "__main__":
    for given in json.load(sys.stdin):
        sys.stdout.write(json.dumps(run(given)) + "\n")
        sys.stdout.flush()
