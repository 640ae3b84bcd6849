"""Tasks: inputs and labels of a training and a test split, with their attention matrices.

task           the container every task fills, validated once
make           from a recipe to its task
markov_chain   hidden Markov chain classification
arrays         arrays brought by the user
"""
