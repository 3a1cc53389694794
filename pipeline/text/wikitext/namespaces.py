"""Language-dependent words of wikitext: namespaces, redirects, section titles.

A dump lists its namespaces but not their aliases, and an article copied from another language keeps
that language's words. These lists therefore hold the words of all larger Wikipedias; none of them
has another meaning before a colon or as a section title.
"""

from pipeline.common import data_files

_WORDS: dict[str, str] = data_files.of(__file__)
FILES, CATEGORIES = (tuple(name.replace("_", " ") for name in _WORDS[key].split()) for key in ("files", "categories"))
LANGUAGES, REDIRECTS = (tuple(_WORDS[key].split()) for key in ("languages", "redirects"))
LINK_SECTIONS = frozenset(
    title.strip().casefold() for line in _WORDS["link_sections"].splitlines() for title in line.split(";")
) - {""}
