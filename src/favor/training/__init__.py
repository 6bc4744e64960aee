"""How the models learn: recipes as data, the loop, checkpoints, clocks.

    from favor.training.recipe import load_recipe
    from favor.training.request import TrainingRequest
    from favor.training.run import train

    outcome = train(TrainingRequest("vit_xs4", load_recipe("laptop-digits"), data="digits", study=Path("my-study")))
    outcome.ending, outcome.record.metrics["top1"].value, outcome.folder

`train` writes one record per epoch to `my-study/records.jsonl`, and checkpoints below `my-study/runs/`. A failure is a
record too, and is raised as a WorkError. See `docs/training.md`. This package itself imports no torch.
"""
