"""Keys, types and ranges are checked before anything is loaded."""

from dataclasses import fields
from pathlib import Path

import pytest

from tutelage.composing import choices, compose, keys
from tutelage.config import Data, Evaluate, Roles, Show, Teach, Traces
from tutelage.errors import ConfigError
from tutelage.training.config import Train


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


def test_a_source_typed_beside_a_data_config_wins_and_keeps_the_rest_of_it() -> None:
    for words in (["data=gsm8k", "dataset_id_or_path=my/copy"], ["dataset_id_or_path=my/copy", "data=gsm8k"]):
        config = compose(Evaluate, words)
        assert (config.dataset_id_or_path, config.format) == ("my/copy", "gsm8k")


@pytest.mark.parametrize(
    "text",
    [
        r"\frac{1}{2}",
        "${oc.env:HOME}",
        "'tis",
        '"Paris" is it',
        '"Paris"',
        "a, b = [1",
        "http://127.0.0.1:8000/v1?a=b",
        "null",
        "",
        " ",
    ],
)
def test_text_passes_as_typed(text: str) -> None:
    assert compose(Teach, [f"answer={text}"]).answer == text


def test_null_is_nothing_where_a_key_may_be_nothing() -> None:
    assert compose(Teach, ["teacher=null"]).teacher is None


def test_the_home_folder_is_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert compose(Evaluate, ["results_dir=~/x"]).results_dir == "/home/me/x"


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
        ("data.x=3", "data has no parts; type data=3"),
        ("limit.x=3", "limit has no parts; type limit=3"),
        ("data=", "data= is empty"),
        ("teacher=", "teacher= is empty"),
        ("results_dir= ", "results_dir= is empty"),
        ("limit=", "limit= is empty"),
        ("temperature=nan", "from 0 to 10"),
        ("temperature=inf", "from 0 to 10"),
        ("cache_gb=inf", "at least 0.01"),
        ("columns=x", r"columns\.question=problem"),
        ("tasks=chain_sum", r"tasks=\[chain_sum\]"),
        ("limit=1,2", r"a list is typed 'limit=\[1,2\]'"),
        ("format=null", "a format's name"),
        ("data_files.train=x", "data_files=train.jsonl"),
    ],
)
def test_bad_words_are_answered_with_what_to_type(word: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint) as error:
        compose(Evaluate, [word])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("schema", [Evaluate, Teach, Show, Traces])
def test_every_key_is_documented(schema: type) -> None:
    assert all(entry.metadata["about"] for entry in keys(schema).values())


def test_the_public_keys_are_frozen() -> None:
    """A renamed or dropped key breaks somebody's script: change this list only on purpose."""
    assert {entry.name for entry in fields(Evaluate)} - {"defaults"} == set(
        """student teacher student_url teacher_url engine vllm_host vllm_port vllm_servers api_key_env requests device
        dtype cache_gb max_probe_tokens max_completion_length max_tokens temperature top_p baseline_samples
        taught_samples seed dataset_id_or_path dataset_split data_files format columns tasks size split_seed held_out
        limit lesson samples style in_flight results_dir resamples overwrite""".split()
    )
    shared = {entry.name for schema in (Roles, Data) for entry in fields(schema)}
    assert {entry.name for entry in fields(Traces)} - {"defaults"} - shared == set(
        """style answer_log_prob_coeff kl_penalty_reward_coeff reduction_log_prob_fn reduction_kl_fn clip_log_prob
        clip_kl normalize_log_prob_fn normalize_kl_fn use_schulman_kl_estimation not_matched_penalty
        include_teacher_think_entropy unbias_teacher_log_probs unbias_student_log_probs_temp samples pick fits
        max_tokens temperature top_p drop_malformed drop_leaked max_restated output in_flight results_dir
        overwrite""".split()
    )


def test_lists_with_spaces_and_flags_of_earlier_users() -> None:
    assert compose(Traces, ["kl_penalty_reward_coeff=[0,", "0]"]).kl_penalty_reward_coeff == [0, 0]
    assert compose(Train, ["use_vllm_server=true"]).engine == "vllm"
    assert compose(Train, ["use_vllm_server=False"]).engine == "local"
    for word in ("use_vllm=ture", "use_vllm="):
        with pytest.raises(ConfigError, match="is neither true nor false: type engine=vllm or engine=local"):
            compose(Train, ["engine=vllm", word])
    with pytest.raises(ConfigError, match="'seed' is not key=value"):
        compose(Train, ["student_model=a[b", "seed=3", "seed"])


@pytest.mark.parametrize("word", ["size=5", "tasks=[chain_sum]", "data_files=z", "dataset_split=test"])
def test_a_file_has_no_use_for_what_generates_or_splits(word: str, tmp_path: Path) -> None:
    """It would be passed over, and name another run."""
    (tmp_path / "rows.jsonl").write_text("{}")
    name = word.partition("=")[0]
    with pytest.raises(ConfigError, match=f"rows.jsonl has no use for {name}: leave {name}=… out"):
        compose(Evaluate, [f"data={tmp_path}/rows.jsonl", word])
    if name in ("data_files", "dataset_split"):
        assert compose(Evaluate, [f"data={tmp_path}", word])
        with pytest.raises(ConfigError, match=f"generated has no use for {name}"):
            compose(Evaluate, ["data=arithmetic", word])


def test_generated_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "generated").mkdir()
    monkeypatch.chdir(tmp_path)
    assert compose(Traces, ["data=arithmetic", "size=10", "output=generated/t.jsonl"]).size == 10
    with pytest.raises(ConfigError, match="generated has no use for columns"):
        compose(Evaluate, ["data=arithmetic", "columns.question=x"])
