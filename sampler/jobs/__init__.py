"""Jobs: recipes, run directories and the stages of a run.

recipe            Recipe, and load_recipe from a TOML file
recipe_sections   the sections of a recipe, with their defaults
recipe_problems   what is wrong with a recipe, in one line
toml_text         settings written as TOML
run_directory     the directory a run writes to
run               commands as sequences of stages
stages            each stage, from data to one result file
importance_stage  independent draws in place of chains
storage           result files, written whole or not at all
manifest          where results came from
progress          what a running sampler shows
point             one point of a sweep, in whatever process
sweep             points on an engine, then the tables
sweep_values      the grid of a sweep as the command line gives it
engines           where points are run: here, on Dask workers, under Slurm
sweep_table, finite_size_table    the tables of a sweep
select_point      the point of a sweep that its validation split chooses
point_directory   where each point of a sweep keeps its results
sweep_dataset     the results of a sweep on its grid
check             sizes, settings and costs of a recipe, without running it
"""
