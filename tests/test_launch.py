"""The command lines of the documents become the right processes."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser

from tutelage import launch
from tutelage.errors import ConfigError

ROOT = Path(launch.__file__).parent.parent
PLAIN = [sys.executable, "-m", "tutelage.cli", "train"]


@pytest.fixture
def deepspeed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "find_spec", lambda name: name == "deepspeed")


# As the documents have them: words, GPUs, the accelerate config (none: plain Python), the words of training
DOCUMENTED: list[tuple[str, int, str | None, str]] = [
    (
        "1 configs/run/teacher_sft.yaml report_to=null save_final_model=false num_train_epochs=1", 1, None,
        "run=teacher_sft report_to=null save_final_model=false num_train_epochs=1",
    ),
    ("8 configs/run/teacher_sft.yaml output_dir=path/to/save/pre_rl_model", 8, "zero3",
     "run=teacher_sft output_dir=path/to/save/pre_rl_model"),
    ("8 cfgs/run_cfg/teacher_sft.yaml output_dir=path/to/save/pre_rl_model", 8, "zero3",
     "run=teacher_sft output_dir=path/to/save/pre_rl_model lesson=explain"),
    ("8 configs/run/teacher_sft.yaml output_dir=path/to/save/pre_rl_model offload", 8, "zero3_offload",
     "run=teacher_sft output_dir=path/to/save/pre_rl_model"),
    ("8 configs/run/teacher_sft.yaml output_dir=path/to/save/pre_rl_model zero1", 8, "zero1",
     "run=teacher_sft output_dir=path/to/save/pre_rl_model"),
    ("4 configs/run/teacher_sft.yaml dataset_id_or_path=Arc-Intelligence/Arc-ATLAS-Teach-v0", 8, "zero3",
     "run=teacher_sft dataset_id_or_path=Arc-Intelligence/Arc-ATLAS-Teach-v0"),
    ("4 teacher_rcl learning_rate=0.0001 degradation_penalty=2.0", 4, "zero1",
     "run=teacher_rcl learning_rate=0.0001 degradation_penalty=2.0"),
    ("2 run=teacher_rcl model=smollm2", 4, "ddp", "run=teacher_rcl model=smollm2"),
    ("8 configs/run/student_sft.yaml dataset_id_or_path=traces.parquet", 8, "zero3",
     "run=student_sft dataset_id_or_path=traces.parquet"),
    ("2 teacher_sft fsdp2", 2, "fsdp2", "run=teacher_sft"),
    ("1 teacher_sft per_device_train_batch_size=1 offload", 1, "zero3_offload",
     "run=teacher_sft per_device_train_batch_size=1"),
    ("1 teacher_sft zero1", 8, None, "run=teacher_sft"),
]  # fmt: skip


@pytest.mark.usefixtures("deepspeed")
@pytest.mark.parametrize(("line", "gpus", "config", "train"), DOCUMENTED)
def test_on_gpus(line: str, gpus: int, config: str | None, train: str) -> None:
    argv = launch.command(shlex.split(line), gpus)
    if config is None:
        assert argv == [*PLAIN, *train.split()]
        return
    assert argv[:3] == [sys.executable, "-m", "accelerate.commands.launch"]
    # as accelerate itself reads it
    args, _, _ = _validate_launch_command(launch_command_parser().parse_args(argv[3:]))
    assert Path(args.config_file) == ROOT / "accelerate_configs" / f"{config}.yaml"
    assert (args.num_processes, args.mixed_precision, args.main_process_port) == (int(line.split()[0]), "bf16", 0)
    assert (args.module, args.training_script) == (True, "tutelage.cli")
    assert args.training_script_args == ["train", *train.split()]
    assert args.use_deepspeed == config.startswith("zero")
    assert args.gradient_accumulation_steps is None  # or the trainer's own number would clash with it


@pytest.mark.parametrize(("line", "gpus", "config", "train"), DOCUMENTED)
def test_without_gpus_one_process_trains_on_the_cpu(
    line: str, gpus: int, config: str | None, train: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(line)
    assert launch.command(words, 0) == [*PLAIN, *train.split()]
    told = capsys.readouterr().err
    assert (f"on the CPU with 1 process instead of {words[0]}" in told) == (words[0] != "1")


def test_several_processes_on_the_cpu() -> None:
    for gpus in (0, 8):
        argv = launch.command(["cpu:2", "configs/run/quickstart.yaml", "max_steps=1"], gpus)
        assert argv[1:5] == ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        assert argv[5:] == ["-m", "tutelage.cli", "train", "device=cpu", "run=quickstart", "max_steps=1"]


@pytest.mark.usefixtures("deepspeed")
@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("", "launch.sh N configs/run"),
        ("8", "launch.sh N configs/run"),
        ("configs/run/teacher_sft.yaml 8", "launch.sh N configs/run"),
        ("0 teacher_sft", "launch.sh N configs/run"),
        ("4 configs/run/teacher_stf.yaml", "did you mean teacher_sft"),
        ("4 teacher_sft ofload", "did you mean offload"),
        ("4 teacher_sft offload zero1", "offload or zero1, not both"),
        ("4 teacher_sft lerning_rate=1", "did you mean learning_rate"),
        ("8 teacher_sft", "there are 4: type ./launch.sh 4"),
        ("3 teacher_rcl", "train_batch_size=96 or 192, or use 2 or 4 processes"),
    ],
)
def test_mistakes_are_told_before_anything_starts(line: str, hint: str) -> None:
    with pytest.raises(ConfigError) as error:
        launch.command(line.split(), 4)
    assert hint in str(error.value)


def test_a_run_file_from_elsewhere_is_not_taken_for_ours(tmp_path: Path) -> None:
    (tmp_path / "teacher_sft.yaml").touch()
    with pytest.raises(ConfigError, match="put it there"):
        launch.command(["1", str(tmp_path / "teacher_sft.yaml")], 0)
    assert launch.recipe(str(ROOT / "configs/run/teacher_sft.yaml")) == "teacher_sft"


def test_shards_cannot_hold_lessons() -> None:
    with pytest.raises(ConfigError, match=r"fsdp2 leaves no process the whole weights .* type ./launch_with_server.sh"):
        launch.command(["2", "teacher_rcl", "fsdp2"], 2)
    assert "fsdp2.yaml" in " ".join(launch.command(["2", "teacher_rcl", "engine=vllm", "fsdp2"], 2))


def test_missing_deepspeed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install deepspeed==0\.19\.8, or end"):
        launch.command(["2", "teacher_sft"], 2)


@pytest.mark.parametrize(
    ("name", "kind", "stage"),
    [
        ("ddp", "MULTI_GPU", None),
        ("zero1", "DEEPSPEED", 1),
        ("zero3", "DEEPSPEED", 3),
        ("zero3_offload", "DEEPSPEED", 3),
        ("fsdp2", "FSDP", None),
    ],
)
def test_accelerate_reads_its_configs(name: str, kind: str, stage: int | None) -> None:
    config: Any = load_config_from_file(str(launch.ACCELERATE / f"{name}.yaml"))
    assert config.distributed_type.value == kind and config.mixed_precision == "bf16"
    assert (config.deepspeed_config or {}).get("zero_stage") == stage
    offloads = name.endswith("offload")
    assert ((config.deepspeed_config or {}).get("offload_param_device") == "cpu") == offloads
    assert name != "fsdp2" or config.fsdp_config["fsdp_version"] == 2
    assert name in launch.MODES.values()


def test_processes_on_the_cpu_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    seen: list[str] = []
    monkeypatch.setattr(os, "execvpe", lambda file, argv, env: seen.append(env["OMP_NUM_THREADS"]))
    launch.main(["cpu:3", "quickstart", "train_batch_size=24"])
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    launch.main(["cpu:3", "quickstart", "train_batch_size=24"])
    assert seen == ["5", "7"]


def test_one_process_among_many_gpus_sees_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    monkeypatch.setattr(launch, "gpus", lambda: 2)
    ran: list[list[str]] = []
    monkeypatch.setattr(os, "execvpe", lambda file, argv, env: ran.append(argv))
    launch.main(["1", "quickstart"])
    assert ran == [[*PLAIN, "run=quickstart"]] and os.environ["CUDA_VISIBLE_DEVICES"] == "2"


def test_a_list_that_the_shell_cut_is_one_value() -> None:
    """As RLT's own README types it."""
    words = ["1", "configs/run/teacher_rlt.yaml", "kl_penalty_reward_coeff=[0,", "0]", "seed=3", "zero1"]
    assert launch.parse(words) == ("1", ["run=teacher_rlt", "kl_penalty_reward_coeff=[0,0]", "seed=3"], ["zero1"])


