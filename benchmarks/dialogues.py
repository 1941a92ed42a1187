"""Dialogues with feedback through the batched engine against one at a time with `model.generate`: speed; and memory.

python benchmarks/dialogues.py [model] [dialogues …]     speed, on a GPU where there is one
python benchmarks/dialogues.py memory null llm           memory of 10,000 dialogues; no model is needed

Both write their part of dialogues.json. The same lesson code holds all dialogues, with the same model, prompts and
token limits. One at a time only a few of them are held. These may happen to be longer or shorter than the others, so
rates are compared in tokens written; dialogues a second are reported beside them.
"""

import asyncio
import contextlib
import itertools
import json
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "3000")  # as the command line has it
os.environ.setdefault("HF_HUB_OFFLINE", "1")
HERE = Path(__file__).parent
TURNS, TOKENS, HINT, TEMPERATURE = 3, 64, 32, 0.7
SAMPLE = {"cpu": 6, "cuda": 2}  # dialogues held one at a time
COUNTS = {"cpu": [64], "cuda": [64, 512, 2048]}
MANY, LONGEST, FULL = 10_000, 5, 256  # in flight, and the turns and tokens of each
TEACHERS = ("null", "program", "llm")
UNITS = ("tokens/s", "dialogues/s")


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


def speed(model: Any, tokenizer: Any, counts: Sequence[int], sample: int) -> dict[str, Any]:
    """Each way in a thread of its own that ends: OpenMP lets threads sleep while another's are waiting for work too."""
    from tutelage.engines.local import TransformersEngine

    async def one_at_a_time() -> dict[str, Any]:
        single = alone(model, tokenizer)
        await held(single, "null", problems(1), 1)  # warm up
        asked = problems(64)[:: 64 // sample][:sample]
        return {teacher: {"one at a time": await held(single, teacher, asked, 1)} for teacher in TEACHERS}

    async def together(found: dict[str, Any]) -> None:
        async with TransformersEngine(model, tokenizer, name="model") as engine:
            await held(engine, "null", problems(8), 8)
            for teacher, count in itertools.product(TEACHERS, counts):
                rates = await held(engine, teacher, problems(count), count)
                for unit in UNITS:
                    rates[f"ratio of {unit}"] = rates[unit] / found[teacher]["one at a time"][unit]
                found[teacher][f"{count} at once"] = rates
                print(f"{teacher}, {count} at once: {rates['ratio of tokens/s']:.1f}", flush=True)
            if engine._graphs.works:
                engine._graphs.works = False
                found["null"]["the same without CUDA graphs"] = await held(engine, "null", problems(count), count)

    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(asyncio.run, one_at_a_time()).result()
    asyncio.run(together(found))
    return found


def memory(teacher: str) -> dict[str, Any]:
    """All dialogues of an evaluation at their last turn at once: what they take beyond a model, which is not there.

    A scripted student, and a scripted teacher where it is a model, write as many tokens as they may, each with a
    log-prob of its own. The student waits before its last turn until all others have come as far.
    """
    from tutelage import exam, models
    from tutelage.composing import compose
    from tutelage.config import Exam
    from tutelage.engines import Sample, Sampling
    from tutelage.engines.tokens import TokenEngine, shared
    from tutelage.lessons import guard, prompts

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
    guard.leaks = lambda *_: False  # type: ignore[assignment]  # takes most of the time, and no memory

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
            f"data={rows} held_out=0 max_turns={LONGEST} max_tokens={FULL} max_completion_length={FULL} "
            f"in_flight={MANY} hints={teacher}"
        )
        config = compose(Exam, [*words.split(), f"results_dir={folder}/results", "resamples=100"])
        config.controls = ""  # one teacher only
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


def keep(part: str, found: dict[str, Any]) -> None:
    path = Path(os.environ.get("OUT", HERE)) / "dialogues.json"
    result = json.loads(path.read_text()) if path.exists() else {}
    result[part] = result.get(part, {}) | found
    path.write_text(json.dumps(result, indent=1) + "\n")


def main(model: str = "smollm2-135m", *counts: str) -> None:
    if model == "memory":
        # A process of its own for each: one takes again what another before it gave back, and would seem small.
        wanted = counts or ("null", "llm")
        with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as fresh:
            for teacher, found in zip(wanted, fresh.map(memory, wanted), strict=True):
                keep("memory", {teacher: found})
                print(json.dumps({teacher: found}, indent=1))
        return
    import torch

    from tutelage import models

    weights, tokenizer, _ = models.load(model)
    kind = weights.device.type
    machine = f"{platform.machine()}, {os.cpu_count()} cores" if kind == "cpu" else torch.cuda.get_device_name()
    teachers = speed(weights, tokenizer, [int(count) for count in counts] or COUNTS[kind], SAMPLE[kind])
    found = {
        "machine": f"{machine}, torch {torch.__version__}, {str(weights.dtype).removeprefix('torch.')}",
        "model": model,
        "dialogues": f"up to {TURNS} attempts of {TOKENS} tokens and hints of {HINT}",
        "teachers": teachers,
    }
    keep("cpu" if kind == "cpu" else "gpu", found)
    print(f"{found['machine']}; {model}; {found['dialogues']}")
    print("| teacher | at once | dialogues/s | tokens/s | ratio of tokens/s | of dialogues/s |\n" + "|---" * 6 + "|")
    for teacher, rates in teachers.items():
        for how, rate in rates.items():
            cells = [f"{rate['dialogues/s']:.3f}", f"{rate['tokens/s']:.1f}"]
            cells += [f"{rate[f'ratio of {unit}']:.1f}" for unit in UNITS if f"ratio of {unit}" in rate] or ["", ""]
            print(" | ".join(["", teacher, how.removesuffix(" at once"), *cells, ""]).strip())


if __name__ == "__main__":
    main(*sys.argv[1:])
