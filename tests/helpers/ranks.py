"""One process of a training on servers, as toy.py; it writes down what it asked of them and what it ended with."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from toy import even

from tutelage import rewards
from tutelage.cli import main
from tutelage.engines.fleet import Fleet
from tutelage.training.cast import Weights

if __name__ == "__main__":
    asked: Counter[str] = Counter()
    found: dict[str, Any] = {"asked": asked, "voices": []}
    send, sync = Fleet.send, Weights.sync_weights

    async def counted(self: Fleet, server: Any, path: str, body: Any = None) -> Any:
        asked[path] += 1
        return await send(self, server, path, body)

    def watched(self: Weights) -> None:
        sync(self)
        found["voices"].append(f"{self.policy.model} {self.policy.revision}")
        trained = self.trainer.model.named_parameters()
        found["sums"] = [[name, float(w.detach().double().abs().sum())] for name, w in trained if w.requires_grad]
        found["rank"], found["world"] = torch.distributed.get_rank(), torch.distributed.get_world_size()

    Fleet.send, Weights.sync_weights = counted, watched  # type: ignore[method-assign]
    rewards.adaptive.REWARDS["toy"] = even
    code = main(["train", *sys.argv[2:]])
    Path(sys.argv[1], f"rank{found['rank']}.json").write_text(json.dumps(found))
    sys.exit(code)
