"""Jobs: recipes, run directories and the stages of a run.

recipe            Recipe, and load_recipe from a TOML file
recipe_sections   the sections of a recipe, with their defaults
recipe_problems   what is wrong with a recipe, in one line
toml_text         settings written as TOML
run_directory     the directory a run writes to
check             sizes, settings and costs of a recipe, without running it
"""
