"""Dialogues made by hand: which tokens are trained, with what advantage, and which hints are learned."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from talker import Talker

from tutelage import models
from tutelage.composing import compose
from tutelage.engines import Sample
from tutelage.lessons import Episode, Turn
from tutelage.lessons.feedback import critiqued
from tutelage.lessons.prompts_feedback import GENERIC
from tutelage.problem import Verdict
from tutelage.training.config import Train
from tutelage.training.courses.feedback import Feedback
from tutelage.training.rollout import Rollout

CANARY = "zebra7731"
TOKENS = models.tokenizer("smollm2-135m")


def attempted(text: str, outcome: str, prompt: tuple[int, ...], ids: tuple[int, ...], finish: str = "stop") -> Turn:
    sample = Sample(text, finish, len(ids), ids, (-0.5,) * len(ids), prompt)  # type: ignore[arg-type]
    return Turn("student", "attempt", sample, Verdict(outcome, score=float(outcome == "correct")))  # type: ignore[arg-type]


def hinted(text: str, finish: str = "stop") -> Turn:
    return Turn("teacher", "hint", Sample(text, finish, 3, (7, 7, 7)))  # type: ignore[arg-type]


def spoken(*turns: Turn, **more: Any) -> Episode:
    meta = {"flagged": more.pop("flagged", 0), "kind": "math", "system": ""}
    return Episode("feedback", "u", "What is 17 * 6?", CANARY, turns, meta=meta, **more)


def course(*words: str, context: int = 2048) -> Feedback:
    engine = Talker(TOKENS, lambda _: "", context)
    config = compose(Train, ["run=quickstart_rl2f", *words])
    return Feedback(config, SimpleNamespace(policy=engine, partner=engine))  # type: ignore[arg-type]


FIRST = (1, 2)
GROUP = [  # by ids: prompt 1 2, then attempts of 10s, 20s and 30s with teachers' 90s between them
    spoken(attempted("a", "correct", FIRST, (10, 11))),
    spoken(
        attempted("a", "incorrect", FIRST, (10, 12)),
        hinted("no"),
        attempted("b", "correct", (*FIRST, 10, 12, 90, 91), (20,)),
    ),
    spoken(
        attempted("a", "incorrect", FIRST, (10,), "length"),
        hinted("no"),
        attempted("b", "incorrect", (*FIRST, 10, 90), (20, 21)),
    ),
    spoken(
        attempted("a", "incorrect", FIRST, (10,)),
        hinted("no"),
        attempted("b", "correct", (*FIRST, 10, 90), (20, 21)),
        flagged=1,
    ),
]


def test_a_group_worked_out_by_hand() -> None:
    """Returns 1; .7 1; 0 0; the fourth is flagged. Means: 1.7/3 of three at turn one, 1/2 of two at turn two."""
    how = course()
    trained = [how.trained(episode) for episode in GROUP]
    assert [list(one.completion) for one in trained] == [
        [10, 11], [10, 12, 90, 91, 20], [10, 90, 20, 21], [10, 90, 20, 21],
    ]  # fmt: skip
    assert [list(one.mask or ()) for one in trained] == [[1, 1], [1, 1, 0, 0, 1], [0, 0, 1, 1], [0, 0, 0, 0]]
    assert list(course("mask_truncated=false").trained(GROUP[2]).mask or ()) == [1, 0, 1, 1]
    assert how.trained(GROUP[1]).logprobs == (-0.5, -0.5, 0, 0, -0.5)
    rollout = Rollout([], how, 0, Path(), None, None)  # type: ignore[arg-type]
    found = rollout.credit(dict(enumerate(GROUP)), trained, size=4)
    one = 1.7 / 3
    assert found == [
        pytest.approx([1 - one, 1 - one]),
        pytest.approx([0.7 - one, 0.7 - one, 0.5, 0.5, 0.5]),
        pytest.approx([-one, -0.5, -0.5, -0.5]),
        [0, 0, 0, 0],
    ]


@pytest.mark.parametrize(
    ("words", "members", "dead"),
    [
        ((), GROUP, False),
        ((), [GROUP[1], GROUP[3]], True),  # only one of them may be learned from
        ((), [GROUP[1], GROUP[1]], True),
        ((), [GROUP[2], spoken(attempted("a", "unparsed", FIRST, (10,)))], True),  # both came to nothing
        (("gamma=0",), [GROUP[1], GROUP[2]], False),  # their second attempts differ
        (("gamma=0", "credit=trajectory"), [GROUP[1], GROUP[2]], True),
        (("gamma=1",), [GROUP[0], GROUP[1]], True),  # both solved, and when makes no difference
        (("gamma=1",), [GROUP[0], GROUP[2]], False),
    ],
)
def test_groups_that_teach_nothing(words: tuple[str, ...], members: list[Episode], dead: bool) -> None:
    how = course(*words)
    rollout = Rollout([], how, 0, Path(), None, None)  # type: ignore[arg-type]
    assert rollout.dead(dict(enumerate(members)), size=len(members)) == ([0] if dead else [])
    assert any(value for values in how.credit(members) for value in values) != dead


def test_a_critique_holds_no_secret_but_the_hint() -> None:
    how = course("self_critique=0.1")
    wrong, right = attempted("So 98.", "incorrect", FIRST, (10,)), attempted("102", "correct", FIRST, (10,))
    unread = attempted("Hm.", "unparsed", FIRST, (10,))
    episode = spoken(wrong, hinted("Carry."), wrong, hinted("<think>x</think> Count the tens."), right)
    prompt, reply = how.critique(episode) or ((), ())
    said = TOKENS.decode(prompt)
    assert CANARY in str(episode) and CANARY not in said + TOKENS.decode(reply)
    assert "What is 17 * 6?" in said and "So 98." in said and "Hint given before: Carry." in said
    assert "Count the tens" not in said and said.endswith("<|im_start|>assistant\n")
    assert TOKENS.decode(reply) == "Count the tens.<|im_end|>"
    # As sampled, where these are tokens of the student's own.
    ids = (*TOKENS.encode("Co"), *TOKENS.encode("unt."), TOKENS.eos_token_id)
    sampled = Turn("teacher", "hint", Sample("Count.", "stop", 4, ids))
    assert how.critique(spoken(wrong, sampled, right)) == (
        how.cast.policy.render(critiqued(spoken(wrong, sampled, right))[0]),  # type: ignore[index]
        ids,
    )
    # A remark on the form is no hint: the one before it is the last.
    _, reply = how.critique(spoken(wrong, hinted("Carry."), unread, hinted("No answer was found."), right)) or ((), ())
    assert TOKENS.decode(reply) == "Carry.<|im_end|>"
    for other in (
        spoken(right),
        spoken(wrong, hinted("Carry."), wrong),
        spoken(unread, hinted("No answer was found."), right),
        spoken(wrong, hinted(""), right),
        spoken(wrong, hinted(GENERIC), right),
        spoken(wrong, hinted("Carry", "length"), right),
        spoken(wrong, hinted("Carry."), right, leaked=True),
        spoken(wrong, hinted("Carry."), right, flagged=1),
    ):
        assert how.critique(other) is None
    assert course().critique(episode) is None  # off, as it is by default
    assert course("self_critique=0.1", context=64).critique(episode) is None
