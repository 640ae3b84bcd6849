"""PyTorch, imported when it is needed: it is an extra, so tensors and modules are `Any` here."""

from importlib import import_module
from typing import Any

import numpy as np

from sampler.errors import ABSENT, InputError


def torch_module() -> Any:
    """PyTorch; InputError, with the way to install it, where it is absent."""
    try:
        return import_module("torch")
    except ImportError:
        remedy = "PyTorch is an extra: pip install -c constraints.txt -e '.[torch]'"
        raise InputError("torch", ABSENT, remedy) from None


def as_numpy(tensor: Any) -> np.ndarray:
    """A tensor of any device and precision as a float32 array of its own."""
    torch = torch_module()
    return tensor.detach().to("cpu", torch.float32, copy=True).numpy()
