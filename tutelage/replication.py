"""The command lines of RL2F's replication, as its users type them: each is a command of ours, which is shown."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tutelage.cli import main as tutelage
from tutelage.errors import ConfigError
from tutelage.training.recipe import say, settle

DEFAULT = "configs/default.yaml"  # where they have their settings; ours are in configs/run
ROLLOUTS = "outputs/rollouts.jsonl"
NAMES = {"omni_math": "math"}  # their names of benchmarks
STUDENTS = ("sft", "rlvr", "rl2f")  # what their trainings leave, under results/


def dialogues(given: argparse.Namespace) -> list[str]:
    typed = {word.partition("=")[0].replace("dataset_id_or_path", "data") for word in given.words}
    wanted = [name for name in ("student", "data") if name not in typed]
    settled = settle(["run=student_rl2f"]) if wanted else []  # or what there is, where the hub is out of reach
    theirs = {
        "student": "smollm2-135m" if "model=smollm2" in settled else "google/gemma-3-12b-it",
        "data": "arithmetic" if "data=arithmetic" in settled else "math",
    }
    output = Path(given.output).with_suffix(".jsonl")  # a dialogue a line
    return ["dialogues", "max_turns=5", "samples=4", *(f"{name}={theirs[name]}" for name in wanted), f"output={output}"]


def baselines(given: argparse.Namespace) -> list[str]:
    if given.method == "rlvr":
        return ["train", "run=student_rlvr"]
    return ["train", "run=student_sft_dialogues", f"dataset_id_or_path={ROLLOUTS}"]


def evaluate(given: argparse.Namespace) -> list[str]:
    if given.tensor_parallel_size > 1:
        say(
            "in this process a model is on one GPU; to split it, serve it first (vllm serve "
            f"{given.model} --tensor-parallel-size {given.tensor_parallel_size}) and add engine=vllm vllm_port=8000"
        )
    trained = [f"results/{name}" for name in STUDENTS if Path("results", name).exists()]
    names = [NAMES.get(name, name) for name in given.benchmarks.split(",")]
    return [
        *("evaluate", "lesson=feedback", f"student={','.join([given.model, *trained])}"),
        *(f"benchmarks={','.join(names)}", "max_turns=5", "controls=null,shuffled,independent"),
    ]


COMMANDS: dict[str, Callable[[argparse.Namespace], list[str]]] = {
    "generate_dialogues": dialogues,
    "train_baselines": baselines,
    "train_rl2f_only": lambda given: ["train", "run=student_rl2f"],
    "evaluate_vllm": evaluate,
    "generate_figures": lambda given: ["figures", "results/latest_run"],
}


def main(script: str, arguments: Sequence[str] | None = None) -> int:
    """Say which command it is, and run it; key=value words go with it."""
    parser = argparse.ArgumentParser(script, description=__doc__, epilog="Further key=value words go to the command.")
    parser.add_argument("--config", help=f"{DEFAULT} only, which need not exist: settings are keys here")
    if script == "generate_dialogues":
        parser.add_argument("--output", default=ROLLOUTS)
    if script == "train_baselines":
        parser.add_argument("--method", choices=("sft", "rlvr"), required=True)
    if script == "evaluate_vllm":
        parser.add_argument("--model", default="google/gemma-3-12b-it")
        parser.add_argument("--benchmarks", default="omni_math,coding,puzzle,maze")
        parser.add_argument("--tensor-parallel-size", type=int, default=1)
    parser.add_argument("words", nargs="*", metavar="key=value")
    given = parser.parse_intermixed_args(arguments)
    try:
        if given.config and (given.config != DEFAULT or Path(given.config).exists()):
            raise ConfigError(f"settings are keys here: leave --config {given.config} out and type them as key=value")
        words = COMMANDS[script](given)
    except ConfigError as error:
        print(f"tutelage: {error}", file=sys.stderr)
        return 2
    say(" ".join(["this is: tutelage", *words, *given.words]))
    return tutelage([*words, *given.words])
