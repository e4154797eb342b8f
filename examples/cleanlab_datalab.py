"""cleanlab's label issues as D̂ of CAL: ``python -m examples.cleanlab_datalab``.

Needs pip install 'covlearn[cleanlab]'.
"""

import torch
from cleanlab.datalab.datalab import Datalab
from sklearn.model_selection import cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor, nn
from torch.utils.data import DataLoader

from covlearn.covariance import CALLoss
from covlearn.data import IndexedDataset
from covlearn.integrations.datalab import refined_from_datalab
from examples.digits import BATCH, BETA, NUM_CLASSES, Digits, noisy_digits, report
from examples.plain_loop import train, train_ce


def find_issues(digits: Digits) -> Datalab:
    """Out-of-fold probabilities of any classifier, and what cleanlab makes of them."""
    x, noisy = (tensor.numpy() for tensor in digits.train.tensors)
    classifier = KNeighborsClassifier(20)
    probs = cross_val_predict(classifier, x, noisy, cv=5, method="predict_proba")
    lab = Datalab({"label": noisy}, label_name="label", verbosity=0)
    lab.find_issues(pred_probs=probs, issue_types={"label": {}})
    return lab


def train_cal(digits: Digits) -> nn.Module:
    """Stage 2 of CAL on cleanlab's D̂."""
    refined = refined_from_datalab(find_issues(digits))
    criterion = CALLoss(digits.noisy, refined.label, NUM_CLASSES)

    def cal(logits: Tensor, y: Tensor, idx: Tensor, epoch: int) -> Tensor:
        criterion.beta = BETA(epoch)
        loss: Tensor = criterion(logits, y, idx)
        return loss

    return train(DataLoader(IndexedDataset(digits.train), batch_size=BATCH, shuffle=True), cal)


def run(seed: int = 0) -> dict[str, float]:
    """Test accuracy of cross-entropy and CAL."""
    digits = noisy_digits(seed)
    torch.manual_seed(seed)
    return {"CE": digits.accuracy(train_ce(digits)), "CAL": digits.accuracy(train_cal(digits))}


if __name__ == "__main__":
    report("cleanlab", run())
