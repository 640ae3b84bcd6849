"""The optimiser of a training recipe."""

import optax

from sampler.recipes.training_section import TrainingSection


def make_optimiser(settings: TrainingSection) -> optax.GradientTransformation:
    """AdamW or Adam with the learning rate of the schedule.

    "adamw" shrinks the weights by learning rate × decay at every step; "adam" adds decay × weight
    to the gradient instead. "cosine" goes from the learning rate to 0 as (1 + cos πt/T)/2.
    """
    rate = settings.learning_rate
    if settings.schedule == "cosine":
        rate = optax.cosine_decay_schedule(settings.learning_rate, settings.steps)
    if settings.optimiser == "adamw":
        return optax.adamw(rate, weight_decay=settings.weight_decay)
    return optax.chain(
        optax.add_decayed_weights(settings.weight_decay),
        optax.scale_by_adam(),
        optax.scale_by_learning_rate(rate),
    )
