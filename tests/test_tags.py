import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.errors import ConfigError
from tutelage.tags import Tags


def test_the_two_styles():
    assert Tags().wrap("solution", "4") == "<solution>\n\n4\n\n</solution>"
    assert Tags("bespoke").wrap("thought", "so") == "<|begin_of_thought|>\n\nso\n\n<|end_of_thought|>"


@given(st.text(alphabet="ab <>/|\n{}\\", max_size=40), st.sampled_from(["r1", "bespoke"]))
def test_what_is_wrapped_is_found_inside(text, style):
    tags = Tags(style)
    assert tags.inside("solution", "before" + tags.wrap("solution", text) + "after") == text.strip()


def test_the_last_closed_pair_counts():
    tags = Tags()
    text = "<thought>then <solution> follows</thought><solution>1</solution><solution>2</solution><solution>"
    assert tags.inside("solution", text) == "2"
    assert tags.inside("thought", text) == "then <solution> follows"


@pytest.mark.parametrize("text", ["", "<solution>", "</solution>", "</solution><solution>", "4"])
def test_nothing_inside(text):
    assert Tags().inside("solution", text) is None


def test_from_config():
    assert Tags.from_config("bespoke") == Tags("bespoke")
    assert Tags.from_config({"thought": "think"}) == Tags(thought="think")
    with pytest.raises(ConfigError, match="did you mean thought"):
        Tags.from_config({"thoughts": "think"})
    with pytest.raises(ConfigError, match="did you mean bespoke"):
        Tags.from_config("bespok")
