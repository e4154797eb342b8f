import pytest
import torch

from covlearn import demo


def test_demo_says_what_the_sieve_found(capsys: pytest.CaptureFixture[str]) -> None:
    state = torch.get_rng_state()
    demo.main()
    lines = capsys.readouterr().out.splitlines()
    shares = {
        line[2:39].strip(): float(line[39:].removesuffix(" %"))
        for line in lines
        if line.endswith(" %")
    }
    assert shares["labels that are right, as given"] == pytest.approx(60, abs=5)
    assert shares["labels that are right, refined"] > 80
    assert shares["of the labels it changed, were wrong"] > 80
    assert torch.equal(torch.get_rng_state(), state)
