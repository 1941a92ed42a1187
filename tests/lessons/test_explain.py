"""The explain lesson: what the student reads, token by token, and what becomes of bad input."""

import asyncio
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pieces import Pieces, Reader

from tutelage.engines import Sample, Sampling
from tutelage.engines.chorus import Chorus
from tutelage.engines.memo import Memo
from tutelage.errors import ConfigError, DataError, PromptTooLong
from tutelage.lessons import STYLES, Episode, Outline, Style, explain
from tutelage.lessons.explain import GARBLED, TOO_LONG, assemble, comparable, cut, heard, unfit
from tutelage.problem import Problem
from tutelage.rewards import Likelihood, explained

PROBLEM = Problem("What is 17 * 6?", "17 * 6 = 102", "102", kind="number")
CLOSE = "\n\n</explanation>"
WORDS = Pieces("\n\n", "</", "explanation>", "solution>", "thought>", "split", " 17")


def lesson(teacher: Any, student: Any, problem: Problem = PROBLEM, plan: Outline | None = None) -> Episode:
    return asyncio.run(explain(problem, teacher, student, plan or Outline()))


def told(reply: Any, plan: Outline | None = None, **student: Any) -> tuple[Episode, Reader, Reader]:
    teacher = Reader(reply, tokenizer=WORDS, name="teacher")
    learner = Reader(tokenizer=student.pop("tokenizer", WORDS), name="student", **student)
    return lesson(teacher, learner, plan=plan), teacher, learner


@pytest.mark.parametrize("style", ["r1", "bespoke"])
def test_what_the_teacher_and_the_student_read(style: str) -> None:
    chosen = STYLES[style]
    opened, closed = chosen.tags.opening, chosen.tags.closing
    said = f"split 17{chosen.padding}{chosen.closing}"
    episode, teacher, student = told(said, Outline(style=chosen))
    asked = WORDS.decode(teacher.asked[0][0])
    assert asked.endswith(
        f"[user]What is 17 * 6?[assistant]{opened('solution')}\n\n17 * 6 = 102\n\n{closed('solution')}"
        f"\n\n{opened('explanation')}\n\n"
    )
    [(prompt, completion, temperature)] = student.scored
    read = WORDS.decode(prompt + completion)
    assert read.endswith(
        f"[user]What is 17 * 6?[assistant]{opened('thought')}\n\nsplit 17\n\n{closed('thought')}\n\n"
        f"{opened('solution')}\n\n17 * 6 = 102"
    )
    assert chosen.reply("split 17", PROBLEM.solution) == (
        read[read.index("[assistant]") + len("[assistant]") :] + f"\n\n{closed('solution')}"
    )
    assert temperature == 0.7
    assert episode.scores.length == len(WORDS.encode(f"{read}\n\n{closed('solution')}")) + 1
    assert (episode.teaching, episode.scores.form, episode.malformed) == ("split 17", "closed", False)


def test_spans_hold_the_right_tokens() -> None:
    episode, teacher, student = told(f"split 17{CLOSE}")
    ids = teacher.tokenizer.encode("split 17\n\n")
    solution = WORDS.encode(PROBLEM.solution)
    price = lambda tokens: tuple(round(0.7 * (-(token % 7) / 10 - 0.1), 6) for token in tokens)  # noqa: E731
    assert episode.scores.thought == price(ids)
    assert episode.scores.solution == price(solution)
    assert episode.scores.teacher == tuple(round(-0.01 * (place + 1), 6) for place in range(len(ids)))
    assert episode.teaching_tokens == len(ids)
    assert student.scored[0][1][: len(ids)] == episode.turns[0].sample.ids[: len(ids)]  # sampled, never encoded again


def test_odd_tokens_are_kept_as_sampled() -> None:
    """The teacher may spell a word in other tokens than its tokenizer would."""
    spelled = [WORDS.vocabulary[letter] for letter in "split"] + WORDS.encode(CLOSE)
    _, _, student = told(spelled)
    assert student.scored[0][1][:5] == tuple(spelled[:5])


