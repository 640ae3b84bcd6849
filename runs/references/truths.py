"""Truths from outside: posteriors that need no sampler, in NumPy and SciPy alone.

scalars      deep linear networks with one head a layer and one output: U_1 … U_a are numbers, their
             logarithms sums of those of χ² variables, and K = U_1 C has the eigenvectors of C
closed_form  a network so wide that U_l is what it is a priori
prior_draws  draws of logits from their prior, weighed by the likelihood

Each returns functionals by name as (values [draw, element], weights [draw]), and ln p(y) with its
error. Source of the first: arXiv 2406.03260; at zero noise the evidence is a Meijer G function
(arXiv 2212.14457).
"""

import math

import numpy as np
from scipy.special import gammaln

STEP, REACH = 0.004, 24.0
# Nodes of ln 𝒯, where it has a prior, in its standard deviations.
NODES = np.linspace(-7.0, 7.0, 449)
# Points of the grid that hold less than this of the posterior are left out.
NEGLIGIBLE = 1e-12


def log_chi_squared(width, variance, logs):
    """Density of t = ln(σ² χ²_N/N)."""
    t = logs - math.log(variance)
    half = width / 2
    return np.exp(half * math.log(half) + half * t - half * np.exp(t) - gammaln(half))


def scalars(widths, variances, attended, labels, attended_test, labels_test, temperature, spread=0):
    """Posterior of U_1 … U_a, [example, channel] being the inputs; widths N_1 … N_L, N_a."""
    step = 2 * STEP if spread else STEP
    count = round(REACH / step)
    logs = step * np.arange(-count, count + 1)
    laws = [log_chi_squared(n, v, logs) for n, v in zip(widths, variances[1:], strict=True)]
    prior = [laws[-1]]  # of ln U_a, ln U_L, … ln U_1
    for law in laws[-2::-1]:
        prior.append(step * np.convolve(prior[-1], law, "same"))
    prior = prior[::-1]

    scale = variances[0] / attended.shape[1]
    eigenvalues, vectors = np.linalg.eigh(scale * attended @ attended.T)
    eigenvalues, along = np.maximum(eigenvalues, 0.0), vectors.T @ labels
    nodes = NODES if spread else np.zeros(1)
    masses = np.exp(-(nodes**2) / 2) / np.exp(-(nodes**2) / 2).sum()
    noise = temperature * np.exp(spread * nodes)
    logarithm = np.empty((len(noise), len(logs)))
    for place, T in enumerate(noise):
        total = np.multiply.outer(np.exp(logs), eigenvalues) + T
        logarithm[place] = -0.5 * (np.log(2 * np.pi * total) + along**2 / total).sum(axis=1)
    largest = logarithm.max()
    likelihood = np.exp(logarithm - largest) * masses[:, None]
    joint = likelihood * prior[0] * step
    evidence = largest + math.log(joint.sum())

    kept = joint > NEGLIGIBLE * joint.sum()
    weights = joint[kept] / joint[kept].sum()
    U, T = (np.broadcast_to(a, joint.shape)[kept] for a in (np.exp(logs), noise[:, None]))
    found = {"order_parameter": (U[:, None], weights)}
    # Upper layers: what lies below each is integrated out, from the likelihood of ln U_1 upwards.
    of_layer = likelihood.sum(axis=0)
    for layer in range(1, len(widths)):
        of_layer = step * np.convolve(of_layer, laws[layer - 1][::-1], "same")
        mass = of_layer * prior[layer]
        some = mass > NEGLIGIBLE * mass.sum()
        last = layer + 1 == len(widths)
        name = "readout_order_parameter" if last else f"order_parameter_layer_{layer + 1}"
        found[name] = np.exp(logs[some])[:, None], mass[some] / mass[some].sum()

    cross, among = (
        scale * attended_test @ attended.T @ vectors,
        scale * attended_test @ attended_test.T,
    )
    total = np.multiply.outer(U, eigenvalues) + T[:, None]
    mean = U[:, None] * ((along / total) @ cross.T)
    variance = U[:, None] * np.diag(among) - U[:, None] ** 2 * ((1 / total) @ (cross**2).T)
    pairs = among[np.arange(len(among)), (np.arange(len(among)) + 1) % len(among)]
    found |= {
        "predictor_mean": (mean, weights),
        "predictor_variance": (variance, weights),
        "kernel": (np.multiply.outer(U, pairs), weights),
        "energy": ((np.log(total) + along**2 / total).sum(axis=1)[:, None], weights),
    }
    if set(np.unique(labels_test)) <= {-1.0, 1.0}:
        right = (np.sign(mean) == np.sign(labels_test)).mean(axis=1)[:, None]
        found["accuracy"] = right, weights
    if spread:
        found["temperature"] = T[:, None], weights
    return found, {"value": evidence, "mcse": 0.0, "method": "integral over scalars"}


