"""Recipes: settings read from TOML, validated and frozen before anything is computed.

recipe            Recipe, and load_recipe from a TOML file
sections          its sections, with their defaults and limits
digits_section, time_series_section    the sections of tasks with many settings
network_fit       what a network asks of the other settings
training_recipe   recipes of `train`; image_section and training_section are its sections
episode_tokens    sizes of the images and tokens of an episode
sweep_values      the grid of a sweep as the command line gives it
recipe_problems   what is wrong with a recipe, in one line
toml_text         settings written as TOML
"""
