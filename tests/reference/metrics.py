"""Evaluation, counted one example at a time."""

from typing import Any


def share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def accuracy(prediction: list[int], true: list[int]) -> float:
    right = 0
    for n in range(len(true)):
        if prediction[n] == true[n]:
            right += 1
    return right / len(true)


def memorisation(prediction: list[int], noisy: list[int], clean: list[int]) -> float | None:
    wrong = fitted = 0
    for n in range(len(noisy)):
        if noisy[n] == clean[n]:
            continue
        wrong += 1
        if prediction[n] == noisy[n]:
            fitted += 1
    return share(fitted, wrong)


def counted_transition(row: list[int], noisy: list[int], num_classes: int) -> list[list[float]]:
    """T[i][j] over the examples whose row label is i; a class without one keeps its labels."""
    transition = []
    for i in range(num_classes):
        members = [noisy[n] for n in range(len(noisy)) if row[n] == i]
        if not members:
            transition.append([1.0 if j == i else 0.0 for j in range(num_classes)])
        else:
            transition.append([members.count(j) / len(members) for j in range(num_classes)])
    return transition


def label_quality(
    refined: list[int], noisy: list[int], clean: list[int], num_classes: int
) -> dict[str, float | None]:
    in_set = right = found = wrong = hits = repaired = 0
    for n in range(len(noisy)):
        is_wrong = noisy[n] != clean[n]
        is_found = refined[n] != noisy[n]
        if refined[n] != -1:
            in_set += 1
            if refined[n] == clean[n]:
                right += 1
        if is_found:
            found += 1
        if is_wrong:
            wrong += 1
            if refined[n] == clean[n]:
                repaired += 1
        if is_found and is_wrong:
            hits += 1
    precision, recall = share(hits, found), share(hits, wrong)
    f1: float | None
    if precision is None or recall is None:
        f1 = None if not found and not wrong else 0.0
    elif precision + recall == 0:
        f1 = 0.0
    else:
        f1 = 2 * precision * recall / (precision + recall)
    estimated = counted_transition(refined, noisy, num_classes)
    true = counted_transition(clean, noisy, num_classes)
    error = 0.0
    for i in range(num_classes):
        for j in range(num_classes):
            error += abs(estimated[i][j] - true[i][j])
    return {
        "share_right": share(right, in_set),
        "precision": precision,
        "recall": recall,
        "f1": f1,
        "repaired": share(repaired, wrong),
        "transition_error": error / num_classes**2,
    }


def figures(history: list[dict[str, float]]) -> dict[str, Any]:
    """(value, epoch) by each rule; the first epoch that reaches the highest value wins."""
    best = selected = 0
    for e in range(len(history)):
        if history[e]["test_accuracy"] > history[best]["test_accuracy"]:
            best = e
        if history[e]["holdout_accuracy"] > history[selected]["holdout_accuracy"]:
            selected = e
    last = len(history) - 1
    total, count = 0.0, 0
    for e in range(max(0, last - 9), last + 1):
        total += history[e]["test_accuracy"]
        count += 1
    held = history[0]["holdout_accuracy"] == history[0]["holdout_accuracy"]
    return {
        "best": (history[best]["test_accuracy"], best),
        "last": (history[last]["test_accuracy"], last),
        "mean_of_last_ten": (total / count, last),
        "selected": (history[selected]["test_accuracy"], selected) if held else None,
    }
