"""How the models learn: recipes as data, the schedule, the optimiser."""
