"""Pictures are real pictures, and are replaced whole."""

from pathlib import Path

from matplotlib.image import imread

from tutelage import report


def evaluation(step: int, reward: float) -> dict[str, object]:
    spread = {"low": reward - 0.1, "value": reward, "high": reward + 0.1}
    return {"step": step, "reward": spread, "apg": spread}


def test_a_curve_that_moves_is_another_picture(tmp_path: Path) -> None:
    path = tmp_path / "learning.png"
    report.learning(path, [evaluation(0, -0.5)], [])
    first = imread(path)
    report.learning(path, [evaluation(0, -0.5), evaluation(4, 0.5)], [(1, -0.4), (2, 0.0), (3, 0.1), (4, 0.3)])
    assert first.shape == imread(path).shape == (432, 1080, 4)
    assert (first != imread(path)).any()
    assert [file.name for file in tmp_path.iterdir()] == ["learning.png"]
