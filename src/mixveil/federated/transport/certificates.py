"""Identities on a network: a certificate for the server, signed by an authority of the coordinator's own, and a key for
each party. Only their owner can read private keys, and they are never sent."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from mixveil.core import files
from mixveil.core.errors import ArgumentError, DataFormatError, OutputError, OutputExistsError, ServiceError
from mixveil.federated import key_files, roster
from mixveil.federated.jobs.messages import check_name, printable
from mixveil.releases.traces import state_folder

CA, CA_KEY = "ca.crt", "ca.key"
CERTIFICATE, KEY = "server.crt", "server.key"
PARTIES = "parties"
HERE = ("localhost", "127.0.0.1", "::1")
_YEARS, _DAYS = 10, 825  # of the authority, and of a server's certificate: more than that some clients refuse


def make_server(out: Path, hosts: Sequence[str]) -> None:
    """An authority, and a server's certificate for the hosts by which parties reach it."""
    files.check_new(out)
    authority = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mixveil")])
    ca = (
        _begun(name, name, authority.public_key(), timedelta(days=365 * _YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mixveil server")])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    server = (
        _begun(subject, name, key.public_key(), timedelta(days=_DAYS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in {*HERE, *hosts}]), critical=False)
        .add_extension(issuer, critical=False)
        .sign(authority, hashes.SHA256())
    )
    with files.atomic_folder(out, "keys", 0o700) as folder:
        files.write_file(folder / CA, ca.public_bytes(serialization.Encoding.PEM))
        files.write_file(folder / CA_KEY, _pem(authority), 0o600)
        files.write_file(folder / CERTIFICATE, server.public_bytes(serialization.Encoding.PEM))
        files.write_file(folder / KEY, _pem(key), 0o600)
        (folder / PARTIES).mkdir(mode=0o700)


def make_party(out: Path, party: str) -> Path:
    """A party's key, and beside it the public half, which the coordinator gets."""
    check_name("party", party)
    files.check_new(out)
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    with files.atomic_folder(out, "keys", 0o700) as folder:
        files.write_file(folder / f"{party}.key", private, 0o600)
        files.write_file(folder / f"{party}.pub", public + f" {party}\n".encode())
    return out / f"{party}.pub"


def make_trial(out: Path, parties: Sequence[str]) -> None:
    """All keys of a job at once, for a trial on one machine: a folder for the server and one for each party, with
    the roster of all where there are enough for one. Where the folder holds the keys of these parties already, they
    stay."""
    if len(set(parties)) != len(parties) or not parties:
        raise ArgumentError("name every party, once")
    for party in parties:
        if check_name("party", party) == "server":
            raise ArgumentError("a party cannot be called server: that is the server's folder")
    if (out / "server" / PARTIES).is_dir():
        if (there := sorted(known_parties(out / "server"))) != sorted(parties):
            raise OutputExistsError(
                f"{out} holds the keys of {', '.join(there)}: name the same parties, or choose another folder"
            )
        return
    files.check_new(out)
    with files.atomic_folder(out, "keys", 0o700) as folder:
        make_server(folder / "server", [])
        for party in parties:
            public = make_party(folder / party, party)
            files.write_file(folder / party / CA, (folder / "server" / CA).read_bytes())
            files.write_file(folder / "server" / PARTIES / public.name, public.read_bytes())
        members = [roster.make_key(folder / party, party) for party in parties]
        if len(parties) >= roster.LEAST:
            together = roster.together(members)
            for party in parties:
                files.write_file(folder / party / roster.ROSTER, together.data())


def local_secret() -> bytes:
    """A key that the processes of one machine share: others on the machine must not take their work."""
    return AESGCM.generate_key(256)


def known_parties(folder: Path) -> dict[str, bytes]:
    """The public keys of all parties that a server knows, in PEM, by their names: those of its files."""
    found = {}
    for path in sorted((folder / PARTIES).glob("*.pub")):
        name = check_name("party", path.stem)
        try:
            key = serialization.load_ssh_public_key(path.read_bytes())
        except (ValueError, UnsupportedAlgorithm) as error:
            raise DataFormatError(f"{path} is not a public key: {error}") from None
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise DataFormatError(f"{path} is not the public key of a party: `mixveil keys party` makes one")
        found[name] = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    if len(set(found.values())) != len(found):
        raise DataFormatError(f"{folder / PARTIES}: two parties have the same key")
    return found


def check_certificate(path: Path) -> x509.Certificate:
    """The certificate of a file. One with several is refused: a fingerprint is of the first, and all would be
    believed."""
    data = path.read_bytes()
    try:
        found = x509.load_pem_x509_certificate(data)
    except ValueError:
        raise DataFormatError(f"{path} is no certificate") from None
    if (count := data.count(b"-----BEGIN")) != 1:
        raise DataFormatError(f"{path} holds {count} certificates or keys: it must hold one certificate alone")
    return found


def check_bound(key: Path, ca: Path) -> None:
    """Refuse to use a party's key with another authority than before.

    A node signs the time, and neither the server nor the request. So each server that a key is used with could speak as
    that party to the others. What a key is bound to lies beside it, and in the state folder for copies of it.
    """
    here = fingerprint(ca)
    for path in _bindings(key):
        if (bound := path.read_text(encoding="utf-8").strip() if path.exists() else here) != here:
            raise ServiceError(
                f"{key} belongs to the server whose ca.crt is {printable(bound[:80])}; {ca} is {here}. A server could "
                f"speak in your name to any other that knows the same key: `mixveil keys party` makes one for this "
                f"server"
            )


def bind(key: Path, ca: Path) -> None:
    """Remember the authority that a party's key is used with; refuse another."""
    check_bound(key, ca)
    beside, kept = _bindings(key)
    try:
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{kept} could not be written: {error}") from None
    for path in (kept, beside):
        try:
            if not path.exists():
                files.write_whole(path, f"{fingerprint(ca)}\n".encode(), 0o600)
        except OutputError:
            if path == kept:  # a folder of keys may be read-only
                raise


def _bindings(key: Path) -> tuple[Path, Path]:
    """Where it is written what a key is bound to: beside it, and in the state folder."""
    try:
        private = serialization.load_ssh_private_key(key.read_bytes(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise DataFormatError(f"{key} is not the key of a party: `mixveil keys party` makes one") from None
    public = private.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return key.with_suffix(".server"), state_folder() / "servers" / hashlib.sha256(public).hexdigest()


def fingerprint(path: Path) -> str:
    """Of a certificate or a public key: what two people can read to each other."""
    if path.suffix == ".pub":
        data = path.read_bytes().split()[1]
    else:
        data = check_certificate(path).public_bytes(serialization.Encoding.DER)
    return key_files.read_out(data)


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, valid: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # clocks differ
        .not_valid_after(now + valid)
    )


def _usage(*, sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign,
        key_cert_sign=sign,
        crl_sign=sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if not host.isascii() or not host or any(not (c.isalnum() or c in ".-") for c in host):
            raise ArgumentError(f"a host is a name or an address, got {host!r:.80}") from None
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
