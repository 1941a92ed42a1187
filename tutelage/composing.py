"""key=value words over configs/ over a command's defaults, as Hydra composes them, checked before anything loads."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import field, fields
from pathlib import Path
from typing import Any, TypeVar

from tutelage.errors import ConfigError, nearest

PACKAGED = Path(__file__).parent / "configs"
CONFIGS = PACKAGED if PACKAGED.is_dir() else Path(__file__).parent.parent / "configs"
ALIASES = {"degradation_penalty": "degradation_penalty_multiplier"}  # names of earlier papers' users
VLLM, VLLM_ENGINES = ("use_vllm", "use_vllm_server"), {"true": "vllm", "false": "local"}  # likewise

T = TypeVar("T")


def key(
    default: Any,
    about: str,
    low: float | None = None,
    high: float | None = None,
    holds: tuple[type, ...] = (),
    instead: tuple[str, ...] = (),
) -> Any:
    """A config key with its vetted default, a line of documentation, the range or the shape that makes sense, and the
    keys that it stands for: they have no meaning beside it."""
    told = {"about": about, "low": low, "high": high, "holds": holds, "instead": instead}
    return field(default=default, metadata=told)


def compose(schema: type[T], overrides: Sequence[str]) -> T:
    """key=value words over configs/ over the defaults above, as Hydra composes them."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.config_store import ConfigStore
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    words: list[str] = []
    texts: dict[str, str | None] = {}  # set past Hydra: its grammar gives backslashes, quotes and ${} a meaning
    typed = [_checked(schema, word) for word in joined(overrides)]
    _compatible(schema, {name.split(".")[0] for name, value in typed if value != "null"})
    for name, value in typed:
        kind = keys(schema)[name].type if name in keys(schema) else Any
        file = name in groups(schema) and value in choices(name)  # reward=zero is a key, and the file that sets it
        if kind in (str, str | None) and not file:
            texts[name] = None if value == "null" and kind is not str else value
        else:
            words.append(_word(name, value))
    # Sources of the user's own: nothing of the default data may linger behind them.
    own = texts.get("dataset_id_or_path") or texts.get("benchmarks")
    if own and not any(word.startswith("data=") for word in words):
        words.append("~data")
    name = schema.__name__.lower()
    ConfigStore.instance().store(name=name, node=schema)
    try:
        with initialize_config_dir(str(CONFIGS.resolve()), version_base="1.3"):
            composed = hydra_compose(name, words)
        values: Any = OmegaConf.to_container(composed, resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_explain(error)) from error
    config = schema(**values | texts)
    _check(config)
    _sourced(config, {name.split(".")[0] for name, _ in typed})
    return config


def joined(words: Sequence[str]) -> list[str]:
    """A list that the shell cut at its spaces, as in coeff=[0, 0], is one word again."""
    found: list[str] = []
    for word in words:
        if found and "=" not in word and "=" in found[-1] and found[-1].count("[") > found[-1].count("]"):
            found[-1] += word
        else:
            found.append(word)
    return found


def keys(schema: type) -> dict[str, Any]:
    return {entry.name: entry for entry in fields(schema) if entry.name != "defaults"}


def groups(schema: type) -> list[str]:
    """The config groups a command composes, such as data."""
    defaults: Any = {entry.name: entry.default_factory for entry in fields(schema)}.get("defaults", list)
    return [name for choice in defaults() if isinstance(choice, dict) for name in choice]


def choices(group: str) -> list[str]:
    return sorted(file.stem for file in (CONFIGS / group).glob("*.yaml"))


