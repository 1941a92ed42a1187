"""The embedded model: made once, by whichever process comes first, and again where that failed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tutelage.models import saved

# The second of two processes, of which Transformers would let only the first write.
SECOND = """
import torch.distributed as processes
from torch.testing._internal.distributed.fake_pg import FakeStore
processes.init_process_group("fake", rank=1, world_size=2, store=FakeStore())
from tutelage import models
model, tokenizer, _ = models.load("smollm2-135m", device="cpu")
print(sum(p.numel() for p in model.parameters()), tokenizer.eos_token)
"""


@pytest.mark.slow
def test_any_process_may_be_the_one_that_converts(tmp_path: Path) -> None:
    folder = tmp_path / "models/smollm2-135m"
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text("{}")  # what a conversion that failed once left
    environment = os.environ | {"TUTELAGE_CACHE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", SECOND], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["134515008", "<|im_end|>"]
    assert saved(folder) and {path.name for path in tmp_path.glob("models/*")} == {"smollm2-135m", ".smollm2-135m.lock"}
