"""Each data config says only what `load` understands, and the default one needs no network."""

from collections import Counter
from itertools import product
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from tutelage.data import FORMATS, Format, load, split
from tutelage.data.generated import generate
from tutelage.verify import check
from tutelage.verify.pool import Pool

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
        "math",
        "coding",
        "puzzle",
        "maze",
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


@pytest.mark.parametrize("name", ["math", "puzzle", "maze"])
def test_generated_benchmarks_accept_their_own_answers_and_no_others(name):
    problems = generate(config(name)["tasks"], 24, seed=7)
    assert len({problem.meta["task"] for problem in problems}) == len(config(name)["tasks"])
    pool = Pool(limit=10)
    for problem in problems:
        assert check(problem, f"<solution>{problem.answer}</solution>").correct
        # the task's scorer by itself, which the check does not always ask
        task, entry = problem.meta["task"], problem.meta["entry"]
        own = pool.ask({"kind": "task", "task": task, "entry": entry, "answer": problem.answer})
        assert own == {"outcome": "correct", "why": "", "score": 1.0}
        others = {other.answer for other in problems if other.meta["task"] == task} - {problem.answer}
        for other in sorted(others)[:4]:
            verdict = check(problem, f"<solution>{other}</solution>")
            assert verdict.score < 1 or (task == "shortest_path" and _as_short(problem, other))
    pool.close()


def _as_short(problem, other):
    """Another way of the same length may be right too."""
    return len(other.split()) == len(problem.answer.split())


def test_coding_needs_no_network():
    data = config("coding")
    dataset = load(data["dataset_id_or_path"], format=data["format"])
    assert (dataset.format, len(dataset.problems), dataset.rejected) == ("humaneval", 164, [])
    assert {problem.kind for problem in dataset.problems} == {"code"}


def test_puzzles_have_one_solution():
    def true(statement, people):
        kind, *parts = statement
        if kind in ("telling-truth", "lying"):
            return people[parts[0]] is (kind == "telling-truth")
        values = [true(part, people) for part in parts]
        match kind:
            case "not":
                return not values[0]
            case "and":
                return all(values)
            case "or":
                return any(values)
            case "->":
                return not values[0] or values[1]
        return values[0] == values[1]

    [knights] = [task for task in config("puzzle")["tasks"] if task["name"] == "knights_knaves"]
    for problem in generate([knights], 20, seed=3):
        facts = problem.meta["entry"]["metadata"]
        worlds = [
            world
            for world in product([True, False], repeat=len(facts["names"]))
            if all(true(said, world) is who for said, who in zip(facts["statements"], world, strict=True))
        ]
        assert worlds == [tuple(facts["solution"])]
