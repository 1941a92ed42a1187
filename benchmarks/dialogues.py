"""Dialogues with feedback through the batched engine against one at a time with `model.generate`: speed; and memory.

python benchmarks/dialogues.py [model] [dialogues …]     writes dialogues.json, for a GPU where there is one

The same lesson code holds both, with the same model, prompts and token limits. One at a time, only a sample of the
dialogues is held, and their rate is taken for that of all.
"""

import asyncio
import contextlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
HERE = Path(__file__).parent
TURNS, TOKENS, HINT, TEMPERATURE = 3, 64, 32, 0.7
SAMPLE = 8  # dialogues held one at a time
MANY, LONGEST, FULL = 10_000, 5, 256  # in flight, and the turns and tokens of each
TEACHERS = ("null", "program", "llm")


def problems(count: int) -> list[Any]:
    """Sums that a small model mostly gets wrong, so that dialogues are long."""
    from tutelage.problem import Problem

    return [
        Problem(f"What is {41 + 7 * i} + {i * i + 86} - {3 * i + 5}?", "", str(i * i + 4 * i + 122), kind="number")
        for i in range(count)
    ]


def alone(model: Any, tokenizer: Any) -> Any:
    """An engine that asks `model.generate` for one reply at a time."""
    import torch

    from tutelage.engines import Sample, Sampling
    from tutelage.engines.local import TransformersEngine

    class Alone(TransformersEngine):
        """Prompts are rendered and replies decoded as ever; only the tokens come from elsewhere."""

        async def _write(self, prompt: tuple[int, ...], sampling: Sampling, n: int, seed: int) -> list[Sample]:
            torch.manual_seed(seed % 2**31)
            ids = torch.tensor([prompt], device=self.device)
            with torch.inference_mode():
                out = self.model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    do_sample=True,
                    temperature=sampling.temperature,
                    top_k=0,
                    top_p=1.0,
                    max_new_tokens=sampling.max_tokens,
                    eos_token_id=sorted(self.ends),
                    pad_token_id=min(self.ends),
                )
            said = tuple(out[0, len(prompt) :].tolist())
            finish = "stop" if said[-1] in self.ends else "length"
            return [Sample(self.decode(said), finish, len(said), said, (), prompt)]  # type: ignore[arg-type]

    return Alone(model, tokenizer, name="model")


async def held(engine: Any, teacher: str, asked: Sequence[Any], at_once: int) -> dict[str, float]:
    """Dialogues and tokens a second, so many dialogues at once."""
    from tutelage.engines import Sampling
    from tutelage.evaluate import each, spent
    from tutelage.lessons import Plan, feedback
    from tutelage.lessons.guard import Guard
    from tutelage.lessons.teachers import Null, Program, Tutor

    sampling = Sampling(temperature=TEMPERATURE)
    plan = Plan(solving=sampling.but(max_tokens=TOKENS), teaching=sampling.but(max_tokens=HINT), max_turns=TURNS)
    guide = {"null": Null(), "program": Program(), "llm": Tutor(engine, plan, Guard(plan))}[teacher]
    tokens, turns, read = 0, 0, 0

    async def one(problem: Any) -> None:
        nonlocal tokens, turns, read
        episode = await feedback(problem, engine, guide, plan)
        tokens += spent(episode)
        turns += sum(turn.act == "attempt" for turn in episode.turns)
        read += sum(len(turn.sample.prompt_ids) for turn in episode.turns)

    began = time.perf_counter()
    await each(asked, one, at_once)
    seconds = time.perf_counter() - began
    return {
        "dialogues": len(asked),
        "dialogues/s": len(asked) / seconds,
        "tokens/s": tokens / seconds,
        "turns per dialogue": turns / len(asked),
        "tokens per dialogue": tokens / len(asked),
        "tokens of the student's prompts per dialogue": read / len(asked),
    }


