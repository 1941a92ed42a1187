"""Stands for NCCL where there is no GPU: vLLM's own group at both ends, with tensors in its TCP store.

As `--worker-extension-cls wire.Worker` it is imported by a server's worker; as a script it is the trainer's end.
"""

import asyncio
import sys
from typing import Any

import torch
from vllm.distributed.device_communicators import pynccl


class Communicator:
    """What the weight transfer uses of PyNcclCommunicator."""

    def __init__(self, group: Any, device: Any):
        self.group = group

    def broadcast(self, tensor: Any, src: int, stream: Any = None) -> None:
        tensor.copy_(self.group.broadcast(tensor, src))


class Stream:
    def synchronize(self) -> None: ...


class Worker: ...


pynccl.PyNcclCommunicator = Communicator
torch.accelerator.current_device_index = lambda: 0
torch.cuda.current_stream = Stream
torch.cuda.set_device = lambda _: None


async def main(url: str, file: str) -> None:
    from tutelage.engines.fleet import Fleet
    from tutelage.engines.nccl import Line
    from tutelage.engines.vllm import VLLMEngine

    async with Fleet([url]) as fleet:
        line = Line(VLLMEngine("smollm2-135m", fleet), "cpu")
        before, after = torch.load(file)
        await line.send(before)
        group = line.group
        await line.send(after)
        assert line.group is group  # once is enough


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
