"""What to cite: this software, and the papers whose theory and forms of attention it has."""

from dataclasses import dataclass

from sampler import __version__
from sampler.presentation.report.elements import Html, element, listing, paragraphs


@dataclass(frozen=True)
class Paper:
    """A paper as CITATION.cff lists it, and what this software has from it."""

    authors: str
    title: str
    where: str
    year: int
    arxiv: str
    why: str


SOFTWARE = f"The attention-posterior contributors: attention-posterior, version {__version__}."
PAPERS = (
    Paper(
        "Lorenzo Tiberi, Francesca Mignacco, Kazuki Irie and Haim Sompolinsky",
        "Dissecting the Interplay of Attention Paths in a Statistical Mechanics Theory of "
        "Transformers",
        "Advances in Neural Information Processing Systems",
        2024,
        "2405.15926",
        "the theory",
    ),
    Paper(
        "Tan M. Nguyen, Tam Nguyen, Nhat Ho, Andrea L. Bertozzi, Richard G. Baraniuk and "
        "Stanley J. Osher",
        "A Primal-Dual Framework for Transformers and Neural Networks",
        "International Conference on Learning Representations",
        2023,
        "2406.13781",
        "attention as support-vector regression, and forms of attention that follow",
    ),
)


def citation() -> Html:
    """Software and papers as a list."""
    papers = [
        element(
            "span",
            f"{paper.authors}: ",
            element("cite", paper.title),
            f". {paper.where}, {paper.year}. ",
            element("a", f"arXiv:{paper.arxiv}", href=f"https://arxiv.org/abs/{paper.arxiv}"),
            f" ({paper.why})",
        )
        for paper in PAPERS
    ]
    return element(
        "div", paragraphs("If this is of use, please cite:"), listing([SOFTWARE, *papers])
    )
