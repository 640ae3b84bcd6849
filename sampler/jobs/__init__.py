"""Jobs: commands as sequences of stages, for one run, a sweep or a training.

plan          a command planned from its recipe, before JAX is imported
run           a planned run carried out, stage by stage
stages        each stage: rows of examples, theory, draws, comparison
keeper        running chains kept on disk
repetitions   repetitions of particles, made one after the other and kept on disk
interruption  signals that ask to stop
progress      what running jobs show
reproduce     a run done again, compared number by number
sweep         the points of a grid, done on an engine, then gathered
engines       where points are done: Dask workers, Slurm
selection     the point of a sweep that its validation split or evidence chooses
train         training a transformer
ablation      the heads of a trained model removed one by one
joint         the heads of a trained model removed together
choice        operations of sampling by sizes, and the space and algorithm that follow
memory        bytes that this process may have
forecast      memory of a recipe, before anything is built
check         sizes, settings and costs of a recipe, without running it
"""
