"""How many of them run: study files, the plan of jobs that they stand for, the runner, and the answer at the end."""
