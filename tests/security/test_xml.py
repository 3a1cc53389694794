"""XML has no way out: what it declares neither grows without bounds nor reads other files."""

import pytest

from pipeline.config import CorpusConfig
from pipeline.errors import InputError
from pipeline.readers import ReadLog, open_corpus
from tests.support.refusals import refused

PAGE = (
    "<mediawiki><page><title>T</title><ns>0</ns><id>1</id><revision><id>2</id>"
    "<text>Words {}</text></revision></page></mediawiki>"
)


def texts(path):
    reader = open_corpus(CorpusConfig(name="wiki", reader="wikipedia", path=str(path)), "")
    return [d.text for split in reader.splits(1 << 30) for d in reader.read(split, ReadLog())]


def test_entities_that_multiply_are_refused(tmp_path):
    declared = '<!ENTITY a0 "0123456789">' + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    path = tmp_path / "bomb.xml"
    path.write_text(f"<!DOCTYPE mediawiki [{declared}]>" + PAGE.format("&a9;"))
    with refused(InputError, path=str(path)):
        texts(path)


@pytest.mark.parametrize("kind", ["SYSTEM", 'PUBLIC "x"'])
def test_entities_cannot_read_other_files(tmp_path, kind):
    (tmp_path / "secret").write_text("hidden")
    path = tmp_path / "dump.xml"
    outside = f'<!DOCTYPE mediawiki [<!ENTITY x {kind} "file://{tmp_path}/secret">]>'
    path.write_text(outside + PAGE.format("&x;"))
    try:
        assert "hidden" not in "".join(texts(path))
    except InputError as error:
        assert "undefined entity" in str(error)  # noqa: PT017
