"""One optimizer step: gradients accumulated over micro-batches and processes, clipped, then one update."""

from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from favor.data.augment import Batch
from favor.data.loader import BatchPlan
from favor.machine.precision import Precision
from favor.trace.optimizer import create_optimizer, parameter_groups
from favor.training.layer_decay import with_layer_decay
from favor.training.recipe import Recipe
from favor.zoo.training import take_extra_losses


class Learner:
    """A model with its loss, gradient scaler and optimizer.

    The gradient is that of the mean loss over all images of the step, however it is split into micro-batches.
    """

    def __init__(self, model: nn.Module, recipe: Recipe, plan: BatchPlan, num_classes: int, precision: Precision):
        self.model = model
        self.weights = model.module if isinstance(model, DistributedDataParallel) else model
        self.device = next(self.weights.parameters()).device
        groups = parameter_groups(self.weights, recipe.weight_decay)
        if recipe.layer_decay is not None:
            groups = with_layer_decay(self.weights, groups, recipe.layer_decay)
        self.optimizer: Optimizer = create_optimizer(
            groups,
            recipe.optimizer,
            lr=recipe.lr,
            betas=(recipe.beta1, recipe.beta2),
            eps=recipe.eps,
            momentum=recipe.momentum,
        )
        self.precision, self.scaler = precision, precision.scaler(self.device)
        self._plan, self._num_classes = plan, num_classes
        self._smoothing, self._largest_norm = recipe.label_smoothing, recipe.clip_grad
        if self.model is self.weights:
            # Python handles signals only when it runs, and a backward pass is a single call without it.
            for parameter in self.weights.parameters():
                if parameter.requires_grad:
                    parameter.register_post_accumulate_grad_hook(lambda _: None)

    def gather(self, batch: Batch, last: bool) -> Tensor:
        """Accumulate the gradients of a micro-batch; returns its loss, summed over the images. `last`: of the step.

        An empty micro-batch (all images broken) gets a pass of zero weight, since processes wait for each other.
        """
        several = isinstance(self.model, DistributedDataParallel)
        with self.model.no_sync() if several and not last else nullcontext():  # type: ignore[operator]
            objective = self.objective(batch if len(batch) else _blank(batch))
            # Averaged over processes and summed over micro-batches, this is the mean over the images of the step.
            share = len(batch) * self._plan.share.processes / self._plan.batch_size
            self.scaler.scale(objective * share).backward()
        return objective.detach() * len(batch)

    def objective(self, batch: Batch) -> Tensor:
        """Cross entropy with the smoothed and mixed labels, and the model's own terms; the mean over the images."""
        with self.precision.context(self.device):
            logits = self.model(batch.images)
        loss = F.cross_entropy(logits.float(), batch.targets(self._num_classes, self._smoothing))
        return sum(take_extra_losses(self.weights).values(), loss)

    def clip(self, images: int) -> Tensor | None:
        """Scale the gradients to the mean over so many images of all processes, and clip their norm.

        Returns the norm before clipping, if the recipe clips.
        """
        if self.scaler.is_enabled():
            self.scaler.unscale_(self.optimizer)
        if 0 < images != self._plan.batch_size:
            # Broken images were left out: the mean is over the others.
            for parameter in self.weights.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(self._plan.batch_size / images)
        if self._largest_norm is None:
            return None
        return nn.utils.clip_grad_norm_(self.weights.parameters(), self._largest_norm)

    def update(self, lr: float) -> None:
        """Update the weights, and clear the gradients."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group.get("lr_scale", 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)

    def gradient_norm(self) -> float:
        """The norm of the current gradients, before they are unscaled and clipped."""
        gradients = [parameter.grad for parameter in self.weights.parameters() if parameter.grad is not None]
        return float(nn.utils.get_total_norm(gradients)) / self.scaler.get_scale() if gradients else 0.0


def _blank(batch: Batch) -> Batch:
    """Two blank images, since batch norms refuse a single one."""
    labels = torch.zeros(2, dtype=torch.long, device=batch.labels.device)
    share = torch.ones(2, device=batch.labels.device)
    return Batch(batch.images.new_zeros(2, *batch.images.shape[1:]), labels, np.zeros(2, dtype=np.int64), labels, share)
