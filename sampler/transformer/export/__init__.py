"""The attention of your own PyTorch model, as arrays that `task.kind = "arrays"` reads.

write      export_attention: from a model and its examples to the .npz file
record     record_attention: the same without a file
recorded   what is kept: tokens of the first layer, and attention of all layers and heads
hooks      attention of torch.nn.MultiheadAttention, which its callers throw away
returned   attention that a model returns when asked, as Hugging Face models do
batches    examples, a few at a time
pytorch    PyTorch, imported when it is needed: it is an extra
"""

from sampler.transformer.export.record import record_attention as record_attention
from sampler.transformer.export.recorded import RecordedAttention as RecordedAttention
from sampler.transformer.export.write import export_attention as export_attention
