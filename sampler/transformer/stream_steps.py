"""Steps from what layers write to the end of the residual stream: each must be linear.

A product of two activations (a gate, a normalisation that is no module) or a function (ReLU behind
the last matrix of an MLP) has a slope, and so looks like a part of the stream. It would be left out
of its paths in silence.
"""

from collections.abc import Iterable
from typing import Any

from sampler.errors import InputError, Verbatim

# Operations of torch that add, move, copy or average numbers, as its graph of slopes calls them.
LINEAR = {
    "Add", "Sub", "Neg", "Clone", "Copy", "CopySlices", "Alias", "Detach", "ToCopy", "Expand",
    "View", "UnsafeView", "ReshapeAlias", "Transpose", "T", "Permute", "Squeeze", "Unsqueeze",
    "Select", "Slice", "Split", "SplitWithSizes", "Unbind", "Index", "IndexSelect", "Gather",
    "Cat", "Stack", "Repeat", "AsStrided", "Mean", "Sum", "MaskedFill", "ConstantPadNd",
    "NativeBatchNorm", "CudnnBatchNorm", "Unfold", "Flip",
}  # fmt: skip
# Linear in what was written as long as nothing that was written stands on both sides.
BILINEAR = {"Mul", "Div", "Addcmul", "Where"}


def refuse_functions(
    end: Any, written: Iterable[tuple[Any, str]], normalised: Iterable[tuple[Any, Any]]
) -> None:
    """Raise InputError unless the end of the stream is linear in what was written.

    written     the embedding, and results of products that are cut off, with their modules
    normalised  what went into each normalisation that the stream passes, and what came out
    """
    modules = {one.grad_fn or id(one): module for one, module in written}
    given = {after.grad_fn: before.grad_fn for before, after in normalised}
    found: dict[Any, str | None] = {}  # a module that wrote what this depends on

    def before(node: Any) -> list[Any]:
        if node in given:
            return [given[node]]
        return [one for one, _ in node.next_functions if one is not None]

    def own(node: Any) -> str | None:
        """The module of what was written, if this is what makes it."""
        return modules.get(node, modules.get(id(getattr(node, "variable", None))))

    # Depth first, without recursion, which deep models would exhaust.
    waiting = [end.grad_fn]
    while waiting:
        node = waiting[-1]
        parts = [] if own(node) is not None else before(node)
        missing = [one for one in parts if one not in found]
        if missing:
            waiting += missing
            continue
        waiting.pop()
        sides = [found[one] for one in parts if found[one] is not None]
        if sides and node not in found and node not in given:
            refuse_function(node, len(sides), sides[-1])
        found[node] = own(node) if not parts else next(iter(sides), None)


def refuse_function(node: Any, sides: int, module: str) -> None:
    """Raise InputError for an operation that is not linear in what was written."""
    name = type(node).__name__.split("Backward")[0]
    name = name.rstrip("0123456789") or name
    if name in LINEAR or (name in BILINEAR and sides == 1):
        return
    if name.endswith("LayerNorm") or name.endswith("RmsNorm"):
        remedy = (
            "normalises what is no [example, token, channel], as one token that was taken out: "
            "let `forward` normalise all tokens; which of them is read is said by `attended`"
        )
        raise InputError("normalisation of the residual stream", Verbatim(name), remedy)
    remedy = (
        f"stands between the residual stream and what {module or 'the model'} writes: a gate, a "
        "normalisation that is no module, or a function. Make a normalisation a module, as "
        "torch.nn.LayerNorm; leave out by `forward` what stands behind the last layer; of anything "
        "else export a window of layers"
    )
    raise InputError("operation on the residual stream", Verbatim(name), remedy)
