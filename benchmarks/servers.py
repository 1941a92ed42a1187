"""VLLMEngine against vLLM's own in-process LLM.generate on the same card, model and work. Writes servers.json.

python benchmarks/servers.py MODEL [cuda|cpu] [PROMPTS] [TOKENS] [MORE FLAGS OF THE SERVER]
"""

import asyncio
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from tutelage import servers
from tutelage.engines import Sampling
from tutelage.engines.fleet import Fleet
from tutelage.engines.vllm import VLLMEngine
from tutelage.supervise import Run

HERE = Path(__file__).parent
ROUNDS = 2  # the better one is kept

# With the server's flags. A first round warms up; seeds are what our engine sends, and vLLM may pay for each of them.
INSIDE = """
import json, sys, time
from vllm import LLM, SamplingParams
model, device, tokens, rounds, file = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
prompts = [{"prompt_token_ids": ids} for ids in json.load(open(file))]
# Without a GPU, a seeded sample whose prompt is read in parts kills the engine.
more = {} if device == "cuda" else {"enforce_eager": True, "dtype": "float32", "enable_chunked_prefill": False}
llm = LLM(model, max_model_len=2048, enable_prefix_caching=True, logprobs_mode="processed_logprobs",
          max_num_batched_tokens=8192, max_num_seqs=512, **more)
rows = []
for seeded in [True] + [False, True] * rounds:
    llm.reset_prefix_cache()
    plans = [SamplingParams(max_tokens=tokens, temperature=1.0, logprobs=0, seed=i if seeded else None)
             for i in range(len(prompts))]
    began, spent = time.perf_counter(), time.process_time()
    said = llm.generate(prompts, plans, use_tqdm=False)
    seconds, spent = time.perf_counter() - began, time.process_time() - spent
    rate = sum(len(s.outputs[0].token_ids) for s in said) / seconds
    rows.append({"seeded": seeded, "rate": rate, "front": 1000 * spent / len(prompts)})
json.dump(rows[1:], open(file + ".rows", "w"))
"""


def work(count: int) -> list[list[int]]:
    """Prompts of 100 to 200 tokens that share nothing."""
    chance = random.Random(0)
    return [[chance.randrange(1000, 40000) for _ in range(chance.randrange(100, 200))] for _ in range(count)]


def spent(front: psutil.Process) -> float:
    """CPU seconds of the server's processes that speak HTTP, which are one or the children of one."""
    every = [front, *(child for child in front.children() if "APIServer" in child.name())]
    return sum(sum(process.cpu_times()[:2]) for process in every)


async def through(
    url: str, front: psutil.Process, prompts: list[list[int]], tokens: int, concurrency: int, seeded: bool, terse: bool
) -> dict[str, Any]:
    """Our engine, each prompt asked by a coroutine of its own as lessons do; CPU time is in ms for each request."""
    async with Fleet([url], concurrency=concurrency) as fleet:
        engine = await VLLMEngine("model", fleet).connect()
        [server] = fleet.servers
        server.terse = server.terse and terse
        row = {"at once": concurrency, "seeded": seeded, "endpoint": "tokens" if server.terse else "completions"}
        if not seeded:
            ask: Any = engine._ask
            setattr(engine, "_ask", lambda prompt, **options: ask(prompt, **options | {"seed": None}))  # noqa: B010
        rows = []
        for round in range(ROUNDS):
            await fleet.send(server, "/reset_prefix_cache", {})
            sampling, served, ours = Sampling(max_tokens=tokens, temperature=1.0), spent(front), time.process_time()
            began = time.perf_counter()
            asked = (engine.generate_ids(ids, sampling, seed=round * 10**6 + i) for i, ids in enumerate(prompts))
            said = await asyncio.gather(*asked)
            seconds, ours, served = time.perf_counter() - began, time.process_time() - ours, spent(front) - served
            rate = sum(sample.tokens for [sample] in said) / seconds
            rows.append({"rate": rate, "client": 1000 * ours / len(prompts), "front": 1000 * served / len(prompts)})
    return row | max(rows, key=lambda row: row["rate"])


def main(model: str, device: str = "cuda", count: str = "512", tokens: str = "128", *flags: str) -> None:
    prompts = work(int(count))
    found: dict[str, Any] = {"work": f"{count} prompts x {tokens} tokens", "machine": platform.machine()}
    with tempfile.TemporaryDirectory() as folder, Run() as run:
        if device == "cuda":
            query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
            found["card"] = subprocess.run(query, capture_output=True, text=True).stdout.strip()
        port, log, file = 8799, Path(folder) / "server.log", Path(folder) / "prompts.json"
        file.write_text(json.dumps(prompts))
        argv, environment = servers.command(
            model,
            port,
            served_name="model",
            device=device,
            max_model_len=2048,
            reloads=True,
            more=["--max-num-batched-tokens", "8192", "--max-num-seqs", "512", *flags],
        )
        if "--api-server-count" in flags:  # only its command line starts more than one front
            argv[1:5] = ["-m", "vllm.entrypoints.cli.main", "serve", model]
        # One after the other: two that start together count each other's memory as their own.
        inside = [servers.interpreter(device), "-c", INSIDE, model, device, tokens, str(ROUNDS), str(file)]
        subprocess.run(inside, check=True, env=environment, stdout=subprocess.DEVNULL)
        rows = json.loads(Path(f"{file}.rows").read_text())
        best = {way: max((r for r in rows if r["seeded"] == way), key=lambda r: r["rate"]) for way in (True, False)}
        found["LLM.generate"] = list(best.values())
        print(f"{'':36}  tokens/s  / seeded  / unseeded  client ms  front ms")

        def show(name: str, row: dict[str, Any]) -> None:
            ratios = [row["rate"] / best[way]["rate"] for way in (True, False)]
            row |= {"to seeded": round(ratios[0], 3), "to unseeded": round(ratios[1], 3)}
            row |= {key: round(row[key], 2) for key in ("rate", "client", "front") if key in row}
            print(
                f"{name:36}  {row['rate']:8.0f}  {ratios[0]:8.2f}  {ratios[1]:10.2f}  {row.get('client', 0):9.2f}  "
                f"{row['front']:8.2f}",
                flush=True,
            )

        for way, row in best.items():
            show(f"LLM.generate{', seeded' if way else ''}", row)
        with log.open("wb") as out:
            process = run.start(argv, environment, out)
        servers.wait([process], [f"http://127.0.0.1:{port}"], [log], 600)
        front, found["VLLMEngine"] = psutil.Process(process.pid), []
        ways = [(128, True, True), (512, True, True), (1024, True, True), (512, False, True), (512, True, False)]
        for warm, way in enumerate([ways[1], *ways]):
            row = asyncio.run(through(f"http://127.0.0.1:{port}", front, prompts, int(tokens), *way))
            if not warm:
                continue
            name = f"{row['at once']} at once, {row['endpoint']}{', seeded' if row['seeded'] else ''}"
            show(name, row)
            found["VLLMEngine"].append(row)
            where = Path(os.environ.get("OUT", HERE)) / "servers.json"
            where.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
