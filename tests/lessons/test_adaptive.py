"""The adaptive lesson as choreography, on scripted engines."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tutelage.engines import Message, Sampling
from tutelage.engines.memo import Memo
from tutelage.errors import EngineError
from tutelage.lessons import Episode, Plan, adaptive
from tutelage.lessons.prompts import PROBE
from tutelage.problem import Problem

PROBLEM = Problem("What is 17 * 6?", "17 * 6 = 102", "102", kind="number")
PLAN = Plan(baseline_samples=4, taught_samples=2)


def pupil(messages: Sequence[Message], index: int) -> str:
    """Outlines when probed; right alone in 1 of 4 samples, always right when told to split."""
    if messages[0]["content"] == PROBE:
        return "I add 17 and 6."
    right = "split" in messages[-1]["content"] or index == 0
    return f"So <solution>{102 if right else 23}</solution>"


def lesson(scripted: Any, said: str, tmp_path: Path, copies: int = 1) -> tuple[list[Episode], Any, Any, Memo]:
    student, teacher = scripted(pupil, "pupil"), scripted(lambda *_: said, "teacher")
    frozen = Memo(student, tmp_path / "samples.sqlite")

    async def main() -> list[Episode]:
        return await asyncio.gather(
            *(adaptive(PROBLEM, teacher, student, frozen, PLAN, copy) for copy in range(copies))
        )

    return asyncio.run(main()), student, teacher, frozen


def test_a_taught_student(scripted: Any, tmp_path: Path) -> None:
    said = "<thinking>secret: it adds</thinking><teaching>Do not add: split 17.</teaching>"
    [episode], student, teacher, _ = lesson(scripted, said, tmp_path)
    assert [turn.correct for turn in episode.alone] == [True, False, False, False]
    assert [turn.correct for turn in episode.taught] == [True, True]
    assert (episode.teaching, episode.malformed, episode.leaked) == ("Do not add: split 17.", False, False)
    assert episode.teaching_tokens > 0
    assert "I add 17 and 6." in teacher.requests[0][0][-1]["content"]
    assert not any("secret" in str(messages) for messages, *_ in student.requests)
    probes = [sampling for messages, sampling, *_ in student.requests if messages[0]["content"] == PROBE]
    assert [probe.max_tokens for probe in probes] == [50]


@pytest.mark.parametrize("said", ["<thinking>fine</thinking><teaching></teaching>", "I will say nothing of use."])
def test_abstention_leaves_the_students_own_answers(scripted: Any, tmp_path: Path, said: str) -> None:
    [episode], student, _, _ = lesson(scripted, said, tmp_path)
    assert episode.abstained and episode.taught == episode.alone and episode.teaching_tokens == 0
    assert len(student.requests) == 2  # one probe, one baseline, no taught attempt
    assert episode.malformed == ("teaching" not in said)


def test_a_leak_is_noticed(scripted: Any, tmp_path: Path) -> None:
    [episode], *_ = lesson(scripted, "<thinking>x</thinking><teaching>It is 102.</teaching>", tmp_path)
    assert episode.leaked


def test_copies_share_one_probe_and_one_baseline(scripted: Any, tmp_path: Path) -> None:
    said = "<thinking>x</thinking><teaching>split</teaching>"
    episodes, student, teacher, frozen = lesson(scripted, said, tmp_path, copies=8)
    assert (frozen.asked, frozen.shared + frozen.remembered) == (2, 14)
    assert len(student.requests) == 2 + 8  # probe and baseline once, taught attempts for every copy
    assert len({seed for *_, seed in teacher.requests}) == 8
    assert all(episode.alone == episodes[0].alone for episode in episodes)


def test_a_second_run_remembers_the_frozen_student(scripted: Any, tmp_path: Path) -> None:
    said = "<thinking>x</thinking><teaching>split</teaching>"
    [first], *_ = lesson(scripted, said, tmp_path)
    [second], student, _, frozen = lesson(scripted, said, tmp_path)
    assert (frozen.asked, frozen.remembered) == (0, 2)
    assert len(student.requests) == 1
    assert first == second


def test_memory_is_keyed_by_all_that_matters(scripted: Any, tmp_path: Path) -> None:
    async def main() -> None:
        student = scripted(pupil, "pupil")
        memo = Memo(student, tmp_path / "samples.sqlite")
        messages: list[Message] = [{"role": "user", "content": "x"}]
        await memo.generate(messages, Sampling(), 1, 0)
        for change in ((Sampling(top_p=0.5), 1, 0), (Sampling(), 2, 0), (Sampling(), 1, 9)):
            await memo.generate(messages, *change)
        memo.revision = "2"
        await memo.generate(messages, Sampling(), 1, 0)
        assert (memo.asked, memo.remembered) == (5, 0)

    asyncio.run(main())


def test_an_engine_error_is_raised_and_not_remembered(scripted: Any, tmp_path: Path) -> None:
    def broken(*_: Any) -> str:
        raise EngineError("down")

    async def main() -> None:
        student, teacher = scripted(broken), scripted(lambda *_: "")
        memo = Memo(student, tmp_path / "samples.sqlite")
        with pytest.raises(EngineError, match="down"):
            await adaptive(PROBLEM, teacher, student, memo, PLAN)
        student.reply = pupil
        assert await adaptive(PROBLEM, teacher, student, memo, PLAN)

    asyncio.run(main())


def test_whoever_stops_waiting_leaves_the_others_their_answer(scripted: Any, tmp_path: Path) -> None:
    async def main() -> None:
        student = scripted(pupil)
        answer, gate = student.generate, asyncio.Event()

        async def slow(*request: Any) -> Any:
            await gate.wait()
            return await answer(*request)

        student.generate = slow
        memo = Memo(student, tmp_path / "samples.sqlite")
        messages: list[Message] = [{"role": "user", "content": "x"}]
        first, second, third = (asyncio.create_task(memo.generate(messages, Sampling())) for _ in range(3))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        gate.set()
        assert await second == await third
        assert first.cancelled() and (memo.asked, memo.shared) == (1, 2)
        gate.clear()
        only = asyncio.create_task(memo.generate(messages, Sampling(), 2))
        await asyncio.sleep(0)
        [work] = memo._running.values()
        only.cancel()
        await asyncio.gather(only, work, return_exceptions=True)
        assert work.cancelled() and not memo._running  # nobody waited any more

    asyncio.run(main())


def test_an_unjudged_question_has_no_verdicts(scripted: Any, tmp_path: Path) -> None:
    async def main() -> Episode:
        student = scripted(pupil)
        memo = Memo(student, tmp_path / "samples.sqlite")
        problem = Problem("What is 17 * 6?", "", "")
        return await adaptive(problem, scripted(lambda *_: ""), student, memo, PLAN)

    assert all(turn.verdict is None for turn in asyncio.run(main()).alone)


def test_an_episode_survives_json(scripted: Any, tmp_path: Path) -> None:
    [episode], *_ = lesson(scripted, "<thinking>x</thinking><teaching>split – ½</teaching>", tmp_path)
    line = episode.to_json()
    assert "\n" not in line
    assert Episode.from_json(line) == episode
