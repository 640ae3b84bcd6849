"""Settings: every one declared once, as a recipe key, a Python keyword, help and reference.

section           the base of all sections, and their errors on one line
types             numbers, texts and paths with their limits
network_sections  the sections network, posterior and theory
sampler           the section sampler: how the posterior is sampled
task_sections     the sections task and attention, and the table of tasks
training          the section training, and the table of what networks are trained on
recipe            recipes of runs and trainings, from a TOML file, nested tables and changes
identity          the fields of a recipe that fix its draws, and those that name files
point_labels      labels of the points of a sweep
toml              TOML read and written; KEY=VALUE of a command line
refusals          settings that do not go together
gallery           recipes that ship, and copies of them
"""
