"""Writing files and folders whole or not at all, and opening files that others wrote with care."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

from mixveil.core.errors import (
    BusyError,
    MissingPathError,
    OutputError,
    OutputExistsError,
    StateError,
    UnreadableFileError,
)

PARTIAL = ".partial"
_LEFT = 3600.0  # seconds after which no process is still writing a file
_MOST_TIMES, _FREELY = 100, 1 << 30


@contextmanager
def opened(path: Path, limit: int | None = None) -> Iterator[BufferedReader]:
    """Open a file that another party may have written, for reading. It must be a plain file of at most `limit` bytes
    (None: the caller checks the size): a link could lead anywhere, a pipe would keep its reader waiting, a device may
    have no end. Folders above the file may be links."""
    try:
        with open_plain(path, limit) as file:
            yield file
    except OSError as error:
        raise UnreadableFileError(f"{path} cannot be read: {error.strerror or error}") from None


def open_plain(path: Path, limit: int | None = None, *, links: bool = False) -> BufferedReader:
    """The same without a block, and with the errors of the operating system. links: whether to follow links to plain
    files, as in data that their owner has put together."""
    _check_plain(path, path.stat() if links else path.lstat(), limit)  # first: opening a device has effects
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.fdopen(os.open(path, flags if links else flags | os.O_NOFOLLOW), "rb")
    try:
        _check_plain(path, os.fstat(file.fileno()), limit)
    except UnreadableFileError:
        file.close()
        raise
    return file


def read_small(path: Path, limit: int) -> bytes:
    """The content of a file that another party may have written: a plain one of at most `limit` bytes."""
    with opened(path, limit) as file:
        data = file.read(limit + 1)
    if len(data) > limit:  # it grew
        raise UnreadableFileError(f"{path} has more than {limit:,} bytes, the limit for a file of its kind")
    return data


def _check_plain(path: Path, info: os.stat_result, limit: int | None) -> None:
    if stat.S_ISLNK(info.st_mode):
        raise UnreadableFileError(f"{path} is a link, and links are not followed: give the file itself")
    if not stat.S_ISREG(info.st_mode):
        raise UnreadableFileError(f"{path} is not a plain file")
    if limit is not None and info.st_size > limit:
        raise UnreadableFileError(f"{path} has {info.st_size:,} bytes, and a file of its kind has at most {limit:,}")


def check_unfolded(path: Path, packed: int, size: int) -> None:
    """Refuse a packed file that would fill the memory: more than 1 GiB and over 100 times its packed size, or more than
    half of the memory of this machine."""
    if size > _FREELY and size > _MOST_TIMES * packed:
        more = f"more than {_MOST_TIMES} times as many"
        raise UnreadableFileError(
            f"{path}: {packed:,} packed bytes would unfold to {size:,}, {more}: store them unpacked"
        )
    if size > (most := half_of_memory()):
        half = f"and half of this machine's memory is {most:,}"
        raise UnreadableFileError(f"{path}: it would unfold to {size:,} bytes, {half}: store it unpacked")


def half_of_memory() -> int:
    """Of this machine, in bytes: a single file takes no more."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def check_there(path: Path, what: str) -> None:
    """Refuse a path at which nothing is. what: what to give instead."""
    try:
        path.lstat()
    except FileNotFoundError:
        raise MissingPathError(f"{path} does not exist: give {what}") from None
    except OSError:
        return  # something may be there: its reader says why it cannot be read


def as_paths(given: Sequence[Path | str] | Path | str) -> list[Path]:
    """Paths, of which one may be given alone.

    >>> as_paths("release") == as_paths(["release"])
    True
    """
    return [Path(given)] if isinstance(given, str | Path) else [Path(path) for path in given]


def others(folder: Path, names: Collection[str]) -> list[str]:
    """The names in a folder that are not among `names`."""
    return sorted({entry.name for entry in os.scandir(folder)} - {*names})


def own_folder(variable: str, shared: str, otherwise: str) -> Path:
    """The folder that the environment variable `variable` names; else mixveil/ in the folder that `shared` names, else
    in the folder `otherwise` of the home folder. Relative paths, which depend on the working directory, are refused."""
    if named := _absolute(variable):
        return named
    if not (base := _absolute(shared)):
        try:
            home = Path.home()
        except RuntimeError:
            raise StateError(f"there is no home folder: name a folder with {variable}") from None
        if not home.is_absolute():
            raise StateError(f"HOME must be an absolute path, got {str(home)!r:.100}; or name a folder with {variable}")
        base = home / otherwise
    return base / "mixveil"


