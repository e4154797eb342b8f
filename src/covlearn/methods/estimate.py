"""The noise rate, for methods that need it and were not told."""

from covlearn.engine import Plan
from covlearn.methods.base import Run
from covlearn.methods.ce import CrossEntropy
from covlearn.transition import confident_joint


def estimate_rate(run: Run, plan: Plan) -> float:
    """1 − Σ_i P_i T_ii, with P and T from the confident joint of a network trained with CE.

    The joint Q counts (inferred true class, noisy class), Northcutt et al. 2021, and P_i T_ii is
    the share Q_ii / N. The plan is a short one: a network that has fitted its wrong labels finds
    none. The rate is recorded as ``estimated_rate``.
    """
    model = run.net("rate")
    run.train("rate", model, CrossEntropy(), plan)
    logits, _ = run.predict(model)
    joint_KK = confident_joint(
        logits.softmax(dim=1), run.split.y.to(logits.device), num_classes=run.split.num_classes
    )
    # Rounding may leave a perfect diagonal a hair above the sum.
    rate = max(0.0, 1 - float(joint_KK.trace() / joint_KK.sum()))
    run.note(estimated_rate=rate)
    return rate
