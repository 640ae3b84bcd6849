"""Files on disk: run directories, and writing that leaves files whole or not there.

run_directory  what a run directory is called, its small files, and its log
manifest       where results came from, how far they are, and who may go on with them
results        result files of a run, written and read; values as JSON has them, and back
checkpoint     sealed files, and checkpoints that take turns
lock           one process per directory
status         where a run stands
listing        which runs there are, the newest first
"""
