"""Recipes: settings read from TOML, validated and frozen before anything is computed.

sections         the sections of a recipe: settings with type, limits, default and meaning
sampler_section  the one that says how the posterior is sampled
limits           limits of settings that no type has
task_section     those of task and attention, and the table of tasks
shipped          recipes that ship, and copies of them
settings         TOML read and written, dotted keys, values of a command line
recipe           Recipe, from a TOML file and from the command line
training_recipe  recipes of `train`
validation       what is refused, and in which words
"""
