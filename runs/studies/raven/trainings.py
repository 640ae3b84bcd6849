"""Tables of the trainings that are frozen in trainings.json."""

from runs.studies.tables import Table, table

SHARES = {"symbols right, seen": ("seen/symbols", 3), "held out": ("held out/symbols", 3)}
BESIDE = {
    "squared error, held out − seen (10⁻³)": ("loss, held out minus seen", 1, 1000),
    "HYLA − this, held out (points)": ("HYLA minus this", 1, 100),
}
AT_END = {
    "squared error, seen": ("seen/loss", 3),
    **SHARES,
    "whole panels, held out": ("held out/panels", 2),
    **BESIDE,
}
OF_TRAININGS = {
    "trainings at equal error": (
        "0.08",
        {
            "trainings of five that reach it": ("reached", 0),
            "after steps": ("steps", 0),
            **SHARES,
            **BESIDE,
        },
    ),
    "trainings": ("end", AT_END),
    "rules": (
        "end",
        {
            name: (f"held out/{key}", 3)
            for name, key in (
                ("constant", "constant"),
                ("+1", "progression_1"),
                ("+2", "progression_2"),
                ("sum", "sum"),
                ("distribution of three", "distribution"),
            )
        },
    ),
    "codes": (
        "end",
        {
            name: (f"decoder/{key}", 3)
            for name, key in (
                ("code of the token that asks", "token that asks"),
                ("of all pairs of tokens", "all pairs of tokens"),
                ("panels themselves", "panels themselves"),
                ("all pairs, rules shuffled", "shuffled"),
            )
        },
    ),
    "longer": (
        "longer",
        {
            **AT_END,
            "sum, held out": ("held out/sum", 2),
            "distribution of three, held out": ("held out/distribution", 2),
            "rules read off all pairs": ("decoder/all pairs of tokens", 2),
        },
    ),
}
KINDS = ("softmax", "linear", "head-normalised", "HYLA", "HYLA, linear values")


def tables_of(trainings: dict) -> dict[str, Table]:
    """What each kind of attention learned, by the table of the page."""
    return {
        name: table("attention", {kind: trainings[part][kind] for kind in KINDS}, columns)
        for name, (part, columns) in OF_TRAININGS.items()
    }
