"""Head-normalised linear attention, the attention of HYLA (arXiv 2406.05816)."""

from typing import Literal

from sampler.attention.forms.form import Array, Form, Positive, logits


class HeadNormalised(Form):
    """A^h_ij = l^h_ij/√(Σ_h' (l^h'_ij)²/H + ε), the logits l = q·k/√G over their size over heads.

    The heads are those of the layer that share this form; nothing sums to 1.
    """

    kind: Literal["head_normalised"] = "head_normalised"
    epsilon: Positive = 1e-5

    def matrices(self, queries: Array, keys: Array) -> Array:
        xp = queries.__array_namespace__()
        values = logits(queries, keys)
        return values / xp.sqrt(xp.mean(values**2, axis=1, keepdims=True) + self.epsilon)
