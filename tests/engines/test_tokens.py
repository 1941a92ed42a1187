"""The next turn of a conversation in ids: what was sampled stays, the template's own words are put around it."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from talker import Talker
from transformers import AddedToken

from tutelage import models
from tutelage.engines import Sample
from tutelage.errors import EngineError
from tutelage.lessons import prompts
from tutelage.problem import Public

OPENING = prompts.solve(Public("u", "What is 17 * 6?", "number"))
WORDS = models.tokenizer("smollm2-135m")
EOS = WORDS.eos_token_id
END = "<|im_end|>\n<|im_start|>assistant\n"


def engine(template: str | None = None) -> Talker:
    words = WORDS
    if template:
        words = copy.deepcopy(WORDS)
        words.chat_template = template
    return Talker(words, lambda _: "")


def sample(talker: Talker, ids: tuple[int, ...], finish: Any = "stop") -> Sample:
    return Sample(talker.decode(ids), finish, len(ids), ids, (), talker.render(OPENING))


@given(st.text(), st.text())
def test_the_ids_are_those_of_the_templates_own_rendering(said: str, heard: str) -> None:
    said = said.lstrip()  # a line break would melt into the one before it, in words but not in what was sampled
    talker = engine()
    ids = tuple(WORDS.encode(said))
    told = sample(talker, (*ids, EOS))
    followed = talker.follow(told, heard)
    assert followed[: len(told.prompt_ids) + len(told.ids)] == told.prompt_ids + told.ids
    whole = talker.render([*OPENING, prompts.assistant(said), prompts.user(heard)])
    cut = sample(talker, ids, "length")
    assert followed == whole == talker.follow(cut, heard)  # the end of turn that a limit cut off is put in


def test_what_was_sampled_is_not_tokenised_again() -> None:
    talker = engine()
    odd = tuple(WORDS.encode("ch")) + tuple(WORDS.encode("ain"))  # "chain" is another token
    assert odd != tuple(WORDS.encode("chain"))
    followed = talker.follow(sample(talker, (*odd, EOS)), "Go on.")
    assert followed[len(talker.render(OPENING)) :][: len(odd)] == odd


def test_another_end_than_the_templates_is_kept_and_the_turn_still_ends() -> None:
    talker = engine()
    other = WORDS.convert_tokens_to_ids("<|endoftext|>")
    followed = talker.follow(sample(talker, (*WORDS.encode("102"), other)), "Go on.")
    assert WORDS.decode(followed).endswith("102<|endoftext|><|im_end|>\n<|im_start|>user\nGo on." + END)


FORGETFUL = """{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content if m.role == 'user' else m.content.split('</think>')[-1] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def test_a_template_that_drops_thoughts_does_not_rewrite_what_was_sampled() -> None:
    talker = engine(FORGETFUL)
    followed = talker.follow(sample(talker, (*WORDS.encode("<think>I add.</think>23"), EOS)), "No.")
    assert WORDS.decode(followed).endswith("<think>I add.</think>23<|im_end|>\n<|im_start|>user\nNo." + END)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("<|im_start|>{{ messages[-1].content }}<|im_end|>", "has no second turn"),
        ("{% if messages|length > 2 %}{{ raise_exception('one turn only') }}{% endif %}hi", "one turn only"),
    ],
)
def test_a_template_of_one_turn_is_refused(template: str, words: str) -> None:
    talker = engine(template)
    with pytest.raises(EngineError, match=words):
        talker.follow(Sample("x", "stop", 1, (5,), (), (4,)), "Go on.")


def test_special_tokens_are_all_that_decoding_leaves_out() -> None:
    words = copy.deepcopy(WORDS)
    words.add_tokens([AddedToken("<|mine|>", special=True), AddedToken("<shown>")])
    talker = Talker(words, lambda _: "")
    hidden = {token for token in range(len(words)) if words.decode([token]) and not talker.decode([token])}
    assert talker.special == hidden >= {EOS, words.convert_tokens_to_ids("<|mine|>")}
