"""Jobs: commands as sequences of stages, for one run, a sweep or a training.

run           commands as sequences of stages
start         beginning or going on with a command, up to where JAX is needed
stages        each stage, from data to one result file
keeper        running chains kept on disk
interruption  signals that ask to stop
progress      what running jobs show
reproduce     a run done again, compared number by number
sweep         the points of a sweep, done on an engine
engines       where points are done: Dask workers, Slurm
sweep_tables  the tables of a sweep, and its results on its grid
selection     the point of a sweep that its validation split or evidence chooses
train         training a transformer
prune         which heads of a trained network can go
check         sizes, settings and costs of a recipe, without running it
"""
