"""Jobs between organisations, over Flower's deployment engine. The only room that imports flwr.

`client` and `server` are the two halves of the Flower app in `app/`; `superlink` and `supernode` start Flower's own
servers the way this project wants them: encrypted, by known keys, without telemetry, and running no code but what is
installed on the machine.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType

from mixveil.core.errors import MissingDependencyError

APP = Path(__file__).parent / "app"
"""The folder of the Flower app: `flwr run` takes it."""

HOME = "FLWR_HOME"
_ARENA_MAX = -8  # M_ARENA_MAX of malloc.h
SERVER = "MIXVEIL_SERVER"
"""The variable that names a server's folder to the app that runs there."""


def replace_in(module: ModuleType, name: str, value: object) -> None:
    """Put something of ours in the place of something of Flower's, which must be there."""
    getattr(module, name)
    setattr(module, name, value)


def check_installed() -> None:
    if importlib.util.find_spec("flwr") is None:
        raise MissingDependencyError("Flower is not installed: pip install 'mixveil[flower]'")


_PROXIES = {"http_proxy", "https_proxy", "all_proxy"}
_DROPPED = _PROXIES | {"ssl_cert_file", "ssl_cert_dir", "sslkeylogfile", "netrc"}
"""Variables by which HTTP clients go elsewhere than they are told, believe others, or write down keys."""


def proxies() -> list[str]:
    """The variables that name a proxy here. None is used."""
    return sorted(name for name, value in os.environ.items() if name.lower() in _PROXIES and value)


def environment(home: Path) -> dict[str, str]:
    """The environment of Flower's processes. home: where Flower keeps its files. Flower installs nothing, reports
    nothing and uses no proxy, and its programs are those beside this Python."""
    kept = {name: value for name, value in os.environ.items() if name.lower() not in _DROPPED}
    return {
        **kept,
        "NO_PROXY": "*",
        "no_proxy": "*",
        HOME: str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_OIDC_ENABLED": "0",
        "MALLOC_ARENA_MAX": "2",  # many threads that each handle megabytes: glibc would keep them apart, and all of it
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    }


def settle(home: Path, *, verbose: bool) -> None:
    """The same, for this process and those that it starts. verbose: show all that Flower says."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in [name for name in os.environ if name.lower() in _DROPPED]:
        del os.environ[name]
    os.environ.update(environment(home))
    os.environ["FLWR_LOG_LEVEL"] = "INFO" if verbose else "ERROR"
    with suppress(OSError, AttributeError):  # the same for this process, where there is glibc
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 2)


@cache
def own_bundle() -> bytes:
    """The app that is installed here, as Flower bundles it. It holds no code: only what it is called."""
    from flwr.cli.build import build_fab_from_disk

    bundle: bytes = build_fab_from_disk(APP)
    return bundle


@cache
def own_app() -> str:
    """The SHA-256 of the installed app: no other is run here."""
    return hashlib.sha256(own_bundle()).hexdigest()
