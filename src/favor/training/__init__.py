"""How the models learn: recipes as data, the loop, checkpoints, clocks.

    from favor.training.recipe import load_recipe
    from favor.training.request import TrainingRequest
    from favor.training.run import train

    outcome = train(TrainingRequest("vit_xs4", load_recipe("laptop-digits"), data="digits", out=Path("my-study")))
    outcome.ending, outcome.record.metrics["top1"].value, outcome.folder

`train` writes one record per epoch to `out/records.jsonl` and its checkpoints below `out/runs/`; a failure is a record
too, and is raised as a WorkError. See `docs/training.md`. This package itself imports no torch.
"""
