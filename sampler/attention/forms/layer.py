"""The heads of one layer, each with its form."""

from typing import Annotated

from pydantic import Field

from sampler.attention.forms.batch_normalised import BatchNormalised
from sampler.attention.forms.form import Array, Form
from sampler.attention.forms.hard_maximum import HardMaximum
from sampler.attention.forms.head_normalised import HeadNormalised
from sampler.attention.forms.linear import Linear
from sampler.attention.forms.robust import Robust
from sampler.attention.forms.scaled import Scaled
from sampler.attention.forms.scaled_heads import ScaledHeads
from sampler.attention.forms.softmax import Softmax

AnyForm = Annotated[
    Softmax
    | HardMaximum
    | Linear
    | BatchNormalised
    | ScaledHeads
    | Robust
    | Scaled
    | HeadNormalised,
    Field(discriminator="kind"),
]


def layer_matrices(forms: tuple[Form, ...], queries: Array, keys: Array) -> Array:
    """A [example, head, query, key] of a layer; heads of equal form are computed together.

    queries, keys: [example, head, token, key channel], one form for each head.
    """
    xp = queries.__array_namespace__()
    found: dict[int, Array] = {}
    for form in dict.fromkeys(forms):
        heads = [head for head, other in enumerate(forms) if other == form]
        together = form.matrices(queries[:, heads], keys[:, heads])
        found |= {head: together[:, place] for place, head in enumerate(heads)}
    return xp.stack([found[head] for head in range(len(forms))], axis=1)
