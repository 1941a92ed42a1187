"""Traces: what is kept and why, whole files, and the same ones however often it was interrupted."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from pieces import Pieces, Reader

from tutelage import models
from tutelage import traces as module
from tutelage.composing import compose
from tutelage.config import Traces
from tutelage.data import load
from tutelage.errors import ConfigError, DataError
from tutelage.lessons import STYLES, Style, styles
from tutelage.traces import scorer, traces

CLOSE = "\n\n</explanation>"
WORDS = Pieces("explanation>")
ROWS = [
    {"question": "What is 17 * 6?", "solution": "17 * 6 = 102", "answer": "102"},
    {"question": "What is 2 + 3?", "solution": "2 + 3 = 5", "answer": "5"},
    {"question": "Why?", "solution": ""},
    {"question": "Is it <solution>?", "solution": "Yes: </solution>"},
    {"question": "What is 2 + 3?", "solution": "5", "answer": "5"},
]
Say = Callable[..., dict[str, Any]]


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Say:
    """The command on the rows above with scripted engines: what the teacher says, what the student is."""
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    monkeypatch.chdir(tmp_path)

    def run(*replies: str, words: tuple[str, ...] = (), **student: Any) -> dict[str, Any]:
        teacher = Reader(*replies, tokenizer=WORDS, name="teacher")
        learner = Reader(tokenizer=student.pop("tokenizer", WORDS), name="student", **student)

        @contextlib.asynccontextmanager
        async def roles(config: Any, scores: bool) -> AsyncIterator[Any]:
            yield teacher, learner, learner

        monkeypatch.setattr(module, "roles", roles)
        options = [f"data={file}", f"samples={len(replies)}", "held_out=0", "output=t.jsonl", *words]
        folder, card = traces(compose(Traces, options))
        rows = [json.loads(line) for line in Path("t.jsonl").read_text().splitlines()]
        metrics = json.loads((folder / "metrics.json").read_text())
        return {"rows": rows, "card": card, "folder": folder, "teacher": teacher, **metrics}

    return run


def test_a_row_holds_what_a_student_is_to_say_and_where_it_is_from(say: Say) -> None:
    found = say(f"go{CLOSE}", words=("seed=7",))
    first, second = found["rows"]
    assert (first["question"], second["question"]) == ("What is 17 * 6?", "What is 2 + 3?")  # in the data's order
    assert [message["role"] for message in first["messages"]] == ["system", "user", "assistant"]
    assert first["messages"][2]["content"] == STYLES["r1"].reply("go", "17 * 6 = 102")
    assert first["reward"] == pytest.approx(sum(first["reward_parts"].values()))
    kept = {name: first[name] for name in ("explanation", "solution", "answer", "form", "leaked", "copy")}
    assert kept == {
        "explanation": "go", "solution": "17 * 6 = 102", "answer": "102", "form": "closed", "leaked": False, "copy": 0,
    }  # fmt: skip
    origin = {name: first[name] for name in ("teacher", "teacher_revision", "student", "seed")}
    assert origin == {"teacher": "teacher", "teacher_revision": "1", "student": "student", "seed": 7}
    assert first["tokens"] == len(WORDS.encode("go\n\n")) and first["length"] > first["tokens"]


def test_what_is_written_is_known_as_traces(say: Say) -> None:
    say(f"go{CLOSE}")
    assert load("t.jsonl").format == "traces"


@pytest.mark.parametrize("words", [("style=bespoke",), ("style.tags.thought=think", "style.padding= ")])
def test_a_row_says_which_style_it_is_in(say: Say, words: tuple[str, ...]) -> None:
    config = compose(Traces, list(words))
    first, *_ = say(f"go{Style.from_config(config.style).closing}", words=words)["rows"]
    assert styles.read(first["style"]) == config.style
    assert load("t.jsonl").problems[0].meta == {"style": first["style"]}


def test_rows_without_a_trace_are_counted(say: Say) -> None:
    found = say(f"go{CLOSE}")
    assert found["Rows without an explanation"] == {
        "it has no solution": 1,
        "its solution holds tags of its own": 1,
        "the same question as another row": 1,
    }
    assert (found["traces"], found["problems without"]) == (2, 0)
    assert "- 1: it has no solution" in found["card"] and "| reward |" in found["card"]
    assert Path("t.jsonl.md").read_text() == found["card"]


def test_explanations_left_out_are_counted(say: Say) -> None:
    replies = f"one{CLOSE}", "no end", CLOSE, f"two{CLOSE}"
    found = say(*replies)
    assert found["Explanations left out"] == {
        "no closing tag": 2,
        "no word before the closing tag": 2,
        "another explanation of the problem is better": 2,
    }
    assert len(say(*replies, words=("pick=all", "drop_malformed=false"))["rows"]) == 8
    assert found["folder"] == say(*replies, words=("pick=all",))["folder"]
    assert not say(*replies, words=("kl_penalty_reward_coeff=[0,0]",))["teacher"].asked  # chosen anew, not asked anew


def test_filters(say: Say) -> None:
    replies = f"It is 102 or 5{CLOSE}", f"So 17 * 6 = 102 and 2 + 3 = 5.{CLOSE}", f"well{CLOSE}"
    texts = {row["explanation"] for row in say(*replies, words=("drop_leaked=true", "pick=all"))["rows"]}
    assert texts == {"well"}
    found = say(*replies, words=("max_restated=0.5", "pick=all"))
    assert {row["explanation"] for row in found["rows"]} == {"It is 102 or 5", "well"}
    assert found["Explanations left out"] == {"it repeats more than 0.5 of the solution": 2}
    with pytest.raises(DataError, match=r"no explanation can be kept: no closing tag \(2\).*drop_malformed=false"):
        say("never ends")


def test_what_the_students_context_cannot_hold(say: Say) -> None:
    found = say(f"go{CLOSE}", f"{'on and ' * 200}on{CLOSE}", context=900)
    assert found["Explanations left out"] == {"the explanation is too long for the student's context": 2}
    assert len(found["rows"]) == 2
    with pytest.raises(DataError, match=r"too long for a model's context \(2\): take models with a longer context"):
        say(f"so{CLOSE}", words=("seed=1",), context=100)


def test_an_explanation_is_kept_as_soon_as_it_is_scored(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    weigh = Reader._weigh

    async def patient(self: Reader, prompt: Any, completion: Any, temperature: float) -> list[float]:
        """The second of a problem is not scored before the first is on the disk."""
        if "two" in WORDS.decode(completion):
            async with asyncio.timeout(5):
                while not Path("results/latest_run/episodes.jsonl").read_text():
                    await asyncio.sleep(0.01)
        return await weigh(self, prompt, completion, temperature)

    monkeypatch.setattr(Reader, "_weigh", patient)
    assert len(say(f"one{CLOSE}", f"two{CLOSE}", words=("pick=all", "in_flight=1"))["rows"]) == 4


def test_a_student_with_another_tokenizer(say: Say) -> None:
    other = Pieces("zz")
    with pytest.raises(ConfigError, match=r"different tokenizers.*type kl_penalty_reward_coeff=\[0,0\]"):
        say(f"go{CLOSE}", tokenizer=other)
    found = say(f"go{CLOSE}", tokenizer=other, words=("kl_penalty_reward_coeff=[0,0]",))
    assert len(found["rows"]) == 2


def test_who_scores(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "smollm2-135m"}')
    assert scorer(Traces(teacher=str(tmp_path))) == "smollm2-135m"
    assert scorer(Traces()) == "smollm2-135m"
    assert scorer(Traces(teacher="x", student="y")) == "y"
    # A teacher trained here names its student; another one whose own weights were trained is no judge of itself.
    (tmp_path / "config.yaml").write_text("method: rlt\nstudent_model: my/student\n")
    assert scorer(Traces(teacher=str(tmp_path))) == "my/student"
    whole = tmp_path / "whole"
    whole.mkdir()
    (whole / "config.json").write_text("{}")
    assert scorer(Traces(teacher=str(whole))) == "my/student"  # a checkpoint inside its training's folder
    (tmp_path / "config.yaml").unlink()
    with pytest.raises(ConfigError, match=r"who scores .* add student="):
        scorer(Traces(teacher=str(whole)))
    with pytest.raises(ConfigError, match="no folder results/rlt_teacher here"):
        scorer(Traces(teacher="results/rlt_teacher"))
    for config in (Traces(teacher_url="http://x", teacher="x"), Traces(engine="vllm", teacher="served")):
        with pytest.raises(ConfigError, match=r"leave teacher_url and student_url out|add student="):
            scorer(config)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["pick=best"], "no pick 'best'"),
        (["output=traces.csv"], "must end in .parquet or .jsonl"),
        (["kl_penalty_reward_coeff=[1,2,3]"], "type as many"),
        (["style=r2"], "known: bespoke, r1"),
        (["style.pading=x"], "did you mean padding"),
        (["engine=vllm", "top_p=0.9"], "type top_p=1"),
    ],
)
def test_bad_words_are_refused_before_anything_is_loaded(words: list[str], hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        traces(compose(Traces, words))


def test_the_reward_is_set_by_the_names_users_know() -> None:
    config = compose(Traces, ["kl_penalty_reward_coeff=[0, 0]", "clip_kl=null", "normalize_log_prob_fn=exp"])
    terms = module.likelihood(config)
    assert (terms.kl_penalty_reward_coeff, terms.clip_kl, terms.normalize_log_prob_fn) == ((0, 0), None, "exp")
    assert module.likelihood(compose(Traces, [])) == module.Likelihood()


def outcome(folder: Path) -> list[dict[str, Any]]:
    from datasets import load_dataset

    file = str(folder / "new/t.parquet")
    return load_dataset("parquet", data_files=file, split="train", cache_dir=str(folder / "cache")).to_list()


def test_killed_and_started_again_it_ends_with_the_same_traces(
    smollm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "limit=2 samples=2 max_tokens=8 drop_malformed=false pick=all in_flight=1 output=new/t.parquet".split()
    process = subprocess.Popen(
        [sys.executable, "-m", "tutelage.cli", "traces", *words], cwd=tmp_path, stderr=subprocess.PIPE, env=os.environ
    )
    episodes = tmp_path / "results/latest_run/episodes.jsonl"
    deadline = time.monotonic() + 180
    while (
        not (episodes.exists() and episodes.stat().st_size) and time.monotonic() < deadline and process.poll() is None
    ):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -9 and not (tmp_path / "new/t.parquet").exists()
    assert 0 < len(episodes.read_bytes().splitlines()) < 4
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(models, "load", lambda *_: smollm)  # the same weights, read once
    traces(compose(Traces, words))
    first = outcome(tmp_path)
    assert len(first) == 4 and {row["student"] for row in first} == {"smollm2-135m"}
    assert len({(row["uid"], row["copy"]) for row in first}) == 4
    # Killed anywhere: in the middle of a group, in the middle of a line.
    lines = episodes.read_bytes().splitlines(keepends=True)
    episodes.write_bytes(lines[0] + lines[2] + lines[1][: len(lines[1]) // 2])
    (tmp_path / "new/t.parquet").unlink()
    traces(compose(Traces, words))
    assert outcome(tmp_path) == first
    timeless = lambda line: {**json.loads(line), "turns": None}  # noqa: E731
    assert sorted(map(str, map(timeless, episodes.read_bytes().splitlines()))) == sorted(map(str, map(timeless, lines)))
