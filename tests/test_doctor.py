"""Which recipes fit which machine."""

from pathlib import Path

import pytest
from rich.console import Console

from tutelage import doctor
from tutelage.doctor import Machine
from tutelage.verify.sandbox import Report


@pytest.mark.parametrize(
    ("name", "machine", "fits", "hint"),
    [
        ("quickstart", Machine([], 8, False), True, "./launch.sh 1 configs/run/quickstart.yaml"),
        ("teacher_sft", Machine([], 64, True), False, "add model=smollm2 data=arithmetic"),
        ("teacher_sft", Machine([], 64, False), False, "shrinks to model=smollm2 data=arithmetic by itself"),
        ("teacher_sft", Machine([80.0] * 8, 512, True), True, "./launch.sh 8 configs/run/teacher_sft.yaml"),
        ("teacher_sft", Machine([80.0], 128, True), False, "add lora_r=16"),
        ("teacher_rcl", Machine([12.0], 64, True), False, "end the command with offload"),
    ],
)
def test_recipes(
    name: str, machine: Machine, fits: bool, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    found, said = doctor.judge(name, machine)
    assert found is fits and hint in said


@pytest.mark.parametrize(("name", "billions"), [("Qwen/Qwen3-8B", 8), ("smollm2-135m", 0.135), ("my/model", 0)])
def test_sizes_by_name(name: str, billions: float) -> None:
    assert doctor.size(name) == pytest.approx(billions)


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (Report(["f()"], {0}, walls=(True, True)), "walls around a program's files, processes and network"),
        (Report(["f()"], {0}, walls=(True, False)), "no walls around a program's files: use a container"),
        (Report(unusable="the sandbox did not start"), "cannot be checked: the sandbox did not start"),
    ],
)
def test_what_holds_a_program_here(report: Report, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.sandbox, "examine", lambda *_: report)
    assert said in doctor.box()


def test_it_tells_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "reachable", lambda: False)
    console = Console(record=True, width=200)
    doctor.examine(console)
    text = console.export_text()
    assert all(
        word in text for word in ("Python", "trl", "walls around", "vLLM", "port 8765", "GiB free", "run=teacher_rcl")
    )
