"""VLLMEngine against vLLM's own in-process LLM.generate on the same card, model and work. Writes servers.json.

python benchmarks/servers.py MODEL [cuda|cpu] [PROMPTS] [TOKENS]
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

from tutelage import servers
from tutelage.engines import Sampling
from tutelage.engines.fleet import Fleet
from tutelage.engines.vllm import VLLMEngine
from tutelage.supervise import Run

HERE = Path(__file__).parent

# With the server's flags; a first round warms up, the better of two is kept.
INSIDE = """
import json, sys, time
from vllm import LLM, SamplingParams
model, device, tokens, file = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
prompts = [{"prompt_token_ids": ids} for ids in json.load(open(file))]
more = {} if device == "cuda" else {"enforce_eager": True, "dtype": "float32"}
llm = LLM(model, max_model_len=2048, enable_prefix_caching=True, logprobs_mode="processed_logprobs",
          max_num_batched_tokens=8192, max_num_seqs=512, **more)
rates = []
for round in range(3):
    llm.reset_prefix_cache()
    began = time.perf_counter()
    said = llm.generate(prompts, SamplingParams(max_tokens=tokens, temperature=1.0, logprobs=0), use_tqdm=False)
    rates.append(sum(len(s.outputs[0].token_ids) for s in said) / (time.perf_counter() - began))
json.dump(max(rates[1:]), open(file + ".rate", "w"))
"""


def work(count: int) -> list[list[int]]:
    """Prompts of 100 to 200 tokens that share nothing."""
    chance = random.Random(0)
    return [[chance.randrange(1000, 40000) for _ in range(chance.randrange(100, 200))] for _ in range(count)]


async def through(url: str, prompts: list[list[int]], tokens: int, concurrency: int) -> float:
    """Tokens a second of our engine, each prompt asked by a coroutine of its own as lessons do."""
    async with Fleet([url], concurrency=concurrency) as fleet:
        engine = await VLLMEngine("model", fleet).connect()
        rates = []
        for round in range(3):
            await fleet.send(fleet.servers[0], "/reset_prefix_cache", {})
            sampling, began = Sampling(max_tokens=tokens, temperature=1.0), time.perf_counter()
            asked = (engine.generate_ids(ids, sampling, seed=round * 10**6 + i) for i, ids in enumerate(prompts))
            said = await asyncio.gather(*asked)
            rates.append(sum(sample.tokens for [sample] in said) / (time.perf_counter() - began))
    return max(rates[1:])


def main(model: str, device: str = "cuda", count: str = "512", tokens: str = "128") -> None:
    prompts = work(int(count))
    found: dict[str, Any] = {"work": f"{count} prompts x {tokens} tokens", "machine": platform.machine()}
    with tempfile.TemporaryDirectory() as folder, Run() as run:
        if device == "cuda":
            ask = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
            found["card"] = subprocess.run(ask, capture_output=True, text=True).stdout.strip()
        port, log, file = 8799, Path(folder) / "server.log", Path(folder) / "prompts.json"
        file.write_text(json.dumps(prompts))
        more = ["--max-num-batched-tokens", "8192", "--max-num-seqs", "512"]
        argv, environment = servers.command(
            model, port, served_name="model", device=device, max_model_len=2048, reloads=True, more=more
        )
        # One after the other: two that start together count each other's memory as their own.
        inside = [servers.interpreter(device), "-c", INSIDE, model, device, tokens, str(file)]
        subprocess.run(inside, check=True, env=environment, stdout=subprocess.DEVNULL)
        found["LLM.generate, tokens/s"] = round(json.loads(Path(f"{file}.rate").read_text()))
        print(found, flush=True)
        with log.open("wb") as out:
            process = run.start(argv, environment, out)
        servers.wait([process], [f"http://127.0.0.1:{port}"], [log], 600)
        for concurrency in (128, 256, 512, 1024):
            rate = asyncio.run(through(f"http://127.0.0.1:{port}", prompts, int(tokens), concurrency))
            found[f"VLLMEngine, {concurrency} requests at once, tokens/s"] = round(rate)
            found[f"ratio at {concurrency}"] = round(rate / found["LLM.generate, tokens/s"], 3)
            print(found, flush=True)
            where = Path(os.environ.get("OUT", HERE)) / "servers.json"
            where.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
