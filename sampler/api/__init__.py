"""The package from Python, by the same functions as the command line.

keywords    signatures written out, and errors in terms of Python
tasks       data: one function for each kind of task
networks    a network, and its meeting with a task
results     solve, sample, compare, and the problem for a theory of one's own
"""
