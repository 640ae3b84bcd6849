"""RPC attention: keys without their outliers, attending to themselves.

Source: arXiv 2406.13762, whose first iteration depends on keys alone and is taken as it is. Further
iterations feed A V back into A; here the inner values are the clipped keys of the iteration before,
which are frozen: a variant of this project.
"""

from typing import Literal

from sampler.attention.forms.form import Array, Form, Positive, Whole, logits, softmax


class Robust(Form):
    """A = softmax(K̃ K̃ᵀ/√G) with K̃ = K clipped to ±limit; queries are not used.

    limit       λμ, in units of the keys
    iterations  1, or more: K̃ ← A K̃ + (K − A K̃ clipped to ±limit), and A anew
    """

    kind: Literal["robust"] = "robust"
    limit: Positive
    iterations: Whole = 1

    def matrices(self, queries: Array, keys: Array) -> Array:
        xp = keys.__array_namespace__()
        clipped = xp.clip(keys, -self.limit, self.limit)
        found = softmax(logits(clipped, clipped))
        for _ in range(self.iterations - 1):
            smooth = found @ clipped
            clipped = smooth + xp.clip(keys - smooth, -self.limit, self.limit)
            found = softmax(logits(clipped, clipped))
        return found