@pytest.mark.parametrize(
    ("reply", "form", "explanation", "thought"),
    [
        ("go" + CLOSE, "closed", "go", "go\n\n"),
        ("go</explanation>", "closed", "go", "go"),
        ("go" + CLOSE + "\n ", "closed", "go", "go\n\n"),
        ("go" + CLOSE + " and more", "trailing", "go", "go\n\n"),
        ("go" + CLOSE + "x" + CLOSE, "trailing", "go", "go\n\n"),  # the first tag counts
        ("go on", "missing", "go on", "go on"),
        ("", "empty", "", ""),
        (CLOSE, "empty", "", ""),
        (" \n" + CLOSE + "x", "empty", "", ""),
    ],
)
def test_how_explanations_end(reply: str, form: str, explanation: str, thought: str) -> None:
    episode, _, student = told(reply)
    assert (episode.scores.form, episode.teaching) == (form, explanation or None)
    assert episode.malformed == (form != "closed")
    assert episode.teaching_tokens == len(WORDS.encode(thought)) == len(episode.scores.thought)
    [(_, completion, _)] = student.scored
    assert WORDS.decode(completion) == (
        (thought if thought.endswith("\n\n") else thought + "\n\n") + STYLES["r1"].bridge() + PROBLEM.solution
    )
    assert episode.scores.solution


def test_a_limit_truncates() -> None:
    plan = Outline(telling=Sampling(max_tokens=3))
    episode, _, _ = told("go on and on", plan)
    assert (episode.scores.form, episode.teaching, episode.teaching_tokens) == ("truncated", "go", 3)
    whole = replace(plan, telling=Sampling(max_tokens=5))
    assert told(f"go{CLOSE}", whole)[0].scores.form == "closed"  # the limit came after the tag


def test_a_token_shared_with_the_tag_belongs_to_the_tag() -> None:
    words = Pieces("\n</", ".\n\n", "explanation>")
    for said, tokens, read in (
        ("go.\n\n</explanation>", 3, "go.\n\n</thought>"),  # g, o, ".\n\n", then the tag
        ("go. \n</explanation>", 4, "go. \n\n</thought>"),  # g, o, ".", " ", and "\n</" is the tag's
    ):
        student = Reader(tokenizer=words)
        episode = lesson(Reader(said, tokenizer=words), student)
        assert episode.teaching_tokens == tokens
        assert words.decode(student.scored[0][1]).startswith(read)


