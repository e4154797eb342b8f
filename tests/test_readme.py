"""The README's code runs as printed and does what it says."""

import re
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn

from covlearn.noise import instance_dependent

README = Path(__file__).resolve().parents[1] / "README.md"


def test_the_loop_of_the_readme_repairs_labels_and_beats_them() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    pixels, labels = load_digits(return_X_y=True)
    noise = instance_dependent(pixels / 16, labels, rate=0.4, num_classes=10, variant="cal", seed=1)
    clean, noisy = torch.from_numpy(labels).long(), torch.from_numpy(noise.label)

    def make_model() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    names: dict[str, Any] = {
        "x": torch.from_numpy(pixels / 16).float(),
        "noisy": noisy,
        "num_classes": 10,
        "epochs": 20,
        "make_model": make_model,
    }
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        exec(code, names)
    right = (noisy == clean).float().mean()
    refined_right = (names["refined"].label == clean).float().mean()
    predicted_right = (names["model"](names["x"]).argmax(dim=1) == clean).float().mean()
    assert refined_right > right + 0.2
    assert predicted_right > right + 0.2
