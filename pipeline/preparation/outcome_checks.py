"""What `prepare` says of the documents of a finished job: its line, its warnings, and what must be changed."""

from collections import Counter

from pipeline import readers
from pipeline.config import PrepareConfig
from pipeline.console.formatting import pluralize
from pipeline.errors import InputError, named
from pipeline.filtering import filters
from pipeline.preparation.documents import ENDS, ENTITIES, TOKENIZED
from pipeline.preparation.plan import PreparePlan
from pipeline.readers.files import UNREAD
from pipeline.readers.formats import MARKED, by_name
from pipeline.readers.io.archives import IN_ARCHIVES
from pipeline.readers.io.row_fields import HTML_NOTE, LEFT_OUT
from pipeline.records.estimate import size
from pipeline.records.metrics import MIXED, OUTCOMES, CorpusCounts
from pipeline.shards.holdout import LowestHashes, how_to_set, sensible_count
from pipeline.tokenization.coverage import Coverage

MOST_HELD_OUT = 0.35  # of the instances; more is worth a warning
NOTED = 0.01  # of the documents; fewer with markup are not worth one


# The fix if a single document cannot be divided between training and validation.
FEWER = (
    f"add documents, split them into smaller ones, or set {named('validation_share')}=0 for shards that are trained "
    "on together with others"
)


# The fix if documents are too short for pairs.
MORE_TEXT = f"add documents of several sentences, or set {named('pairs')}=none for packed sentences"


def made_line(config: PrepareConfig, counts: CorpusCounts, kept: int) -> str:
    """Return what was made, and with `keep_reading` how many bytes are kept of what was read."""
    documents, but = documents_line(config, counts), ", but for tasks with removed documents" if counts.removed else ""
    parts = [
        f"{documents}{';' if ':' in documents else ','} {pluralize(counts.tokens, 'token')}",
        counts.lost_line,
        f"{pluralize(counts.instances, 'instance')} in {pluralize(len(counts.shards), 'shard')}",
        str(Coverage.of(counts.totals)),
        counts.packing_line if config.packing != "sequential" else "",
        f"what was read is kept ({size(kept)}{but})" if config.keep_reading else "",
    ]
    return ", ".join(filter(None, parts))


def documents_line(config: PrepareConfig, counts: CorpusCounts) -> str:
    """Return the number of documents used, out of how many, and the outcomes of the others."""
    lost = Counter(counts.skipped)
    lost.update({name: counts.documents.get(name, 0) for name in OUTCOMES if name != "written"})
    unit = getattr(readers.reader_class(config.corpus.reader), "UNIT", "document")
    if counts.written == counts.found:
        return pluralize(counts.written, unit)
    if 2 * lost["short"] > counts.found:  # not a few left-overs: the limit is wrong for this corpus
        said = " and ".join(f"{key}={getattr(config, key)}" for key in _cures(config))
        lost[f"short by {said}"] = lost.pop("short")
    return f"{counts.written:,} of {pluralize(counts.found, unit)}: {readers.passed_over(lost)}"


def _cures(config: PrepareConfig) -> dict[str, str]:
    """Return the keys by which a document may count as short, each with a value by which none does."""
    limits = [key for key in ("minimum_characters", "minimum_sentences") if getattr(config, key) > 1]
    order = {"pairs": "none"} if config.pairs == "sop" else {}  # one sentence has none
    return dict.fromkeys(limits, "1") | order


def check_train(config: PrepareConfig, counts: CorpusCounts) -> None:
    """Raise InputError if there are no training instances: all held out, or none can be made."""
    share, held = config.validation_share, counts.held_documents
    if counts.train or (share == 1 and counts.held_out):
        return
    start = f"no training instances of corpus {config.corpus.name}"
    if left := counts.written - held:
        raise InputError(
            f"{start}, as {pluralize(left, 'training document')} cannot give any; {MORE_TEXT}", "pairs", config.pairs
        )
    if held:
        all_held = "the only document is" if held == 1 else f"all {held} documents are"
        raise InputError(f"{start}, as {all_held} held out; {FEWER}", "validation_share", share)
    by_filter = ", ".join(f"{count:,} {name}" for name, count in counts.filtered.items())
    filtered = f" (by filter: {by_filter})" if by_filter else ""
    broken = "".join(f"; the first broken one: {each}" for each in counts.named.get("broken", [])[:1])
    cures = _cures(config).items() if counts.documents.get("short") else ()
    cure = " and ".join(f"{named(key)}={value}" for key, value in cures)
    short = f"; for documents that count as short set {cure}" if cure else ""
    unpack = f"; unpack what has other names, and set {named('corpus.path')}='FOLDER/**/*.ENDING'"
    unpack *= any(reason.endswith(IN_ARCHIVES) for reason in counts.skipped)
    raise InputError(f"{start}: {documents_line(config, counts)}{filtered}{broken}{short}{unpack}", "corpus.path")


