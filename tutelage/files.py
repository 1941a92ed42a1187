"""Files that are whole or absent: atomic writes, locks, and where things are cached."""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


def cache_home() -> Path:
    """Converted models and remembered samples live here; TUTELAGE_CACHE moves it."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tutelage"
    return Path(os.environ.get("TUTELAGE_CACHE", default)).expanduser()


def write(path: Path, text: str) -> None:
    """Replace a file in one step: a reader or a crash sees the old text or the new one, never half."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside this one to fill in, that takes its place when it is whole."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        yield Path(name)
        with open(name, "rb") as file:
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def point(link: Path, target: Path) -> None:
    """Make a relative symlink point somewhere, replacing an older one in one step."""
    link.parent.mkdir(parents=True, exist_ok=True)
    fresh = link.with_name(f".{link.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        fresh.unlink()
    fresh.symlink_to(os.path.relpath(target, link.parent))
    os.replace(fresh, link)


@contextlib.contextmanager
def lock(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold a file lock; raises BlockingIOError when another process has it and we do not wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
