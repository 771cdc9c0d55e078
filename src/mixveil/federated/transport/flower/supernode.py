"""A party's node: Flower's SuperNode, and beside it what does the work it is given.

Flower's own executor runs whatever code the server's app brings. This one runs the app that is installed here, and
refuses a run whose app is any other: a coordinator gets answers from a party, not a shell on its machine. And the node
connects to its server and to nothing else (`direct`), and takes no more than it needs (`incoming`).
"""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import ssl
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Context, Error
from flwr.app import Message as FlowerMessage
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, ErrorCode, SubStatus
from flwr.proto.fleet_pb2 import ActivateNodeRequest, DeactivateNodeRequest
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.exit.exit_handler import trigger_exit_handlers
from flwr.supercore.fab import Fab
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.logger import FLOWER_LOGGER
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode import start_client_internal
from flwr.supernode.cli.flower_supernode import flower_supernode
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from mixveil.core import files
from mixveil.core.errors import ServiceError
from mixveil.core.wording.notes import note
from mixveil.federated.jobs.messages import reason
from mixveil.federated.transport import certificates
from mixveil.federated.transport.flower.client import OneLine, answer, log
from mixveil.federated.transport.flower.direct import Direct, replace_client
from mixveil.federated.transport.flower.environment import own_app, replace_in
from mixveil.federated.transport.flower.incoming import check_incoming
from mixveil.federated.transport.link import Node

_ACQUIRE = frozenset({"/flwr.proto.Runtime/AcquireTask"})
_PAUSE = 0.2  # seconds between two looks for work
_LOOK = 0.5  # and whether there is some
_PATIENCE = 2.0  # seconds between two tries to come back


def join(node: Node, folder: Path, config: Path) -> None:
    """Run a SuperNode until it is told to end. folder: where it remembers its number; config: the party's settings."""
    FLOWER_LOGGER.addFilter(OneLine())
    replace_client()
    check_incoming()
    if node.key is None or node.ca is None:
        _check_plain(node.address)
    else:
        _check_server(node.address, node.ca)
        certificates.bind(node.key, node.ca)
        _come_back(node.address, node.key, node.ca, folder / f"{config.stem}.node")
    log(note("server-connected", address=node.address))
    port, secret = free_port(), certificates.local_secret()
    with tempfile.TemporaryDirectory(prefix="mixveil-") as private:
        path = Path(private) / "secret"  # others on this machine must not take the node's work
        files.write_file(path, secret, 0o600)
        work = threading.Thread(target=_until_it_ends, args=(port, secret), daemon=True)
        work.start()
        fixed = ["--isolation", "process", "--host", "127.0.0.1", "--port", str(port)]
        fixed += ["--node-config", str(config), "--superexec-auth-secret-file", str(path)]
        sys.argv = ["flower-supernode", *node.options, *fixed]
        _look_often()
        if os.environ.get("FLWR_LOG_LEVEL") == "ERROR":
            for logger in uvicorn.config.LOGGING_CONFIG["loggers"].values():  # the owner need not know where it listens
                logger["level"] = "ERROR"
        flower_supernode()  # ends by a signal, or where the connection cannot go on
        trigger_exit_handlers(run_before_force_exit=False)
        raise ServiceError(f"the connection to {node.address} ended: see above; join again")


def _check_server(address: str, ca: Path) -> None:
    """Wait for the server, and see that `ca.crt` speaks for it, before anything is sent that is signed."""
    told = False
    with Direct(verify=_trust(ca)) as client:
        while True:
            try:
                client.get(f"https://{address}/health")  # whatever it answers: the handshake counts
                return
            except httpx.TransportError as error:
                _check_believed(address, error)
                if not told:
                    log(note("waiting-for-server", address=address, text=str(error)))
                    told = True
            time.sleep(_PATIENCE)


def _trust(ca: Path) -> ssl.SSLContext:
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    found.load_verify_locations(cadata=ca.read_text(encoding="ascii"))
    return found


def _check_believed(address: str, error: httpx.TransportError) -> None:
    if "CERTIFICATE_VERIFY_FAILED" in str(error) or "WRONG_VERSION_NUMBER" in str(error):
        raise ServiceError(f"{address} is not the server that ca.crt speaks for: {error}") from None


