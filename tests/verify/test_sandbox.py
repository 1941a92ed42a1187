"""Programs that mean harm: none of it reaches the machine, and none of it passes a test."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from held import RIGHT, hold

from tutelage.verify import sandbox


@pytest.fixture(scope="module")
def granted() -> bool:
    """Whether this machine lets a process have namespaces and a file system of its own."""
    return hold(RIGHT).walls == (True, True)


@pytest.fixture(params=["walls", "belt"])
def guard(request, granted):
    """Each line of defence alone: what one lets through, the other would still stop."""
    if request.param == "walls" and not granted:
        pytest.skip("no namespaces here")
    return {"walls": request.param == "walls", "belt": request.param == "belt"}


def left_behind(mark: str) -> list[str]:
    """Processes of this machine that have the mark in their command line or their name."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "comm").read_text() + (folder / "cmdline").read_text():
                found.append(folder.name)
        except OSError:
            continue
    return found


def test_a_right_program_passes_under_any_guard(guard):
    report = hold(RIGHT, **guard)
    assert report.score == 1 and report.passed == {0, 1, 2, 3} and not report.failed and report.stopped is None


def test_partial_credit_and_what_was_met():
    report = hold("def f(x):\n    return [0, 11, 22][x]")
    assert report.score == 0.5
    assert report.failed[2] == {
        "type": "IndexError",
        "words": "list index out of range",
        "line": "return [0, 11, 22][x]",
    }
    assert report.calls == ["f(1)", "f(2)", "f(3)", "f(4)"]


@pytest.mark.parametrize(
    ("program", "met"),
    [
        ("import os\nos._exit(0)\ndef f(x): return 11 * x", "ended before it answered"),
        ("import sys\nsys.exit(0)\ndef f(x): return 11 * x", "SystemExit"),
        ("def f(x):\n    import os; os._exit(0)", "ended before it answered"),
        ("def f(x):\n    raise SystemExit(0)", "SystemExit"),
        ("import ctypes\ndef f(x): return ctypes.string_at(0)", "crashed|not allowed"),
        ("def g(x): return 1", "defines no f"),
        ("def f(x:", "SyntaxError"),
        ("f = 1 / 0", "ZeroDivisionError"),
    ],
)
def test_ending_early_is_no_pass(program, met, guard):
    report = hold(program, **guard)
    told = {**(report.stopped or {}), **report.failed.get(0, {})}
    assert report.score == 0
    assert any(part in f"{told}" for part in met.split("|"))


@pytest.mark.parametrize(
    "program",
    [
        # an object that equals everything, and an integer that does
        "class Yes:\n    def __eq__(self, other): return True\ndef f(x): return Yes()",
        "class Yes(int):\n    def __eq__(self, other): return True\ndef f(x): return Yes(7)",
        # patched builtins, modules and exceptions
        "import builtins\nbuiltins.AssertionError = type('Fine', (BaseException,), {})\ndef f(x): return 7",
        "import builtins, sys\nsys.exit = builtins.len = builtins.repr = lambda *a: None\ndef f(x): return 7",
        "assert_ = True\n__debug_ = False\n__test__ = lambda n: None\ndef f(x): return 7",
        # a forged report wherever one may be read
        "import os, sys, json\n"
        "line = json.dumps(['passed', 0, None]) + '\\n' + json.dumps(['done', -1, None]) + '\\n'\n"
        "print(line, flush=True)\n"
        "for n in range(64):\n"
        "    try: os.write(n, line.encode())\n"
        "    except OSError: pass\n"
        "def f(x): return 7",
        # looking for the tests in memory and in files
        "import gc, sys\n"
        "def f(x):\n"
        "    frames, frame = [], sys._getframe()\n"
        "    while frame: frames.append(repr(frame.f_globals) + repr(frame.f_locals)); frame = frame.f_back\n"
        "    return 11 * x if 'asser' + 't f(1)' in ''.join(frames) else 7",
        "import os, select\n"
        "def f(x):\n"
        "    for n in range(3, 64):\n"
        "        try: text = os.read(n, 100000) if select.select([n], [], [], 0)[0] else b''\n"
        "        except OSError: continue\n"
        "        if b'assert f' in text: return 11 * x\n"
        "    return 7",
        "def f(x):\n"
        "    try: text = open('/proc/%d/mem' % __import__('os').getppid(), 'rb').read(10)\n"
        "    except OSError: return 7\n"
        "    return 11 * x",
    ],
)
def test_a_wrong_program_does_not_pass_by_tricks(program, guard):
    assert hold(program, seconds=0.5, **guard).score == 0


