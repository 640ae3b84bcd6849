"""What people see, drawn from stored results alone.

summary  what the terminal and notebooks show of a run
figures  the figures of runs, sweeps and studies
report   one page about a run or a sweep
style    colours, fonts, and writing a figure to disk
"""
