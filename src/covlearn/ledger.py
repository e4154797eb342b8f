"""One row an example, written inside the training step: what the network last said of it.

The sieve, dynamic priors, memorisation curves and label quality all read it; no method keeps its
own. It stays on the device, so that writing it never makes the host wait.
"""

import torch
from torch import Tensor, nn

from covlearn import distributed, kernels
from covlearn.losses import CACHED_VALUES, pick
from covlearn.memory import Memory


class Ledger(nn.Module):
    """Score s_n, prediction, loss of the noisy label, and how often it was predicted; 16 B a row.

    A row that no pass has written yet has prediction −1. ``memory`` averages the predictions over
    the passes, if there is one.
    """

    score: Tensor
    prediction: Tensor
    loss: Tensor
    learned: Tensor

    def __init__(
        self,
        num_examples: int,
        device: torch.device | str = "cpu",
        *,
        memory: Memory | None = None,
    ) -> None:
        super().__init__()
        self.memory = memory
        rows = torch.zeros(num_examples, device=device)
        self.register_buffer("score", rows.clone())
        self.register_buffer("prediction", torch.full_like(rows, -1, dtype=torch.int32))
        self.register_buffer("loss", rows.clone())
        self.register_buffer("learned", torch.zeros_like(rows, dtype=torch.int32))

    @property
    def written(self) -> bool:
        """Whether any row is; none is where inputs are only seen mixed with others."""
        return bool((self.prediction >= 0).any())

    @torch.no_grad()
    def write(self, idx: Tensor, logits: Tensor, y: Tensor) -> None:
        """Records a batch; of a committee (M, B, K), the mean of its logits."""
        logits = logits.float().mean(dim=0) if logits.ndim == 3 else logits
        if logits.is_cuda and kernels.available():
            self._write_by_kernel(idx, logits, y)
            return
        if self.memory is not None:
            self.memory.write(idx, logits)
        step = max(1, CACHED_VALUES // logits.shape[1])
        for start in range(0, len(idx), step):
            some = slice(start, start + step)
            self._write(idx[some], logits[some].float(), y[some])

    def _write_by_kernel(self, idx: Tensor, logits: Tensor, y: Tensor) -> None:
        from covlearn.kernels.step import written  # noqa: PLC0415  only where Triton is

        rows = (self.score, self.prediction, self.loss, self.learned)
        memory = self.memory
        if memory is None:
            written(logits, y, idx, rows)
        elif memory.label is None:
            written(logits, y, idx, rows, memory.value, memory.decay)
        else:  # the largest classes must be found, which the kernel cannot
            written(logits, y, idx, rows)
            memory.write(idx, logits)

    def _write(self, idx: Tensor, logits: Tensor, y: Tensor) -> None:
        log_BK = logits.softmax(dim=1).add_(1e-8).log_()
        loss = -pick(log_BK, y)
        prediction = logits.argmax(dim=1)
        self.loss[idx] = loss
        self.score[idx] = loss + log_BK.mean(dim=1)  # ℓ_ỹ − mean_k ℓ_k, as the sieve defines it
        self.prediction[idx] = prediction.int()
        self.learned.index_add_(0, idx, (prediction == y).int())  # idx may come twice

    def merge(self, last_step: Tensor, learned_before: Tensor) -> None:
        """After an epoch of several processes: everyone gets what the last one to write wrote.

        ``last_step`` has, for each row, the last step in which this process wrote it (−1: never);
        an example that is drawn more than once may come to several. ``learned_before`` is
        ``learned`` from before the epoch: counts are added up.
        """
        # No two processes have the same turn; in one step their rows are the same anyway.
        turn = last_step * distributed.num_processes() + distributed.process()
        turn = torch.where(last_step >= 0, turn, -1)
        newest = distributed.max_of(turn)
        mine = (turn == newest) & (turn >= 0)
        learned = learned_before + distributed.sum_of(self.learned - learned_before)
        for rows in (self.score, self.prediction, self.loss):
            total = distributed.sum_of(torch.where(mine, rows, 0))
            rows.copy_(torch.where(newest >= 0, total, rows))
        self.learned.copy_(learned)
        if self.memory is not None:
            self.memory.merge(mine, newest >= 0)
