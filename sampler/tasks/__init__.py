"""Tasks: inputs and labels of a training and a test split, with their attention matrices.

task           the container every task fills, validated once
make           from a recipe to its task
markov_chain   hidden Markov chain classification
hypernetwork   attention that serves two layers of weights
time_series    time series of a hidden oscillation, two channel groups of which one leads
series_archive time series of the UEA archive
digits         ten classes of handwritten digits, one output each
arrays         arrays brought by the user
one_shot       one-shot image classification with the attention of a trained model
head_distances how far the heads of a task are apart

What markov_chain and time series share:

chosen_heads       names and forms of the heads that a recipe chooses
positions          beginning-of-sequence token and one-hot positions

What time series are made of:

series_task        from labelled series to a task
series_file        what file formats have in common, and what no file may contain
ts_file, arff_file .ts files; multivariate .arff files
"""
