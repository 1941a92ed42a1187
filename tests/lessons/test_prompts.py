"""What reaches the student, and what never may."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.lessons import prompts
from tutelage.problem import Problem

CANARY = "zebra-7731"


@pytest.mark.parametrize(
    ("reply", "teaching", "well_formed"),
    [
        ("<thinking>weak</thinking>\n<teaching>Carry the one.</teaching>", "Carry the one.", True),
        ("<thinking>strong</thinking><teaching></teaching>", None, True),  # abstention
        ("<thinking>strong</thinking><teaching> \n </teaching>", None, True),
        ("Just multiply.", None, False),  # no tags: nothing reaches the student
        ("<thinking>only this</thinking>", None, False),
        ("<teaching>Carry.</teaching>", "Carry.", False),  # no diagnosis
        ("<thinking>cut</thinking><teaching>Carry the", "Carry the", False),
        ("<thinking>mentions <teaching>x</teaching></thinking><teaching>y</teaching>", "y", True),
        ("<thinking>a</thinking><teaching>b<thinking>secret", "b", False),
        ("<thinking>a</thinking><teaching><teaching>b</teaching>", "b", False),
        ("<thinking>a <teaching>b</teaching>", "b", False),
        ("<think>I use <teaching>102</teaching></think><thinking>a</thinking><teaching>b</teaching>", "b", True),
        ("<teaching>102</teaching></think><thinking>a</thinking><teaching>b</teaching>", "b", True),
        ("<think>I use <teaching>102</teaching>", None, False),
    ],
)
def test_teaching_in(reply: str, teaching: str | None, well_formed: bool) -> None:
    assert prompts.teaching_in(reply) == (teaching, well_formed)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("a<think>x</think>b<think>y</think>c", "abc"),
        ("x</think>b<think>y</think>c", "bc"),
        ("a<think>x<think>y</think>b", "ab"),
        ("a<think>never ends", "a"),
        ("x</think>y</think>b", "b"),
        ("no thought <thinking>", "no thought <thinking>"),
        ("a" + "<think>" * 100_000, "a"),  # at once
        ("<think>" * 100_000 + "</think>b", "b"),
    ],
)
def test_what_is_only_thought_is_not_said(reply: str, said: str) -> None:
    assert prompts.spoken(reply) == said


@given(st.text())
def test_closed_thinking_never_reaches_the_student(text: str) -> None:
    reply = f"<thinking>{text}{CANARY}</thinking><teaching>Hint.</teaching>"
    teaching, _ = prompts.teaching_in(reply)
    assert teaching is None or CANARY not in teaching


def test_no_private_field_reaches_any_prompt() -> None:
    problem = Problem(
        "How many?", CANARY, CANARY, reasoning_trace=CANARY, meta={"entry": CANARY, "teacher_teaching": CANARY}
    )
    public = problem.public
    for messages in (
        prompts.solve(public),
        prompts.solve(public, "Hint."),
        prompts.probe(public),
        prompts.teach(public, "I add."),
    ):
        assert CANARY not in str(messages)
        assert "How many?" in messages[-1]["content"]


def test_teaching_is_all_that_differs_between_alone_and_taught() -> None:
    public = Problem("How many?", "", "").public
    alone, taught = prompts.solve(public), prompts.solve(public, "Count twice.")
    assert alone[:-1] == taught[:-1]
    said = taught[-1]["content"]
    assert said.replace("A teacher's advice:\nCount twice.\n\n", "") == alone[-1]["content"]
    assert said.endswith("<solution>the final answer</solution>.")


def test_a_format_may_bring_its_own_system_prompt() -> None:
    public = Problem("How many?", "", "", system="Answer as a pirate.").public
    assert prompts.solve(public)[0]["content"] == "Answer as a pirate."


def test_programs_are_asked_for_as_programs() -> None:
    from tutelage.lessons import prompts_feedback

    public = Problem("def half(x):\n", "", "", kind="code").public
    said = [*(message["content"] for message in prompts.solve(public)), prompts_feedback.again("Look.", "code")]
    assert all("```python" in text for text in said[1:]) and not any("<solution>" in text for text in said)
    assert "No program was found" in prompts_feedback.unread("code")