def closed_form(data, variances, heads):
    """A network of infinite width: one value of each functional, without a spread."""
    found, outputs = {}, data.outputs
    for layer in range(len(heads), -1, -1):
        rows = math.prod(heads[layer:]) * outputs
        names = [
            "order_parameter",
            *(f"order_parameter_layer_{n + 1}" for n in range(1, len(heads))),
        ]
        name = [*names, "readout_order_parameter"][layer]
        found[name] = math.prod(variances[layer + 1 :]) * np.eye(rows)[None, None]
    values = data.of_order_parameters(dict(sorted(found.items())))
    energy = values["energy"].item()
    evidence = -0.5 * (energy + data.labels.size * math.log(2 * math.pi))
    one = np.ones(1)
    return (
        {name: (value[0], one) for name, value in values.items()},
        {"value": evidence, "mcse": 0.0, "method": "closed form"},
    )


def prior_draws(data, inputs, scale, count, kept, seed):
    """Draws of the logits of positions from their prior, at infinite width and variances of 1.

    inputs  of training examples, then of test examples
    scale   standard deviation of the logits
    kept    about so many stand for all: one of a small weight w is kept with the probability w/c,
            and has then the weight c
    """
    rng = np.random.default_rng(seed)
    attention = np.exp(scale * rng.standard_normal((count, inputs.shape[1])))
    attention /= attention.sum(axis=1, keepdims=True)
    known, outputs = data.labels.shape

    def kernels(weights, examples):
        attended = np.einsum("nt,etd->ned", weights, examples) / math.sqrt(examples.shape[2])
        return np.einsum("npd,nqd->npq", attended, attended)

    log_weights = []
    for some in np.array_split(attention, max(1, count // 2000)):
        root = np.linalg.cholesky(kernels(some, inputs[:known]) + data.temperature * np.eye(known))
        labels = np.broadcast_to(data.labels, (len(root), known, outputs))
        squares = (np.linalg.solve(root, labels) ** 2).sum(axis=(1, 2))
        logarithms = np.log(np.einsum("nii->ni", root)).sum(axis=1)
        log_weights.append(-0.5 * squares - outputs * logarithms)
    log_weights = np.concatenate(log_weights) - 0.5 * data.labels.size * math.log(2 * math.pi)
    raw = np.exp(log_weights - log_weights.max())
    evidence = {
        "value": log_weights.max() + math.log(raw.mean()),
        "mcse": float(raw.std(ddof=1) / raw.mean() / math.sqrt(count)),
        "method": "draws from the prior",
    }
    limit = raw.sum() / kept
    chosen = rng.random(count) < raw / limit
    weights = np.maximum(raw[chosen], limit)

    def expanded():
        for some in np.array_split(attention[chosen], max(1, chosen.sum() // 200)):
            of_outputs = np.einsum("nxy,ab->nxayb", kernels(some, inputs), np.eye(outputs))
            yield of_outputs.reshape(len(some), len(inputs) * outputs, -1)

    values = data.of_kernels(expanded(), {}, (1, int(chosen.sum())))
    return {name: (value[0], weights / weights.sum()) for name, value in values.items()}, evidence
