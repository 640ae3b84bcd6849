"""Files on disk: run directories, and writing that leaves files whole or not there.

files         written whole or not at all; strict JSON, and values as it has them
directory     names of files, log and lock of a run directory
manifest      commands of a directory, and who computed each stage
fingerprint   what determines the draws, and what files say of it
run_directory a directory that this process holds: who may continue it, its manifest in memory
result_files  result files of a run, written and read
archives      arrays and a header in an `.npz`
checkpoints   the two files in which all that runs for long is saved
status        which runs there are, and the progress of each
"""
