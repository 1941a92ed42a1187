"""Keys, types and ranges are checked before anything is loaded."""

from dataclasses import fields
from pathlib import Path

import pytest

from tutelage.config import Evaluate, Show, Teach, choices, compose, keys
from tutelage.errors import ConfigError


def test_defaults_and_overrides() -> None:
    config = compose(Evaluate, ["limit=24", "temperature=0", "teacher=some/where", "results_dir=/tmp/a b"])
    assert (config.limit, config.temperature, config.teacher) == (24, 0.0, "some/where")
    assert config.results_dir == "/tmp/a b"
    assert config.dataset_id_or_path == "generated" and config.tasks
    assert (config.max_probe_tokens, config.seed) == (50, 42)


@pytest.mark.parametrize("name", choices("data"))
def test_every_data_config_composes(name: str) -> None:
    assert compose(Show, [f"data={name}"]).dataset_id_or_path


def test_a_source_of_ones_own_takes_nothing_from_the_default_data(tmp_path: Path) -> None:
    file = tmp_path / "my data=1.jsonl"
    file.write_text("{}\n")
    for word in (f"data={file}", f"dataset_id_or_path={file}"):
        config = compose(Evaluate, [word, "columns.question=problem"])
        assert (config.dataset_id_or_path, config.tasks) == (str(file), None)
        assert config.columns == {"question": "problem"}
    assert compose(Evaluate, ["data=org/name:main"]).dataset_id_or_path == "org/name:main"


def test_urls_pass_as_typed() -> None:
    assert compose(Teach, ["student_url=http://127.0.0.1:8000/v1?a=b"]).student_url == "http://127.0.0.1:8000/v1?a=b"


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("limt=3", "did you mean limit"),
        ("limit", "not key=value"),
        ("limit=abc", "limit"),
        ("limit=0", "at least 1"),
        ("temperature=hot", "temperature"),
        ("top_p=1.5", "from 0.01 to 1"),
        ("data=arithmatic", "did you mean arithmetic"),
        ("+limit=3", "type limit=3"),
        ("overwrite=maybe", "overwrite"),
        ("limit=[1", "cannot read .*limit"),
    ],
)
def test_bad_words_are_answered_with_what_to_type(word: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint) as error:
        compose(Evaluate, [word])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("schema", [Evaluate, Teach, Show])
def test_every_key_is_documented(schema: type) -> None:
    assert all(entry.metadata["about"] for entry in keys(schema).values())


def test_the_public_keys_are_frozen() -> None:
    """A renamed or dropped key breaks somebody's script: change this list only on purpose."""
    assert {entry.name for entry in fields(Evaluate)} - {"defaults"} == set(
        """student teacher student_url teacher_url api_key_env requests device dtype cache_gb max_probe_tokens
        max_teaching_tokens max_tokens temperature top_p baseline_samples taught_samples seed dataset_id_or_path
        dataset_split data_files format columns tasks size held_out limit in_flight results_dir resamples
        overwrite""".split()
    )
