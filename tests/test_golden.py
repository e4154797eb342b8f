"""Golden trajectories: a refactor leaves them as they are, and a change of numerics says so.

    python -m tests.test_golden      # writes them anew; the commit says why

Losses of every epoch of every method on toys, to five digits: other processors round otherwise.
"""

import json
from pathlib import Path

import pytest

from covlearn.methods import CAL, Method
from covlearn.testing import make_toy, shortened
from covlearn.testing.toy import toy_run
from tests.test_house_checks import ALL

GOLDEN = Path(__file__).with_name("golden.json")
DIGITS = 1e-5
VARIANTS: dict[str, Method] = {
    **{name: shortened(method, epochs=4) for name, method in ALL.items()},
    "cal with averages": shortened(CAL(scores="averaged"), epochs=4, average=0.9),
}


def trajectory(method: Method) -> dict[str, list[float]]:
    """The losses of each stage by epoch, and the sum of all weights at the end."""
    run = toy_run(make_toy().split)
    model = method.fit(run)
    stages = {stage: [line["loss"] for line in lines] for stage, lines in run.history.items()}
    total = sum(float(parameter.detach().double().abs().sum()) for parameter in model.parameters())
    return stages | {"weights": [total]}


def test_every_variant_has_one() -> None:
    assert set(json.loads(GOLDEN.read_text(encoding="utf-8"))) == set(VARIANTS)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_trajectory_is_the_golden_one(name: str) -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))[name]
    found = trajectory(VARIANTS[name])
    assert list(found) == list(golden)
    for stage, losses in golden.items():
        assert found[stage] == pytest.approx(losses, rel=DIGITS, abs=DIGITS), stage


def main() -> None:
    found = {name: trajectory(method) for name, method in VARIANTS.items()}
    GOLDEN.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"written: {GOLDEN}")


if __name__ == "__main__":
    main()
