"""The templates of pages and tables, in the folder `pages`; every text in them is escaped."""

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from sampler.analysis.text import marked


@cache
def templates() -> Environment:
    loader = PackageLoader("sampler.presentation", "pages")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    environment.filters["marked"] = marked
    return environment
