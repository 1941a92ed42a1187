"""The dialogues command and the evaluation with feedback: interrupted, resumed, bounded, and once for real."""

import asyncio
import contextlib
import json
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from talker import Talker

from tutelage import dialogues as module
from tutelage import exam, models, report
from tutelage.cli import main
from tutelage.composing import compose
from tutelage.config import Dialogues, Exam, Traces
from tutelage.dialogues import dialogues, meant
from tutelage.engines import Message
from tutelage.errors import ConfigError, DataError, EngineError, Refused
from tutelage.lessons import Episode, Plan, feedback
from tutelage.lessons.guard import Guard
from tutelage.lessons.sequence import sequence
from tutelage.lessons.teachers import Tutor
from tutelage.problem import Problem

WORDS = models.tokenizer("smollm2-135m")
COMMON = ["data=arithmetic", "size=40", "limit=3", "max_turns=3"]


def play(monkeypatch: pytest.MonkeyPatch, student: Any, teacher: Any) -> None:
    """Engines of the test's own in all roles."""

    @contextlib.asynccontextmanager
    async def cast(config: Any, names: Sequence[str]) -> AsyncIterator[Any]:
        yield teacher, {name: student for name in names}

    monkeypatch.setattr(module, "cast", cast)
    monkeypatch.setattr(exam, "cast", cast)


def lines(path: Path) -> list[Episode]:
    return [Episode.from_json(line) for line in path.read_text().splitlines()]


def test_rollouts_hold_what_training_needs_and_no_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    student = Talker(WORDS, lambda _: "<solution>-77</solution>")
    teacher = Talker(WORDS, lambda prompt: "Look again.")
    play(monkeypatch, student, teacher)
    monkeypatch.chdir(tmp_path)
    made = dialogues(compose(Dialogues, [*COMMON, "samples=2", "output=deep/rollouts.jsonl"]))
    assert (made.held, made.kept, made.solved) == (6, 6, 0)
    found = lines(tmp_path / "deep/rollouts.jsonl")
    assert len({(episode.uid, episode.meta["copy"]) for episode in found}) == 6
    for episode in found:
        hints = [turn.sample for turn in episode.turns if turn.act == "hint"]
        assert hints and all(hint.ids and not hint.prompt_ids for hint in hints)
        secret = f"Right answer, which the student must not see: {episode.answer}"
        text = WORDS.decode(sequence(episode).prompt_ids + sequence(episode).completion_ids)
        assert secret not in text and any(secret in prompt for prompt in teacher.prompts)