def test_data_that_cannot_be_had_is_said_before_servers_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(launch.servers, "start", lambda *_: pytest.fail("started"))
    words = ["1", "1", "quickstart", "dataset_id_or_path=my/data/path", f"results_dir={tmp_path}"]
    assert launch.main(["--with-server", *words]) == 2
    assert "my/data/path is neither a file, a folder nor a hub id" in capsys.readouterr().err


@pytest.mark.parametrize("script", ["launch.sh", "scripts/launch.sh"])
def test_the_scripts_tell_mistakes_in_one_sentence(script: str) -> None:
    done = subprocess.run([ROOT / script, "1", "configs/run/teacher_stf.yaml"], capture_output=True, text=True)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith("tutelage: no run file") and done.stderr.count("\n") == 1


def test_words_and_exit_code_pass_through() -> None:
    stub = "import sys; print(sys.argv[1:]); sys.exit(7)"
    script = f"""
import sys
from tutelage import launch
whole = launch.command
launch.command = lambda *given: [sys.executable, "-c", {stub!r}, *whole(*given)[3:]]
launch.main()
"""
    words = ["1", "configs/run/teacher_sft.yaml", "output_dir=a b"]
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True)
    assert done.returncode == 7, done.stderr
    assert done.stdout.strip() == str(
        ["train", "run=teacher_sft", "output_dir=a b", "model=smollm2", "data=arithmetic"]
    )
    assert done.stderr.count("instead") == 1
