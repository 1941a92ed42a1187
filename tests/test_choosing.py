"""What is kept of many explanations, and what is said when nothing is."""

import re
from collections import Counter

import pytest

from tutelage.choosing import Candidate, choose
from tutelage.config import Traces
from tutelage.errors import DataError

NONE: Counter[str] = Counter()


def test_choosing() -> None:
    def one(copy: int, worth: float, length: int, why: str = "") -> Candidate:
        return Candidate("u", copy, worth, length, why)

    many = [one(0, -1.0, 50), one(1, -0.5, 200), one(2, -2.0, 20), one(3, 9.0, 10, "bad")]
    copies = lambda found: {copy for _, copy in found[0]}  # noqa: E731
    assert copies(choose(many, Traces(), NONE)) == {1}
    assert copies(choose(many, Traces(pick="all"), NONE)) == {0, 1, 2}
    assert copies(choose(many, Traces(pick="fit", fits=100), NONE)) == {0}  # the best that fits
    assert copies(choose(many, Traces(pick="fit", fits=5), NONE)) == {1}  # none fits: the best
    assert choose(many, Traces(), NONE)[1] == {"bad": 1, "another explanation of the problem is better": 2}
    assert copies(choose([one(1, 0.0, 1), one(0, 0.0, 1)], Traces(), NONE)) == {0}  # of equals, the first


@pytest.mark.parametrize(
    ("reasons", "misfits", "told"),
    [
        (["no closing tag"], 0, "no closing tag (1): teach the form first (run=teacher_sft lesson=explain), raise"),
        (["it repeats more than 0 of the solution"], 0, "of the solution (1): type max_restated=1"),
        (["it states the final answer"], 0, "it states the final answer (1): type drop_leaked=false"),
        ([], 2, "too long for a model's context (2): take models with a longer context or shorter problems"),
        (["it states the final answer", "it repeats more than 0 of the solution"], 0, "=false, or type max_restated=1"),
        (["the explanation is too long for the student's context"], 0, "lower max_tokens, or take a student with a"),
        (["the explanation is another text in the student's tokens"], 0, "a student with the teacher's tokenizer"),
    ],
)
def test_where_nothing_is_kept_the_cure_is_that_of_the_reason(reasons: list[str], misfits: int, told: str) -> None:
    candidates = [Candidate("u", copy, 0.0, 1, why) for copy, why in enumerate(reasons)]
    too_long = Counter({"too long for a model's context": misfits})
    with pytest.raises(DataError, match=re.escape(told)) as error:
        choose(candidates, Traces(max_restated=0), too_long)
    assert ("drop_malformed" in str(error.value)) == ("no closing tag" in reasons)
