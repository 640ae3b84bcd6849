"""Engines: where the points of a sweep are run.

in_process     one after the other, in this process
dask_workers   on Dask workers, of this machine or of a cluster
slurm          as a job array, by a batch script
"""