def check_pairs(config: PrepareConfig, counts: CorpusCounts) -> None:
    """Raise InputError if nearly all next segments are of one kind, so that there is nothing to learn."""
    share = counts.one_kind
    if config.pairs != "nsp" or share is None:
        return
    why = "documents are too few" if share < MIXED[0] else "documents or sequences have hardly more than one sentence"
    corpus = {"text": "", "lines": "corpus=text "}.get(config.corpus.reader)
    divided = str(config.corpus.options.get("document", "file")) != "file"  # as this advises
    lines = "" if corpus is None or divided else f", or {corpus}corpus.options.document=10 for documents of ten lines"
    said = f"{share:.0%} of {pluralize(counts.instances, 'instance')} have a random next segment, as {why}"
    raise InputError(f"{said}; set {named('pairs')}=none{lines}", "pairs", config.pairs)


def check_word_limit(config: PrepareConfig, counts: CorpusCounts) -> None:
    """Raise where the corpus has more words than `maximum_words`.

    Raises:
        InputError: it has; what is held out counts too, equal documents once.
    """
    most = config.maximum_words
    if most is not None and counts.words > most:
        why = f"corpus {config.corpus.name} has {counts.words:,} words; take fewer documents, or raise the limit"
        raise InputError(why, "maximum_words", most)


def check_held_out(config: PrepareConfig, counts: CorpusCounts, lowest: LowestHashes) -> None:
    """Raise InputError if `validation_share` holds out no documents, or none that give pairs."""
    if config.validation_share == 0 or counts.held_out:
        return
    written = counts.written
    none = "or 0 for shards that are trained on together with others"
    if held := counts.held_documents:
        start = f"holds out {pluralize(held, 'document')}, which cannot give any {named('pairs')}={config.pairs}; "
        count = min(max(2 * held, sensible_count(written)), written - 1, len(lowest))
        larger = f"{how_to_set(lowest.share_for(count))}, {none}; or " if count > held else ""
        raise InputError(start + larger + MORE_TEXT, "validation_share", config.validation_share)
    start = f"holds out none of {pluralize(written, 'document')}, but training needs some for validation; "
    cure = FEWER
    if written > 1:
        cure = f"{how_to_set(lowest.share_for(sensible_count(written)))}, {none}"
    raise InputError(start + cure, "validation_share", config.validation_share)


def warnings(plan: PreparePlan, counts: CorpusCounts, lowest: LowestHashes) -> list[str]:
    """Return warnings about the shards."""
    config, held, instances, lines = plan.config, counts.held_documents, counts.held_out, []
    if config.pairs == "nsp" and instances and not counts.totals["validation_random_next"]:
        count = sensible_count(counts.written)
        cure = how_to_set(lowest.share_for(count)) if count > held else "raise validation_share"
        lines.append(
            f"{pluralize(held, 'held-out document')} cannot give random next segments, so "
            f"next-sentence scores will be meaningless; {cure}"
        )
    if instances > MOST_HELD_OUT * counts.instances and config.validation_share < 1:
        lines.append(
            f"{instances:,} of {counts.instances:,} instances ({instances / counts.instances:.0%}) "
            f"are held out with {pluralize(held, 'document')}; a smaller validation_share leaves "
            "more to train on"
        )
    lines += filter(None, [Coverage.of(counts.totals).warning])
    if missed := sorted(plan.removed - counts.removed.keys()):
        lines.append(
            f"{pluralize(len(missed), 'line')} of {config.filters.remove} name no document that was left, such as "
            f"{missed[0]}; ids are as in _dropped.feather"
        )
    lines += ["filters.remove names no document; its file is empty"] * bool(config.filters.remove and not plan.removed)
    for note, count in counts.notes.items():
        part, _, said = note.rpartition(": ")
        notable = said in (HTML_NOTE, ENDS, ENTITIES, MARKED, TOKENIZED) and count >= NOTED * counts.documents["read"]
        if notable and (said != ENTITIES or note.replace(said, HTML_NOTE) not in counts.notes):  # which reads them, too
            cure = said.replace("corpus.", f"corpus.parts.{part}." if part else "corpus.")
            lines.append(f"{min(1, count / counts.documents['read']):.0%} of the documents are {cure}")
    unread = [(note.removesuffix(UNREAD), count) for note, count in counts.notes.items() if note.endswith(UNREAD)]
    listed = [f"{count:,} {kind}{UNREAD}" for kind, count in unread if count > 1 or by_name(f"a{kind.split()[-1]}")]
    lines += [f"corpus={config.corpus.reader} does not read all files: {', '.join(listed)}"] * bool(listed)
    if config.corpus.options.get("where") and LEFT_OUT not in counts.skipped:
        lines.append("corpus.options.where leaves out no row; check its value")
    if plan.short:
        lines.append(filters.short_warning(config.filters, plan.short))
    return lines
