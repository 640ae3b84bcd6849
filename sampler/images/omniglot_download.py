"""Fetching Omniglot's official files, each checked against its checksum."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from sampler.errors import InputError

URL = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/"
CHECKSUMS: Mapping[str, str] = MappingProxyType(
    {
        "images_background.zip": "md5:68d2efa1b9178cc56df9314c21c6e718",
        "images_evaluation.zip": "md5:6b91aef0f799c5bb55b94e3f2daec811",
        "images_background_small1.zip": "sha256:"
        "f38eb80f801274ac2b4dff5b24289016bfaba4a7d5bb50deebf27104ad6cb8a4",
        "images_background_small2.zip": "sha256:"
        "3ccaa407515a8778e5d0861875af38b17e418f301ad5bb3b5a6b65d901a41c7f",
        "all_runs.zip": "sha256:437c1eeab0af8484112e1b4cc0f3d541ec727f7c47b9b202da738af9dfd6c325",
    }
)


def download_omniglot(
    folder: Path,
    names: tuple[str, ...],
    url: str = URL,
    checksums: Mapping[str, str] = CHECKSUMS,
) -> None:
    """Put these files into a folder; those that are there and intact are left alone.

    Raises InputError where a file cannot be fetched, written, or has another checksum.
    """
    import pooch  # only here: whoever has the files needs no network

    pooch.get_logger().setLevel("WARNING")
    base = url if url.endswith("/") else f"{url}/"
    keeper = pooch.create(path=folder, base_url=base, registry=dict(checksums))
    for name in names:
        try:
            keeper.fetch(name)
        # The libraries beneath raise OSError for what the network does, ValueError for a checksum
        # or an address.
        except (OSError, ValueError) as problem:
            raise InputError(
                "task.download",
                f"{base}{name}",
                f"cannot be fetched ({problem}); put the file into {folder} yourself, or use "
                'images = "digits"',
            ) from None
