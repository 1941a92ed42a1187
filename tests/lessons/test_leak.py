"""The leak check, by hand and by property."""

from textwrap import indent
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.data.generated import generate
from tutelage.lessons.leak import copies, leaks, numbers, restated, reveals
from tutelage.problem import Problem

QUESTION = "What is 17 * 6?"


@pytest.mark.parametrize(
    ("teaching", "answer", "leaked"),
    [
        ("So you get 102.", "102", True),
        ("So you get 102.0 in all", "102", True),
        ("That makes one hundred", "102", False),
        ("17 * 6 = 10 * 6 + 7 * 6", "102", False),
        ("It is 1025, not more", "102", False),
        ("It is 0.102", "102", False),
        ("about 12,500 people", "12500", True),
        ("about 12500 people", "12,500", True),
        ("half, that is 0.5", "1/2", True),
        (r"it is \frac{1}{2}", "0.5", True),
        ("the result is -3", "-3", True),
        ("the result is 3", "-3", False),
        ("take 10-3 first", "-3", False),  # a difference, not the number minus three
        ("the result is twelve", "12", True),
        ("forty-two, of course", "42", True),
        ("forty, two", "42", False),
        ("think of PARIS!", "Paris", True),
        ("comparison", "Paris", False),
        ("the capital on the Seine", "Paris", False),
        ("choose (B)", "B", True),
        ("the answer is b", "B", True),
        ("a boat", "B", False),
        ("so x + 1 is left", "x+1", True),
        ("so x+11 is left", "x+1", False),
        ("anything", "", False),
        ("Write it as 5² first.", "52", False),
        ("Read 101₂ bit by bit.", "1012", False),
        ("so 10⁻³ is left", "10^-3", True),
        ("so H₂O is left", "H2O", True),
    ],
)
def test_leaks(teaching: str, answer: str, leaked: bool) -> None:
    assert leaks(teaching, answer, QUESTION) is leaked


@pytest.mark.parametrize(
    ("text", "answer", "kind", "leaked"),
    [
        ("The answer is 1/2.", "1/2", "math", True),
        (r"The right one is $\frac{3}{4}$.", "3/4", "math", True),
        ("You get -3/4.", "-3/4", "math", True),
        ("It is 1/25.5 of it.", "1/25", "math", False),
        ("So the total is...102", "102", "number", True),
        ("So the total is\N{HORIZONTAL ELLIPSIS}102", "102", "number", True),
        ("It is 0.102.", "102", "number", False),
        ("Version 3.102 is no number", "102", "number", False),
        (r"\boxed{\frac12}", "1/2", "math", True),
        (r"so \dfrac 1 2 is left", "1/2", "math", True),
        ("so it is ½", "1/2", "math", True),
        ("so it is 3½", "31/2", "math", False),
        ("so it is ⅔", "2/3", "math", True),
        ("so it is $12{,}500$", "12500", "number", True),
        ("so it is .5", ".5", "number", True),
        ("so it is 5", ".5", "number", False),
        ("so it is _102_ then", "102", "number", True),
        ("look at x_102 then", "102", "number", False),
        ("<solution>B</solution>", "B", "choice", True),
        (r"\boxed{B}", "B", "choice", True),
        ("Answer: Paris", "B", "choice", True),
        ('The correct answer is "Paris"', "B", "choice", True),
        ("Choose B.", "B", "choice", True),
        ("Choose a city on a river.", "A", "choice", False),
        ("Choose A.", "A", "choice", True),
        ("B is correct.", "B", "choice", True),
        ("b is the right one", "B", "choice", True),
        ("The correct one is B.", "B", "choice", True),
        ("The correct one is not B.", "B", "choice", False),
        ("The side B is the longest.", "B", "choice", False),
        ("It lies in France, unlike Rome.", "B", "choice", False),
        ("Your answer is right about the river", "A", "choice", False),
        ("The answer is 17.", "17", "number", True),  # which stands in the question
        ("Take 17 first.", "17", "number", False),
    ],
)
def test_what_the_verifier_would_take_for_the_answer_gives_it_away(
    text: str, answer: str, kind: Any, leaked: bool
) -> None:
    problem = Problem("Of 17?", "", answer, kind=kind, meta={"choices": ["Rome", "Paris"]})
    assert reveals(text, problem) is leaked