def test_an_interrupted_run_ends_with_the_same_rollouts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scripted: Any
) -> None:
    def wrong(messages: Sequence[Message], index: int) -> str:
        return f"<solution>{-len(messages)}</solution>"

    words = [*COMMON, "samples=2", "in_flight=1"]
    outputs = []
    for breaks in (None, 7, 2):
        folder = tmp_path / str(breaks)
        folder.mkdir()
        monkeypatch.chdir(folder)
        student, left = scripted(wrong), [breaks]

        def failing(messages: Sequence[Message], index: int, left: Any = left) -> str:
            left[0] -= 1
            if not left[0]:
                raise EngineError("down")
            return wrong(messages, index)

        if breaks:
            play(monkeypatch, scripted(failing), scripted(lambda *_: "Look again."))
            with pytest.raises(EngineError, match="down"):
                dialogues(compose(Dialogues, words))
            assert not (folder / "rollouts.jsonl").exists()  # whole or absent
        play(monkeypatch, student, scripted(lambda *_: "Look again."))
        dialogues(compose(Dialogues, words))
        assert len(student.requests) == 18 - 3 * ((breaks or 1) // 3)  # only what was missing
        outputs.append(sorted((folder / "rollouts.jsonl").read_text().splitlines()))
    assert outputs[0] == outputs[1] == outputs[2]


def test_dialogues_that_leaked_are_left_out_and_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def leaking(prompt: str) -> str:
        return prompt.rpartition("must not see: ")[2].partition("\n")[0] + " is it."

    play(monkeypatch, Talker(WORDS, lambda _: "<solution>-77</solution>"), Talker(WORDS, leaking))
    monkeypatch.chdir(tmp_path)
    assert main(["dialogues", *COMMON, "samples=1"]) == 0
    said = capsys.readouterr().out
    assert "0 of 3 dialogues may be trained on, 0 of them solved" in said
    assert "3 had no hint that passed the guard; hints rejected: 24 match" in said
    assert (tmp_path / "rollouts.jsonl").read_text() == ""
    counts = json.loads((tmp_path / "results/latest_run/metrics.json").read_text())
    assert counts == {
        **{"dialogues": 3, "solved": 0, "trainable": 0, "leaked": 0, "flagged": 3, "overflow": 0, "refused": 0},
        **{"rejected": {"match": 24}, "left_out": {"too_long": [], "refused": []}},
    }


@pytest.mark.parametrize("hints", ["llm", "self"])
def test_a_refused_prompt_is_named_and_the_others_go_on(
    hints: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scripted: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """By an endpoint's filter, whoever is asked; the same command would be refused again."""
    first: list[str] = []

    def filtered(messages: Sequence[Message], index: int) -> str:
        question = next(m["content"] for m in messages if "arithmetic problem" in m["content"])
        question = question.partition("arithmetic problem:")[2].split("=")[0]
        first[:] = first or [question]
        if question == first[0]:
            raise Refused("no such talk")
        return "<solution>-77</solution>"

    play(monkeypatch, scripted(filtered), scripted(lambda *_: "Look again."))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUTELAGE_CACHE", str(tmp_path / "cache"))
    made = dialogues(compose(Dialogues, [*COMMON, "samples=2", f"hints={hints}"]))
    assert made.held == 4 and "1 problems left out, refused: " in (said := capsys.readouterr().err)
    assert "(no such talk)" in said
    assert len(json.loads((made.folder / "metrics.json").read_text())["left_out"]["refused"]) == 1
    first.clear()  # these problems were held out there
    folder, [cell] = exam.evaluate(compose(Exam, [*COMMON, f"hints={hints}", "resamples=100"]))
    assert cell.problems == 2 and set(cell.controls) == {"null", "shuffled", "independent"}
    assert len(json.loads((folder / "metrics.json").read_text())["left_out"]["refused"]) == 1


def test_where_all_is_refused_the_run_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scripted: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(messages: Sequence[Message], index: int) -> str:
        raise Refused("no such talk")

    play(monkeypatch, scripted(never), scripted(never))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUTELAGE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(DataError, match="no dialogue could be held"):
        exam.evaluate(compose(Exam, [*COMMON, "hints=null", "controls=independent"]))
    assert "3 problems left out, refused" in capsys.readouterr().err
    (tmp_path / "rollouts.jsonl").write_text("of an earlier day\n")
    with pytest.raises(DataError, match="no dialogue could be held"):
        dialogues(compose(Dialogues, COMMON))
    assert (tmp_path / "rollouts.jsonl").read_text() == "of an earlier day\n"


def test_one_dialogue_is_counted_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    play(monkeypatch, Talker(WORDS, lambda _: "<solution>-77</solution>"), Talker(WORDS, lambda _: "Look again."))
    monkeypatch.chdir(tmp_path)
    made = dialogues(compose(Dialogues, [*COMMON, "limit=1", "samples=1"]))
    assert (str(made.kept), str(made.solved)) == ("1", "0")
    assert '"trainable": 1,' in (made.folder / "metrics.json").read_text()


def test_a_teacher_that_refuses_leaves_no_wrong_attempt_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scripted: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who asks for a hint was wrong: without these dialogues every student would be right."""

    def never(messages: Sequence[Message], index: int) -> str:
        raise Refused("no such talk")

    play(monkeypatch, scripted(lambda *_: "<solution>-77</solution>"), scripted(never))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUTELAGE_CACHE", str(tmp_path / "cache"))
    _, [cell] = exam.evaluate(compose(Exam, [*COMMON, "controls=independent", "resamples=100"]))
    assert cell.problems == 3 and cell.taught["refused"].value == 1 and cell.taught["acc@1"].value == 0
    made = dialogues(compose(Dialogues, [*COMMON, "samples=1"]))
    assert made.held == 3 and json.loads((made.folder / "metrics.json").read_text())["refused"] == 3
    assert capsys.readouterr().err.count("3 dialogues ended early, refused (no such talk)") == 2
    Console().print(*report.students([cell], 3))
    assert "refused" in capsys.readouterr().out


def test_thousands_in_flight_need_little_memory() -> None:
    """100 KB for a dialogue of 5 attempts and 4 hints, of over 64 tokens each, make 1 GB for 10,000."""
    many, long = 40, "I add the tens and then the ones. " * 8
    student, teacher = Talker(WORDS, lambda _: f"{long}<solution>-77</solution>"), Talker(WORDS, lambda _: long)
    plan = Plan(max_turns=5)

    async def everyone() -> list[Episode]:
        tutor = Tutor(teacher, plan, Guard(plan))
        problems = [Problem(f"What is {n} * 6?", "", str(n * 6), kind="number") for n in range(many)]
        found = await asyncio.gather(*(feedback(problem, student, tutor, plan) for problem in problems))
        student.prompts.clear()  # the test's own
        teacher.prompts.clear()
        return found

    asyncio.run(everyone())  # what is loaded and cached once
    tracemalloc.start()
    kept = asyncio.run(everyone())
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(kept) == many and size / many < 100_000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["hints=ilm"], "no hints 'ilm'; did you mean llm"),
        (["controls=nul,shuffled"], "no controls 'nul'; did you mean null"),
        (["benchmarks=arithmetics"], "did you mean arithmetic"),
        (["max_turns=0"], "at least 1"),
        (["student=,"], "student= names nobody"),
        (["benchmarks=,"], "benchmarks= names none"),
        (["lesson=solo"], "no lesson 'solo'; known: feedback"),
        (["style=bespoke"], "no use for style"),
        (["max_probe_tokens=3"], "no use for max_probe_tokens"),
    ],
)
def test_senseless_words_are_refused_before_anything_is_loaded(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        compose(Exam, words)


def test_dialogues_go_into_a_file_that_can_be_read_again() -> None:
    with pytest.raises(ConfigError, match=r"output=rollouts\.parquet must end in \.jsonl"):
        compose(Dialogues, ["output=rollouts.parquet"])


@pytest.mark.parametrize(("source", "output"), [("p.jsonl", "p.jsonl"), ("p.jsonl", "d/../p.jsonl"), (".", "r.jsonl")])
@pytest.mark.parametrize("schema", [Dialogues, Traces])
def test_data_is_not_written_over(
    schema: Any, source: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p.jsonl").write_text('{"question": "?", "answer": "1"}\n')
    (tmp_path / "d").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="would become a part of the data: type output="):
        compose(schema, [f"data={source}", f"output={output}"])
    assert compose(schema, ["data=p.jsonl", "output=d/r.jsonl"]).output == "d/r.jsonl"


def test_base_stands_beside_an_adapter(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "smollm2-135m"}')
    assert meant("base", ["base", str(tmp_path)]) == "smollm2-135m"
    with pytest.raises(ConfigError, match=r"there is none in smollm2-135m, \./nowhere: type the model's own name"):
        meant("base", ["base", "smollm2-135m", "./nowhere"])


def test_a_shuffled_teacher_needs_two_problems(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scripted: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a control it is left out where there is one; as the teacher it is refused."""
    play(monkeypatch, scripted(lambda *_: "<solution>-77</solution>"), scripted(lambda *_: "Hm."))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUTELAGE_CACHE", str(tmp_path / "cache"))
    words = ["data=arithmetic", "size=40", "limit=1", "resamples=100"]
    with pytest.raises(ConfigError, match="use more problems, or other hints="):
        exam.evaluate(compose(Exam, [*words, "hints=shuffled"]))
    assert not (tmp_path / "results").exists()
    _, [cell] = exam.evaluate(compose(Exam, words))
    assert set(cell.controls) == {"null", "independent"}
    assert "has one problem, so the control shuffled is left out" in capsys.readouterr().err


def test_an_evaluation_subtracts_what_controls_gain(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scripted: Any
) -> None:
    """A student that does what hints say, and otherwise always the same."""
    sums: dict[str, str] = {}

    def pupil(messages: Sequence[Message], index: int) -> str:
        question = next(m["content"] for m in messages if "arithmetic problem" in m["content"])
        hinted = "Hint: Work it out" in messages[-1]["content"]
        return f"<solution>{sums[question.partition('End with')[0].strip()] if hinted else -77}</solution>"

    class Knowing(dict[str, str]):
        def __missing__(self, question: str) -> str:
            return str(eval(question.rpartition(":")[2].strip().rstrip("=")))

    sums = Knowing()
    student = scripted(pupil)
    play(monkeypatch, student, scripted(lambda *_: "Work it out."))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUTELAGE_CACHE", str(tmp_path / "cache"))
    words = ["student=one,two", "benchmarks=arithmetic", "limit=3", "max_turns=2", "resamples=100"]
    folder, cells = exam.evaluate(compose(Exam, [*words, "controls=null,independent,self"]))
    assert [(cell.student, cell.benchmark, cell.problems) for cell in cells] == [
        ("one", "arithmetic", 3),
        ("two", "arithmetic", 3),
    ]
    for cell in cells:
        assert cell.taught["gain"].value == 1 and cell.specific["null"]["gain"].value == 1
        assert cell.specific["independent"]["plasticity"].value == 1
    found = json.loads((folder / "metrics.json").read_text())
    assert found["students"]["two"]["arithmetic"]["controls"]["null"]["acc@2"]["value"] == 0
    asked = len(student.requests)
    assert exam.evaluate(compose(Exam, [*words, "controls=null,independent,self"]))[1] == cells
    assert len(student.requests) == asked  # all was there
    Console().print(*report.students(cells, 2))
    assert main(["figures", str(folder)]) == 0
    drawn = sorted(path.name for path in (folder / "figures").iterdir())
    assert drawn == ["heatmap.png", "plasticity.png", "turns.png"] and (folder / "report.html").is_file()


def test_first_attempts_are_asked_for_once_for_all_roles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scripted: Any
) -> None:
    student = scripted(lambda *_: "<solution>-77</solution>")
    play(monkeypatch, student, scripted(lambda *_: "Work it out."))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUTELAGE_CACHE", str(tmp_path / "cache"))
    exam.evaluate(compose(Exam, [*COMMON, "max_turns=2", "samples=2", "resamples=100"]))
    opening = [1 for messages, *_ in student.requests if len(messages) == 4]
    assert len(opening) == 3 * 2 + 3 * 2  # 3 problems, 2 copies: the first attempts, and the second independent ones
    assert len(student.requests) == len(opening) + 3 * 2 * 3  # and a second one with each of three teachers


def test_an_empty_benchmark_is_named_and_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scripted: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    real = exam.chosen

    def chosen(config: Any) -> Any:
        if config.dataset_id_or_path != "generated":
            raise DataError("it holds no rows")
        return real(config)

    monkeypatch.setattr(exam, "chosen", chosen)
    play(monkeypatch, scripted(lambda *_: "<solution>-77</solution>"), scripted(lambda *_: "Hm."))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUTELAGE_CACHE", str(tmp_path / "cache"))
    words = ["benchmarks=gsm8k,arithmetic", "limit=2", "max_turns=1", "controls=null", "resamples=100"]
    folder, [cell] = exam.evaluate(compose(Exam, words))
    assert cell.benchmark == "arithmetic" and "gsm8k is left out: it holds no rows" in capsys.readouterr().err
    assert json.loads((folder / "metrics.json").read_text())["left_out"]["empty"] == {"gsm8k": "it holds no rows"}


SOURCES = (
    "tasks=[chain_sum] size=9 format=gsm8k dataset_split=test data=arithmetic columns.question=q data_files=a".split()
)


@pytest.mark.parametrize("word", [*SOURCES, "dataset_id_or_path=my/data"])
def test_benchmarks_are_their_own_data(word: str) -> None:
    name = word.partition("=")[0].partition(".")[0]
    with pytest.raises(ConfigError, match=f"benchmarks=… leaves no use for {name}: leave {name}=… out"):
        compose(Exam, ["benchmarks=puzzle", word])
    assert compose(Exam, ["benchmarks=null", "data=arithmetic"]).tasks


def test_seeds_and_shares_reach_every_benchmark() -> None:
    def found(*words: str) -> list[str]:
        [problems] = exam.gathered(compose(Exam, [*words, "limit=1000"]))[0].values()
        return [problem.uid for problem in problems]

    usual = found("benchmarks=arithmetic")
    assert usual == found("data=arithmetic")  # what training holds out by default
    for word in ("seed=7", "split_seed=7", "held_out=0.5"):
        assert found("benchmarks=arithmetic", word) == found("data=arithmetic", word) != usual
    assert compose(Exam, ["benchmarks=coding"]).held_out is None  # its own: none
    assert compose(Exam, ["dataset_id_or_path=my/data"]).held_out == 0.2


def test_a_benchmark_of_the_hub_is_generated_where_it_cannot_be_had(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(exam, "chosen", lambda config: asked.append(config) or [])
    monkeypatch.setattr(exam, "at_hand", lambda *_: False)
    for there, name, source in ((False, "math_generated", "generated"), (True, "math", "KbsdJames/Omni-MATH")):
        monkeypatch.setattr(exam, "reachable", lambda there=there: there)
        assert next(iter(exam.gathered(compose(Exam, ["benchmarks=math,coding,puzzle,maze"]))[0])) == name
        assert asked[-4].dataset_id_or_path == source and len(asked[-4].tasks) == 4
        assert ("no KbsdJames/Omni-MATH here, generated problems instead" in capsys.readouterr().err) == (not there)
    monkeypatch.setattr(exam, "reachable", lambda: pytest.fail("asked"))
    exam.gathered(compose(Exam, ["benchmarks=coding,puzzle,gsm8k"]))  # no hub, or nothing in its place


def test_cells_stand_as_they_were_named() -> None:
    sums: Any = {(student, benchmark): {} for student in "xba" for benchmark in ("maze", "arithmetic")}
    found = list(exam.ordered(sums, ["b", "a"], ["arithmetic", "maze"]))
    assert found == [(student, benchmark) for student in "bax" for benchmark in ("arithmetic", "maze")]


def test_a_real_dialogue_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded model as student and teacher, with all controls; ids chain, and a second call finds it all."""
    from tutelage.files import cache_home

    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "models").symlink_to(cache_home() / "models")
    monkeypatch.setenv("TUTELAGE_CACHE", str(cache))
    monkeypatch.chdir(tmp_path)
    words = [*COMMON[:2], "limit=2", "max_turns=2", "max_tokens=6", "max_completion_length=6", "resamples=100"]
    folder, [cell] = exam.evaluate(compose(Exam, words))
    episodes = lines(folder / "episodes.jsonl")
    assert {episode.meta["teacher"] for episode in episodes} == {"llm", "null", "shuffled", "independent"}
    assert len(episodes) == 8 and cell.problems == 2
    firsts: dict[str, set[Any]] = {}
    for episode in episodes:
        firsts.setdefault(episode.uid, set()).add(episode.turns[0].sample.ids)
        if episode.meta["teacher"] != "independent":
            last = [turn.sample for turn in episode.turns if turn.act == "attempt"][-1]
            found = sequence(episode)
            assert found.prompt_ids + found.completion_ids == last.prompt_ids + last.ids
            assert sum(found.mask) == sum(turn.sample.tokens for turn in episode.turns if turn.act == "attempt")
    assert all(len(ids) == 1 for ids in firsts.values())  # whoever teaches, the first attempt is the same
