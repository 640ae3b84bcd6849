"""Chains shared out over devices: a processor divided into several stands for them."""

import jax
import numpy as np
import pytest

from sampler.errors import ExitCode
from sampler.mcmc.chunks import devices_for
from sampler.storage.manifest import read_manifest
from tests.commands import TINY, command, settings, stored_arrays

DIVIDED = "--xla_force_host_platform_device_count={count}"
SHORT = ("sampler.warmup=10", "sampler.draws=10", "sampler.max_tree_depth=4")


@pytest.mark.parametrize(
    ("chains", "devices", "used"), [(4, 1, 1), (4, 2, 2), (4, 3, 2), (3, 2, 1), (6, 4, 3)]
)
def test_every_device_has_as_many_chains(monkeypatch, chains, devices, used):
    monkeypatch.setattr(jax, "devices", lambda: list(range(devices)))
    assert len(devices_for(chains)) == used


@pytest.mark.slow
@pytest.mark.parametrize("space", ["order_parameters", "weights"])
def test_draws_do_not_depend_on_the_number_of_devices(space, tmp_path, monkeypatch):
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(TINY)
    found = {}
    for count in (1, 4):
        monkeypatch.setenv("XLA_FLAGS", DIVIDED.format(count=count))
        directory = tmp_path / f"{count}"
        code, errors = command(
            "sample", recipe, "--out", directory, *settings(f"sampler.space={space}", *SHORT)
        )
        # so few draws pass no diagnostics
        assert code in (ExitCode.OK, ExitCode.DIAGNOSTICS_FAILED), errors
        assert len(read_manifest(directory).devices) == count
        found[count] = stored_arrays(directory)["posterior/order_parameter"]
    assert np.ptp(found[1], axis=1).min() > 0
    # rounding, magnified by at most twenty transitions
    np.testing.assert_allclose(found[4], found[1], rtol=1e-6)
