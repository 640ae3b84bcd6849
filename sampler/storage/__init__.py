"""What is on disk: run directories, and files that are whole or not there.

run_directory     what a run directory is called, and how files get there
point_directory   where each point of a sweep keeps its results
claim             claiming a directory, before anything is computed
lock              one process per directory
fingerprint       what a run must have in common with an earlier one to go on with it
manifest          where results came from, and how far they are
status            where a run stands
results           result files, written whole or not at all
json_file         the same for JSON
npz_file          arrays that users bring
schema            the version of stored results
sealed            files under a checksum
checkpoint_slots  the two checkpoints that take turns
log               run.log
"""
