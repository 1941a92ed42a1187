"""Each data config says only what `load` understands, and the default one needs no network."""

from collections import Counter
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from tutelage.data import FORMATS, Format, load, split

FOLDER = Path(__file__).parents[2] / "configs"
NAMES = sorted(path.stem for path in (FOLDER / "data").glob("*.yaml"))
KEYS = {"dataset_id_or_path", "dataset_split", "data_files", "format", "tasks", "size", "held_out"}


def config(name):
    with initialize_config_dir(str(FOLDER), version_base=None):
        return OmegaConf.to_container(compose(f"data/{name}"), resolve=True)


def test_names():
    assert set(NAMES) >= {
        "arithmetic",
        "gsm8k",
        "math500",
        "arc_atlas_sft",
        "arc_atlas_rl",
        "bespoke_stratos",
        "aime24",
        "gpqa",
    }


@pytest.mark.parametrize("name", NAMES)
def test_keys_and_format(name):
    data = config(name)
    assert set(data) - {"seed"} == KEYS
    split([], data["held_out"], 42)
    if isinstance(data["format"], dict):
        Format.from_config(data["format"])
    else:
        assert data["format"] in [*FORMATS, "auto"]


def test_arithmetic_is_what_it_says():
    data = config("arithmetic")
    problems = load(data["dataset_id_or_path"], tasks=data["tasks"], size=data["size"], seed=42).problems
    assert len(problems) == 1000
    assert Counter(p.meta["task"] for p in problems) == {"chain_sum": 950, "products": 50}
    train, out = split(problems, data["held_out"], 42)
    assert len(train) > 700 and len(out) > 150
