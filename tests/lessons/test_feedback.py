"""The feedback lesson as choreography: scripted engines, and the embedded tokenizer where ids matter."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from talker import Talker

from tutelage import models
from tutelage.engines import Message, Sampling
from tutelage.engines.chorus import Chorus
from tutelage.errors import PromptTooLong
from tutelage.lessons import Episode, Plan, feedback, independent
from tutelage.lessons import prompts_feedback as prompts
from tutelage.lessons.dialogue import Teacher
from tutelage.lessons.feedback import attempts, conversation, solved, trainable
from tutelage.lessons.guard import Guard
from tutelage.lessons.sequence import sequence
from tutelage.lessons.teachers import Null, Program, Self, Shuffled, Tutor
from tutelage.problem import Problem

CANARY = "zebra7731"
PROBLEM = Problem(
    "What is 17 * 6?", f"{CANARY}: 17 * 6 = 102", "102", kind="number", reasoning_trace=CANARY, meta={"entry": CANARY}
)
PLAN = Plan(max_turns=4)
WORDS = models.tokenizer("smollm2-135m")


def pupil(messages: Sequence[Message], index: int) -> str:
    """Wrong until a hint speaks of tens."""
    right = "tens" in messages[-1]["content"]
    return f"So <solution>{102 if right else 20 + len(messages)}</solution>"


def script(scripted: Any, *said: str) -> Any:
    """An engine that says these, one after the other, and the last one from then on."""
    left = list(said)
    return scripted(lambda *_: left.pop(0) if len(left) > 1 else left[0], "teacher")


def held(student: Any, teacher: Teacher, plan: Plan = PLAN, problem: Problem = PROBLEM, copy: int = 0) -> Episode:
    return asyncio.run(feedback(problem, student, teacher, plan, copy))


def shape(episode: Episode) -> list[str]:
    return [turn.verdict.outcome if turn.verdict else turn.sample.text for turn in episode.turns]


def test_a_dialogue_goes_on_until_the_answer_is_right(scripted: Any) -> None:
    student, teacher = scripted(pupil), script(scripted, "Look again.", "Split it into tens and ones.")
    episode = held(student, Tutor(teacher, PLAN, Guard(PLAN)))
    assert shape(episode) == ["incorrect", "Look again.", "incorrect", "Split it into tens and ones.", "correct"]
    assert (episode.lesson, episode.uid, episode.leaked) == ("feedback", PROBLEM.uid, False)
    assert solved(episode) and trainable(episode)
    asked = [messages for messages, *_ in teacher.requests]
    assert "So <solution>24</solution>" in asked[0][-1]["content"] and CANARY in asked[0][-1]["content"]
    assert "Hint given before: Look again." in asked[1][-1]["content"]
    *_, last = student.requests
    assert last[0][-3:] == [
        {"role": "user", "content": prompts.again("Look again.")},
        {"role": "assistant", "content": "So <solution>26</solution>"},
        {"role": "user", "content": prompts.again("Split it into tens and ones.")},
    ]
    seeds = [seed for *_, seed in [*student.requests, *teacher.requests]]
    assert len(set(seeds)) == len(seeds)


def test_it_ends_at_max_turns_without_another_hint(scripted: Any) -> None:
    teacher = script(scripted, "Hm.")
    episode = held(scripted(pupil), Tutor(teacher, PLAN, Guard(PLAN)))
    assert [turn.act for turn in episode.turns] == ["attempt", "hint"] * 3 + ["attempt"] and not solved(episode)
    single = held(scripted(pupil), Tutor(teacher, PLAN, Guard(PLAN)), replace(PLAN, max_turns=1))
    assert [turn.act for turn in single.turns] == ["attempt"] and len(teacher.requests) == 3


def test_a_reply_without_an_answer_hears_about_its_form_and_no_teacher(scripted: Any) -> None:
    student = script(scripted, "Let me think about it.", "Still thinking.", "<solution>102</solution>")
    teacher = script(scripted, "Hm.")
    episode = held(student, Tutor(teacher, PLAN, Guard(PLAN)))
    assert shape(episode) == ["unparsed", prompts.unread(), "unparsed", prompts.unread(), "correct"]
    assert not teacher.requests and student.requests[1][0][-1]["content"] == prompts.unread()


def test_an_answer_that_cannot_be_checked_is_not_said_to_be_missing(scripted: Any) -> None:
    student = script(scripted, f"<solution>{'1' * 3000}</solution>", "<solution>102</solution>")
    [_, told, _] = shape(held(student, Null()))
    assert told.startswith("Your final answer is too long.") and "<solution>" in told


def teachers(scripted: Any, student: Any) -> list[Teacher]:
    hints = scripted(lambda *_: "Look again.", "teacher")
    tutor = Tutor(hints, PLAN, Guard(PLAN, scripted(lambda *_: "OK")))
    other = Problem("What is 2 * 3?", CANARY, "6", kind="number")
    return [tutor, Null(), Program(), Self(student, PLAN), Shuffled(tutor, student, [PROBLEM, other], PLAN)]


@pytest.mark.parametrize("which", range(5))
def test_no_secret_reaches_the_student(scripted: Any, which: int) -> None:
    student = scripted(lambda *_: "<solution>7</solution>")
    episode = held(student, teachers(scripted, student)[which])
    assert len(attempts(episode)) == 4
    seen = [messages for messages, *_ in student.requests]
    assert seen and CANARY not in str(seen) and "102" not in str(seen)


def test_the_null_teacher_says_only_that_it_was_wrong(scripted: Any) -> None:
    student = scripted(lambda *_: "<solution>7</solution>")
    held(student, Null())
    assert student.requests[1][0][-1]["content"] == prompts.again("")
    assert prompts.again("x").replace("Hint: x\n\n", "") == prompts.again("")  # the hint is all that differs


def test_a_student_that_finds_the_answer_itself_gives_nothing_away(scripted: Any) -> None:
    """What its own critic says is its own, and a dialogue to learn from."""
    student = scripted(lambda messages, _: f"So <solution>{102 if '102' in messages[-1]['content'] else 7}</solution>")
    episode = held(student, Self(script(scripted, "I recompute: 17 * 6 = 102."), PLAN))
    assert solved(episode) and trainable(episode) and not episode.leaked


def test_the_choices_are_kept_with_a_dialogue(scripted: Any) -> None:
    problem = Problem("Which?", "", "B", kind="choice", meta={"choices": ["Rome", "Paris"]})
    assert held(scripted(pupil), Null(), problem=problem).meta["choices"] == ["Rome", "Paris"]
    assert held(scripted(pupil), Null()).meta["choices"] is None


def test_a_shuffled_teacher_speaks_of_another_problem_that_went_wrong(scripted: Any) -> None:
    easy, hard = (Problem(f"What is {n} * 1?", "", str(n), kind="number") for n in (5, 8))
    student = scripted(lambda messages, _: f"<solution>{5 if '5 *' in str(messages) else 99}</solution>")
    asked: list[str] = []

    def hint(messages: Sequence[Message], _: int) -> str:
        asked.append(messages[-1]["content"])
        return "Look again."

    tutor = Tutor(scripted(hint), PLAN, Guard(PLAN))
    teacher = Shuffled(tutor, student, [PROBLEM, easy, hard], PLAN)
    episode = held(student, teacher)
    assert len(asked) == 3 and all("What is 8 * 1?" in text for text in asked)  # 5 * 1 was right at once
    assert shape(episode)[1] == "Look again."
    alone = held(student, Shuffled(tutor, student, [PROBLEM, easy], PLAN))
    assert shape(alone)[1] == "" and len(asked) == 3  # nobody else was wrong


def test_a_program_speaks_where_no_model_does(scripted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    student = scripted(lambda *_: "<solution>7</solution>")
    assert "too small" in shape(held(student, Program()))[1]
    monkeypatch.setattr("tutelage.verify.feedback.remark", lambda problem, verdict: f"Say {problem.answer}.")
    episode = held(student, Program())
    assert shape(episode)[1] == prompts.GENERIC and episode.meta["flagged"] == 3 and not episode.leaked


def test_independent_attempts_know_nothing_of_each_other(scripted: Any) -> None:
    student = script(scripted, "<solution>7</solution>", "no idea", "<solution>102</solution>")
    episode = asyncio.run(independent(PROBLEM, student, PLAN))
    assert shape(episode) == ["incorrect", "unparsed", "correct"] and episode.meta["teacher"] == "independent"
    assert len({str(messages) for messages, *_ in student.requests}) == 1
    assert len({seed for *_, seed in student.requests}) == 3
    first = held(scripted(pupil), Null())  # whoever teaches, the first attempt is asked for alike
    assert student.requests[0][1:] == (PLAN.solving, 1, student.requests[0][3])
    assert first.turns[0].verdict and not first.turns[0].correct


def test_first_attempts_share_their_random_numbers_whoever_teaches(scripted: Any) -> None:
    seeds = []
    for teacher in (Null(), None):
        student = scripted(lambda *_: "<solution>7</solution>")
        asyncio.run(feedback(PROBLEM, student, teacher, PLAN, 3) if teacher else independent(PROBLEM, student, PLAN, 3))
        seeds.append([seed for *_, seed in student.requests])
    assert seeds[0] == seeds[1]


def test_a_dialogue_that_outgrows_the_context_ends_there() -> None:
    student = Talker(WORDS, lambda _: "I add. <solution>23</solution>", context=260)
    tutor = Tutor(Talker(WORDS, lambda _: "word " * 30), PLAN, Guard(PLAN))
    episode = held(student, tutor, replace(PLAN, max_turns=9))
    assert episode.meta["overflow"] and 1 < len(attempts(episode)) < 9
    assert len(sequence(episode).prompt_ids) + len(sequence(episode).completion_ids) <= 260
    deaf = held(student, Tutor(Talker(WORDS, lambda _: "", context=20), PLAN, Guard(PLAN)))
    assert deaf.meta["overflow"] and len(deaf.turns) == 1
    with pytest.raises(PromptTooLong):
        held(Talker(WORDS, lambda _: "", context=20), tutor)


def test_an_episode_survives_json_and_old_lines_are_still_read(scripted: Any) -> None:
    episode = held(scripted(pupil), teachers(scripted, scripted(pupil))[0], copy=2)
    assert Episode.from_json(episode.to_json()) == episode and episode.meta["copy"] == 2
    old = json.loads(episode.to_json())
    for turn in old["turns"]:
        if turn["verdict"]:
            del turn["verdict"]["score"]
    assert Episode.from_json(json.dumps(old)) == episode


def test_copies_that_speak_in_chorus_share_only_their_first_turn() -> None:
    student = Talker(WORDS, lambda _: "<solution>7</solution>")
    chorus = Chorus(student, 3)

    async def main() -> list[Episode]:
        return await asyncio.gather(*(feedback(PROBLEM, chorus, Null(), PLAN, copy) for copy in range(3)))

    episodes = asyncio.run(main())
    assert len(student.prompts) == 1 + 3 * 3
    assert len({sequence(episode) for episode in episodes}) == 1


# -- the sequence that is trained on -----------------------------------------------------------------

replies = st.lists(
    st.sampled_from(["<solution>7</solution>", "no idea", "  \n", "so \u00e9 ", "chain" * 20, "<think>a</think>b"]),
    min_size=1,
    max_size=4,
)


def told(said: Sequence[str], plan: Plan) -> Episode:
    left = list(said)
    student = Talker(WORDS, lambda _: left.pop(0) if left else "<solution>102</solution>")
    return held(student, Tutor(Talker(WORDS, lambda _: "Look again, café."), plan, Guard(plan)), plan)


@settings(max_examples=40, deadline=None)
@given(replies, st.integers(1, 40), st.booleans())
def test_a_sequence_is_what_was_sampled_and_read_and_nothing_else(said: list[str], limit: int, mask: bool) -> None:
    episode = told(said, replace(PLAN, solving=Sampling(max_tokens=limit), max_turns=5))
    found = sequence(episode, mask_truncated=mask)
    turns = attempts(episode)
    last = turns[-1].sample
    assert found.prompt_ids + found.completion_ids == last.prompt_ids + last.ids
    assert len({len(column) for column in found[1:]}) == 1
    for number, turn in enumerate(turns):
        mine = [i for i, (t, m) in enumerate(zip(found.turn, found.mask, strict=True)) if t == number and m]
        dropped = mask and turn.sample.finish == "length"
        assert [found.completion_ids[i] for i in mine] == ([] if dropped else list(turn.sample.ids))
        assert [found.logprobs[i] for i in mine] == ([] if dropped else list(turn.sample.logprobs))
        if mine and turn.sample.finish == "stop":
            assert found.completion_ids[mine[-1]] == WORDS.eos_token_id
    assert all(m or value == 0.0 for m, value in zip(found.mask, found.logprobs, strict=True))
    assert list(found.turn) == sorted(found.turn)


def test_the_sequence_of_a_dialogue_that_tokenises_to_itself_is_the_templates() -> None:
    episode = told(["I add: <solution>23</solution>", "no idea"], PLAN)
    talker = Talker(WORDS, str)
    found = sequence(episode)
    messages = conversation(episode)
    assert messages[-1] == {"role": "assistant", "content": "<solution>102</solution>"}
    assert found.prompt_ids + found.completion_ids == talker.render(messages[:-1]) + attempts(episode)[-1].sample.ids


def test_what_is_no_sequence_is_refused(scripted: Any) -> None:
    with pytest.raises(ValueError, match="has no token ids"):
        sequence(held(scripted(pupil), Null()))
    several = asyncio.run(independent(PROBLEM, Talker(WORDS, lambda _: "<solution>7</solution>"), PLAN))
    with pytest.raises(ValueError, match="does not go on"):
        sequence(several)


def test_no_logprobs_are_no_zeros() -> None:
    episode = told(["<solution>7</solution>"], PLAN)
    bare = [replace(turn, sample=replace(turn.sample, logprobs=())) for turn in episode.turns]
    assert sequence(replace(episode, turns=tuple(bare))).logprobs == ()
