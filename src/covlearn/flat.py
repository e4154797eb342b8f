"""Weights and momenta in a few flat tensors, and a working copy of a model in bfloat16.

Under autocast every step casts every weight to bfloat16 and every gradient back, and an optimizer
walks over a hundred tensors. Here the weights of convolutions and linear layers exist once more in
bfloat16, in a copy of the model that does the training, and one kernel updates the float32 weights,
the momenta and that copy. The model itself and ``torch.optim.SGD`` with its state stay the truth:
their tensors become views of the flat ones, so that checkpoints and evaluation notice nothing.
"""

import copy
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from covlearn import kernels
from covlearn.average import Average

ALIGNED = 64  # elements; what cuDNN and wide loads ask of an address, and more


class Flat:
    """Parameters one after the other in one tensor, with their momenta and gradients.

    ``working`` is None, or a second copy of the parameters in lower precision.
    """

    def __init__(
        self, parameters: list[nn.Parameter], lower: torch.dtype | None, group: dict[str, Any]
    ) -> None:
        self.parameters = parameters
        self.places: list[slice] = []
        size = 0
        for parameter in parameters:
            start, size = size, size + -(-parameter.numel() // ALIGNED) * ALIGNED
            self.places.append(slice(start, size))
        device = parameters[0].device
        self.weight = torch.zeros(size, device=device)
        self.momentum = torch.zeros(size, device=device)
        self.gradient = torch.zeros(size, device=device, dtype=lower)
        self.working = None if lower is None else torch.zeros(size, device=device, dtype=lower)
        self.lr = torch.as_tensor(group["lr"])  # the tensor itself, where it is one
        self.options = {"momentum": group["momentum"], "weight_decay": group["weight_decay"]}

    def views(self, flat: Tensor) -> list[Tensor]:
        """The parameters' parts of a flat tensor, with their shapes and memory formats."""
        return [
            flat.as_strided(p.shape, p.stride(), place.start)
            for place, p in zip(self.places, self.parameters, strict=True)
        ]

    @torch.no_grad()
    def adopt(self, optimizer: torch.optim.SGD) -> None:
        """Makes the parameters and the optimizer's momenta views of the flat tensors."""
        for parameter, weight, momentum in zip(
            self.parameters, self.views(self.weight), self.views(self.momentum), strict=True
        ):
            weight.copy_(parameter)
            parameter.data = weight
            state = optimizer.state[parameter]
            # No momentum yet is the same as zeros: the first update then starts from them.
            if (earlier := state.get("momentum_buffer")) is not None:
                momentum.copy_(earlier)
            state["momentum_buffer"] = momentum

    @torch.no_grad()
    def update(self, place: slice, gradient: Tensor | None = None) -> None:
        """One step of SGD on a part, by its gradient or the one that lies in its place."""
        gradient = self.gradient[place] if gradient is None else gradient
        size = len(gradient)
        weight, momentum = self.weight[place][:size], self.momentum[place][:size]
        working = None if self.working is None else self.working[place][:size]
        if weight.is_cuda:
            from covlearn.kernels.step import sgd  # noqa: PLC0415  only where Triton is

            sgd(weight, momentum, gradient, working, self.lr, **self.options)
            return
        slope = gradient.float().add(weight, alpha=self.options["weight_decay"])
        momentum.mul_(self.options["momentum"]).add_(slope)
        weight.sub_(self.lr * momentum)
        if working is not None:
            working.copy_(weight)


class Working:
    """A copy of a model that trains in bfloat16, and the optimizer's stand-in for it.

    Parameters that are no weights of convolutions or linear layers, and all buffers, are shared
    with the model. On CUDA the weights of convolutions get their gradients and updates beside the
    rest of the way back, on a stream of their own: nothing else waits for them. A parameter that
    the loss does not reach counts as one whose gradient is zero.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.SGD) -> None:
        (group,) = optimizer.param_groups
        learned = [p for p in group["params"] if p.requires_grad]
        chosen = {id(parameter) for parameter in lower_precision(model)}
        self.low = Flat([p for p in learned if id(p) in chosen], torch.bfloat16, group)
        self.low.adopt(optimizer)
        self.rest: Flat | None = None
        if others := [p for p in learned if id(p) not in chosen]:
            self.rest = Flat(others, None, group)
            self.rest.adopt(optimizer)
        assert self.low.working is not None
        self.copies = [nn.Parameter(view) for view in self.low.views(self.low.working)]
        twins = zip(self.low.parameters, self.copies, strict=True)
        memo: dict[int, Any] = {id(p): twin for p, twin in twins}
        for tensor in (*model.parameters(), *model.buffers()):
            memo.setdefault(id(tensor), tensor)
        self.model = copy.deepcopy(model, memo).train()
        self.beside = Beside(self.low)
        places = dict(zip(map(id, self.copies), self.low.places, strict=True))
        for module in self.model.modules():
            if type(module) is nn.Conv2d and id(module.weight) in places:
                module.__class__ = WorkingConv2d
                assert isinstance(module, WorkingConv2d)
                module.beside, module.place = self.beside, places[id(module.weight)]
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Takes over the model's weights, after something else than a step has changed them."""
        assert self.low.working is not None
        self.low.working.copy_(self.low.weight)

    @property
    def parts(self) -> list[Flat]:
        """The flat tensors with all weights that are learned."""
        return [self.low] if self.rest is None else [self.low, self.rest]

    @property
    def trained(self) -> list[Tensor]:
        """What autograd gives gradients to."""
        return [*self.copies, *(self.rest.parameters if self.rest else ())]

    @torch.no_grad()
    def step(self) -> None:
        """Ends a step of SGD, which the way back may have begun."""
        done = self.beside.join()
        for place, copy_ in zip(self.low.places, self.copies, strict=True):
            if place.start in done and copy_.grad is not None:
                raise ValueError(
                    "the weight of a convolution must be used by its layer alone, got a second "
                    "gradient from elsewhere; train with machine.precision=float32"
                )
        _collect(self.low, self.copies)
        left = [place for place in self.low.places if place.start not in done]
        if not done:
            left = [slice(0, len(self.low.weight))]
        for place in left:
            self.low.update(place)
        if self.rest is not None:
            _collect(self.rest, self.rest.parameters)
            self.rest.update(slice(0, len(self.rest.weight)))


class Step(Protocol):
    """What trains: its model and optimizer can be exchanged."""

    model: nn.Module
    optimizer: torch.optim.Optimizer | Working
    average: Average | None
    parameters: list[Tensor]


def use_working_copy(step: Step) -> Callable[[], None] | None:
    """Lets a step train a working copy, if its optimizer is SGD and there is something to gain.

    What is returned is to be called when anything but a step has changed the model.
    """
    model, optimizer = step.model, step.optimizer
    if not (
        isinstance(optimizer, torch.optim.SGD) and lower_precision(model) and kernels.available()
    ):
        return None
    working = Working(model, optimizer)
    if step.average is not None:
        step.average.follow(model, [part.weight for part in working.parts])
    step.model, step.optimizer = working.model, working
    step.parameters = working.trained
    return working.refresh


def _collect(flat: Flat, parameters: list[nn.Parameter]) -> None:
    """Puts the gradients that autograd made into their places."""
    slots = zip(flat.views(flat.gradient), parameters, strict=True)
    there = [(slot, p.grad) for slot, p in slots if p.grad is not None]
    if there:
        torch._foreach_copy_([slot for slot, _ in there], [gradient for _, gradient in there])


def lower_precision(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that autocast would cast: those of convolutions and linear layers."""
    found: dict[int, nn.Parameter] = {}
    for module in model.modules():
        if type(module) in (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear):
            found |= {id(p): p for p in module.parameters(recurse=False)}
    return list(found.values())


class Beside:
    """A stream beside the current one, for gradients and updates of convolutions' weights."""

    def __init__(self, flat: Flat) -> None:
        self.flat = flat
        device = flat.weight.device
        self.stream = torch.cuda.Stream(device=device) if device.type == "cuda" else None
        self.uses: dict[int, int] = {}
        """How often each weight, by the start of its place, was used in this step."""
        self.read: list[Tensor] = []
        self.done: set[int] = set()

    def take(self, place: slice, gradient: Tensor) -> None:
        """Updates a weight that was used once; one used more often returns its gradient."""
        self.flat.update(place, gradient)
        self.done.add(place.start)

    def join(self) -> set[int]:
        """What comes next on the current stream waits; returns which weights were updated."""
        if self.stream is not None and self.done:
            # Nothing was begun there otherwise, and a capture must not wait for what is not in it.
            torch.cuda.current_stream().wait_stream(self.stream)
        done, self.done = self.done, set()
        self.read.clear()
        self.uses.clear()
        return done


class WorkingConv2d(nn.Conv2d):
    """A convolution whose weight is updated on the way back, as soon as nothing else reads it."""

    beside: Beside
    place: slice

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if (
            self.beside.stream is None
            or bias is not None
            or self.padding_mode != "zeros"
            or self.groups != 1
            or not isinstance(self.padding, tuple)
            or not torch.is_grad_enabled()
        ):
            plain: Tensor = super()._conv_forward(input, weight, bias)
            return plain
        start = self.place.start
        self.beside.uses[start] = self.beside.uses.get(start, 0) + 1
        y: Tensor = _Conv.apply(input, weight, self)  # type: ignore[no-untyped-call]
        return y

    @property
    def skips(self) -> bool:
        """Whether there are pixels that it does not look at."""
        return self.kernel_size == (1, 1) and self.padding == (0, 0) and max(self.stride) > 1


class _Conv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, conv: WorkingConv2d) -> Tensor:
        x, weight = _padded(x, weight.dtype), _padded(weight, weight.dtype)
        ctx.conv, ctx.shape, ctx.stride = conv, x.shape, conv.stride
        if conv.skips:
            # cuDNN is slow at the pixels in between; without them it is a product of matrices.
            ctx.stride = (1, 1)
            x = _narrow(_wide(x)[:, :: conv.stride[0], :: conv.stride[1]].contiguous())
        ctx.save_for_backward(x, weight)
        return nn.functional.conv2d(x, weight, None, ctx.stride, conv.padding, conv.dilation)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        conv: WorkingConv2d = ctx.conv
        beside = conv.beside
        dy = dy.contiguous(memory_format=torch.channels_last)

        def gradient(*, of_input: bool) -> Any:
            return torch.ops.aten.convolution_backward(
                dy,
                x,
                weight,
                None,
                ctx.stride,
                conv.padding,
                conv.dilation,
                False,
                [0, 0],
                1,
                [of_input, not of_input, False],
            )

        dx = None
        if ctx.needs_input_grad[0]:
            dx = gradient(of_input=True)[0]
            if conv.skips:
                small, size = dx, [ctx.shape[i] for i in (0, 2, 3, 1)]
                dx = dx.new_zeros(size).permute(0, 3, 1, 2)
                _wide(dx)[:, :: conv.stride[0], :: conv.stride[1]] = _wide(small)
            dx = dx[:, : conv.in_channels]
        if beside.uses[conv.place.start] > 1:
            # Not the last word on this weight; autograd adds the gradients up.
            return dx, gradient(of_input=False)[1][:, : conv.in_channels], None
        stream = beside.stream
        assert stream is not None
        stream.wait_stream(torch.cuda.current_stream())  # for dx, which reads the weight
        with torch.cuda.stream(stream):
            dweight = gradient(of_input=False)[1][:, : conv.in_channels]
            if conv.weight.is_contiguous(memory_format=torch.channels_last):
                dweight = dweight.permute(0, 2, 3, 1)
            # In the order of memory, which is that of the flat tensors.
            beside.take(conv.place, dweight.reshape(-1))
        # Their memory must not be given away before the other stream has read it.
        beside.read += [x, dy, weight]
        return dx, None, None


def _wide(maps: Tensor) -> Tensor:
    """(B, H, W, C/8), sixteen bytes an element: copies of rows then take few instructions."""
    maps = maps.contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1)
    return maps.view(torch.complex128)


def _narrow(maps: Tensor) -> Tensor:
    return maps.view(torch.bfloat16).permute(0, 3, 1, 2)


def _padded(maps: Tensor, dtype: torch.dtype) -> Tensor:
    """With channels of zeros up to a multiple of 8, which cuDNN's fast kernels need."""
    channels = maps.shape[1]
    if channels % 8 == 0:
        return maps.to(dtype)
    size, _, height, width = maps.shape
    padded = maps.new_zeros(size, height, width, -(-channels // 8) * 8, dtype=dtype)
    padded = padded.permute(0, 3, 1, 2)
    padded[:, :channels] = maps
    return padded
