"""What the belt refuses where it is all there is: the ways out of Python's that need no art."""

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest
from held import hold

ALONE = {"walls": False, "belt": True}
LIBRARY = os.path.dirname(os.__file__)


def refused(body: str, **names: object) -> None:
    """The body returns what it got, or is refused; a module that is not there is as good."""
    lines = "\n".join(f"        {line}" for line in body.strip().splitlines())
    given = "\n".join(f"{name} = {value!r}" for name, value in names.items())
    program = f"{given}\ndef f():\n    try:\n{lines}\n    except (OSError, ImportError, AttributeError): return None\n"
    report = hold(program, "assert f() is None", **ALONE)
    assert report.walls == (False, False) and report.score == 1, report


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where everybody may write, and one secret to read."""
    (tmp_path / "secret").write_text("treasure\n")
    os.chmod(tmp_path, 0o777)
    return tmp_path


@pytest.mark.parametrize(
    "body",
    [
        "import sqlite3; sqlite3.connect(place + '/made').execute('create table t (x)'); return 1",
        "import _sqlite3; _sqlite3.connect(place + '/made').execute('create table t (x)'); return 1",
        "import dbm.gnu; dbm.gnu.open(place + '/made', 'c'); return 1",
        "import dbm.ndbm; dbm.ndbm.open(place + '/made', 'c'); return 1",
        "import readline\nreadline.read_history_file(place + '/secret')\nreturn readline.get_history_item(1)",
        "import tkinter; return tkinter.Tcl().eval('open ' + place + '/made w')",
        "import os; os.mkfifo(place + '/made'); return 1",
        "import posix; posix.mknod(place + '/made'); return 1",
    ],
)
def test_files_are_not_reached_by_way_of_other_modules(body, place):
    refused(body, place=str(place))
    assert os.listdir(place) == ["secret"]


@pytest.mark.parametrize(
    "body",
    [
        "import _posixshmem, os; _posixshmem.shm_open('/' + mark, os.O_CREAT | os.O_RDWR, 0o600); return 1",
        "import _multiprocessing; _multiprocessing.SemLock(1, 1, 1, '/' + mark, False); return 1",
    ],
)
def test_nothing_is_left_in_shared_memory(body):
    mark = f"tutelage-{os.getpid()}"
    refused(body, mark=mark)
    assert [name for name in os.listdir("/dev/shm") if mark in name] == []


@pytest.mark.parametrize(
    "body",
    [
        "import os, signal; signal.pidfd_send_signal(os.pidfd_open(other), 9); return 1",
        "import posix, _signal; _signal.pidfd_send_signal(posix.pidfd_open(other), 9); return 1",
        "import resource; return resource.prlimit(other, resource.RLIMIT_NOFILE, (9, 9))",
        "import os; os.setpriority(os.PRIO_PROCESS, other, 19); return 1",
        "import os; os.sched_setaffinity(other, [0]); return 1",
        "import fcntl\nfile = open('own', 'w')\nfcntl.fcntl(file, fcntl.F_SETOWN, other); return 1",
    ],
)
def test_other_processes_are_left_alone(body):
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            refused(body, other=other.pid)
            assert other.poll() is None
        finally:
            other.kill()


def test_machine_code_comes_from_the_library_alone(tmp_path):
    """Neither a copy nor another name makes fit to load what is not."""
    library = next(Path(LIBRARY, "lib-dynload").glob("_posixshmem.*so"), None)
    if library is None:
        pytest.skip("this Python has its modules built in")
    load = (
        "import importlib.machinery as m, importlib.util as u\n"
        "loader = m.ExtensionFileLoader(name, path)\n"
        "return str(u.module_from_spec(u.spec_from_loader(name, loader)))"
    )
    for name in ("_posixshmem", "other._posixshmem"):
        refused(load, name=name, path=str(library))
    copy = f"open('fit.so', 'wb').write(open({str(library)!r}, 'rb').read())\n"
    for path in ("fit.so", "./fit.so"):
        refused(copy + load, name="_posixshmem", path=path)
    fit = next(Path(LIBRARY, "lib-dynload").glob("_heapq.*so"))
    assert (
        hold(
            f"import importlib.machinery as m\ndef f():\n    m.ExtensionFileLoader('_heapq', {str(fit)!r})\n"
            "    import array, cmath, decimal, fractions, heapq, random, statistics, unicodedata\n    return 1",
            "assert f() == 1",
            **ALONE,
        ).score
        == 1
    )


def test_the_hooks_own_tools_are_out_of_sight():
    refused("import sys; return str(sys.modules['walls'].ctypes)")
    refused("import ctypes; return 1")


def test_packages_beside_the_library_cannot_be_listed_or_read():
    packages = [f"{LIBRARY}/site-packages", sysconfig.get_path("purelib"), "/usr/lib/python3/dist-packages"]
    for folder in packages:
        refused("import os; return os.listdir(folder)", folder=folder)
        refused("return open(folder + '/README.txt').read()", folder=folder)


def test_what_honest_programs_import_is_there():
    """Modules that take no for an answer when a part of theirs is not to be had."""
    names = ("cmd", "concurrent.futures", "dbm", "multiprocessing", "pdb", "shelve", "shutil", "uuid")
    program = f"""
        import importlib, shelve
        def f():
            for name in {names!r}: importlib.import_module(name)
            with shelve.open("kept") as kept: kept["a"] = 1
            with shelve.open("kept") as kept: return kept["a"]
    """
    assert hold(program, "assert f() == 1", **ALONE).score == 1
