"""Training of a transformer by gradient descent, whose attention the theory then takes as fixed.

training_data  examples to learn, as arrays, and accuracies with their errors
steps          steps, choice by validation, and their checkpoints
"""
