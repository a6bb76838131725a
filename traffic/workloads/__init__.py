"""Training: a model and its split over ranks -> groups, messages, the order of a step, and how long it should take.

models.py and split.py say what there is; messages.py and gradients.py what it sends; pipeline.py and step.py in which order.
timing.py plays a plan with given costs, planned.py makes it a schedule to run; report.py turns times, played or measured,
into figures.
"""
