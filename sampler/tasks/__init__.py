"""Tasks: inputs and labels of a training and a test split, with their attention matrices.

task            what every task ends in, validated once; heads that a recipe chooses
paths           names of attention paths, and how many of them a theory can have
meaning         numbers that mean nothing here, or may mean something else
splits          examples: held as arrays, or made block by block
head_choice     the variant of every head, and which are learned, as a recipe chooses them
chosen_heads    heads that a recipe chooses for data that come with heads of their own
known_heads     heads that sampled attention is held against
make            from a recipe to its task: heads that it keeps, hypernetworks
markov_chain    hidden Markov chain classification
time_series     time series: drawn, of a hidden oscillation, or read from the UEA archive
series_files    files of the UEA archive of time series
digits          ten classes of handwritten digits, one output each
copying         copying a token that heads find by its position
raven           symbolic Raven's matrices, with heads of a recipe or of a trained transformer
arrays          arrays brought by the user, in files that may be larger than memory
hdf5            HDF5 files of arrays
trained         one-shot images and time series with the attention of a trained transformer
"""
