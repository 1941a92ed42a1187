"""A student is trained on traces, found where users look for it, and evaluated alone as it was trained."""

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from tutelage.composing import compose
from tutelage.config import Evaluate
from tutelage.errors import DataError
from tutelage.evaluate import evaluate, trained_in
from tutelage.files import cache_home
from tutelage.lessons import STYLES, Episode, Style
from tutelage.training.config import Train
from tutelage.training.recipe import resolve
from tutelage.training.run import train
from tutelage.training.sft import ROWS, traces

SUMS = [(4, 8), (7, 5), (9, 6), (3, 3)]
WORDS = "run=student_sft model=smollm2 report_to=null held_out=0 lora_r=4 max_length=256".split()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Traces as `tutelage traces` leaves them, and no remembered samples."""
    rows = [
        {
            "question": f"What is {a} + {b}?",
            "solution": f"{a} + {b} = {a + b}. The answer is {a + b}.",
            "explanation": f"I add {b} to {a}.",
            "answer": str(a + b),
            "reward": -0.5,
            "copy": 0,
            "teacher_revision": "1",
        }
        for a, b in SUMS
    ]
    Dataset.from_list(rows).to_parquet(str(tmp_path / "traces.parquet"))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/models").symlink_to(cache_home() / "models")
    monkeypatch.setenv("TUTELAGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "traces.parquet"


def solo(file: Path, *words: str) -> tuple[dict[str, Any], list[Episode]]:
    words = ("lesson=solo", f"data={file}", "held_out=0", *words)
    folder, estimates, _ = evaluate(compose(Evaluate, words))
    return estimates, [Episode.from_json(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]


def test_from_traces_to_a_student_that_is_evaluated(file: Path, smollm: Any) -> None:
    folder = train([*WORDS, f"dataset_id_or_path={file}", "limit=2", "max_steps=1", "train_batch_size=2"])
    assert folder.name.startswith("sft-traces-")
    assert Path("results/student").resolve() == folder.resolve()
    assert not Path("results/pre_rl_model").exists()  # where teachers stand
    assert trained_in("results/student", "solo") == "r1" and trained_in("smollm2-135m", "solo") is None
    found, episodes = solo(file, "student=results/student", "limit=2", "samples=2", "max_tokens=4")
    assert {"avg@2", "pass@1", "pass@2", "maj@2"} <= found.keys() and len(episodes) == 2
    tokenizer = smollm[1]
    for episode in episodes:
        prompt = tokenizer.decode(episode.alone[0].sample.prompt_ids)
        assert STYLES["r1"].student in prompt and episode.question in prompt
        assert len(episode.alone) == 2


def test_what_has_no_trace_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bare.jsonl").write_text('{"question": "How many?", "solution": "Many.\\nSurely 12."}')
    config = compose(Train, ["run=student_sft", "dataset_id_or_path=bare.jsonl", "held_out=0"])
    with pytest.raises(DataError, match=r"1 of 1 rows dropped: no explanation or reasoning trace; .* explanation"):
        traces(config)
    config = compose(Train, ["run=student_sft", f"dataset_id_or_path={file}", "held_out=0.5"])
    assert len(traces(config)) == 4
    assert "all 4 traces are taken" in capsys.readouterr().err


def test_traces_are_learned_in_the_style_they_were_written_in(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run=student_sft", "model=smollm2", f"dataset_id_or_path={file}"]
    assert resolve(words).style == "r1"  # as these rows do not say, what the recipe does
    for written, style in (("bespoke", "bespoke"), ('{"padding": " "}', {"padding": " "})):
        Dataset.from_list([{**row, "style": written} for row in Dataset.from_parquet(str(file))]).to_parquet(
            "s.parquet"
        )
        words[-1] = "dataset_id_or_path=s.parquet"
        config = resolve(words)
        assert config.style == style and f"style={written}, as the traces were written" in capsys.readouterr().err
        assert traces(config)[0].completion.startswith(f"{Style.from_config(style).wrap('thought', 'I add 8 to 4.')}")
        assert "scored in" not in capsys.readouterr().err
        typed = resolve([*words, "style=r1"])
        assert typed.style == "r1" and traces(typed)[0].completion.startswith("<thought>\n\n")
        assert f"4 traces were written and scored in style={written}, not in r1" in capsys.readouterr().err


def test_explanations_of_the_users_own_are_held_out_as_all_rows_are(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody left out what is held out when these were written."""
    Dataset.from_parquet(str(file)).remove_columns(["copy", "teacher_revision"]).to_parquet("own.parquet")
    own = compose(Train, ["run=student_sft", "dataset_id_or_path=own.parquet", "held_out=0.5"])
    assert len(traces(own)) == 3 and "1 rows are held out for evaluation, 3 are left" in capsys.readouterr().err


def test_the_rows_are_those_of_the_lesson() -> None:
    for lesson, reply in (("explain", "</explanation>"), ("solo", "</solution>")):
        config = compose(Train, ["run=quickstart_sft", f"lesson={lesson}", "limit=3"])
        found = ROWS[lesson](config)
        assert len(found) == 3 and all(row.completion.endswith(reply) for row in found)


@pytest.mark.slow
def test_a_student_learns_its_traces(file: Path) -> None:
    """The same four rows over and over: it then thinks and solves as they do, which it could not before."""
    words = [f"dataset_id_or_path={file}", "num_train_epochs=30", "train_batch_size=4", "learning_rate=2e-3"]
    train([*WORDS, *words, "lr_scheduler_type=constant", "save_steps=100"])
    asked = ("samples=2", "max_tokens=80", "temperature=0.3")
    before, _ = solo(file, "student=smollm2-135m", "style=r1", *asked)
    after, episodes = solo(file, "student=results/student", *asked)
    assert after["avg@2"].value == 1.0 > before["avg@2"].value
    style = STYLES["r1"]
    for (a, b), episode in zip(SUMS, sorted(episodes, key=lambda episode: SUMS.index(asked_for(episode))), strict=True):
        text = episode.alone[0].sample.text
        assert text == style.reply(f"I add {b} to {a}.", f"{a} + {b} = {a + b}. The answer is {a + b}.")


def asked_for(episode: Episode) -> tuple[int, int]:
    a, _, b = episode.question.removeprefix("What is ").removesuffix("?").split()
    return int(a), int(b)
