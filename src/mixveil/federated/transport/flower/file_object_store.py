"""Messages that are under way between nodes and the server's app, in files. Flower keeps them in memory, or in its
database, where pieces of megabytes make all parties wait for one lock."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import get_object_id
from flwr.supercore.inflatable.inflatable_utils import validate_object_content
from flwr.supercore.object_store.in_memory_object_store import InMemoryObjectStore
from flwr.supercore.object_store.object_store import NoObjectInStoreError

SPARED = 1 << 30
"""Bytes that stay free on the disk."""


class Files(InMemoryObjectStore):
    """Who refers to what stays in memory; what it is lies in a file of its own, named after its hash. Nothing of it
    outlives the link: a job that was under way is started again."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700, parents=True)
        self.folder = folder

    def preregister(self, run_id: int, object_tree: ObjectTree) -> list[str]:
        """All of a message at once: messages share equal parts, and one that is taken away must not take another's."""
        with self.lock_store:
            return super().preregister(run_id, object_tree)

    def put(self, object_id: str, object_content: bytes) -> None:
        if object_id != get_object_id(object_content):
            raise ValueError(f"Object ID {object_id} does not match content hash")
        validate_object_content(content=object_content)
        with self.lock_store:
            entry = self.store.get(object_id)
        if entry is None:
            raise NoObjectInStoreError(f"Object with ID '{object_id}' was not pre-registered.")
        if entry.is_available:
            return
        if shutil.disk_usage(self.folder).free < SPARED + len(object_content):
            raise OSError("the server's disk is nearly full")
        with NamedTemporaryFile(dir=self.folder, delete=False) as part:  # others may read it while it comes again
            part.write(object_content)
        with self.lock_store:
            if object_id in self.store:
                Path(part.name).replace(self.folder / object_id)
                self.store[object_id].is_available = True
            else:
                Path(part.name).unlink()

    def get(self, object_id: str) -> bytes | None:
        with self.lock_store:
            entry = self.store.get(object_id)
        if entry is None:
            return None
        if not entry.is_available:
            return b""
        with suppress(FileNotFoundError):  # it was deleted meanwhile
            return (self.folder / object_id).read_bytes()
        return None

    def delete(self, object_id: str) -> None:
        with self.lock_store:
            super().delete(object_id)
            if object_id not in self.store:
                (self.folder / object_id).unlink(missing_ok=True)

    def clear(self) -> None:
        with self.lock_store:
            super().clear()
            for path in self.folder.iterdir():
                path.unlink()