def _come_back(address: str, key: Path, ca: Path, number: Path) -> None:
    """Deactivate a node of this key that was killed: a link does not let it in again before it believes it gone,
    a minute later. number: the file that keeps what the link calls the node."""
    private = load_ssh_private_key(key.read_bytes(), None)
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise ServiceError(f"{key} is not the key of a party: `mixveil keys party` makes one")
    public = private.public_key()
    signed: list[Any] = [
        RuntimeVersionHttpInterceptor(component_name="SuperNode"),
        NodeAuthHttpInterceptor(private, public),
    ]
    told = False
    while True:
        try:
            with FleetHttpClient.from_server_address(address, False, ca.read_bytes(), interceptors=signed) as client:
                if number.exists():
                    with suppress(httpx.HTTPStatusError):  # it was not there
                        client.DeactivateNode(DeactivateNodeRequest(node_id=int(number.read_text())))
                request = ActivateNodeRequest(
                    public_key=public_key_to_bytes(public), heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL
                )
                found = client.ActivateNode(request).node_id
                number.write_text(str(found))
                client.DeactivateNode(DeactivateNodeRequest(node_id=found))
                return
        except httpx.HTTPStatusError as error:
            if error.response.status_code == httpx.codes.UNAUTHORIZED:
                raise ServiceError(f"{address} does not know this key: has the coordinator its public half?") from None
            why = note("waiting-for-old-node", address=address)
        except httpx.TransportError as error:
            _check_believed(address, error)
            why = note("waiting-for-server", address=address, text=str(error))
        if not told:
            log(why)
            told = True
        time.sleep(_PATIENCE)


def _check_plain(address: str) -> None:
    """Refuse to speak in the clear to what does not."""
    try:
        with Direct(timeout=5) as client:
            client.get(f"http://{address}/health")
    except httpx.ConnectError as error:
        raise ServiceError(f"{address} does not answer: {error}") from None
    except httpx.TransportError:
        raise ServiceError(f"{address} does not speak in the clear: give --keys") from None


def free_port() -> int:
    """A port of this machine that is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
        return found


def _look_often() -> None:
    """Ask the link every half second whether there is something to do: Flower's nodes look every three, and a job has
    many questions."""

    class FastPolling:
        @staticmethod
        def sleep(seconds: float) -> None:
            time.sleep(min(seconds, _LOOK))

    replace_in(start_client_internal, "time", FastPolling)


def _until_it_ends(port: int, secret: bytes) -> None:
    """Do the node's work; without it the node would wait for ever, so it ends with it."""
    try:
        _work(f"127.0.0.1:{port}", secret)
    except BaseException as error:
        log(reason(error, "node-failed"))
        os.kill(os.getpid(), signal.SIGTERM)


def _work(address: str, secret: bytes) -> None:
    client = _client(address, SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=_ACQUIRE))
    trusted = own_app()
    request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
    while True:
        try:
            found = client.AcquireTask(request)
        except httpx.TransportError:  # it is not there yet
            time.sleep(_PAUSE)
            continue
        if found.HasField("task") and found.token:
            _one(address, found.token, trusted)
        else:
            time.sleep(_PAUSE)


def _client(address: str, interceptor: Any) -> RuntimeHttpClient:
    return RuntimeHttpClient.from_server_address(
        server_address=address,
        insecure=True,  # within this machine, and with a secret
        root_certificates=None,
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"), interceptor],
        retry_invoker=make_simple_http_retry_invoker(),
    )


def _one(address: str, token: str, trusted: str) -> None:
    """Answer one message. Whatever happens, the node gets an answer: it does nothing else until then."""
    client = _client(address, RuntimeTokenHttpInterceptor(token))
    beating = HeartbeatSender(make_task_heartbeat_fn_http(client))
    context: Context | None = None
    try:
        beating.start()
        message, context, _, fab = pull_task_input(client)
        reply = _answered(message, context, fab, trusted)
        push_message(client, reply, context)
        push_task_output(client, context, SubStatus.COMPLETED, "")
    except Exception as error:  # whatever a server sent: the party stays
        log(reason(error, "not-answered"))
        with suppress(httpx.HTTPError):
            push_task_output(client, context, SubStatus.FAILED, "")
    finally:
        with suppress(RuntimeError):
            beating.stop()
        client.close()


def _answered(message: FlowerMessage, context: Context, fab: Fab, trusted: str) -> FlowerMessage:
    found = hashlib.sha256(fab.content).hexdigest()
    if found != trusted:
        log(note("app-refused", theirs=found[:16], ours=trusted[:16]))
        return FlowerMessage(Error(ErrorCode.INVALID_FAB, "other-app"), reply_to=message)
    if message.metadata.message_type != "query":
        return FlowerMessage(Error(ErrorCode.UNKNOWN, "not-a-query"), reply_to=message)
    return answer(message, context)
