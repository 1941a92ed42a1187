"""The final answer is found where it stands, and nowhere else."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.verify.extract import final_answer

FOUND = [
    # solution tags: the last closed pair, unwrapped once more
    ("<solution>42</solution>", "42"),
    ("<solution> 1 </solution> no: <solution>\n2\n</solution> done", "2"),
    ("<SOLUTION>42</SOLUTION>", "42"),
    ("<|begin_of_solution|>42<|end_of_solution|>", "42"),
    ("<solution>1</solution><|begin_of_solution|>2<|end_of_solution|>", "2"),
    (r"<solution>The answer is \boxed{3}</solution>", "3"),
    ("<solution>The final answer is 3.5.</solution>", "3.5"),
    ("<solution>**42**</solution>", "42"),
    (r"\boxed{1} <solution>2</solution> \boxed{3}", "2"),
    ("<solution>1 2\n3 4</solution>", "1 2\n3 4"),
    ("<solution>draft <solution>7</solution>", "7"),
    ("<solution>12</solution> or <solution></solution>", "12"),
    ("<solution> </solution> The answer is 12.", "12"),
    # a reply cut off inside its tags
    ("so <solution>42", "42"),
    (r"\boxed{5} <solution>first line" + "\nsecond line", "5"),
    ("<solution>first line\nsecond line", None),
    ("<solution>1</solution> and <solution>2", "1"),
    # boxes
    (r"$\boxed{\frac{1}{2}}$", r"\frac{1}{2}"),
    (r"\boxed{1} then \boxed{2}", "2"),
    (r"\boxed{\text{a } \{1, 2\}}", r"\text{a } \{1, 2\}"),
    (r"\fbox{9}", "9"),
    (r"\boxed 5.", "5"),
    (r"\boxed {5}", "5"),
    (r"\\boxed{5}", "5"),
    (r"x \\\boxed{5}", "5"),
    (r"\boxed{\boxed{3}}", "3"),
    (r"\boxed{4} and then \boxed{\frac{1}{2", "4"),
    (r"{ stray \boxed{6} } }", "6"),
    # sentences
    ("The final answer is 42.", "42"),
    ("The answer is 3.75. I am sure.", "3.75"),
    ("**Answer:** 12,500", "12,500"),
    ("**Answer: 12**", "12"),
    ("Answer: (B)", "(B)"),
    ("answer = 7", "7"),
    ("Final Answer:\n\n$$\n42\n$$\n", "42"),
    ("The answer to the question is: **Paris**.", "Paris"),
    ("The answer is 41. Wait. The answer is 42!", "42"),
    ("The answer is 42. I hope this answer is helpful.", "42"),
    ("The answer is 42, so the answer is correct.", "42, so the answer is correct"),
    ("The answer is 42.\nThe answer is   correct.", "42"),
    ("Answer: $1,234.50.", "$1,234.50"),
    ("So the answer is 5 because 2+3=5.", "5"),
    ("The answer is 5, since 2+3=5.", "5"),
    ("The answer is 5 as 2+3=5.", "5"),
    ("The answer is twice as many.", "twice as many"),
    ("The answer would be 5.", "5"),
    ("The final answer to the arithmetic problem is 1.", "1"),
    ("The answer we are looking for is **7**.", "7"),
    ("The answer is 5. I know what the answer is.", "5"),
    ("I answer. What is 5?", None),
    ("To answer the question of what is 5 + 3 I count.", None),
    # the last line of a GSM8K solution
    ("6 * 12 = 72\n#### 72", "72"),
    ("The answer is 71.\n#### 72 \n", "72"),
    ("\\boxed{3}\n#### 72", "3"),
    ("#### 71\nThe answer is 72.", "72"),
    ("#### Final answer: 72", "72"),
    ("The answer is 72.\n#### Done", "72"),
    # nothing but an answer
    ("4 + 3 = 7", "4 + 3 = 7"),
    ("4 - 1 = 4", "4 - 1 = 4"),
    ("I count.\n4 + 3 = 7", None),
    ("42", "42"),
    ("  -3.5 \n", "-3.5"),
    (r"$\frac12$", r"$\frac12$"),
    ("(B)", "(B)"),
    ("x = 5", "x = 5"),
    ("50%", "50%"),
    # thoughts
    (r"<think>\boxed{1}</think> The answer is 2.", "2"),
    (r"<thinking>\boxed{1}</thinking>\boxed{2}<think>\boxed{3}</think> Bye.", "2"),
    (r"no opening tag \boxed{1}</think> \boxed{2}", "2"),
    (r"<think>\boxed{1}</think>", "1"),
    (r"Well <think>\boxed{1}", "1"),
    (r"<think>\boxed{1}</think> I do not know.", None),
    # none
    ("", None),
    (r"\boxed{}", None),
    (r"\boxed{1} \boxed{ }", None),
    ("<solution> </solution>", None),
    ("I think there are 12 apples.", None),
    ("Paris", None),
    ("1\n2", None),
    ("your answer is due on Monday", None),
]


@pytest.mark.parametrize(("reply", "answer"), FOUND)
def test_finds(reply, answer):
    assert final_answer(reply) == answer


@given(st.text())
def test_is_total(reply):
    answer = final_answer(reply)
    assert answer is None or answer.strip() == answer != ""


PLAIN = st.text("abcxyz0123456789+-*/^_=(), ", min_size=1).filter(lambda text: text.strip() and "*" not in text)


@given(st.text("ab{}$\\ \n"), PLAIN, st.text("ab }$\n"))
def test_finds_a_planted_box(before, answer, after):
    assert final_answer(f"{before} \\boxed{{{answer}}}{after}") == answer.strip()


@given(st.text(), PLAIN, st.text("ab{}$\\ \n<>"))
def test_finds_planted_tags(before, answer, after):
    assert final_answer(f"{before}</think>\n<solution>{answer}</solution>{after}") == answer.strip()


@pytest.mark.parametrize(
    "piece",
    [
        r"\boxed{",
        "{",
        "<think>",
        "<solution>",
        "answer is ",
        "answer:  ",
        "answer a ",
        "answer to ",
        "####",
        "5 as ",
        r"\boxed{}",
        "**",
        "$$",
        "a ",
    ],
)
def test_takes_linear_time_on_hostile_replies(piece):
    start = time.perf_counter()
    final_answer(piece * (200_000 // len(piece)))
    final_answer(piece * (100_000 // len(piece)) + "}" * 100_000)
    assert time.perf_counter() - start < 2