@pytest.mark.parametrize(
    ("teaching", "answer", "question", "leaked"),
    [
        ("It's 3", "3", "What is 12/4?", True),
        ("Share 12/4.", "3", "What is 12/4?", False),
        ("subtract 22 from 44", "22", "44 - 22 = ?", False),
        ("subtract 22 from 44", "22", "44 -22 = ?", False),
        ("it is -22", "22", "", False),
        ("multiply 5 by 1", "5", "What is 5*1?", False),
        ("it is 12*1", "12", "", True),
        ("it is **12**", "12", "", True),
        ("Result:\n- 102", "102", "", True),
        ("it is 5", "x = 5", "", True),
        ("it's 12", "12 apples", "", True),
        ("it's 13", "12 apples", "", False),
        ("use 3", "3 1/2", "", False),
        ("it is 3 1/2", "3 1/2", "", True),
        ("use 2", "2 pi", "", False),
        ("the answer is .5", "0.5", "", True),
        ("one hundred and two", "102", "", True),
        ("a total of two hundred five thousand and thirty-one", "205031", "", True),
        ("twelve hundred", "1200", "", True),
        ("five and six", "11", "", False),
        ("1. Add the tens.\n2. Add the ones.", "2", "", False),
        ("**Step 2:** add the ones", "2", "", False),
        ("Count them:\n2", "2", "", True),
        ("one number at a time", "1", "", False),
        ("the answer is a number between 1 and 9", "A", "", False),
        ("the answer is A because of the tens", "A", "", True),
        ("the answer is a.", "A", "", True),
        ("9" * 5000, "9", "", False),
        ("that is 75%", "0.75", "", True),
        (r"that is $75\%$", "3/4", "", True),
        ("seventy-five per cent of it", "0.75", "", True),
        ("that is 0.75", "75%", "", True),
        ("that is 7.5%", "0.75", "", False),
        ("begin with the 75%", "0.75", "What is 75% as a number?", False),
        ("it is 0.75", "0.75", "What is 75% as a number?", True),
        ("check 100% of your steps", "1", "", False),
        ("so 1e2", "100", "", True),
        ("so 1.5e-1", "0.15", "", True),
        ("so 100", "1e2", "", True),
        ("so 1e2x", "100", "", False),
        ("about 1 million", "1000000", "", True),
        ("about 1.5 million", "1,500,000", "", True),
        ("about 1000000", "1 million", "", True),
        ("two million, three hundred thousand and five", "2300005", "", True),
        ("a million people", "1000000", "", True),
        ("that makes a dozen", "12", "", True),
        ("that makes 2 dozen", "24", "", True),
        ("you need two dozen", "24", "", True),
        ("half a dozen", "12", "", False),
        ("dozens of ways", "12", "", False),
        ("pack a dozen", "12", "How many eggs are a dozen?", False),
        ("it is sqrt(2)", r"\sqrt{2}", "", True),
        ("it is √2", r"$\sqrt{2}$", "", True),
        (r"it is \sqrt{2}", "sqrt(2)", "", True),
        ("it is 2 * sqrt(2)", r"2\sqrt{2}", "", True),
        (r"it is 2\sqrt{2}", r"\sqrt{2}", "", False),
        ("it is sqrt(20)", r"\sqrt{2}", "", False),
        ("12. check it", "12", "", True),
        ("Compare with step 12", "12", "", True),
        ("11. Add.\n12. Check.", "12", "", False),  # of a list
        ("Step 11: add.\nStep 12: check.", "12", "", False),
        ("Look at step 2 again", "2", "", False),
    ],
)
def test_leaks_beside_its_question(teaching: str, answer: str, question: str, leaked: bool) -> None:
    assert leaks(teaching, answer, question) is leaked


def test_what_was_known_before_is_no_leak() -> None:
    assert leaks("You said 102: that is right.", "102", QUESTION) is True  # whoever guessed it
    assert leaks("Start with the 17.", "17", QUESTION) is False
    assert leaks("Like Paris", "Paris", "Is it Paris or Rome?") is False


def test_choices_by_text() -> None:
    options = ["red", "green"]
    assert leaks("The answer is green.", "B", "Which colour?", options)
    assert not leaks("Is it red or green?", "B", "Which colour?", options)


