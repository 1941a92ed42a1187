"""Pictures and a page of every kind of run: what is there is drawn, what models said stays text."""

import json
import math
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.image import imread

from tutelage.cli import main
from tutelage.engines import Sample
from tutelage.errors import ConfigError
from tutelage.lessons import Episode, Turn
from tutelage.metrics import Estimate, to_dict
from tutelage.problem import Outcome, Verdict
from tutelage.report.figures import FIGURES
from tutelage.report.folder import Record, read
from tutelage.report.lessons import CHARS, Lessons
from tutelage.report.page import render

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)> & \"quoted\" 'too' \u2028 {{ 7 * 7 }}"


class Reader(HTMLParser):
    """All tags, and the text of the embedded lessons."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.data = self.text = ""
        self.inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.inside = ("id", "data") in attrs
        if tag == "img":
            assert str(dict(attrs)["src"]).startswith("data:image/png;base64,")
        assert not {"href", "onerror", "onclick"} & {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.data += data
        else:
            self.text += data

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    @property
    def lessons(self) -> list[dict[str, Any]]:
        return json.loads(self.data, parse_constant=pytest.fail)  # a browser knows no NaN


def dialogue(uid: str, *outcomes: Outcome, text: str = "It is 7.", question: str = "?", **meta: Any) -> Episode:
    turns: list[Turn] = []
    for number, outcome in enumerate(outcomes):
        turns.append(Turn("student", "attempt", Sample(text, "stop", 9), Verdict(outcome, f"{text}{number}")))
        turns.append(Turn("teacher", "hint", Sample(f"Look. {text}", "stop", 4)))
    known = {"teacher": "llm", "copy": 0, "kind": "number", "system": "", "flagged": 0, "regenerations": 0}
    meta = {**known, "rejected": {}, "overflow": False, **meta}
    return Episode("feedback", uid, question, text, tuple(turns[:-1]), leaked=uid == "leaky", meta=meta)


def folder(path: Path, config: dict[str, Any], *episodes: Episode, torn: str = "") -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    (path / "episodes.jsonl").write_text("".join(f"{each.to_json()}\n" for each in episodes) + torn)
    return path


def examined(path: Path) -> Path:
    """A killed evaluation of two students: no metrics yet, a line in the middle damaged, the last one torn."""
    config = {"lesson": "feedback", "student": f"base,{EVIL}", "hints": "llm", "controls": "null", "max_turns": 2}
    episodes = [
        dialogue(uid, *outcomes, text=EVIL, student=student, benchmark="maze $", teacher=teacher)
        for student in ("base", EVIL)
        for teacher in ("llm", "null")
        for uid, outcomes in (("a", ["correct"]), ("b", ["incorrect", "correct" if teacher == "llm" else "incorrect"]))
    ]
    folder(path, config, *episodes, torn='{"lesson": "feedb')
    whole = (path / "episodes.jsonl").read_text()
    (path / "episodes.jsonl").write_text(f'{{"lesson":\n[1]\n{{"lesson": "feedback"}}\n{whole}')
    return path


def pictures(run: Path) -> dict[str, Any]:
    return {path.stem: imread(path) for path in (run / "figures").iterdir()}


def test_a_killed_evaluation_is_measured_drawn_and_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = examined(tmp_path / "run")
    (tmp_path / "latest_run").symlink_to(run)
    assert main(["figures", str(tmp_path / "latest_run"), "lessons=5"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("drawn: evaluation heat-map, plasticity, accuracy per turn; not drawn: training curves (no ")
    assert str(run / "report.html") in said
    assert set(pictures(run)) == {"heatmap", "plasticity", "turns"}
    record = read(run, 5)
    [base, other] = record.cells
    assert (base.student, other.student, base.benchmark) == ("base", EVIL, "maze $")
    assert base.taught["acc@2"].value == 1 and base.specific["null"]["gain"].value == 0.5
    assert (record.lessons.count, record.lessons.solved, record.lessons.unreadable) == (8, 6, 3)
    page = Reader((run / "report.html").read_text())
    assert page.tags.count("script") == 2 and page.tags.count("img") == 3
    assert "5 of 8 are here" in page.text and "3 lines of the logs could not be read" in page.text
    assert len(page.lessons) == 5 and {lesson["solved"] for lesson in page.lessons} == {True, False}
    assert EVIL in page.text  # as a student's name in a table


def test_a_finished_evaluation_is_taken_at_its_word(tmp_path: Path) -> None:
    run = examined(tmp_path / "run")
    cell = read(run, 5).cells[0].to_dict()
    cell["taught"]["acc@2"]["value"] = 0.125
    found = {
        "max_turns": 2,
        "hints": "llm",
        "students": {"base": {"maze": cell}},
        "left_out": {"empty": {"gsm8k": "!"}},
    }
    (run / "metrics.json").write_text(json.dumps(found))
    assert main(["figures", str(run)]) == 0
    page = Reader((run / "report.html").read_text())
    assert "12.5%" in page.text and "gsm8k" in page.text and "base on maze: 2 problems" in page.text
    assert len(page.lessons) == 8


def test_a_training_is_drawn_while_it_runs(tmp_path: Path) -> None:
    config = {"method": "rl2f", "max_turns": 2, "hints": "llm"}
    episodes = [
        dialogue(f"p{step}", "incorrect", step=step, reward={"return": worth}, worth=worth)
        for step, worth in enumerate([0.0, 0.0, 0.0, 0.7, math.nan])
    ]
    run = folder(tmp_path / "run", config, *episodes)
    (run / "episodes.1.jsonl").write_text(f"{dialogue('q', 'correct', step=1, reward={}, worth=1.0).to_json()}\n")
    assert main(["figures", str(run)]) == 0  # no checkpoint yet: the rewards alone
    before = pictures(run)
    assert set(before) == {"training", "rewards"}
    page = Reader((run / "report.html").read_text())
    assert sorted(lesson["worth"] or 0 for lesson in page.lessons) == [0, 0, 0, 0, 0.7, 1.0]
    record = read(run, 0)
    assert record.lessons.steps == {0: [0.0, 1], 1: [1.0, 2], 2: [0.0, 1], 3: [0.7, 1]}
    assert list(record.lessons.worths["reward of a lesson"]).count(0) == 3 and not record.lessons.sample.items()

    for step in (8, 10):  # the newest is torn, and 8 comes after 10 by name
        (run / f"checkpoint-{step}").mkdir()
    logs = [{"step": step, "loss": 1 / step, "kl": 0.1, "reward": 0.2, "lessons/gain": 0.0} for step in range(1, 9)]
    (run / "checkpoint-8/trainer_state.json").write_text(json.dumps({"log_history": logs}))
    (run / "checkpoint-10/trainer_state.json").write_text('{"log_hist')
    spread = Estimate(0.5, 0.25, 0.75)
    shown = dict.fromkeys(["acc@1", "acc@2", "gain", "plasticity", "reward"], spread) | {
        "csr": Estimate(None, None, None)
    }
    lines = [json.dumps({"step": step, **to_dict(shown)}) for step in (0, 4, 8)]
    (run / "evaluations.jsonl").write_text("\n".join(lines) + '\n{"step": 12')
    (run / "best.json").write_text('{"step": 4, "rank": [1]}')
    assert main(["figures", str(run)]) == 0
    after = pictures(run)
    assert set(after) == {"training", "rewards", "plasticity", "turns"}
    assert after["training"].shape != before["training"].shape and (after["rewards"] == before["rewards"]).all()
    page = Reader((run / "report.html").read_text())
    assert "step 4 (best)" in page.text and "step 8" in page.text and "50.0% [25.0 … 75.0]" in page.text

    for file in ("evaluations.jsonl", "best.json"):
        (run / file).unlink()
    assert main(["figures", str(run)]) == 0
    assert set(pictures(run)) == {"training", "rewards"}  # nothing stale is left


def test_lessons_of_other_kinds(tmp_path: Path) -> None:
    def turn(act: Any, outcome: Outcome | None) -> Turn:
        return Turn("student", act, Sample("x" * (CHARS + 5), "length", 3), outcome and Verdict(outcome))

    attempts = (turn("alone", "incorrect"), turn("alone", "correct"))
    lesson = Episode("adaptive", "a", "?", "7", (turn("probe", None),), attempts, attempts)
    better = Episode("adaptive", "b", "?", "7", (), attempts, attempts[1:], teaching="So.", malformed=True)
    run = folder(tmp_path / "run", {"lesson": "adaptive"}, lesson, better)
    found = to_dict({"apg": Estimate(0.25, 0.0, 0.5)}) | {"left_out": {"too_long": ["u"], "refused": []}}
    (run / "metrics.json").write_text(json.dumps(found))
    assert main(["figures", str(run)]) == 0
    assert set(pictures(run)) == {"rewards"}
    assert list(read(run, 1).lessons.worths["accuracy gained by a lesson"]) == [0.0, 0.5]
    page = Reader((run / "report.html").read_text())
    first, second = page.lessons
    assert [len(each["turns"]) for each in (first, second)] == [3, 3] and second["notes"] == ["malformed"]
    assert first["turns"][0]["text"].endswith("x … (5 more characters)") and "+25.0 pp" in page.text
    assert "too_long" in page.text


def test_nothing_to_show_is_said_with_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no folder"):
        read(tmp_path / "nowhere", 1)
    with pytest.raises(ConfigError, match="type the folder of a run"):
        read(folder(tmp_path / "fresh", {"lesson": "solo"}), 1)
    (tmp_path / "latest_run").symlink_to(tmp_path / "fresh")
    with pytest.raises(ConfigError, match=f"type tutelage figures {tmp_path}/latest_run"):
        read(tmp_path, 1)
    assert not (tmp_path / "fresh/figures").exists()
    assert main(["figures"]) == main(["figures", "lessons=3"]) == 2


@settings(deadline=None, max_examples=60)
@given(
    st.text(st.characters(codec=None), max_size=60), st.sampled_from(["", EVIL, "<!--", "]]>", "</SCRIPT ", "\\u003c"])
)
def test_any_text_survives_into_the_page_and_no_tag_of_it(text: str, evil: str) -> None:
    """As a question, a reply and an answer; the page's own tags stay what they are."""
    whole = f"{text}{evil}{text}"
    lessons = Lessons(9)
    lessons.add(json.loads(dialogue("u", "incorrect", text=whole, question=whole).to_json()))
    record = Record(Path(f"run {evil}"), {"note": evil}, [], {}, None, {}, [], lessons)
    page = Reader(render(record, {}, evil))
    plain = Reader(render(Record(Path("run"), {"note": ""}, [], {}, None, {}, [], lessons), {}, ""))
    assert page.tags == plain.tags
    [lesson] = page.lessons
    assert lesson["question"] == lesson["answer"] == lesson["turns"][0]["text"] == whole
    assert not {"ids", "prompt"} & {key for part in (lesson, *lesson["turns"]) for key in part}


def test_every_figure_says_why_it_is_missing() -> None:
    empty = Record(Path("run"), {}, [], {}, None, {}, [], Lessons(1))
    assert all(isinstance(make(empty), str) for _, make in FIGURES.values())