async def speed(model: Any, tokenizer: Any, counts: Sequence[int]) -> dict[str, Any]:
    from tutelage.engines.local import TransformersEngine

    found: dict[str, Any] = {}
    single = alone(model, tokenizer)
    async with TransformersEngine(model, tokenizer, name="model") as engine:
        await held(engine, "null", problems(8), 8)  # warm both up
        await held(single, "null", problems(1), 1)
        for teacher in TEACHERS:
            everything = problems(max(counts))
            each_alone = await held(single, teacher, everything[:: max(1, len(everything) // SAMPLE)][:SAMPLE], 1)
            found[teacher] = {"one at a time": each_alone}
            for count in counts:
                together = await held(engine, teacher, problems(count), count)
                together["ratio of dialogues/s"] = together["dialogues/s"] / each_alone["dialogues/s"]
                together["ratio of tokens/s"] = together["tokens/s"] / each_alone["tokens/s"]
                found[teacher][f"{count} at once"] = together
            print(json.dumps({teacher: found[teacher]}, indent=1), flush=True)
    return found


def memory() -> dict[str, Any]:
    """All dialogues of an evaluation at their last turn at once: what they take beyond a model, which is not there.

    A scripted student writes as many tokens as it may, each with a log-prob of its own, and waits before its last
    turn until all others have come as far.
    """
    from tutelage import exam, models
    from tutelage.composing import compose
    from tutelage.config import Exam
    from tutelage.engines import Sample, Sampling
    from tutelage.engines.tokens import TokenEngine, shared
    from tutelage.lessons import prompts

    class Writer(TokenEngine):
        name, revision, context = "writer", "1", 8192
        last = 0  # messages before the last turn

        def __init__(self) -> None:
            self.tokenizer = models.tokenizer("smollm2-135m")
            self.words = self.tokenizer.encode("I add the tens first and then the ones, which makes this. " * FULL)
            self.start = self.tokenizer.convert_tokens_to_ids("<|im_start|>")
            self.waiting = self.resident = 0
            self.all_here = asyncio.Event()

        async def _write(self, prompt: tuple[int, ...], sampling: Sampling, n: int, seed: int) -> list[Sample]:
            if prompt.count(self.start) == self.last:
                self.waiting += 1
                if self.waiting == MANY:
                    self.resident = status("VmRSS")
                    self.all_here.set()
                await self.all_here.wait()
            place = seed % 64
            ids = tuple(shared(word) for word in self.words[place : place + sampling.max_tokens])
            logps = tuple(-0.5 - 1e-6 * word for word in ids)
            text = f"{self.decode(ids)} <solution>{-place - 1}</solution>"
            return [Sample(text, "length", len(ids), ids, logps, prompt)]

        async def _weigh(self, prompt: Any, completion: Any, temperature: float) -> list[float]:
            return [0.0] * len(completion)

    writer = Writer()

    @contextlib.asynccontextmanager
    async def cast(config: Any, names: Sequence[str]) -> AsyncIterator[Any]:
        yield writer, {name: writer for name in names}

    exam.cast = cast  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TUTELAGE_CACHE"] = folder
        rows = Path(folder) / "problems.jsonl"
        rows.write_text(
            "".join(json.dumps({"question": p.question, "answer": p.answer}) + "\n" for p in problems(MANY))
        )
        words = (
            f"data={rows} held_out=0 max_turns={LONGEST} max_tokens={FULL} in_flight={MANY} hints=null controls=null"
        )
        config = compose(Exam, [*words.split(), f"results_dir={folder}/results", "resamples=100"])
        # Each turn after the first adds a message of the user and one of the assistant.
        opening = writer.render(prompts.solve(problems(1)[0].public)).count(writer.start)
        writer.last = opening + 2 * (LONGEST - 1)
        peak = watch()
        before = status("VmRSS")
        _, [cell] = exam.evaluate(config)
        extra = peak()
    assert cell.problems == MANY and cell.taught["turns"].value == LONGEST
    return {
        "dialogues in flight": MANY,
        "attempts of each": LONGEST,
        "tokens of an attempt": FULL,
        "MB when all are at their last turn": (writer.resident - before) / 2**20,
        "MB at most, from reading the problems to the last metric": extra / 2**20,
    }


def status(field: str) -> int:
    return int(re.findall(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) * 1024


def watch() -> Callable[[], int]:
    """From now on; the call gives the most bytes resident at any moment above what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    return lambda: status("VmHWM") - before


def main(model: str = "smollm2-135m", *counts: str) -> None:
    if model == "memory":
        print(json.dumps(memory()))
        return
    import torch

    from tutelage import models

    out = subprocess.run([sys.executable, __file__, "memory"], check=True, stdout=subprocess.PIPE, text=True)
    resident = json.loads(out.stdout.splitlines()[-1])
    print(json.dumps(resident, indent=1), flush=True)
    cuda = torch.cuda.is_available()
    weights, tokenizer, _ = models.load(model)
    wanted = [int(count) for count in counts] or ([64, 512] if cuda else [64])
    machine = torch.cuda.get_device_name() if cuda else f"{platform.machine()}, {os.cpu_count()} cores"
    found = {
        "machine": f"{machine}, torch {torch.__version__}, {str(weights.dtype).removeprefix('torch.')}",
        "model": model,
        "dialogues": f"up to {TURNS} attempts of {TOKENS} tokens and hints of {HINT}; one at a time: {SAMPLE} of them",
        "teachers": asyncio.run(speed(weights, tokenizer, wanted)),
        "memory": resident,
    }
    path = Path(os.environ.get("OUT", HERE)) / "dialogues.json"
    result = json.loads(path.read_text()) if path.exists() else {}
    result["gpu" if cuda else "cpu"] = found
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
