"""A run's folder through crashes, full disks and two processes at once."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tutelage.engines import Sample
from tutelage.errors import ConfigError, EngineError, PromptTooLong, Refused
from tutelage.files import replacing
from tutelage.lessons import Episode, Turn
from tutelage.problem import Verdict
from tutelage.runs import Run, Skipped


def episode(uid: str) -> Episode:
    turn = Turn(
        "student", "alone", Sample("<solution>1</solution>", "stop", 3, (1, 2), (-0.5, -1.5)), Verdict("correct", "1")
    )
    return Episode("adaptive", uid, "q", "1", alone=(turn,), taught=(turn,))


def opened(results: Path, **identity: Any) -> Run:
    return Run(results, "evaluate", {"seed": 1}, identity)


def test_the_same_command_finds_its_episodes(tmp_path: Path) -> None:
    with opened(tmp_path, seed=1) as run:
        run.add(episode("a"))
    with opened(tmp_path, seed=1) as again:
        assert again.done == {"a"} and list(again.episodes()) == [episode("a")]
    with opened(tmp_path, seed=2) as other:
        assert other.done == set() and other.folder != again.folder
    assert (tmp_path / "latest_run").resolve() == other.folder.resolve()
    assert not os.path.isabs(os.readlink(tmp_path / "latest_run"))  # the folder can be moved


@pytest.mark.parametrize("torn", [b"{", b'{"lesson": "adaptive", "uid": "b', "é".encode()[:1]])
def test_a_line_torn_by_a_crash_is_cut_off(tmp_path: Path, torn: bytes) -> None:
    with opened(tmp_path) as run:
        run.add(episode("a"))
    with (run.folder / "episodes.jsonl").open("ab") as file:
        file.write(torn)
    with opened(tmp_path) as again:
        assert again.done == {"a"}
        again.add(episode("b"))
    with opened(tmp_path) as third:
        assert third.done == {"a", "b"}


def test_a_process_killed_in_the_middle_loses_nothing_finished(tmp_path: Path) -> None:
    script = f"""
import sys, time
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]!r}
from test_runs import episode, opened
from pathlib import Path
with opened(Path({str(tmp_path)!r})) as run:
    for n in range(100000):
        run.add(episode(str(n)))
        print(n, flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    seen = [next(process.stdout) for _ in range(20)]
    process.send_signal(signal.SIGKILL)
    process.wait()
    with opened(tmp_path) as run:
        assert {line.strip() for line in seen} <= run.done


def test_a_full_disk_is_an_error_and_not_a_lost_run(tmp_path: Path) -> None:
    with opened(tmp_path) as run:
        run.add(episode("a"))
        with Path("/dev/full").open("ab", buffering=0) as full:
            run._file, real = full, run._file
            with pytest.raises(OSError, match="No space left"):
                run.add(episode("b"))
            run._file = real
        run.add(episode("c"))
    with opened(tmp_path) as again:
        assert again.done == {"a", "c"}


def test_two_processes_do_not_write_one_run(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(ConfigError, match="another process"), opened(tmp_path):
        pass


def test_finish_and_overwrite(tmp_path: Path) -> None:
    with opened(tmp_path) as run:
        run.add(episode("a"))
        run.finish({"apg": 0.5})
        assert json.loads(run.metrics.read_text()) == {"apg": 0.5}
    (run.folder / "episodes.jsonl").write_text("what is this?\n")
    with pytest.raises(ConfigError, match="damaged at line 1: add overwrite=true"), opened(tmp_path):
        pass
    with Run(tmp_path, "evaluate", {"seed": 1}, {}, overwrite=True) as again:
        assert again.folder == run.folder and again.done == set() and not run.metrics.exists()


def test_odd_line_separators_do_not_tear_a_line(tmp_path: Path) -> None:
    odd = replace(episode("a"), question="one\u2028two\u0085three\r\n")
    with opened(tmp_path) as run:
        run.add(odd)
    with opened(tmp_path) as again:
        assert list(again.episodes()) == [odd]


def test_lessons_may_be_told_apart_by_more_than_their_problem(tmp_path: Path) -> None:
    def copies(episode: Episode) -> tuple[str, int]:
        return episode.uid, episode.meta["copy"]

    with Run(tmp_path, "traces", {}, {}, key=copies) as run:
        for copy in range(2):
            run.add(Episode("explain", "u", "q", "a", meta={"copy": copy}))
    with Run(tmp_path, "traces", {}, {}, key=copies) as again:
        assert again.done == {("u", 0), ("u", 1)}


def test_a_file_is_replaced_when_it_is_whole_and_not_before(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    file.write_text("old")
    with pytest.raises(RuntimeError), replacing(file) as part:
        part.write_text("half")
        raise RuntimeError
    assert file.read_text() == "old" and list(tmp_path.iterdir()) == [file]
    with replacing(file) as part:
        part.write_text("new")
        assert file.read_text() == "old"
    assert file.read_text() == "new" and list(tmp_path.iterdir()) == [file]


def test_what_cannot_be_held_is_named_and_what_breaks_is_raised(capsys: pytest.CaptureFixture[str]) -> None:
    skipped = Skipped()
    for uid, error in (("b", PromptTooLong("9 tokens")), ("a", PromptTooLong("8 tokens")), ("c", Refused("no"))):
        with skipped.over(uid):
            raise error
    with pytest.raises(EngineError, match="down"), skipped.over("d"):
        raise EngineError("down")
    assert skipped.report() == {"too_long": ["a", "b"], "refused": ["c"]}
    said = capsys.readouterr().err
    assert "2 problems left out, too long for a context: a, b (9 tokens)" in said
    assert "1 problems left out, refused: c (no)" in said