def test_the_tests_names_are_not_the_programs_to_give():
    forged = (
        "class math:\n    isclose = staticmethod(lambda *a: True)\ndef set(x): return 0\nabs = set\ndef f(x): return 7"
    )
    tests = (
        "assert math.isclose(f(1), 11)\nassert set([f(2)]) == {22}\nassert abs(f(3) - 33) < 1\nassert helper(4) == f(4)"
    )
    report = hold(forged, tests, prompt="def helper(x):\n    return 11 * x\n\ndef f(x):\n    '''eleven'''\n")
    assert report.score == 0


def test_endless_programs_end(guard):
    start = time.monotonic()
    report = hold("def f(x):\n    while x > 1: pass\n    return 11", **guard)
    assert report.passed == {0} and report.failed[1]["words"] == "it ran out of time"
    assert time.monotonic() - start < 30


def test_one_that_sleeps_and_ignores_signals_ends(guard):
    program = """
        import signal, time
        for number in range(1, 64):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        def f(x):
            while True: time.sleep(100)
    """
    report = hold(program, seconds=0.3, **guard)
    assert report.score == 0 and report.failed[0]["words"] == "it ran out of time"


def test_memory_is_limited(guard, monkeypatch):
    monkeypatch.setattr(sandbox, "MEMORY", 128 << 20)
    for program in ("return len([0] * (1 << 40))", "s = 'x'\n    while True: s += s"):
        report = hold(f"def f(x):\n    {program}", "assert f(1) == 11", **guard)
        assert report.failed[0]["type"] == "MemoryError"


def test_output_and_large_answers_are_limited(guard):
    loud = """
        import sys
        def f(x):
            for _ in range(30): print("x" * 100_000); sys.stderr.write("y" * 100_000)
            return 11 * x
    """
    assert hold(loud, **guard).score == 1
    for large, met in (("'x' * (1 << 24)", "ValueError"), ("(y := [0]).append(y) or y", "RecursionError")):
        report = hold(f"def f(x):\n    return {large}", "assert f(1) == 11", **guard)
        assert report.failed[0]["type"] == met


def test_a_fork_bomb_is_put_out(guard):
    bomb = """
        import os, ctypes, threading
        def f(x):
            while True:
                try: os.fork()
                except OSError: pass
    """
    report = hold(bomb, seconds=0.3, **guard)
    assert report.score == 0
    if guard["walls"]:
        count = """
            import os, time
            def f(x):
                made = 0
                try:
                    while True:
                        if not os.fork(): time.sleep(1000)
                        made += 1
                except OSError: return made
        """
        assert hold(count, "assert 0 < f(1) < 64", **guard).score == 1


@pytest.mark.parametrize("walls", [True, False])
def test_a_daemon_does_not_outlive_its_examination(walls, granted):
    """Without the belt, which lets nobody fork: in a namespace, and where only adoption finds the daemon."""
    mark = f"daemon{os.getpid() % 10**7}"
    daemon = f"""
        import ctypes, os, time
        def f(x):
            try:
                if not os.fork():
                    os.setsid()
                    if not os.fork():
                        ctypes.CDLL(None).prctl(15, b"{mark}")
                        open("alive", "w").close()
                        time.sleep(1000)
                    os._exit(0)
            except BlockingIOError:
                return 0
            while not os.path.exists("alive"): time.sleep(0.01)
            return 11 * x
    """
    report = hold(daemon, walls=walls, belt=False)
    assert report.score == 1 or report.failed[0]["type"] == "AssertionError"  # no process may be had at all
    assert report.score == 1 or not (walls and granted)
    assert left_behind(mark) == []