def split(text: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({0, len(text), *(place % (len(text) + 1) for place in cuts)})
    return [text[start:end] for start, end in pairwise(ends)]


@given(
    st.text("ab é😀\n<", max_size=30),
    st.text("xy é😀", max_size=30),
    st.lists(st.integers(0, 400), max_size=60),
)
def test_the_cut_is_the_longest_run_before_the_tag(before: str, after: str, cuts: list[int]) -> None:
    """Tokens are any split of the bytes, also inside characters and tags."""
    text = f"{before}</explanation>{after}"
    tokens = split(text.encode(), cuts)
    decode = lambda ids: b"".join(tokens[token] for token in ids).decode(errors="replace")  # noqa: E731
    count = cut(tuple(range(len(tokens))), text[len(before) :], decode)
    size, expected = 0, 0
    for place, token in enumerate(tokens):
        size += len(token)
        if size <= len(before.encode()):
            expected = place + 1
    assert count == expected


def test_a_long_explanation_is_cut_with_few_short_decodings() -> None:
    words = Pieces("word ", "</", "explanation>")
    sample = Sample(
        "word " * 16000 + "</explanation>",
        "stop",
        0,
        (*words.encode("word ") * 16000, *words.encode("</explanation>"), 0),
    )
    words.decoded = 0
    form, ids, _ = heard(sample, "</explanation>", words.decode)
    assert (form, len(ids)) == ("closed", 16000)
    assert words.decoded < 50


def test_the_solution_stands_at_the_end_whatever_its_tokens() -> None:
    reading = assemble(PROBLEM, STYLES["r1"], Reader(tokenizer=WORDS), (5, 6, 7))
    assert reading.completion[reading.thought] == (5, 6, 7)
    assert WORDS.decode(reading.completion[reading.solution]) == PROBLEM.solution
    assert reading.solution.stop == len(reading.completion)


def test_log_probs_of_another_temperature_are_asked_for() -> None:
    plan = Outline(unbias_teacher_log_probs=False, unbias_student_log_probs_temp=None)
    episode, teacher, student = told(f"go{CLOSE}", plan)
    [(prompt, completion, temperature)] = teacher.scored
    assert (prompt, temperature) == (teacher.asked[0][0], 1.0)
    assert WORDS.decode(completion) == "go\n\n"
    assert student.scored[0][2] == 1.0
    assert episode.scores.teacher == episode.scores.thought  # both find the same tokens as likely here


def test_another_tokenizer_reads_the_same_text() -> None:
    words = Pieces("sp", "lit")
    episode, teacher, student = told(f"split 17{CLOSE}", tokenizer=words)
    assert not comparable(teacher, student) and comparable(teacher, teacher)
    [(_, completion, _)] = student.scored
    assert words.decode(completion).startswith("split 17\n\n</thought>")
    assert episode.scores.teacher is None and len(episode.scores.thought) == len(words.encode("split 17\n\n"))
    assert comparable(Reader(tokenizer=Pieces("a b")), Reader(tokenizer=Pieces("a b")))  # equal, not the same object


def test_a_text_that_another_tokenizer_cannot_say_is_not_scored() -> None:
    words = Pieces()
    words.vocabulary = {piece: place for piece, place in words.vocabulary.items() if piece != "é"}
    episode, _, student = told(f"né{CLOSE}", tokenizer=words)
    bare = assemble(PROBLEM, STYLES["r1"], student, ())
    assert episode.scores.unscored == GARBLED and [text[1] for text in student.scored] == [bare.completion]
    assert (episode.teaching, episode.scores.form) == ("né", "closed")  # what was said is kept


def test_contexts_that_overflow() -> None:
    room = len(assemble(PROBLEM, STYLES["r1"], Reader(tokenizer=WORDS), ()).prompt)
    reading = assemble(PROBLEM, STYLES["r1"], Reader(tokenizer=WORDS), ())
    least = room + len(reading.completion)
    with pytest.raises(PromptTooLong, match=f"{least} tokens of the {least - 1}-token context of student"):
        told("go", context=least - 1)
    episode, _, _ = told("go on and on and on" + CLOSE, context=least)
    empty, _, _ = told(CLOSE, context=least)
    assert episode.scores.unscored == TOO_LONG and episode.scores.solution == empty.scores.solution != ()
    assert explained(episode, Likelihood()) == explained(empty, Likelihood())  # no way out
    assert episode.scores.length > least
    assert (episode.scores.form, episode.teaching) == ("closed", "go on and on and on")
    with pytest.raises(PromptTooLong, match="leaves no room"):
        lesson(Reader("go", tokenizer=WORDS, context=10), Reader(tokenizer=WORDS))


def test_tags_that_would_end_the_students_thought_are_noticed() -> None:
    """Else the teacher could write the solution's own opening, and be paid for it."""
    for inside in ("so </thought>\n\n<solution>\n\n102", "see <explanation> above"):
        episode, _, _ = told(f"{inside}{CLOSE}")
        assert (episode.scores.form, episode.malformed) == ("tagged", True)


def test_special_tokens_that_no_text_shows_are_noticed() -> None:
    for before, after, form in (("go", CLOSE, "tagged"), ("go" + CLOSE, "", "closed"), ("go", "on", "tagged")):
        episode, *_ = told([*WORDS.encode(before), 0, *WORDS.encode(after)])
        assert episode.scores.form == form and episode.malformed == (form == "tagged")


def test_problems_that_cannot_be_explained() -> None:
    style = STYLES["r1"]
    assert unfit(PROBLEM, style) == ""
    assert unfit(replace(PROBLEM, solution=" \n"), style) == "it has no solution"
    assert "tags of its own" in unfit(replace(PROBLEM, solution="so </solution> 102"), style)
    with pytest.raises(DataError, match="no solution"):
        lesson(Reader("go", tokenizer=WORDS), Reader(tokenizer=WORDS), replace(PROBLEM, solution=""))


def test_engines_that_speak_text_are_refused(scripted: Any) -> None:
    with pytest.raises(ConfigError, match="engine=local or engine=vllm"):
        lesson(scripted(lambda *_: ""), Reader(tokenizer=WORDS))


def test_copies_ask_once_through_a_chorus(tmp_path: Path) -> None:
    teacher = Reader(f"one{CLOSE}", f"two{CLOSE}", tokenizer=WORDS)
    student = Reader(tokenizer=WORDS)

    async def main() -> list[Episode]:
        async with Memo(student, tmp_path / "samples.sqlite") as frozen:
            chorus = Chorus(teacher, 2)
            return await asyncio.gather(*(explain(PROBLEM, chorus, frozen, Outline(), copy) for copy in range(2)))

    episodes = asyncio.run(main())
    assert sorted(str(episode.teaching) for episode in episodes) == ["one", "two"]
    assert [n for _, _, n, _ in teacher.asked] == [2]
    assert len({prompt for prompt, *_ in student.scored}) == 1  # one prefix for the whole group


def test_leaks_and_restatements_are_noticed() -> None:
    assert told(f"It is 102.{CLOSE}")[0].leaked and not told(f"Split it.{CLOSE}")[0].leaked
    assert told(f"Well: 17 * 6 = 102, so.{CLOSE}")[0].scores.restated == 1.0
    assert told(f"Split 17 first.{CLOSE}")[0].scores.restated == 0.0


def test_an_episode_survives_json_and_old_lines_are_read() -> None:
    episode, *_ = told(f"gé{CLOSE}")
    line = episode.to_json()
    assert "\n" not in line and Episode.from_json(line) == episode
    other, *_ = told(f"go{CLOSE}", tokenizer=Pieces("zz"))
    assert Episode.from_json(other.to_json()) == other and other.scores.teacher is None
    old = line.replace(line[line.index(',"scores"') : line.index(',"meta"')], "")
    assert "scores" not in old and Episode.from_json(old) == replace(episode, scores=None)


def test_styles_of_ones_own() -> None:
    mine = Style.from_config({"padding": "\n", "tags": {"thought": "think"}, "prefix": "Hm. ", "explanation": "lesson"})
    assert mine.closing == "</lesson>" and "<lesson> and </lesson>" in mine.teacher
    assert mine.reply("a", "b") == "Hm. <think>\na\n</think>\n\n<solution>\nb\n</solution>"
    assert Style.from_config("bespoke") is STYLES["bespoke"]
    for wrong, words in (
        ("r2", "known: bespoke, r1"),
        ({"pading": ""}, "did you mean padding"),
        ({"prefix": 3}, "text"),
    ):
        with pytest.raises(ConfigError, match=words):
            Style.from_config(wrong)
    _, _, student = told("go</lesson>", Outline(style=mine))
    assert WORDS.decode(sum(student.scored[0][:2], ())).endswith(
        "Hm. <think>\ngo\n</think>\n\n<solution>\n17 * 6 = 102"
    )


def test_the_real_tokenizer_and_template(smollm: Any) -> None:
    """The text the student reads is, as text, the one a student is later trained on."""
    from tutelage.engines.local import TransformersEngine

    model, tokenizer, revision = smollm
    plan = Outline(telling=Sampling(max_tokens=8))

    async def main() -> None:
        async with TransformersEngine(model, tokenizer, name="smollm2-135m", revision=revision) as engine:
            thought = tuple(tokenizer.encode("Split 17 into ten and seven.\n\n"))
            for style in STYLES.values():
                reading = assemble(PROBLEM, style, engine, thought)
                whole = [
                    *style.pose(PROBLEM.public),
                    {"role": "assistant", "content": style.reply("Split 17 into ten and seven.", PROBLEM.solution)},
                ]
                text = tokenizer.apply_chat_template(whole, tokenize=False)
                assert text.startswith(tokenizer.decode(reading.prompt + reading.completion))
                assert tokenizer.decode(reading.completion[reading.solution]) == PROBLEM.solution
            episode = await explain(PROBLEM, engine, engine, plan)
            scores = episode.scores
            assert scores.form in ("truncated", "missing") and len(scores.thought) == len(scores.teacher)
            again = await engine.score(episode.turns[0].sample.prompt_ids, episode.turns[0].sample.ids, 0.7)
            assert scores.teacher == pytest.approx(again[: len(scores.teacher)], abs=1e-4)

    asyncio.run(main())
