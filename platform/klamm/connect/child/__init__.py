"""The code of the child processes: plugin code is called here and nowhere else."""
