"""Where a server is, and how it is reached: its folder, its address, the options of Flower's programs."""

from __future__ import annotations

import ipaddress
import json
import shlex
import socket
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mixveil.core import files
from mixveil.core.errors import ArgumentError, ServiceError
from mixveil.federated import key_files
from mixveil.federated.transport import certificates

NAME = "mixveil"
"""Of the connection, in Flower's configuration."""

PARTIES, _NODES, _CONFIG = "parties.json", "nodes.json", "config.toml"


@dataclass(frozen=True)
class Link:
    """How a server is started: its folder, the address by which this machine reaches it, the public keys of parties by
    their names, and the options of `flower-superlink`."""

    server: Path
    address: str
    parties: Mapping[str, bytes]
    options: tuple[str, ...]


def home(server: Path) -> Path:
    """Where Flower keeps its things of a server."""
    return server / "flower"


def prepared(server: Path, keys: Path | None, *, host: str, port: int, insecure: bool) -> Link:
    """Make a server's folder ready, and say how it is started."""
    server = server.absolute()
    _check_encrypted(host, keys, insecure=insecure)
    _check_free(host, port)
    database = ["--database", str(server / "flower" / "link.sqlite"), "--disable-runtime-dependency-installation"]
    options = ["--host", host, "--port", str(port), *database]
    parties: dict[str, bytes] = {}
    connection = {"address": f"{_reach(host)}:{port}", "insecure": insecure}
    if keys is not None:
        keys = keys.absolute()
        for name in (certificates.CA, certificates.CERTIFICATE, certificates.KEY):
            if not (keys / name).is_file():
                raise ServiceError(f"{keys} has no {name}: `mixveil keys server` makes it")
        certificates.check_certificate(keys / certificates.CA)
        for name in (certificates.KEY, certificates.CA_KEY):
            if (keys / name).exists():  # ca.key may be kept elsewhere
                key_files.check_private(keys / name)
        parties = certificates.known_parties(keys)
        if not parties:
            raise ServiceError(f"{keys / certificates.PARTIES} has no public key: no party could join")
        options += ["--ssl-ca-certfile", str(keys / certificates.CA), "--ssl-certfile"]
        options += [str(keys / certificates.CERTIFICATE), "--ssl-keyfile", str(keys / certificates.KEY)]
        options += ["--enable-supernode-auth"]
        connection["root-certificates"] = str(keys / certificates.CA)
    else:
        options += ["--insecure"]
    (server / "jobs").mkdir(mode=0o700, parents=True, exist_ok=True)
    server.chmod(0o700)
    home(server).mkdir(mode=0o700, exist_ok=True)
    write_toml(home(server) / _CONFIG, {"superlink": {"default": NAME, NAME: connection}})
    files.write_whole(server / PARTIES, (json.dumps(sorted(parties)) + "\n").encode(), 0o600)
    return Link(server, str(connection["address"]), parties, tuple(options))


@dataclass(frozen=True)
class Node:
    """How a party reaches a server. `key` and `ca` are None where nothing is encrypted."""

    address: str
    key: Path | None
    ca: Path | None

    @property
    def options(self) -> tuple[str, ...]:
        """Of `flower-supernode`."""
        if self.key is None or self.ca is None:
            return ("--superlink", self.address, "--insecure")
        certificate = ("--root-certificates", str(self.ca))
        return ("--superlink", self.address, *certificate, "--auth-supernode-private-key", str(self.key))


def joining(address: str, party: str, keys: Path | None, *, insecure: bool) -> Node:
    """How a party joins a server."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ArgumentError(f"a server's address is HOST:PORT, got {address!r:.80}")
    _check_encrypted(host.strip("[]"), keys, insecure=insecure)
    if keys is None:
        return Node(address, None, None)
    key, ca = keys.absolute() / f"{party}.key", keys.absolute() / certificates.CA
    if not key.is_file():
        folder = "NEW" if keys.exists() else str(keys)  # a folder of keys is made whole, and never added to
        make = shlex.join(["mixveil", "keys", "party", party, "--out", folder])
        raise ServiceError(f"{key} is not there: `{make}` makes it{', in a new folder for --keys' * keys.exists()}")
    if not ca.is_file():
        raise ServiceError(f"{ca} is not there: the coordinator gives it to you")
    certificates.check_certificate(ca)
    key_files.check_private(key)
    certificates.check_bound(key, ca)
    return Node(address, key, ca)


def _check_encrypted(host: str, keys: Path | None, *, insecure: bool) -> None:
    if insecure and not loopback(host):
        raise ArgumentError(f"--insecure is for 127.0.0.1 only, got {host}: nothing would be encrypted")
    if insecure == (keys is not None):
        raise ArgumentError("--keys (encrypted, parties known by their keys) or --insecure (for a trial): give one")


def write_settings(folder: Path, party: str, settings: Mapping[str, object]) -> Path:
    """Write a party's settings as a node's configuration: a file that `flower-supernode` takes as well."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{party}.toml"
    write_toml(path, settings)
    return path


def write_toml(path: Path, whole: Mapping[str, object]) -> None:
    """A configuration for Flower's programs, readable by its owner only."""
    import tomli_w  # comes with the extra `flower`

    files.write_whole(path, tomli_w.dumps(whole).encode(), 0o600)


def address(server: Path) -> tuple[str, int]:
    """Where this machine reaches a server: the host and the port that it listened on last."""
    whole = tomllib.loads((home(server) / _CONFIG).read_text(encoding="utf-8"))
    host, _, port = whole["superlink"][NAME]["address"].rpartition(":")
    return host.strip("[]"), int(port)


def expected(server: Path) -> list[str]:
    """The parties that a server knows by their keys."""
    try:
        found: list[str] = json.loads((server / PARTIES).read_text())
    except (OSError, ValueError):
        raise ArgumentError(f"{server} is not the folder of a server: `mixveil serve` makes one") from None
    return found


def write_nodes(server: Path, nodes: Mapping[str, str]) -> None:
    """Keep which party each node is, by what the link calls it."""
    files.write_whole(server / _NODES, (json.dumps(nodes) + "\n").encode(), 0o600)


def read_nodes(server: Path) -> dict[str, str]:
    path = server / _NODES
    found: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    return found


def loopback(host: str) -> bool:
    """Whether a name or an address is this machine's own."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _reach(host: str) -> str:
    """How this machine reaches what listens there."""
    if host in ("0.0.0.0", "::"):  # noqa: S104, it is only compared
        return "127.0.0.1" if host == "0.0.0.0" else "[::1]"  # noqa: S104
    return f"[{host}]" if ":" in host else host


def _check_free(host: str, port: int) -> None:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise ServiceError(f"{host}:{port} cannot be listened on: {error}") from None