def _checked(schema: type, word: str) -> tuple[str, str]:
    """The key and the value of a word, checked by name; data=PATH stands for dataset_id_or_path=PATH."""
    name, equals, value = word.partition("=")
    if name in VLLM:
        if value.lower() not in VLLM_ENGINES:
            raise ConfigError(f"{word} is neither true nor false: type engine=vllm or engine=local")
        name, value = "engine", VLLM_ENGINES[value.lower()]
    name = ALIASES.get(name, name)
    entries = keys(schema)
    known = list(dict.fromkeys([*entries, *groups(schema)]))
    top = name.lstrip("+~").split(".")[0]
    if not equals:
        raise ConfigError(f"{word!r} is not key=value; {nearest(word, known)}")
    if top not in known:
        raise ConfigError(f"unknown key {top!r}; {nearest(top, known)}")
    if top != name.split(".")[0]:
        raise ConfigError(f"type {top}={value}: keys are set, not added or removed")
    if "." in name:
        if top not in entries or not entries[top].metadata["holds"]:
            raise ConfigError(f"{name}: {top} has no parts; type {top}={value}")
    elif not value.strip() and (name not in entries or entries[name].default != ""):
        raise ConfigError(f"{name}= is empty: type a value behind it, or leave it out")
    if name == "data" and value not in choices("data"):
        if "/" not in value and not Path(value).exists():
            raise ConfigError(f"no data {value!r}: no such file or folder, and {nearest(value, choices('data'))}")
        return "dataset_id_or_path", value
    if name in groups(schema) and name not in entries and value not in choices(name):
        raise ConfigError(f"no {name} {value!r}; {nearest(value, choices(name))}")
    return name, value


def _compatible(schema: type, typed: set[str]) -> None:
    """What would be passed over in silence is refused."""
    for name, entry in keys(schema).items():
        idle = sorted(typed & set(entry.metadata["instead"])) if name in typed else ()
        if idle:
            raise ConfigError(f"{name}=… leaves no use for {idle[0]}: leave {idle[0]}=… out, or {name}=…")


def _sourced(config: Any, typed: set[str]) -> None:
    """Keys of data that the source has no use for would be passed over, and yet be another run."""
    source = getattr(config, "dataset_id_or_path", "") or ""
    path, idle = Path(source).expanduser(), set[str]()
    if source == "generated":
        idle = {"columns", "format", "data_files", "dataset_split"}
    elif source and path.exists():
        idle = {"size", "tasks"} | ({"data_files", "dataset_split"} if path.is_file() else set())
    for name in sorted(idle & typed):
        raise ConfigError(f"{source} has no use for {name}: leave {name}=… out")


def _word(name: str, value: str) -> str:
    """An override in Hydra's grammar."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    word = f"{name}={value}"
    try:
        if OverridesParser.create().parse_override(word).is_sweep_override():
            raise ConfigError(f"{word} is no single value: a list is typed '{name}=[{value}]', where a key takes one")
    except HydraException:
        raise ConfigError(f"cannot read {word!r}: close its brackets and quotes, and quote it for the shell") from None
    return f"++{word}" if "." in name else word  # inside a mapping, any key may be new


def _explain(error: Exception) -> str:
    text = str(error.__cause__ or error).strip().splitlines()
    full_key = next((line.split(":", 1)[1].strip() for line in text if line.strip().startswith("full_key:")), "")
    return f"{full_key}: {text[0]}" if full_key else text[0]


def _check(config: Any) -> None:
    for name, entry in keys(type(config)).items():
        value = getattr(config, name)
        low, high, holds = (entry.metadata[part] for part in ("low", "high", "holds"))
        if value is None and (entry.default is None or not holds):
            continue
        if holds and not isinstance(value, holds):
            raise ConfigError(f"{name} cannot be {value!r}: it takes {entry.metadata['about']}")
        endless = isinstance(value, float) and not math.isfinite(value)
        if endless or (low is not None and value < low) or (high is not None and value > high):
            span = f"at least {low}" if high is None else f"from {low} to {high}"
            raise ConfigError(f"{name}={value} cannot work: type a number {span}")


def words(text: str) -> list[str]:
    """The names in a list with commas, each once."""
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def known(key: str, name: str, names: Iterable[str]) -> None:
    """Refuse a value that is none of a key's names."""
    if name not in (names := list(names)):
        raise ConfigError(f"no {key} {name!r}; {nearest(name, names)}")


def written(output: str, source: str, *endings: str) -> str:
    """The file that output= names: of a kind that can be written, and no part of the data it is made from."""
    path, data = Path(output).expanduser(), Path(source).expanduser()
    if path.suffix not in endings:
        raise ConfigError(f"output={output} must end in {' or '.join(endings)}")
    if source != "generated" and data.exists() and path.resolve().is_relative_to(data.resolve()):
        raise ConfigError(f"output={output} would become a part of the data: type output=<a file elsewhere>")
    return str(path)
