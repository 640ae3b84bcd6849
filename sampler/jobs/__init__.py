"""Jobs: recipes, run directories and the stages of a run.

recipe            Recipe, and load_recipe from a TOML file
recipe_sections   the sections of a recipe, with their defaults
training_recipe   recipes of `train`; image_section and training_section are its sections
network_fit       what a network asks of the other settings
recipe_problems   what is wrong with a recipe, in one line
toml_text         settings written as TOML
run_directory     what a run directory is called, and how files get there
claim             claiming a directory, before anything is computed
lock              one process per directory
fingerprint       what a run must have in common with an earlier one to go on with it
run               commands as sequences of stages
train_start       a training up to where JAX is needed; train the rest of it
stages            each stage, from data to one result file
importance_stage  independent draws in place of chains
run_start         beginning a command, up to where JAX is needed
chain_keeper      keeps running chains on disk, and finds where to go on
chain_store       segments of draws and checkpoints that take turns
checkpoint_slots  the two checkpoints that take turns
sealed            files under a checksum
interruption      signals that ask to stop
continuation      going on with a run, and appending draws
reproduce         a run done again, compared number by number
status            where a run stands
storage           result files, written whole or not at all
json_file         the same for JSON
schema            the version of stored results
manifest          where results came from, and how far they are
progress, log     what a running sampler shows, and run.log
point             one point of a sweep, in whatever process
sweep             points on an engine, then the tables
sweep_values      the grid of a sweep as the command line gives it
engines           where points are run: here, on Dask workers, under Slurm
sweep_table, finite_size_table    the tables of a sweep
select_point      the point of a sweep that its validation split chooses
point_directory   where each point of a sweep keeps its results
sweep_dataset     the results of a sweep on its grid
check             sizes, settings and costs of a recipe, without running it
check_training    the same for a training recipe
"""
