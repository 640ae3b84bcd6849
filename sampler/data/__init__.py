"""Data: inputs and labels of every split, with their attention matrices; a file for each task.

split            examples: held as arrays, or made block by block
checks           what the arrays of a split must be, and what is doubtful about them
labelled_inputs  labels and positions as numbers; inputs of several classes
task             what every task ends in, validated once; names and number of its paths
drawn_task       what a task whose heads are drawn has to say, and what is made of it
heads_of_task    heads of a trained transformer, or chosen among those of the data
make             from a recipe to its task: heads that it keeps, hypernetworks
markov_chain     hidden Markov chain classification
time_series      time series: drawn, of a hidden oscillation, or read from the UEA archive
digits           images in patches: handwritten digits, or those of a file; an output per class
copying          copying a token that heads find by its position
in_context_regression  regression on the pairs of a sequence: one step of gradient descent
associative_recall     recall of a value by its key
one_shot         one-shot classification of images with the attention of a trained transformer
episodes         one-shot episodes of drawings, and their tokens
image_files      images of characters from files, Omniglot among them
arrays           arrays brought by the user, in files that may be larger than memory
array_files      those files: .npz, read whole, and HDF5, read in parts
"""