def _absolute(variable: str) -> Path | None:
    named = os.environ.get(variable)
    if named and not Path(named).is_absolute():
        raise StateError(f"{variable} must be an absolute path, got {named!r:.100}")
    return Path(named) if named else None


def check_new(out: Path) -> None:
    """Refuse an output that is already there."""
    if out.exists() or out.is_symlink():
        raise OutputExistsError(f"{out} exists already, and nothing is overwritten: choose another name, or remove it")


def check_writable(out: Path) -> None:
    """Refuse an output that could not be written, before any long work begins."""
    place = next(path for path in out.absolute().parents if path.exists())
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise OutputError(f"{out} cannot be written: {error}") from None


def check_space(out: Path, needed: int) -> None:
    """Refuse an output that the disk cannot hold, before any work begins."""
    place = next(path for path in (out.resolve(), *out.resolve().parents) if path.exists())
    free = shutil.disk_usage(place).free
    if needed > free:
        raise OutputError(f"{out} needs {needed / 1e6:,.1f} MB, and the disk has {free / 1e6:,.1f} MB left")


@contextmanager
def atomic_folder(out: Path, mark: str, mode: int = 0o755) -> Iterator[Path]:
    """A folder that becomes `out` in one step when the block succeeds, and is removed when it fails."""
    partial = out.parent / f".{out.name}.{mark}{PARTIAL}"
    made: list[Path] = []
    try:
        for folder in [*reversed([path for path in out.parents if not path.exists()]), partial]:
            folder.mkdir(mode=mode if folder == partial else 0o755)
            made.append(folder)
        yield partial
        sync_folder(partial)
        partial.rename(out)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        for folder in reversed([path for path in made if path != partial]):
            with suppress(OSError):
                folder.rmdir()
        if isinstance(error, OSError):
            raise OutputError(f"{out} could not be written: {error}") from error
        raise


def write_file(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Create a file, and return when it is on the disk. A file that exists is left alone, and is an error; a file that
    could not be written to its end is removed."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise


def check_parent(path: Path) -> None:
    """Refuse a file whose folder does not exist, or that is a folder itself, before any work begins."""
    if not path.parent.is_dir():
        raise OutputError(f"{path} could not be written: there is no folder {path.parent}")
    if path.is_dir():
        raise OutputError(f"{path} could not be written: it is a folder")


def write_json(path: Path, whole: Any) -> None:
    """Write JSON that only the owner of the process can read."""
    write_whole(path, (json.dumps(whole, indent=2) + "\n").encode(), 0o600)


def write_whole(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file whole or not at all; an existing file is replaced."""
    part = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    try:
        _remove_left(path)
        part.unlink(missing_ok=True)
        write_file(part, data, mode)
        part.rename(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise OutputError(f"{path} could not be written: {error}") from error


def _remove_left(path: Path) -> None:
    """Remove the partial files of killed processes, by their age: a process may live on another machine."""
    left = re.compile(re.escape(f".{path.name}.") + "[0-9]+" + re.escape(PARTIAL))
    with suppress(OSError), os.scandir(path.parent) as entries:
        old = [entry for entry in entries if left.fullmatch(entry.name) and time.time() - _changed(entry) > _LEFT]
        for entry in old:
            Path(entry).unlink(missing_ok=True)


def _changed(entry: os.DirEntry[str]) -> float:
    return entry.stat(follow_symlinks=False).st_mtime


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Run the block alone among all threads and processes of this machine that lock the same file."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Be the only process of its kind in a folder during the block. Its number is in the file `pid` there."""
    path = folder / "pid"
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BusyError(f"{folder} is in use, by the process {path.read_text().strip()}") from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def held_by(folder: Path) -> int | None:
    """The number of the process that is `alone` in a folder; None if there is none. The number that a dead process left
    is not trusted: another process may have it by now."""
    try:
        with (folder / "pid").open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return int(file.read())
    except (OSError, ValueError):
        pass
    return None


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
