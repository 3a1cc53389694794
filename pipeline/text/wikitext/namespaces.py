"""Language-dependent words of wikitext, of `namespaces.yaml`."""

from pipeline.common.tables import read_table

_WORDS = read_table(__file__, "namespaces.yaml")
FILES, CATEGORIES = (tuple(name.replace("_", " ") for name in _WORDS[kind].split()) for kind in ("files", "categories"))
LANGUAGES, REDIRECTS = tuple(_WORDS["languages"].split()), tuple(_WORDS["redirects"].split())
LINK_SECTIONS = frozenset(
    title.strip().casefold() for title in _WORDS["link_sections"].replace("\n", ";").split(";")
) - {""}
