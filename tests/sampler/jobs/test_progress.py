"""Progress is one live line in a notebook, and figures show themselves there."""

import pytest

from tests import ROOT

jupyter_client = pytest.importorskip("jupyter_client", reason="notebooks need Jupyter")
pytest.importorskip("ipykernel", reason="notebooks need Jupyter")

CELL = """
from sampler.jobs.progress import ProgressDisplay
from sampler.presentation.style import new_figure

with ProgressDisplay() as progress:
    for done in range(1, 4):
        progress.show("draws", done, 3, f"{3 - done} s left")
new_figure(1.0, 1.0)
"""


@pytest.fixture(scope="module")
def messages():
    """Type and content of what the kernel answers to one cell."""
    manager = jupyter_client.KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(ROOT))
    client = manager.client()
    found = []
    try:
        client.start_channels()
        client.wait_for_ready(timeout=120)
        reply = client.execute_interactive(
            CELL,
            timeout=300,
            output_hook=lambda one: found.append((one["msg_type"], one["content"])),
        )
        assert reply["content"]["status"] == "ok", reply["content"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return found


@pytest.mark.slow
def test_progress_is_one_line_that_changes(messages):
    assert [kind for kind, _ in messages].count("display_data") == 1
    assert "draws" not in "".join(one["text"] for kind, one in messages if kind == "stream")
    lines = [one["data"]["text/plain"] for kind, one in messages if kind == "update_display_data"]
    assert lines == ["draws 1/3 2 s left", "draws 2/3 1 s left", "draws 3/3 0 s left"]
    shown = {one["transient"]["display_id"] for kind, one in messages if "display_data" in kind}
    assert len(shown) == 1


@pytest.mark.slow
def test_a_figure_shows_itself(messages):
    results = [one for kind, one in messages if kind == "execute_result"]
    assert "image/png" in results[0]["data"]