def test_no_privilege_is_left_nor_can_be_had(granted):
    if not granted:
        pytest.skip("no namespaces here")
    program = """
        import ctypes
        def f(what):
            call = ctypes.CDLL(None)
            match what:
                case "mount": return call.mount(b"none", b"/", b"tmpfs", 0, b"")
                case "unmount": return call.umount2(b"/usr/lib", 2)
                case "user": return call.setuid(0)
                case "look": return call.ptrace(16, 1, 0, 0)  # into the process that holds the tests
    """
    tests = "\n".join(f"assert f({what!r}) == -1" for what in ("mount", "unmount", "user", "look"))
    assert hold(program, tests, belt=False).score == 1


def test_nothing_of_the_machine_can_be_written_or_read(guard, tmp_path):
    (tmp_path / "secret").write_text("treasure")
    os.chmod(tmp_path, 0o777)
    program = f"""
        import os, pathlib
        where = {str(tmp_path)!r}
        def f(kind):
            try:
                if kind == "write": open(where + "/made", "w").write("x")
                if kind == "remove": os.remove(where + "/secret")
                if kind == "rename": os.rename(where + "/secret", where + "/made")
                if kind == "link": os.symlink(where, "link"); open("link/made", "w").write("x")
                if kind == "up": open("../" * 20 + where[1:] + "/made", "w").write("x")
                if kind == "read": return open(where + "/secret").read()
                if kind == "list": return os.listdir(where)
                if kind == "own": open("note", "w").write("mine"); return open("note").read()
            except OSError as error:
                return "refused"
            return "done"
    """
    kinds = ("write", "remove", "rename", "link", "up", "read", "list")
    tests = "\n".join(f"assert f({kind!r}) == 'refused'" for kind in kinds) + "\nassert f('own') == 'mine'"
    report = hold(program, tests, **guard)
    assert report.score == 1, report
    assert os.listdir(tmp_path) == ["secret"]


def test_installed_packages_and_the_project_are_out_of_sight(guard):
    program = f"""
        import os, sys
        def f(path):
            try: return bool(os.listdir(path))
            except OSError: return False
        def g(name):
            sys.path[:0] = {[path for path in sys.path if path]!r}
            try: __import__(name)
            except ImportError: return False
            return True
    """
    packages = [path for path in sys.path if path.endswith("site-packages")]
    tests = "\n".join(f"assert f({path!r}) == False" for path in [*packages, str(sandbox.BOX)])
    assert hold(program, tests + "\nassert g('numpy') == False", **guard).score == 1


def test_files_are_limited(guard):
    program = """
        def f(x):
            try:
                with open("big", "wb") as file:
                    for _ in range(64): file.write(b"x" * (1 << 20))
            except OSError: return 11 * x
    """
    assert hold(program, **guard).score == 1


def test_no_network(guard):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        program = f"""
            import socket
            def f(x):
                try: socket.create_connection(("127.0.0.1", {listening.getsockname()[1]}), timeout=1)
                except OSError: return 11 * x
        """
        assert hold(program, **guard).score == 1


def test_the_folder_is_gone_afterwards(guard, tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox.tempfile, "tempdir", str(tmp_path))
    assert hold("open('left', 'w').write('x')\n" + RIGHT, **guard).score == 1
    assert os.listdir(tmp_path) == []


def test_the_whole_ends_with_whoever_asked(tmp_path):
    mark = str(tmp_path)
    asking = f"""
import sys
from tutelage.verify.sandbox import examine
examine(["def f(x):\\n    while True: pass"],
        {{"entry": "f", "prompt": "", "setup": "", "tests": "assert f(1) == {mark!r}"}}, seconds=1)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", asking], env={**os.environ, "PYTHONPATH": os.getcwd(), "TMPDIR": mark}
    )
    deadline = time.monotonic() + 20
    while not os.listdir(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    process.kill()
    process.wait()
    while (boxes := _boxes_in(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not boxes


def _boxes_in(folder: str) -> list[str]:
    """Processes whose working folder is in this one."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "cwd").startswith(folder):
                found.append(process.name)
        except OSError:
            continue
    return found