def ways(answer: str) -> list[str]:
    steps = answer.split()
    return [
        ", ".join(steps),
        " → ".join(steps).upper(),
        "First " + ", then ".join(steps),
        "\n".join(f"{number}. {step}" for number, step in enumerate(steps, start=1)),
        "; ".join(f"step {number}: {step}" for number, step in enumerate(steps, start=1)),
    ]


def grids(answer: str) -> list[str]:
    rows = answer.splitlines()
    ordinals = zip("first second third fourth".split(), rows, strict=True)
    return [
        "\n".join(f"Row {number}: {row}" for number, row in enumerate(rows, start=1)),
        "\n".join(f"**Row {number}** is {row}." for number, row in enumerate(rows, start=1)),
        "\n".join(f"| {row.replace(' ', ' | ')} |" for row in rows),
        str([row.split() for row in rows]),
        ", ".join(f"the {ordinal} row {row}" for ordinal, row in ordinals),
    ]


def claims(answer: str) -> list[str]:
    return [answer.replace(",", ""), answer.replace(", and", ";"), answer.replace(", and", ".").replace(" a ", " the ")]


@pytest.mark.parametrize(
    ("task", "spellings", "harmless"),
    [
        (
            "shortest_path",
            ways,
            [
                "Step 3 of your way (left) enters a blocked cell.",
                "Write the way as a sequence of the words up, down, left and right, with spaces between them.",
                "Go right first, then look at what is down there.",
            ],
        ),
        (
            "mini_sudoku",
            grids,
            [
                "Row 1 holds a number twice.",
                "Write 4 rows of 4 numbers, with spaces between them.",
                "Row 1 needs 1, 2, 3 and 4, and so does row 2.",
            ],
        ),
        (
            "knights_knaves",
            claims,
            ["That is not right yet, but a part of it is: its score is 0.50 of 1.", "Suppose that the first one lies."],
        ),
    ],
)
def test_sequences_are_found_however_they_are_written(task: str, spellings: Any, harmless: list[str]) -> None:
    drawn = [problem for problem in generate([task], 40, seed=3) if len(problem.answer.split()) > 2]
    caught = 0
    for problem in drawn:
        hints = [f"It is this:\n{hint}" for hint in (problem.answer, *spellings(problem.answer))]
        caught += all(leaks(hint, problem.answer, problem.question) for hint in hints)
        assert not any(leaks(hint, problem.answer, f"{problem.question} {hint}") for hint in hints)
        assert not any(leaks(hint, problem.answer, problem.question) for hint in [*harmless, problem.question])
    assert caught >= 0.9 * len(drawn) > 9  # a few stand in the question: as an example of a way, or as a claim


@pytest.mark.parametrize(
    ("teaching", "answer", "question", "leaked"),
    [
        ("Right, left, right, up.", "right left up", "", False),  # not in a row
        ("upright left up", "right left up", "", False),
        ("left and right", "left right", "", False),  # two words are too few
        ("Start with B, then C and D.", "B A C D", "", False),
        ("Go A, then B, then C", "A B C", "", False),  # here "then" is a word
        ("Go A, B, C", "A B C", "", True),
        ("up, then down, then left", "up-down-left", "", True),
        ("x, 2, 3", "x + 2 = 3", "", False),  # a formula is more than its words
        ("3 hours and 20 minutes", "3 hours 20 minutes", "", True),
        ("Ann is a knave and Bo a knight", "Ann is a knave, and Bo is a knight", "", False),
        ("Is it so that if Ann is a knave, then Bo is a knight?", "Ann is a knave, and Bo is a knight", "", False),
        (
            "Ann is a knave, Bo is a knight",
            "Ann is a knave, and Bo is a knight",
            "If Ann is a knave then Bo is a knight",
            True,
        ),
        (
            "Ann is a knave; Bo is a knight",
            "Ann is a knave, and Bo is a knight",
            "Ann is a knave and Bo is a knight?",
            False,
        ),
        (
            "Ann is a knave, and Bo is a knight",
            "Ann is a knave, and Bo is a knight",
            "Ann is a knave and Bo is a knight?",
            True,
        ),
    ],
)
def test_sequences_in_a_row(teaching: str, answer: str, question: str, leaked: bool) -> None:
    assert leaks(teaching, answer, question) is leaked


PROMPT = 'def mean(xs: list[float]) -> float:\n    """The mean."""'
MEAN = "    total = 0\n    for x in xs:\n        total += x\n    return total / len(xs)"


