"""Scoring through the engine against one text at a time with a log-softmax over the whole vocabulary: speed and memory.

python benchmarks/score.py [model]     writes score.json, for a GPU where there is one
"""

import asyncio
import json
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
HERE = Path(__file__).parent
PROMPT, COMPLETIONS, TOKENS, TEMPERATURE = 128, 16, 512, 0.7
LONG = 16384
WAYS = ("one by one", "engine")
Texts = list[tuple[tuple[int, ...], tuple[int, ...]]]


def texts(words: int) -> Texts:
    """One question and its completions, as a group of explanations is scored."""
    rng = random.Random(0)
    prompt = tuple(rng.randrange(words) for _ in range(PROMPT))
    return [(prompt, tuple(rng.randrange(words) for _ in range(TOKENS))) for _ in range(COMPLETIONS)]


def one_by_one(model: Any, asked: Texts) -> list[list[float]]:
    import torch

    found = []
    with torch.inference_mode():
        for prompt, completion in asked:
            ids = torch.tensor([prompt + completion], device=model.device)
            # Only the completion's rows are made float32, which the simplest code would not even do.
            logits = model(ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
            logps = (logits.float() / TEMPERATURE).log_softmax(-1)
            found.append(logps.gather(1, ids[0, len(prompt) :, None])[:, 0].tolist())
    return found


async def measure(way: str, model: Any, tokenizer: Any) -> dict[str, Any]:
    """Peak memory of a first pass beyond the model, then the time of others."""
    from tutelage.engines.local import TransformersEngine

    asked = texts(model.config.vocab_size)
    async with TransformersEngine(model, tokenizer, name="model") as engine:

        async def score() -> list[list[float]]:
            if way == "engine":
                return await asyncio.gather(*(engine.score(*text, TEMPERATURE) for text in asked))
            return one_by_one(model, asked)

        # All weights are in memory now, and the libraries have what they take once for each thread.
        await engine.score((1,), (2,))
        one_by_one(model, [((1,), (2,))])
        peak = watch(model.device)
        found = await score()
        extra = peak()
        seconds = []
        for _ in range(1 if model.device.type == "cpu" else 5):
            began = time.perf_counter()
            await score()
            seconds.append(time.perf_counter() - began)
    return {"seconds": min(seconds), "extra": extra, "scores": found}


def watch(device: Any) -> Callable[[], int]:
    """From now on; the call gives the most bytes in use at any moment above what is in use now."""
    import torch

    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        return lambda: torch.cuda.max_memory_allocated() - before

    def resident(field: str) -> int:
        return int(re.findall(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) * 1024

    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts again from here
    before = resident("VmRSS")
    return lambda: resident("VmHWM") - before


def spans() -> dict[str, Any]:
    """From a long explanation as it was sampled to what the student reads, and where explanation and solution stand."""
    from tutelage import models
    from tutelage.engines import Sample
    from tutelage.engines.tokens import TokenEngine
    from tutelage.lessons import STYLES
    from tutelage.lessons.explain import assemble, heard
    from tutelage.problem import Problem

    class Reader(TokenEngine):
        name, revision, context = "reader", "1", 2 * LONG
        tokenizer = models.tokenizer("smollm2-135m")
        _write = _weigh = None  # type: ignore[assignment]

    engine, style = Reader(), STYLES["r1"]
    problem = Problem("How many are they? " * 40, "First count them, then add them up. " * 40, "12")
    words = engine.tokenizer.encode("So we count the next ones, too, and keep in mind how many. " * LONG)
    ids = (*words[:LONG], *engine.tokenizer.encode(style.padding + style.closing))
    said = Sample(engine.decode(ids), "stop", len(ids), ids, (), ())
    assemble(problem, style, engine, ())  # the chat template is compiled once
    seconds = []
    for _ in range(100):
        began = time.perf_counter()
        _, thought, _ = heard(said, style.closing, engine.decode)
        reading = assemble(problem, style, engine, thought)
        seconds.append(time.perf_counter() - began)
        assert reading.completion[reading.thought] == thought and len(thought) >= LONG
        assert engine.decode(reading.completion[reading.solution]) == problem.solution.strip()
    return {"completion tokens": LONG, "median ms": 1e3 * statistics.median(seconds), "worst ms": 1e3 * max(seconds)}


def compare(model: str) -> dict[str, Any]:
    """Each way in processes of its own, by turns."""
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for _ in range(2):
        for way in WAYS:
            out = subprocess.run([sys.executable, __file__, model, way], check=True, stdout=subprocess.PIPE, text=True)
            runs[way].append(json.loads(out.stdout.splitlines()[-1]))
    rates = {way: COMPLETIONS / min(run["seconds"] for run in runs[way]) for way in WAYS}
    extra = {way: max(run["extra"] for run in runs[way]) / 2**20 for way in WAYS}
    plain, ours = ([logp for text in runs[way][0]["scores"] for logp in text] for way in WAYS)
    return {
        "sequences/s": rates,
        "peak MB beyond the model": extra,
        "speed ratio": rates["engine"] / rates["one by one"],
        "memory ratio": extra["engine"] / extra["one by one"],
        "largest difference of a log-prob": max(abs(a - b) for a, b in zip(plain, ours, strict=True)),
    }


def main(model: str = "smollm2-135m", way: str = "") -> None:
    import torch

    from tutelage import models

    if way:
        weights, tokenizer, _ = models.load(model)
        print(json.dumps(asyncio.run(measure(way, weights, tokenizer))))
        return
    cuda = torch.cuda.is_available()
    machine = torch.cuda.get_device_name() if cuda else f"{platform.machine()}, {os.cpu_count()} cores"
    found = {
        "machine": f"{machine}, torch {torch.__version__}, {'bfloat16' if cuda else 'float32'}",
        "texts": f"{COMPLETIONS} completions of {TOKENS} tokens after a prompt of {PROMPT}",
        "scoring": compare(model),
        "spans": spans(),
    }
    print(json.dumps(found, indent=2))
    path = HERE / "score.json"
    result = json.loads(path.read_text()) if path.exists() else {}
    result["gpu" if cuda else "cpu"] = found
    path.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
