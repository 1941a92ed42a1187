"""The whole evaluation on the real embedded model: end to end, killed, interrupted and taken up again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tutelage.composing import compose
from tutelage.config import Evaluate
from tutelage.errors import ConfigError
from tutelage.evaluate import LESSONS, evaluate, known
from tutelage.files import cache_home
from tutelage.lessons import Episode
from tutelage.metrics import METRICS, TABLES
from tutelage.problem import Problem

WORDS = """evaluate student=smollm2-135m teacher=smollm2-135m data=arithmetic limit=4 baseline_samples=2
taught_samples=2 max_tokens=8 max_completion_length=16 max_probe_tokens=8 in_flight=2""".split()

SOLO = "evaluate lesson=solo data=arithmetic limit=4 samples=3 max_tokens=10 in_flight=1".split()


LONG = "What is this? " * 3000  # no context of the embedded model holds it


def start(folder: Path, words: list[str] = WORDS) -> subprocess.Popen[str]:
    """The command in a folder of its own, with the converted model but no remembered samples."""
    cache = folder / "cache"
    if not cache.exists():
        cache.mkdir(parents=True)
        (cache / "models").symlink_to(cache_home() / "models")
    return subprocess.Popen(
        [sys.executable, "-m", "tutelage.cli", *words],
        cwd=folder,
        env={**os.environ, "TUTELAGE_CACHE": str(cache), "HF_HUB_OFFLINE": "1", "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that starts us in the background has Ctrl-C ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


def findings(folder: Path) -> dict[str, Any]:
    """All that was found; times are measured anew each run and are left out."""
    metrics = json.loads((folder / "results/latest_run/metrics.json").read_text())
    return {name: value for name, value in metrics.items() if "seconds" not in name}


def lessons(folder: Path) -> dict[str, Any]:
    """What was said, by problem, token for token."""
    lines = (folder / "results/latest_run/episodes.jsonl").read_bytes().splitlines()
    episodes = [Episode.from_json(line.decode()) for line in lines]
    assert len({episode.uid for episode in episodes}) == len(episodes)
    return {
        episode.uid: [turn.sample.ids for turn in (*episode.turns, *episode.alone, *episode.taught)]
        for episode in episodes
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, smollm: Any) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("whole")
    code, out, err = finish(start(folder))
    assert code == 0, err
    return folder, out


def test_an_evaluation_leaves_its_folder_and_prints_its_table(whole: tuple[Path, str]) -> None:
    folder, out = whole
    run = folder / "results/latest_run"
    assert {path.name for path in run.iterdir()} >= {"config.yaml", "episodes.jsonl", "metrics.json"}
    assert set(findings(folder)) == {name for name in METRICS if "seconds" not in name}
    for metric in METRICS.values():
        assert metric.label in out
    assert "results:" in out
    assert len(lessons(folder)) == 4
    episode = Episode.from_json((run / "episodes.jsonl").read_text().splitlines()[0])
    said = episode.turns[1].sample
    assert len(said.ids) == len(said.logprobs) == said.tokens and said.prompt_ids
    assert episode.turns[0].sample.tokens <= 50


def test_the_same_command_again_holds_no_new_lesson(whole: tuple[Path, str]) -> None:
    folder, out = whole
    before = lessons(folder)
    code, again, err = finish(start(folder))
    assert (code, again) == (0, out)
    assert "4 of 4 lessons were done before" in err
    assert lessons(folder) == before


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_stopped_and_started_again_it_ends_with_the_same_numbers(
    whole: tuple[Path, str], tmp_path: Path, how: signal.Signals
) -> None:
    process = start(tmp_path)
    episodes = tmp_path / "results/latest_run/episodes.jsonl"
    deadline = time.monotonic() + 180
    while not (episodes.exists() and episodes.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(how)
    code, _, err = finish(process)
    assert code == {signal.SIGKILL: -9, signal.SIGINT: 130}[how]
    if how == signal.SIGINT:
        assert "the same command goes on" in err and "Traceback" not in err
    assert 0 < len(episodes.read_text().splitlines()) < 4
    assert not (episodes.parent / "metrics.json").exists()
    code, _, err = finish(start(tmp_path))
    assert code == 0 and "were done before; going on" in err
    assert lessons(tmp_path) == lessons(whole[0])
    assert findings(tmp_path) == findings(whole[0])


@pytest.mark.slow
def test_a_killed_solo_evaluation_ends_with_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = start(tmp_path, SOLO)
    episodes = tmp_path / "results/latest_run/episodes.jsonl"
    while process.poll() is None and not (episodes.exists() and episodes.stat().st_size):
        time.sleep(0.01)
    process.kill()
    finish(process)
    assert 0 < len(episodes.read_text().splitlines()) < 4
    monkeypatch.setenv("TUTELAGE_CACHE", str(tmp_path / "cache"))
    for results in ("results", "others"):
        evaluate(compose(Evaluate, [*SOLO[1:], f"results_dir={tmp_path / results}"]))
        (tmp_path / "cache/samples.sqlite").unlink()  # the second run remembers nothing
    (tmp_path / "whole").mkdir()
    (tmp_path / "others").rename(tmp_path / "whole/results")
    assert lessons(tmp_path) == lessons(tmp_path / "whole") and len(lessons(tmp_path)) == 4
    found = findings(tmp_path)
    assert found == findings(tmp_path / "whole")
    assert {"avg@3", "pass@1", "pass@2", "pass@3", "maj@3", "unparsed_alone"} <= found.keys()
    episode = Episode.from_json(episodes.read_text().splitlines()[0])
    assert (episode.lesson, len(episode.alone), episode.turns) == ("solo", 3, ())
    assert all(turn.verdict and turn.sample.tokens <= 10 for turn in episode.alone)


def test_every_lesson_has_its_metrics_and_refuses_the_keys_it_would_pass_over() -> None:
    assert LESSONS.keys() == TABLES.keys()
    for words, hint in (
        (["lesson=solos"], "did you mean solo"),
        (["lesson=solo", "teacher=smollm2-135m"], "leave teacher=… out"),
        (["lesson=solo", "baseline_samples=8"], "leave baseline_samples=… out"),
        (["samples=8"], "lesson=adaptive has no use for samples"),
        (["lesson=solo", "style=bespok"], "did you mean bespoke"),
        (["lesson=explain", "style=plain"], "no style 'plain'"),
        (["lesson=explain", "engine=vllm", "top_p=0.9"], "type top_p=1"),
        (["lesson=explain", "teacher_url=http://x/v1"], "leave teacher_url=… out"),
    ):
        with pytest.raises(ConfigError, match=hint):
            known(compose(Evaluate, words))
    config = compose(Evaluate, ["lesson=solo", "samples=8"])
    assert known(config) is LESSONS["solo"] and config.style == "plain"


def test_the_style_is_that_of_whom_was_trained(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("lesson: explain\nstyle: bespoke\n")
    for words, style in (
        (["lesson=explain", f"teacher={tmp_path}"], "bespoke"),
        (["lesson=explain", f"teacher={tmp_path}", "style=r1"], "r1"),
        (["lesson=explain", f"student={tmp_path}"], "r1"),
        (["lesson=solo", f"student={tmp_path}"], "plain"),  # trained as a teacher
    ):
        config = compose(Evaluate, words)
        known(config)
        assert config.style == style


def test_explanations_are_put_to_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    rows = [
        {"question": "What is 3 * 4?", "solution": "3 * 4 = 12", "answer": "12"},
        {"question": "What is 2 + 2?", "solution": "<solution>4</solution>", "answer": "4"},
        {"question": "Why is it even?", "solution": "Two divides it.\nThat is what even means."},
        {"question": LONG, "solution": "7"},
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.chdir(tmp_path)
    words = f"lesson=explain data={tmp_path}/rows.jsonl held_out=0 baseline_samples=1 taught_samples=2".split()
    folder, found, lessons = evaluate(compose(Evaluate, [*words, "max_tokens=6", "max_completion_length=8"]))
    assert json.loads((folder / "metrics.json").read_text())["left_out"]["too_long"] == [Problem(LONG, "", "").uid]
    assert lessons == 2 and "1 problems left out: its solution holds tags of its own (1)" in capsys.readouterr().err
    assert found["solution_gain"].value == pytest.approx(
        (found["solution_logprob"].value or 0) - (found["solution_logprob_alone"].value or 0), abs=1e-6
    )
    assert METRICS.keys() < found.keys()
    episodes = map(Episode.from_json, (folder / "episodes.jsonl").read_text().splitlines())
    bare, episode = sorted(episodes, key=lambda one: len(one.alone))
    assert not bare.answer and not bare.taught and bare.meta["unaided"]  # nothing to check an answer by
    assert (len(episode.alone), len(episode.taught), len(episode.meta["unaided"])) == (
        1,
        2,
        len(episode.scores.solution),
    )
    assert all(turn.act == "taught" for turn in episode.taught)
