"""The blocks of code in README and in the pages of the site."""

import re

from tests import ROOT

# Fenced as ```kind, or, in README, indented commands.
FENCED = re.compile(r"^```([^\n]*)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?:^|\n\n)((?: {4}\S[^\n]*\n)+)")
PAGES = sorted(ROOT.glob("docs/**/*.md"))
TEXTS = ["README.md", "runs/README.md", *(
    str(path.relative_to(ROOT)) for path in PAGES if "_build" not in path.parts
)]  # fmt: skip
PROGRAM = "attention-posterior"


def blocks(name: str) -> list[tuple[str, str]]:
    """Kind and text of every block of a page, in order; indented commands are of kind `bash`."""
    text = (ROOT / name).read_text(encoding="utf-8")
    found = [(at.start(), at[1].split()[0] if at[1] else "", at[2]) for at in FENCED.finditer(text)]
    if name == "README.md":
        found += [(at.start(), "bash", dedented(at[1])) for at in INDENTED.finditer(text)]
    return [(kind, block) for _, kind, block in sorted(found)]


def dedented(block: str) -> str:
    return "".join(line[4:] + "\n" for line in block.splitlines())


def commands(name: str) -> list[str]:
    """Every command of the program on a page, without comments; `$` marks lines of a loop."""
    found = []
    for kind, block in blocks(name):
        if kind not in ("bash", "{code-cell}"):
            continue
        for line in block.replace("\\\n", " ").splitlines():
            command = line.strip().removeprefix("!").removeprefix(".venv/bin/")
            command = re.sub(r"^[A-Z_]+=\S+ ", "", command)
            if command.startswith(f"{PROGRAM} ") and "${" not in command:
                found.append(command.split("  #")[0].strip())
    return found
