"""Pages in a real browser."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

HOW = {"command": "mixveil audit <b>r</b>", "mixveil": "0", "torch": "0", "seed": 0}
COUNT_PICTURES = (
    "<script>addEventListener('load', () => { const all = [...document.images];"
    "document.body.dataset.seen = all.filter(i => i.complete && i.naturalWidth > 0 && i.offsetWidth > 0).length"
    " + '/' + all.length; });</script>"
)


def browse(page: Path, scratch: Path) -> tuple[str, str, list[str]]:
    """The page's text as rendered, what the browser said, and the addresses that the page itself asked for."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium on this machine (Debian's package chromium)")
    log = scratch / f"{page.stem}.net.json"
    quiet = "--disable-background-networking --disable-component-update --disable-sync --no-first-run"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", *quiet.split(), f"--user-data-dir={scratch / 'profile'}"]
    flags += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", f"--log-net-log={log}"]
    flags += ["--enable-logging=stderr", "--v=0", "--virtual-time-budget=3000", "--dump-dom", page.as_uri()]
    done = subprocess.run([chromium, *flags], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads(log.read_text())
    start = found["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"]
    events = [event.get("params", {}) for event in found["events"] if event["type"] == start]
    asked = [params for params in events if "url" in params]
    ours = [params["url"] for params in asked if params.get("initiator") != "not an origin"]  # not the browser's own
    return done.stdout, done.stderr, [url for url in ours if not url.startswith("data:")]
