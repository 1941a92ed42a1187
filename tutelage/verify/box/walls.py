"""Walls around a process: namespaces where the kernel grants them, limits always, and a belt of audit hooks."""

import ctypes
import os
import re
import resource
import signal
import sys
from collections.abc import Sequence
from typing import Any

NEWNS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
NOSUID, NODEV, BIND, REC, PRIVATE = 0x2, 0x4, 0x1000, 0x4000, 0x40000
SET_PDEATHSIG, SET_DUMPABLE, SET_SUBREAPER, SET_NO_NEW_PRIVS = 1, 4, 36, 38
MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, READ_ONLY = 442, -100, 0x8000, 0x1

NOBODY = 65534
STRANGER = 1_000_000_000  # users from here on own nothing anywhere
LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib")
ROOM = "size=16m,nr_inodes=1024,mode=1777"  # the folder, when it is a file system of its own
PROCESSES, FILES, FILE_SIZE = 32, 64, 1 << 20


def _libc(function: str, *arguments: Any) -> None:
    """One call of the C library. No handle is kept: what is inside the walls must not find one."""
    library = ctypes.CDLL(None, use_errno=True)
    if library[function](*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def adopt() -> None:
    """Orphans below us become our children, wherever they hide, until we have ended them all."""
    _libc("prctl", SET_SUBREAPER, 1, 0, 0, 0)


def part() -> bool:
    """Namespaces for this process's children: no other process, no network. False where that is not granted."""
    user, group = os.geteuid(), os.getegid()
    spaces = NEWNS | NEWIPC | NEWPID | NEWNET
    try:
        if user == 0:
            _libc("unshare", spaces)
            return True
        _libc("unshare", spaces | NEWUSER)
        for file, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{file}", "w") as mapping:
                mapping.write(text)
    except OSError:
        return False
    return True


def enclose(folder: str, paths: Sequence[str]) -> bool:
    """Make the folder all there is of the file system, with only the standard library to read beside it."""

    def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
        _libc("mount", source.encode(), target.encode(), kind.encode(), flags, data.encode())

    try:
        mount("none", "/", "", REC | PRIVATE)
        mount("room", folder, "tmpfs", NOSUID | NODEV, ROOM)
        bound: list[str] = []
        for path in (*LIBRARIES, f"{sys.base_prefix}/lib", *paths):
            if os.path.isdir(path) and not any(f"{path}/".startswith(f"{above}/") for above in bound):
                os.makedirs(folder + path)
                mount(path, folder + path, "", BIND | REC)
                bound.append(path)
        for path in paths:  # installed packages may hold the very answers that are asked for
            for name in PACKAGES:
                if os.path.isdir(f"{folder}{path}/{name}"):
                    mount("none", f"{folder}{path}/{name}", "tmpfs", NOSUID | NODEV, "size=0,mode=755")
        attributes = (ctypes.c_uint64 * 4)(READ_ONLY, 0, 0, 0)
        for path in bound:
            target = (folder + path).encode()
            _libc("syscall", MOUNT_SETATTR, AT_FDCWD, target, AT_RECURSIVE, attributes, ctypes.sizeof(attributes))
        os.chroot(folder)
        os.chdir("/")
    except OSError:
        return False
    return True


def drop(stranger: int) -> None:
    """No privileges from here on, nor any way back to them. A stranger is a user nobody else is."""
    if os.geteuid() == 0 and _readable():
        os.setgroups([])
        for user in (stranger, NOBODY):
            try:
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
                break
            except OSError:
                continue  # not every container has so many users
    _libc("capset", (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())
    _libc("prctl", SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def tie() -> None:
    """We end with our parent, and no other process may look inside us."""
    _libc("prctl", SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    _libc("prctl", SET_DUMPABLE, 0, 0, 0, 0)


def _readable() -> bool:
    """Could somebody without rights still import the standard library? Not one that lies in root's home."""
    os.seteuid(NOBODY)
    try:
        return os.access(os.__file__, os.R_OK, effective_ids=True)
    finally:
        os.seteuid(0)


def limit(seconds: int, memory: int, processes: int) -> None:
    """Hard limits of the kernel: processor time, address space, processes and threads, files and their size."""
    for kind, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_NPROC, processes),
        (resource.RLIMIT_NOFILE, FILES),
        (resource.RLIMIT_FSIZE, FILE_SIZE),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))  # a signal, and a second later the end


FORBIDDEN = re.compile(
    r"(socket|ctypes|gc|syslog|sqlite3|fcntl)\..*|subprocess\.Popen|pty\.spawn|code\.__new__|mmap\.__new__"
    r"|os\.(system|exec|posix_spawn|spawn|fork|forkpty|kill|killpg|chdir|fchdir|chroot|link|symlink|setxattr)"
    r"|signal\.pthread_kill|resource\.prlimit"
)
CHANGES = re.compile(r"os\.(remove|rename|rmdir|mkdir|truncate|chmod|chown|lchown|utime|chflags|removexattr)")
LISTS = re.compile(r"os\.(listdir|scandir|getxattr|listxattr)")
UNIMPORTABLE = frozenset(  # they reach memory, processes or files, and tell no hook
    "ctypes _ctypes _ctypes_test _testcapi _testinternalcapi _xxsubinterpreters _interpreters _posixsubprocess"
    " _posixshmem _multiprocessing _sqlite3 _gdbm _dbm _tkinter _curses readline spwd nis ossaudiodev".split()
)
SILENT = (  # nor do these, of modules that everybody needs: os and signal
    "pidfd_open pidfd_send_signal mkfifo mknod setpriority sched_setaffinity sched_setparam sched_setscheduler"
    " unshare setns".split()
)
PACKAGES = ("site-packages", "dist-packages")


def buckle(folder: str, paths: Sequence[str]) -> None:
    """Refuse, inside the interpreter, what the walls may not keep out. A belt: it holds mistakes, not attackers.

    All that the hook uses is bound here: the program can change any module it finds, but not these.
    """
    forbidden, changes, lists = FORBIDDEN.fullmatch, CHANGES.fullmatch, LISTS.fullmatch
    exact, split, starts, decoded = str.__str__, str.split, str.startswith, bytes.decode
    text, raw, number, nothing, instance = str, bytes, int, type(None), isinstance
    refused, missing = PermissionError, ImportError
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    here, library = (f"{folder.rstrip('/')}/",), tuple(f"{path}/" for path in paths)
    unimportable, packages = UNIMPORTABLE, frozenset((*PACKAGES, ".."))

    def inside(path: Any, roots: tuple[str, ...]) -> bool:
        if instance(path, (number, nothing)):
            return True  # a file that is open already, or the current folder
        if instance(path, raw):
            path = decoded(path, "utf-8", "surrogateescape")
        if not instance(path, text):
            return False
        path = exact(path)
        return packages.isdisjoint(split(path, "/")) and (not starts(path, "/") or starts(path + "/", roots))

    def importable(name: str, file: str | None) -> bool:
        """A file is told of where it holds machine code: whatever name it goes by, its own must be fit as well."""
        if file is None:
            return name not in unimportable
        own = split(split(file, "/")[-1], ".")[0]
        fit = own not in unimportable and split(name, ".")[-1] not in unimportable
        return fit and starts(file, "/") and inside(file, library)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        allowed = True
        if forbidden(event):
            allowed = False
        elif event == "open":
            allowed = inside(arguments[0], here if arguments[2] & writing else here + library)
        elif changes(event):
            for argument in arguments:
                allowed = allowed and inside(argument, here)
        elif lists(event):
            allowed = inside(arguments[0], here + library)
        elif event == "import" and not importable(arguments[0], arguments[1]):
            raise missing(f"{arguments[0]} is not allowed here")
        if not allowed:
            raise refused(f"{event} is not allowed here")

    for name in [name for name in sys.modules if name.split(".")[0] in unimportable]:
        del sys.modules[name]
    globals().pop("ctypes")  # this module is found through those that call it
    for module in ("os", "posix", "signal", "_signal"):
        for name in SILENT:
            vars(sys.modules[module]).pop(name, None)
    sys.addaudithook(hook)
