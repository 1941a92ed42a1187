"""The in-process engine against `model.generate` on this machine: throughput, memory, import time. Writes engine.json.

python benchmarks/engine.py [memory|throughput|imports]
"""

import asyncio
import gc
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
HERE = Path(__file__).parent
NEW = 64


def prompts(tokenizer: Any, lengths: Sequence[int]) -> list[list[int]]:
    words = tokenizer.encode("The teacher asks one question after another and the student answers each. " * 60)
    return [[*words[i % 14 :], *words][:length] for i, length in enumerate(lengths)]


def with_generate(model: Any, tokenizer: Any, texts: list[list[int]], batch: int, samples: int) -> float:
    """Tokens a second of `generate`, prompts sorted by length so that it pads as little as it can."""
    import torch

    texts = sorted(texts, key=len)
    began, tokens = time.perf_counter(), 0
    for start in range(0, len(texts), batch):
        group = texts[start : start + batch]
        longest = max(map(len, group))
        ids = torch.tensor([[tokenizer.pad_token_id] * (longest - len(t)) + t for t in group])
        mask = torch.tensor([[0] * (longest - len(t)) + [1] * len(t) for t in group])
        out = model.generate(
            ids,
            attention_mask=mask,
            do_sample=True,
            temperature=0.7,
            top_k=0,
            min_new_tokens=NEW,
            max_new_tokens=NEW,
            num_return_sequences=samples,
        )
        tokens += out.shape[0] * NEW
    return tokens / (time.perf_counter() - began)


def with_engine(model: Any, tokenizer: Any, texts: list[list[int]], samples: int) -> float:
    from tutelage.engines import Sampling
    from tutelage.engines.local import TransformersEngine

    async def main() -> float:
        async with TransformersEngine(model, tokenizer, name="smollm2-135m") as engine:
            engine.ends = frozenset()  # every sample runs to its limit, as in generate
            sampling = Sampling(max_tokens=NEW, temperature=0.7)
            began = time.perf_counter()
            groups = await asyncio.gather(*(engine.generate_ids(t, sampling, n=samples) for t in texts))
            return sum(s.tokens for group in groups for s in group) / (time.perf_counter() - began)

    return asyncio.run(main())


def throughput() -> dict[str, Any]:
    from tutelage import models

    model, tokenizer, _ = models.load("smollm2-135m", device="cpu")
    cases = {
        "64 prompts of 16-205 tokens x 1": (prompts(tokenizer, [16 + 3 * i for i in range(64)]), 1, (32, 64)),
        "8 prompts of 400 tokens x 8": (prompts(tokenizer, [400] * 8), 8, (2, 4)),
    }

    def generated(texts: list[list[int]], batch: int, samples: int) -> float:
        """In a thread that ends, as the engine's does: OpenMP lets threads sleep while another's are waiting too."""
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(with_generate, model, tokenizer, texts, batch, samples).result()

    with_engine(model, tokenizer, prompts(tokenizer, [32] * 8), 1)  # warm both up
    generated(prompts(tokenizer, [32] * 8), 8, 1)
    found: dict[str, Any] = {}
    for name, (texts, samples, batches) in cases.items():
        # generate at the batch sizes that were best for it in wider sweeps
        rates = {str(batch): generated(texts, batch, samples) for batch in batches}
        ours, best = with_engine(model, tokenizer, texts, samples), max(rates.values())
        found[name] = {"generate tokens/s by batch": rates, "engine tokens/s": ours, "ratio": ours / best}
        print(json.dumps({name: found[name]}), flush=True)
    return found


def memory() -> dict[str, Any]:
    """1,000 lessons at once on the real model, in 96 MB of key/value memory: what they hold beyond the model."""
    from tutelage import models
    from tutelage.engines import Sampling
    from tutelage.engines.local import TransformersEngine
    from tutelage.engines.memo import Memo
    from tutelage.lessons import Plan, adaptive
    from tutelage.problem import Problem

    model, tokenizer, revision = models.load("smollm2-135m", device="cpu")
    plan = Plan()

    async def main() -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            engine = TransformersEngine(model, tokenizer, name="smollm2-135m", revision=revision, cache_gb=96 / 1024)
            memo = Memo(engine, Path(folder) / "samples.sqlite")
            await engine.generate([{"role": "user", "content": "Hi"}], Sampling())  # pages of the weights come in
            gc.collect()
            before, peak = rss(), 0
            problems = [Problem(f"What is {i} + {i * 7}?", "", str(i * 8), kind="number") for i in range(1000)]
            tasks = [asyncio.create_task(adaptive(p, engine, engine, memo, plan)) for p in problems]
            until = time.monotonic() + 60  # all are in flight from the start; more time would only repeat
            while time.monotonic() < until:
                peak = max(peak, rss())
                await asyncio.sleep(0.05)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await engine.close()
            extra = (peak - before) / 2**20
            return {"lessons in flight": len(tasks), "beyond the model, MB": extra, "key/value MB": 96}

    return asyncio.run(main())


def rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def imports() -> dict[str, float]:
    """Best of five starts, less that of an empty interpreter."""

    def seconds(code: str) -> float:
        best = float("inf")
        for _ in range(5):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            best = min(best, time.perf_counter() - began)
        return best

    modules = "import tutelage.lessons, tutelage.verify, tutelage.metrics, tutelage.data, tutelage.problem"
    return {"seconds": seconds(modules) - seconds("pass")}


def main() -> None:
    parts = {"throughput": throughput, "memory": memory, "imports": imports}
    wanted = sys.argv[1:] or list(parts)
    path = HERE / "engine.json"
    result = json.loads(path.read_text()) if path.exists() else {}
    import torch

    result["machine"] = f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}, float32"
    for name in wanted:
        result[name] = parts[name]()
        print(json.dumps({name: result[name]}, indent=2), flush=True)
    path.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