@pytest.mark.parametrize(
    ("text", "program", "question", "known", "copied"),
    [
        (MEAN, f"{PROMPT}\n{MEAN}", PROMPT, "", True),
        (f"```python\n{PROMPT}\n{MEAN}\n```", f"{PROMPT}\n{MEAN}", PROMPT, "", True),
        (PROMPT, f"{PROMPT}\n{MEAN}", PROMPT, "", False),
        ("Look at `for x in xs: total += x` again.", f"{PROMPT}\n{MEAN}", PROMPT, "", False),
        (MEAN, f"{PROMPT}\n{MEAN}", PROMPT, MEAN, False),  # the student has it
        (MEAN, f"{PROMPT}\n{MEAN}", PROMPT, MEAN.replace("total /", "total //"), True),  # but for its error
        (MEAN.replace("/ len", "// len"), f"{PROMPT}\n{MEAN}", PROMPT, MEAN.replace("/ len", "// len"), False),
        ("return x*y", "import math\r\ndef f(x, y=(1, 2)) -> int:\r\n    return x * y", "Multiply.", "", True),
        ("Look at your return.", "def f(x, y): return x + y", "Add.", "", False),
        ("You return x - y.", "def f(x, y): return x + y", "Add.", "", False),
        ("You may return x + y.", "def f(x, y): return x + y", "Add.", "", True),
        ("", "def f(x): ", "f", "", False),
        (MEAN, f"import math\n\nMOD = 10\n\n@cache\n{PROMPT}\n{MEAN}", "The mean of numbers.", "", True),
        (
            MEAN,
            f"class Solution:\n    def mean(\n        self,\n        xs,\n    ):\n{indent(MEAN, '    ')}",
            "The mean.",
            "",
            True,
        ),
        (
            "The mean of some numbers, all of them.",
            f'def mean(xs):\n    """The mean of some numbers, all."""\n{MEAN}',
            "",
            "",
            False,
        ),
    ],
)
def test_programs_are_found_by_their_bodies(text: str, program: str, question: str, known: str, copied: bool) -> None:
    assert copies(text, program, question, known) is copied


def test_a_problem_is_given_away_as_its_kind_wants() -> None:
    mean = Problem(PROMPT, "", f"{PROMPT}\n{MEAN}", kind="code")
    assert reveals(MEAN, mean) and not reveals(PROMPT, mean) and not reveals(MEAN, mean, [MEAN])
    option = Problem("Which town?", "", "B", kind="choice", meta={"choices": ["Lyon", "Paris"]})
    assert reveals("The answer is Paris.", option) and not reveals("The answer is Lyon.", option)


@given(st.integers(-(10**9), 10**9))
def test_any_number_is_found_however_grouped(value: int) -> None:
    assert value in numbers(f"it makes {value} apples")
    assert value in numbers(f"it makes {value:,} apples.")
    assert leaks(f"it makes {value:,}", str(value))


@given(st.text(), st.text(), st.text())
def test_total_on_any_text(teaching: str, answer: str, question: str) -> None:
    assert leaks(teaching, answer, question) in (True, False)


@pytest.mark.parametrize(
    ("text", "solution", "share"),
    [
        ("", "a b c d e f", 0.0),
        ("so a b c d e f it is", "a b c d e f", 1.0),
        ("a b c d e, x", "a b c d e f", 5 / 6),
        ("a b c d x e f", "a b c d e f", 0.0),  # no run of five
        ("a b c d e x d e f g h", "a b c d e f g h", 1.0),  # two runs that overlap
        ("It is 102.", "102", 1.0),  # shorter than five: all of it
        ("x = 5", "", 0.0),
        ("**A B** c\nD  e!", "$a b c d e$", 1.0),
    ],
)
def test_how_much_of_a_solution_is_restated(text: str, solution: str, share: float) -> None:
    assert restated(text, solution) == pytest.approx(share)


words = st.lists(st.sampled_from("a b c = 1".split()), max_size=14).map(" ".join)


@given(words, words, words)
def test_restating_is_a_share_that_only_grows(text: str, more: str, solution: str) -> None:
    share = restated(text, solution)
    assert 0 <= share <= restated(f"{text} {more}", solution) <= 1
    assert restated(f"{more} {solution} {text}", solution) == (1 if solution else 0)
