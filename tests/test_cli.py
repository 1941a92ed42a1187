"""What a user sees of the command line, above all when something is wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tutelage import cli, report
from tutelage.cli import main
from tutelage.engines import Engine, adapters


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(path: Path, *lines: Any) -> str:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return str(path)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["evaluat"], "did you mean evaluate"),
        (["evaluate", "studnet=x"], "did you mean student"),
        (["evaluate", "student=smolm2-135m", "limit=1"], "did you mean smollm2-135m"),
        (["evaluate", "student=nobody/nothing", "limit=1"], "cannot get 'nobody/nothing' from the hub"),
        (["evaluate", "student=.", "limit=1"], "without config.json"),
        (["evaluate", "data=missing.jsonl"], "no such file"),
        (["evaluate", "limit=many"], "limit"),
        (["evaluate", "device=tpu9", "limit=1"], "device=tpu9"),
        (["evaluate", "dtype=float13", "limit=1"], "dtype=float13"),
        (["evaluate", "student=m", "student_url=http://127.0.0.1:9/v1", "limit=1"], "is the server running"),
        (["evaluate", "engine=vlm"], "did you mean vllm"),
        (["evaluate", "engine=vllm", "vllm_port=9", "limit=1"], "try: curl http://127.0.0.1:9/health"),
        (["evaluate", "engine=vllm", "vllm_host=a b", "limit=1"], "write it like http://127.0.0.1:8765"),
        (["evaluate", "tasks=[3]"], "there is no task 3"),
        (["teach"], "tutelage teach"),
        (["teach", "answer=102", "What is 17 * 6?"], "tutelage teach"),
        (["evaluate", "lesson=feedbak"], "did you mean feedback?"),
        (["evaluate", "max_turns=3"], "max_turns=… is for dialogues with hints: add lesson=feedback"),
        (["evaluate", "lesson=solo", "style=plane"], "did you mean plain?"),
        (["evaluate", "seed=-1"], "from 0 to 4294967295"),
        (["data", "show", "limit=0"], "at least 1"),
        (["data", "show", "a=b.jsonl"], "no data 'a=b.jsonl'"),
        (["data"], "tutelage data show"),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str], elsewhere: Path
) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert hint in err and err.startswith("tutelage: ") and err.count("\n") == 1 and not out
    assert not (elsewhere / "results").exists()


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "limt=1", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_reader_that_has_read_enough_is_no_fault() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "-m", "tutelage.cli", "--help"]
    ended = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_another_broken_pipe_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(_: list[str]) -> int:
        raise BrokenPipeError("a worker is gone")

    monkeypatch.setattr(cli, "dispatch", broken)
    assert main(["doctor"]) == 2
    assert "a worker is gone" in capsys.readouterr().err


def test_help_lists_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == main(["--help"]) == 0
    assert main(["evaluate", "--help"]) == 0
    out = capsys.readouterr().out
    assert "max_probe_tokens=50" in out and "data={" in out
    assert main(["teach", "--help"]) == main(["serve-rollouts", "--help"]) == 0
    out = capsys.readouterr().out
    assert 'usage: tutelage teach "QUESTION" key=value' in out and "the vLLM servers of a training alone" in out


def test_data_show_tells_what_became_of_the_rows(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    good = {"question": "What is 2 + 2?", "solution": "2 + 2 = 4", "answer": "4"}
    path = rows(tmp_path / "rows.jsonl", good, good, {"question": "What is 3 + 3?", "solution": "six" * 90}, "{torn")
    assert main(["data", "show", path]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "format standard, 1 problems" in out
    assert "repeated questions dropped: 1; rows rejected: 2" in out
    assert "row 3" in out and "row 4" in out and "What is 2 + 2?" in out


def test_rows_that_cannot_be_used_are_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Whatever reads them, and before a model is loaded."""
    good = {"question": "What is 2 + 2?", "solution": "2 + 2 = 4", "answer": "4"}
    path = rows(tmp_path / "rows.jsonl", good, good, {"question": "", "answer": "1"}, "{torn")
    assert main(["evaluate", f"data={path}", "student=./nowhere"]) == 2
    said = capsys.readouterr().err
    assert f"3 rows of {path} left out: " in said and "the same question as another row (1)" in said
    assert main(["data", "show", path]) == 0
    assert "left out" not in capsys.readouterr().err  # it has a table of them


def test_paths_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    report.say("results: a[v2]/b[/x]")
    assert capsys.readouterr().out == "results: a[v2]/b[/x]\n"


def test_help_leaves_out_what_has_no_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "lesson=feedback", "--help"]) == main(["dialogues", "--help"]) == 0
    assert "max_probe_tokens" not in capsys.readouterr().out


def test_data_show_of_generated_problems(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "show", "arithmetic", "size=60", "limit=50", "show=1"]) == 0
    out = capsys.readouterr().out
    assert "50 problems" in out and "held out" in out


@pytest.mark.parametrize("name", ["a=b.jsonl", "limit=3.jsonl"])
def test_data_show_of_a_file_with_an_equals_sign(
    name: str, capsys: pytest.CaptureFixture[str], elsewhere: Path
) -> None:
    rows(elsewhere / name, *({"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(5)))
    assert main(["data", "show", name, "limit=4"]) == 0
    out = capsys.readouterr().out
    assert name in out and "4 problems" in out and "What is 0 + 1?" in out


@pytest.mark.parametrize(
    ("lines", "hint"),
    [
        ([], "no rows"),
        ([{"frage": "?", "solution": "1"}], "has no column 'question'"),
        ([{"question": "q"}], "answer"),
    ],
)
def test_bad_data(lines: list[Any], hint: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = rows(tmp_path / "rows.jsonl", *lines)
    assert main(["evaluate", f"data={path}"]) == 2
    assert hint in capsys.readouterr().err


def test_teach_shows_the_lesson(
    scripted: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def reply(messages: Any, _: int) -> str:
        if "teacher" in messages[0]["content"]:
            return "<thinking>It adds.</thinking><teaching>Split [17] first.</teaching>"
        return "17 * 6 = 102 <solution>102</solution>"

    def share(names: Any, *_: Any) -> dict[str, Engine]:
        return {name: scripted(reply) for name in names}

    monkeypatch.setenv("TUTELAGE_CACHE", str(tmp_path))
    monkeypatch.setattr(adapters, "share", share)
    question = "x=17 * 6, find x"
    assert main(["teach", question, "answer=102"]) == 0
    out = capsys.readouterr().out
    for part in (
        question,
        "It adds.",
        "Split [17] first.",
        "answer alone: 102, correct",
        "answer with teaching",
    ):
        assert part in out


def test_a_full_disk_is_one_sentence(
    scripted: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def share(names: Any, *_: Any) -> dict[str, Engine]:
        return {name: scripted(lambda *_: "<solution>1</solution>") for name in names}

    monkeypatch.setenv("TUTELAGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(adapters, "share", share)
    assert main(["evaluate", "limit=2"]) == 0
    [run] = [path for path in (tmp_path / "results").iterdir() if not path.is_symlink()]
    (run / "episodes.jsonl").unlink()
    os.symlink("/dev/full", run / "episodes.jsonl")
    (run / "metrics.json").unlink()
    capsys.readouterr()
    assert main(["evaluate", "limit=2"]) == 2
    err = capsys.readouterr().err
    assert "No space left" in err and "results_dir=" in err and "Traceback" not in err
    assert not (run / "metrics.json").exists()
