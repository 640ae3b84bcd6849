"""Jobs: commands as stages, for one run, a sweep or a training.

plan          a command planned from its recipe and data, before JAX is imported
sizes         sizes of a network with its data
method        space and algorithm, by operations per effective draw
memory        memory that a plan needs, and that there is
check         the text of a plan, and check_training of a training
run           runs begun, resumed and extended
stages        the stages of a run: theory, draws, comparison, page
draw          draws from the posterior
folding       rows that represent training examples that exceed the memory
keeper        draws in their checkpoints
stored        comparison and diagnostics of stored results
pages         figures and the page of stored results
reproduce     a run done again, compared number by number
sweep         the points of a grid, done by workers, then gathered
workers       the loop over points, here or in commands that walk them together
dask_workers  points as tasks of a Dask cluster
slurm         a job array for the points of a sweep
train         training a transformer
prune         the heads of a trained network removed
interruption  signals that ask to stop
progress      what running jobs show: a line for each stage, and the time left
"""
