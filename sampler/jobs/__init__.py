"""Jobs: commands as sequences of stages, for one run, a sweep or a training.

run               commands as sequences of stages
run_start         beginning a command, up to where JAX is needed
stages            each stage, from data to one result file
importance_stage  independent draws in place of chains
chain_keeper      keeps running chains on disk, and finds where to go on
chain_store       segments of draws and checkpoints that take turns
interruption      signals that ask to stop
second_signal     the second of them, where the first could not be heard
continuation      going on with a run, and appending draws
reproduce         a run done again, compared number by number
progress          what running chains show
written           the figures and pages that a command has written, in a line
point             one point of a sweep, in whatever process
sweep             points on an engine, then the tables
sweep_text        what a sweep prints: a row per point, and what failed
engines           where points are run: here, on Dask workers, under Slurm
sweep_table, finite_size_table, seed_averages    the tables of a sweep
sweep_dataset     the results of a sweep on its grid
select_point      the point of a sweep that its validation split chooses
select_by_evidence  the point that its training labels choose
train_start       a training up to where JAX is needed; train the rest of it
prune             which heads of a trained network can go
coordinates       what is refused for the number of order parameters
check             sizes, settings and costs of a recipe, without running it
check_training    the same for a training recipe
"""
