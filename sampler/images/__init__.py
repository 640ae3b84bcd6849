"""Images of characters, and the one-shot episodes made of them.

drawings  drawings of characters; supports and query drawn with a seed, and their tokens
sources   the drawings that a recipe names, and how characters are split
omniglot  Omniglot from its zip files, its download and its one-shot runs
"""
