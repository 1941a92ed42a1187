import datetime
import json

import numpy as np
import pytest

from tutelage.data.values import Unusable, derived, lettered, pick, plain, text


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a", 1),
        ("turns.0.text", "hi"),
        ("turns.-1.text", "bye"),
        ("a.b", "dotted name"),  # a column may have a dot in its name
        ("turns.7.text", None),
        ("turns.x", None),
        ("a.0", None),
        ("none", None),
    ],
)
def test_pick(path, value):
    row = {"a": 1, "a.b": "dotted name", "turns": [{"text": "hi"}, {"text": "bye"}]}
    assert pick(row, path) == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, ""), (float("nan"), ""), (7.0, "7"), (0.5, "0.5"), (-3, "-3"), (" x \n", "x"), (0, "0")],
)
def test_text(value, expected):
    assert text(value) == expected


def test_text_with_half_a_character():
    with pytest.raises(Unusable, match="surrogate"):
        text("\ud83d?")


def test_text_of_a_list_says_how_to_name_a_part():
    with pytest.raises(Unusable, match=r"holds a list.*answer\.0"):
        text(["4"])


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        (r"First \boxed{1}, then it is \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        ("2 + 2 = 4\n#### 1,080", "1,080"),
        ("#### Step 1\nAdd.\n#### Step 2\nSo the answer is 12.", "12"),  # headings are no final answers
        ("#### Step 1\nAdd.\n#### Result: \\boxed{9}", "9"),
        ("We add them.\nThe answer is 3.5.", "3.5"),
        ("x = 3", "x = 3"),
        ("Paris, of course", "Paris, of course"),
        ("It is easy to see, " * 10, ""),
        ("We add.\nThen we stop.", ""),
        ("```python\nanswer = 0\nprint(answer)\n```", ""),
        ("", ""),
    ],
)
def test_derived(solution, answer):
    assert derived(solution) == answer


CITIES = ["Rome", "Paris", "Oslo"]


@pytest.mark.parametrize(
    ("choices", "answer"),
    [
        (CITIES, 1),
        (CITIES, "1"),
        (CITIES, "b"),
        (CITIES, "paris"),
        ({"label": ["1", "2", "3"], "text": CITIES}, "2"),  # a label, before it is an index
        ({"text": CITIES}, "B"),
        (["1", "0", "2"], "0"),  # the text of a choice, before it is an index
    ],
)
def test_lettered(choices, answer):
    question, letter, texts = lettered("Where?", choices, answer)
    assert letter == "B"
    assert question == f"Where?\n\nA. {texts[0]}\nB. {texts[1]}\nC. {texts[2]}"


@pytest.mark.parametrize("answer", ["Bonn", "D", 3, -1, "", True])
def test_lettered_answer_that_is_no_choice(answer):
    with pytest.raises(Unusable, match="none of the choices"):
        lettered("Where?", CITIES, answer)


@pytest.mark.parametrize("choices", ["Rome, Paris", {"label": ["A"]}, ["x"] * 27])
def test_lettered_choices_that_are_no_list(choices):
    with pytest.raises(Unusable, match="not a list"):
        lettered("Where?", choices, "A")


def test_plain_is_what_json_gives_back():
    value = {1: (2, {3}), "n": np.int64(4), "v": np.arange(2), "d": datetime.date(2026, 1, 2), "x": None}
    assert plain(value) == json.loads(json.dumps(plain(value)))
    assert plain(value) == {"1": [2, [3]], "n": 4, "v": [0, 1], "d": "2026-01-02", "x": None}
