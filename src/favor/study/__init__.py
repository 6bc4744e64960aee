"""Studies: their files, the jobs they consist of, the runner, and the answer at the end."""
